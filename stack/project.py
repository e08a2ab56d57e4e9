"""The addresses of a stack's servers, as environment variables and as a ``tributary.yaml``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from stack.mysql_software import MARIADB, MYSQL
from stack.object_store import ACCESS_KEY, BUCKET
from stack.ports import HOST
from stack.postgres import POSTGRES
from stack.roles import ADMIN, CONNECT, DATABASE, PURPOSES, SNAPSHOT
from stack.secrets import PGPASS, Passwords

_SOURCES = {
    POSTGRES: """\
  {source}:
    kind: postgres
    primary: {{host: {host}, port: {primary}, database: {database}}}
    replica: {{host: {host}, port: {replica}, database: {database}}}
    credentials:
{credentials}""",
    **dict.fromkeys(
        (MYSQL, MARIADB),
        """\
  {source}:
    kind: {kind}
    primary: {{host: {host}, port: {primary}}}
    replica: {{host: {host}, port: {replica}}}
    databases: [{database}]
    credentials:
{credentials}""",
    ),
}

_PROJECT = """\
# Written by `tributary stack up`; {what} in {folder}.
# `tributary config schema` describes every key; secrets are references only.
sources:
{sources}
kafka:
  bootstrap_servers: {host}:{kafka}
  registry:
    url: {registry_url}

connect:
  url: {connect_url}
  username: {connect_user}
  password: {connect_password}

lake:
{lake}

state:
  url: {state}
"""


@dataclass(frozen=True)
class Addresses:
    """The addresses of a stack's servers, and the logins to them.

    Args:
        ports: Port of each server by name.
        database: The database that is captured.
        passwords: Passwords of the roles.
        kinds: The kinds of source in the stack.
    """

    ports: Mapping[str, int]
    database: str
    passwords: Passwords
    kinds: tuple[str, ...] = (POSTGRES,)

    @property
    def kafka(self) -> str:
        """The bootstrap server of the stack's Kafka."""
        return f"{HOST}:{self.ports['kafka']}"

    @property
    def registry_url(self) -> str:
        """The URL of the Confluent-compatible API of the stack's schema registry."""
        return f"http://{HOST}:{self.ports['registry']}/apis/ccompat/v7"

    @property
    def connect_url(self) -> str:
        """The URL of the REST interface of the stack's Kafka Connect."""
        return f"http://{HOST}:{self.ports['connect']}"

    @property
    def connect_login(self) -> tuple[str, str]:
        """User and password of the REST interface of the stack's Kafka Connect."""
        return CONNECT, self.passwords.get(CONNECT)

    @property
    def metastore_url(self) -> str | None:
        """The URL of the Hive Metastore; None if the stack has none."""
        port = self.ports.get("metastore")
        return None if port is None else f"thrift://{HOST}:{port}"

    @property
    def s3_endpoint(self) -> str | None:
        """The URL of the S3-compatible server; None if the stack has none."""
        port = self.ports.get("s3")
        return None if port is None else f"http://{HOST}:{port}"

    @property
    def trino_url(self) -> str | None:
        """The URL of Trino's HTTP interface; None if the stack has no Trino."""
        port = self.ports.get("trino")
        return None if port is None else f"http://{HOST}:{port}"

    def dsn(self, role: str, *, replica: bool = False, database: str | None = None) -> str:
        """Return the URI of the stack's PostgreSQL; the URI names the file with the password.

        Args:
            role: The role that logs in.
            replica: Whether the URI names the replica and not the primary.
            database: The database; by default the captured database.
        """
        port = self.ports["replica" if replica else "primary"]
        passfile = quote(str(self.passwords.folder / PGPASS), safe="/")
        return f"postgresql://{role}@{HOST}:{port}/{database or self.database}?passfile={passfile}"

    def env(self) -> dict[str, str]:
        """Return the stack's addresses as environment variables, for shells and tests."""
        values: dict[str, str] = {}
        for kind in self.kinds:
            if kind == POSTGRES:
                values["TRIBUTARY_PRIMARY_DSN"] = self.dsn(ADMIN)
                values["TRIBUTARY_REPLICA_DSN"] = self.dsn(SNAPSHOT, replica=True)
            else:
                name = f"TRIBUTARY_{kind.upper()}"
                values[f"{name}_PRIMARY"] = f"{HOST}:{self.ports[kind]}"
                values[f"{name}_REPLICA"] = f"{HOST}:{self.ports[f'{kind}_replica']}"
                # For clients: --defaults-extra-file, and --defaults-group-suffix=_replica.
                values[f"{name}_OPTION_FILE"] = str(self.passwords.folder / f"{kind}.cnf")
        values |= {
            "TRIBUTARY_KAFKA": self.kafka,
            "TRIBUTARY_REGISTRY_URL": self.registry_url,
            "TRIBUTARY_CONNECT_URL": self.connect_url,
            "TRIBUTARY_CONNECT_USER": CONNECT,
            "TRIBUTARY_CONNECT_PASSWORD_FILE": str(self.passwords.file(CONNECT)),
        }
        if url := self.metastore_url:
            values["TRIBUTARY_METASTORE_URL"] = url
        if url := self.trino_url:
            values["TRIBUTARY_TRINO_URL"] = url
        if endpoint := self.s3_endpoint:
            values["TRIBUTARY_S3_ENDPOINT"] = endpoint
        return values


def project_text(addresses: Addresses, folder: Path, source: str = DATABASE) -> str:
    """Return the text of a ``tributary.yaml`` for a stack.

    Args:
        addresses: The addresses of the servers.
        folder: Folder of the lake and the state store.
        source: Name of the PostgreSQL source. The name of a source of another kind is this name
            followed by the kind, for example ``shop_mysql``.
    """
    credentials = "".join(
        f"      {purpose}:\n        user: {role}\n"
        f"        password: {_yaml_text(f'${{file:{addresses.passwords.file(role)}}}')}\n"
        for purpose, role in PURPOSES.items()
    )
    sources = ""
    for kind in addresses.kinds:
        primary, replica = ("primary", "replica") if kind == POSTGRES else (kind, f"{kind}_replica")
        sources += _SOURCES[kind].format(
            source=source if kind == POSTGRES else f"{source}_{kind}",
            kind=kind,
            host=HOST,
            primary=addresses.ports[primary],
            replica=addresses.ports[replica],
            database=addresses.database,
            credentials=credentials,
        )
    return _PROJECT.format(
        folder=folder,
        what="lake and state are" if addresses.s3_endpoint is None else "the state is",
        sources=sources,
        host=HOST,
        kafka=addresses.ports["kafka"],
        registry_url=addresses.registry_url,
        connect_url=addresses.connect_url,
        connect_user=CONNECT,
        connect_password=_yaml_text(f"${{file:{addresses.passwords.file(CONNECT)}}}"),
        lake=_lake_section(addresses, folder),
        state=_yaml_text(f"sqlite:///{folder / 'state.db'}"),
    )


def _lake_section(addresses: Addresses, folder: Path) -> str:
    """Return the section ``lake`` of a stack's ``tributary.yaml``: on S3 if the stack has S3."""
    endpoint = addresses.s3_endpoint
    if endpoint is None:
        return f"  url: {_yaml_text(str(folder / 'lake'))}"
    secret = f"${{file:{addresses.passwords.file(ACCESS_KEY)}}}"
    return f"""\
  url: s3a://{BUCKET}/lake
  hadoop:
    fs.s3a.endpoint: {endpoint}
    fs.s3a.path.style.access: true
    fs.s3a.access.key: {ACCESS_KEY}
    fs.s3a.secret.key: {_yaml_text(secret)}"""


def _yaml_text(text: str) -> str:
    """Return a text as a JSON string, which is valid YAML, for a stack's ``tributary.yaml``."""
    return json.dumps(text, ensure_ascii=False)
