"""The ``lake``, ``state`` and ``spark`` sections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from cdc.config.secrets import SecretRef, expand
from cdc.config.templates import Conflict
from cdc.config.values import LoginFreeUrl, Options, Positive, Section, Verbatim, is_sensitive
from cdc.errors import SecretError

HADOOP_PREFIX = "spark.hadoop."
"""Prefix of the Spark settings that set Hadoop's."""

_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///")


def _lake_url(url: str, info: ValidationInfo) -> str:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url):
        return url.rstrip("/")
    base = (info.context or {}).get("base") or Path.cwd()
    return str(Path(base, Path(url).expanduser()).absolute())


def _state_url(url: str, info: ValidationInfo) -> str:
    """Resolve a relative SQLite file from the configuration file's folder, for any command."""
    match = _SQLITE.match(url)
    path = url[match.end() :] if match else ""
    if match is None or not path or path.startswith((":", "file:")) or "${" in url:
        return url
    base = (info.context or {}).get("base") or Path.cwd()
    return match[0] + str(Path(base, path).absolute())


class LakeConfig(Section):
    """Where the tables are written."""

    url: Annotated[LoginFreeUrl, AfterValidator(_lake_url)]
    """A folder on any Hadoop file system, for example s3a://bucket/lake."""
    name: Annotated[str, Field(min_length=1)] = "{source}/{schema}/{table}"
    """Path of a table under the URL."""
    hadoop: Options = Field(default_factory=dict)
    """Hadoop settings, without the prefix spark.hadoop."""
    hash_key: SecretRef | None = None
    """The key of columns.hash. With another one all hashes are others: copy the tables again."""


class CatalogConfig(Section):
    """A Hive Metastore in which readers find the tables by name."""

    metastore: Annotated[str, Field(pattern=r"^thrift://[^,/@]+(,thrift://[^,/@]+)*$")]
    """Where it is, for example thrift://metastore:9083; several by commas."""
    database: Annotated[str, Field(min_length=1)] = "{source}_{schema}"
    """Database of a table; what Hive's names cannot hold is encoded."""
    table: Annotated[str, Field(min_length=1)] = "{table}"
    """Name of a table."""


class StateConfig(Section):
    """Where the tables' states, leases and run history are kept."""

    url: Annotated[str, Verbatim(), Field(min_length=1), AfterValidator(_state_url)] = (
        "sqlite:///.tributary/state.db"
    )
    """Any SQLAlchemy URL; a password in it must be a reference."""

    @property
    def sqlite(self) -> bool:
        """Whether the store is a SQLite file; False if the URL cannot be resolved now."""
        try:
            return self.connection_url().startswith("sqlite")
        except SecretError:
            return False  # the code that opens the store reports it

    def connection_url(self) -> str:
        """Return the URL with its references resolved. It must never be shown.

        Raises:
            SecretError: A reference does not resolve.
        """
        return expand(self.url)


class SparkConfig(Section):
    """The Spark session."""

    master: Annotated[str, Field(min_length=1)] = "local[*]"
    """Spark's master URL."""
    conf: Options = Field(default_factory=dict)
    """Raw Spark settings. They are on the JVM's command line, so secrets are for lake.hadoop."""
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[kmgt]$")] = "2g"
    """Memory of the driver; in local mode, of everything."""
    jars: Literal["bundled", "provided"] = "bundled"
    """bundled: fetched and kept by tributary; provided: the cluster has them."""
    parallel_tables: Positive = 8
    """Tables that run at the same time over the one session."""
    task_timeout_s: Positive = 1800
    """How long the tasks of a stage may make no progress; then its table fails. A task that reads,
    shuffles, spills or ends makes progress; one that only computes or writes a file does not."""

    @property
    def local(self) -> bool:
        """Whether Spark runs on this machine only."""
        return self.master == "local" or self.master.startswith("local[")

    def conflicts(self) -> list[Conflict]:
        """Return combinations that cannot work, as (path of the key, problem)."""
        reason = (
            "a secret that everyone on the machine could read, since Spark's settings are on the"
            " command line of its JVM; put it into the cluster's spark-defaults.conf, or a Hadoop"
            " setting into lake.hadoop"
        )
        return [
            (("conf", key), reason)
            for key in self.conf
            if is_sensitive(key) and not key.startswith(HADOOP_PREFIX)
        ]
