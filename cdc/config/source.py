"""The ``sources`` section: one model per kind of source."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from cdc.config.secrets import SecretRef
from cdc.config.templates import Conflict
from cdc.config.value_types import (
    FilePath,
    NonEmpty,
    Options,
    Port,
    Positive,
    Section,
    Size,
    bytes_of,
    defaults,
)
from schemas.catalog import SOURCE_KINDS

SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
MysqlSslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]
SourceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,29}$")]


class Endpoint(Section):
    """The section with the address of a PostgreSQL server."""

    host: NonEmpty
    """Host name or address."""
    port: Port = 5432
    """TCP port."""
    database: NonEmpty
    """Name of the database."""
    sslmode: SslMode = "prefer"
    """TLS mode, as in libpq."""
    sslrootcert: FilePath | None = None
    """PEM file with the CA certificates of the server."""
    sslcert: FilePath | None = None
    """PEM file with the client's certificate."""
    sslkey: FilePath | None = None
    """PEM file with the client's key."""
    options: Options = Field(default_factory=dict)
    """Other connection parameters, as in libpq."""

    def conflicts(self) -> list[Conflict]:
        """Return combinations of settings that cannot work, as (key path, problem)."""
        found: list[Conflict] = []
        if (self.sslcert is None) != (self.sslkey is None):
            missing = "sslkey" if self.sslkey is None else "sslcert"
            found.append(((missing,), "sslcert and sslkey go together; one is missing"))
        if self.sslmode == "disable" and (self.sslrootcert or self.sslcert):
            found.append((("sslmode",), "certificates are given but sslmode is disable"))
        return found


class Credential(Section):
    """The section with a database login."""

    user: NonEmpty
    """Name of the role."""
    password: SecretRef | None = None
    """Reference to the password; omit it if the server requires none."""


class Credentials(Section):
    """The section with a source's logins, by purpose. A missing login defaults to ``admin``."""

    admin: Credential
    """Login that owns the publication and the schema tributary, and drops slots."""
    capture: Credential = Field(default_factory=lambda data: data["admin"])
    """Login of Kafka Connect; needs REPLICATION."""
    snapshot: Credential = Field(default_factory=lambda data: data["admin"])
    """Login that reads tables on the replica; needs SELECT."""
    marker: Credential = Field(default_factory=lambda data: data["admin"])
    """Login that writes marker rows on the primary."""


class WalLimit(Section):
    """Limits for the log that a slot holds back on the primary; above them, commands react."""

    warn: Size | None = "20GiB"
    """Above this size, commands warn."""
    alarm: Size | None = "50GiB"
    """Above this size, run and status also end with exit code 3, and check with 1."""
    give_up: Size | None = None
    """Above this size, run also drops the slot to save the primary; then copy the capture's tables
    again."""

    @property
    def bytes_by_level(self) -> Mapping[str, int]:
        """A mapping from the limits that are set to their sizes in bytes, in ascending order."""
        sizes = {"warn": self.warn, "alarm": self.alarm, "give_up": self.give_up}
        return {name: bytes_of(size) for name, size in sizes.items() if size is not None}

    def conflicts(self) -> list[Conflict]:
        """Return limits that do not ascend, as (key path, problem)."""
        levels = list(self.bytes_by_level.items())
        return [
            ((name,), f"must be larger than {lower}")
            for (lower, least), (name, size) in pairwise(levels)
            if size <= least
        ]


class PostgresSourceConfig(Section):
    """One PostgreSQL database and, preferably, a read replica of it."""

    kind: Literal["postgres"] = "postgres"
    """The kind of server."""
    primary: Endpoint
    """The server that takes writes."""
    replica: Endpoint | None = None
    """A physical standby of the primary; copies read it and spare the primary."""
    endpoint_for_connect: Endpoint | None = None
    """The primary's address for Kafka Connect, if it differs."""
    credentials: Credentials
    """Logins by purpose."""
    topic_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._{}-]+$")] = "{source}_{tier}"
    """Template of the topics' prefix."""
    publication: Annotated[str, Field(pattern=r"^[a-z0-9_{}]+$")] = "tributary_{source}_{tier}"
    """Template of the publication's name."""
    slot: Annotated[str, Field(pattern=r"^[a-z0-9_{}]+$")] = "tributary_{source}_{tier}"
    """Template of the replication slot's name; the connector has the same name."""
    heartbeat_interval_ms: Annotated[int, Field(ge=100)] = 1000
    """Time between two heartbeat rows of the connector, in milliseconds."""
    copy_sessions: Positive = 32
    """The most sessions with which all copies of one command read at the same time."""
    copy_mb_per_s: Positive | None = None
    """The most megabytes (1,000,000 bytes) per second that all copies of a command read, by the
    sizes of the tables on disk; no limit by default."""
    wal_limit: WalLimit = Field(default_factory=defaults)
    """How much log each slot may hold back on the primary."""

    @property
    def log_limits(self) -> Mapping[str, int]:
        """The limits in bytes for the log that a capture holds back, in ascending order."""
        return self.wal_limit.bytes_by_level

    def name_templates(self) -> Mapping[str, str]:
        """Return a mapping from the keys of the source's name templates to the templates."""
        return {
            "topic_prefix": self.topic_prefix,
            "publication": self.publication,
            "slot": self.slot,
        }


class MysqlEndpoint(Section):
    """The section with the address of a MySQL or MariaDB server."""

    host: NonEmpty
    """Host name or address."""
    port: Port = 3306
    """TCP port."""
    ssl_mode: MysqlSslMode = "preferred"
    """TLS mode, as in MySQL's clients."""
    ssl_ca: FilePath | None = None
    """PEM file with the CA certificates of the server."""
    ssl_cert: FilePath | None = None
    """PEM file with the client's certificate."""
    ssl_key: FilePath | None = None
    """PEM file with the client's key."""

    def conflicts(self) -> list[Conflict]:
        """Return combinations of settings that cannot work, as (key path, problem)."""
        found: list[Conflict] = []
        if (self.ssl_cert is None) != (self.ssl_key is None):
            missing = "ssl_key" if self.ssl_key is None else "ssl_cert"
            found.append(((missing,), "ssl_cert and ssl_key go together; one is missing"))
        if self.ssl_mode == "disabled" and (self.ssl_ca or self.ssl_cert):
            found.append((("ssl_mode",), "certificates are given but ssl_mode is disabled"))
        if self.ssl_mode in ("verify_ca", "verify_identity") and self.ssl_ca is None:
            found.append((("ssl_ca",), f"is required for ssl_mode {self.ssl_mode}"))
        return found


class MysqlSourceConfig(Section):
    """One MySQL or MariaDB server and, preferably, a replica of it."""

    kind: Literal["mysql", "mariadb"]
    """The kind of server: mysql and mariadb differ in GTIDs, types and Debezium's connector."""
    primary: MysqlEndpoint
    """The server that takes writes."""
    replica: MysqlEndpoint | None = None
    """A replica of the primary, with GTIDs if the primary has them. Copies read the replica and
    spare the primary."""
    endpoint_for_connect: MysqlEndpoint | None = None
    """The primary's address for Kafka Connect, if it differs."""
    credentials: Credentials
    """Logins by purpose."""
    databases: Annotated[tuple[NonEmpty, ...], Field(min_length=1)] = ("*",)
    """Databases whose tables can be replicated; * and ? are wildcards."""
    topic_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._{}-]+$")] = "{source}_{tier}"
    """Template of the topics' prefix."""
    connector: Annotated[str, Field(pattern=r"^[a-z0-9_{}]+$")] = "tributary_{source}_{tier}"
    """Template of the connector's name."""
    heartbeat_interval_ms: Annotated[int, Field(ge=100)] = 1000
    """Time between two heartbeat rows of the connector, in milliseconds."""
    copy_sessions: Positive = 32
    """The most sessions with which all copies of one command read at the same time."""
    copy_mb_per_s: Positive | None = None
    """The most megabytes (1,000,000 bytes) per second that all copies of a command read, by the
    sizes of the tables on disk; no limit by default."""

    @property
    def log_limits(self) -> Mapping[str, int]:
        """An empty map: no capture holds back log, since the server purges binlogs by their age."""
        return {}

    def name_templates(self) -> Mapping[str, str]:
        """Return a mapping from the keys of the source's name templates to the templates."""
        return {"topic_prefix": self.topic_prefix, "connector": self.connector}


def kind_of(section: Any) -> str | None:
    """Return the ``kind`` of a source's section in tributary.yaml; ``postgres`` by default."""
    if isinstance(section, Mapping):
        return str(section.get("kind", "postgres"))
    return getattr(section, "kind", None)


SourceConfig = Annotated[
    Annotated[PostgresSourceConfig, Tag("postgres")]
    | Annotated[MysqlSourceConfig, Tag("mysql")]
    | Annotated[MysqlSourceConfig, Tag("mariadb")],
    Discriminator(
        kind_of,
        custom_error_type="source_kind",
        custom_error_message=f"must be one of {', '.join(SOURCE_KINDS)}",
    ),
]
