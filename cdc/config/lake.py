"""The ``lake``, ``state`` and ``spark`` sections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from cdc.config import abfs, gcs, s3
from cdc.config.secrets import SecretRef, expand
from cdc.config.templates import Conflict
from cdc.config.value_types import (
    Duration,
    LoginFreeUrl,
    Options,
    Positive,
    Section,
    Verbatim,
    is_sensitive,
    seconds_of,
)
from cdc.errors import SecretError

HADOOP_PREFIX = "spark.hadoop."
"""Prefix of the Spark settings that Spark passes on to Hadoop."""

Store = Literal["s3", "gcs"]
"""An object store. s3: S3, or a store with S3's interface. gcs: Google Cloud Storage."""

_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///")


def _lake_url(url: str, info: ValidationInfo) -> str:
    """Return the lake's configured URL; refuse a malformed URL of an object store.

    A local path becomes absolute.
    """
    if problem := s3.url_problem(url) or gcs.url_problem(url) or abfs.url_problem(url):
        raise PydanticCustomError("lake_url", "{problem}", {"problem": problem})
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url):
        return url.rstrip("/")
    base = (info.context or {}).get("base") or Path.cwd()
    return str(Path(base, Path(url).expanduser()).absolute())


def _state_url(url: str, info: ValidationInfo) -> str:
    """Return the state store's configured URL, with an absolute path if it names a SQLite file."""
    match = _SQLITE.match(url)
    path = url[match.end() :] if match else ""
    if match is None or not path or path.startswith((":", "file:")) or "${" in url:
        return url
    base = (info.context or {}).get("base") or Path.cwd()
    return match[0] + str(Path(base, path).absolute())


class LakeConfig(Section):
    """The lake that the tables are written to."""

    url: Annotated[LoginFreeUrl, AfterValidator(_lake_url)]
    """URL of the lake's folder on any Hadoop file system, for example s3a://bucket/lake."""
    name: Annotated[str, Field(min_length=1)] = "{source}/{schema}/{table}"
    """Template of each table's path under the URL."""
    hadoop: Options = Field(default_factory=dict)
    """Hadoop settings, without the prefix spark.hadoop."""
    hash_key: SecretRef | None = None
    """The key for columns.hash. Another key changes all hashes: then copy the tables again."""

    @property
    def store(self) -> Store | None:
        """The object store of the configured lake; None if the lake is on another file system.

        An object store needs jars that pyspark does not have.
        """
        if s3.is_s3(self.url):
            return "s3"
        return "gcs" if gcs.is_gcs(self.url) else None

    def conflicts(self) -> list[Conflict]:
        """Return the wrong settings of the lake, as (key path, problem)."""
        found = (
            *s3.settings_problems(self.url, self.hadoop),
            *gcs.settings_problems(self.url, self.hadoop),
            *abfs.settings_problems(self.url, self.hadoop),
        )
        return [(("hadoop", key), text) for key, text in found]


class CatalogConfig(Section):
    """A Hive Metastore in which readers find the tables by name."""

    metastore: Annotated[str, Field(pattern=r"^thrift://[^,/@]+(,thrift://[^,/@]+)*$")]
    """URL, for example thrift://metastore:9083; separate several URLs by commas."""
    database: Annotated[str, Field(min_length=1)] = "{source}_{schema}"
    """Template of the name of the table's database in the metastore. Characters that Hive forbids
    are encoded."""
    table: Annotated[str, Field(min_length=1)] = "{table}"
    """Template of the table's name in the metastore."""


class StateConfig(Section):
    """The address of the state store, which has the tables' states, leases and run history."""

    url: Annotated[str, Verbatim(), Field(min_length=1), AfterValidator(_state_url)] = (
        "sqlite:///.tributary/state.db"
    )
    """SQLAlchemy URL of the state store; a password in it must be a reference."""
    keep_history: Duration = "30d"
    """How long `tributary history` shows runs and changes of states; runs delete older entries."""

    @property
    def keep_history_s(self) -> int:
        """The setting ``keep_history`` in seconds."""
        return seconds_of(self.keep_history)

    @property
    def sqlite(self) -> bool:
        """Whether the state store is SQLite; False if a reference in its URL does not resolve."""
        try:
            return self.connection_url().startswith("sqlite")
        except SecretError:
            return False  # the code that opens the store reports it

    def connection_url(self) -> str:
        """Return the state store's URL with references resolved.

        The result can contain a password. So no message and no log may show it.

        Raises:
            SecretError: A reference does not resolve.
        """
        return expand(self.url)


_CLIENT_MODE = (
    "can only be client: the driver is the process that runs the command, and Spark refuses any"
    " other mode for it; run the command on the machine that is to have the driver"
)


class SparkConfig(Section):
    """The settings of the Spark session."""

    master: Annotated[str, Field(min_length=1)] = "local[*]"
    """Spark's master URL."""
    conf: Options = Field(default_factory=dict)
    """Raw Spark settings. The JVM's command line shows them, so put secrets into lake.hadoop."""
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[kmgt]$")] = "2g"
    """Memory of the driver; in local mode, of all of Spark."""
    jars: Literal["bundled", "provided"] = "bundled"
    """bundled: tributary fetches the jars; provided: the cluster has them."""
    start_timeout_s: Positive = 300
    """The longest wait for a cluster to start an executor, in seconds."""
    parallel_tables: Positive = 8
    """Tables that run at the same time in the Spark session."""
    task_timeout_s: Positive = 1800
    """The longest time without progress in the tasks of a stage, in seconds. After this time, the
    stage's table fails. Reading, shuffling, spilling and the end of a task are progress; computing
    and writing are not."""

    @property
    def local(self) -> bool:
        """Whether the configured Spark runs on this machine only."""
        return self.master == "local" or self.master.startswith("local[")

    def conflicts(self) -> list[Conflict]:
        """Return the settings of Spark that hold a secret or cannot work, as (key path, problem).

        Spark passes these settings on the command line of its JVM, where every user of the machine
        could read a secret.
        """
        modes: list[Conflict] = [
            (("conf", key), _CLIENT_MODE)
            for key, value in self.conf.items()
            if key == "spark.submit.deployMode" and value != "client"
        ]
        reason = (
            "is a secret that every user of the machine could read on the command line of Spark's"
            " JVM; put it into the cluster's spark-defaults.conf, or a Hadoop setting into"
            " lake.hadoop"
        )
        return modes + [
            (("conf", key), reason)
            for key in self.conf
            if is_sensitive(key) and not key.startswith(HADOOP_PREFIX)
        ]
