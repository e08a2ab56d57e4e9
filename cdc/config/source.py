"""The ``sources`` section."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cdc.config.templates import Conflict
from cdc.config.values import FilePath, NonEmpty, Options, Port, Section
from cdc.secrets import SecretRef

SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
SourceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,29}$")]


class Endpoint(Section):
    """One database server as one of the programs sees it."""

    host: NonEmpty
    """Host name or address."""
    port: Port = 5432
    """TCP port."""
    database: NonEmpty
    """Name of the database."""
    sslmode: SslMode = "prefer"
    """TLS, in libpq's terms."""
    sslrootcert: FilePath | None = None
    """PEM file with the certificates that sign the server's."""
    sslcert: FilePath | None = None
    """PEM file with the client's certificate."""
    sslkey: FilePath | None = None
    """PEM file with the client's key."""
    options: Options = Field(default_factory=dict)
    """Other connection parameters, in libpq's terms."""

    def conflicts(self) -> list[Conflict]:
        """Combinations that cannot work, as (path of the key, what is wrong)."""
        found: list[Conflict] = []
        if (self.sslcert is None) != (self.sslkey is None):
            missing = "sslkey" if self.sslkey is None else "sslcert"
            found.append(((missing,), "sslcert and sslkey go together; one is missing"))
        if self.sslmode == "disable" and (self.sslrootcert or self.sslcert):
            found.append((("sslmode",), "certificates are given but sslmode is disable"))
        return found


class Credential(Section):
    """A database login."""

    user: NonEmpty
    """Name of the role."""
    password: SecretRef | None = None
    """Reference to the password; none where the server asks for none."""


class Credentials(Section):
    """Logins by purpose; all but ``admin`` default to it."""

    admin: Credential
    """Owns the publication and schema ``tributary``, and drops slots."""
    capture: Credential = Field(default_factory=lambda data: data["admin"])
    """Used by Kafka Connect; needs REPLICATION."""
    snapshot: Credential = Field(default_factory=lambda data: data["admin"])
    """Reads tables on the replica; needs SELECT."""
    marker: Credential = Field(default_factory=lambda data: data["admin"])
    """Writes marker rows on the primary."""


class PostgresSourceConfig(Section):
    """One PostgreSQL database and, best, a read replica of it."""

    kind: Literal["postgres"] = "postgres"
    """The kind of server."""
    primary: Endpoint
    """The server that takes writes."""
    replica: Endpoint | None = None
    """A physical standby of the primary; snapshots read it and spare the primary."""
    endpoint_for_connect: Endpoint | None = None
    """The primary as Kafka Connect sees it, when that differs."""
    credentials: Credentials
    """Logins by purpose."""
    topic_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._{}-]+$")] = "{source}_{tier}"
    """Prefix of the topics' names."""
    publication: Annotated[str, Field(pattern=r"^[a-z0-9_{}]+$")] = "tributary_{source}_{tier}"
    """Name of the publication."""
    slot: Annotated[str, Field(pattern=r"^[a-z0-9_{}]+$")] = "tributary_{source}_{tier}"
    """Name of the replication slot."""
    heartbeat_interval_ms: Annotated[int, Field(ge=100)] = 1000
    """How often the connector writes a heartbeat row."""
