"""The servers of a stack, and the file in the stack's folder that records them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from cdc.store.documents import Codec, Part
from stack.artifacts import Software
from stack.errors import StackError
from stack.jvm import Connect, Kafka, Registry
from stack.metastore import Metastore
from stack.mysql import MysqlPair
from stack.mysql_software import MARIADB, MYSQL, Installation
from stack.object_store import ACCESS_KEY, ObjectStore, StoreLogin
from stack.postgres import POSTGRES, Binaries, PostgresPair
from stack.secrets import Passwords
from stack.servers import Server
from stack.trino import Trino
from stack.trino_software import TrinoSoftware
from stack.unprivileged import database_user

KINDS = (POSTGRES, MYSQL, MARIADB)
"""The kinds of source that a stack can have, in the order in which ``status`` shows them."""
PAIRS = {
    POSTGRES: ("primary", "replica"),
    **{kind: (kind, f"{kind}_replica") for kind in (MYSQL, MARIADB)},
}
"""By kind of source, the names of the primary and the replica."""
SHARED = ("kafka", "kafka_controller", "registry", "connect")
"""The names of the ports that every stack has, apart from the ports of its databases."""
METASTORE = "metastore"
S3 = "s3"
TRINO = "trino"
OPTIONAL = (METASTORE, S3, TRINO)
"""The servers that a stack has only if they, or servers that need them, are requested."""
NEEDED = {TRINO: (METASTORE,)}
"""By optional server, the other optional servers that this server needs."""
SECRETS = "secrets"
"""Folder of the passwords, inside the stack's folder."""


@dataclass(frozen=True)
class Record(Part):
    """The record of a stack's servers, in the file ``stack.json`` of the stack's folder.

    The record names the programs that wrote the databases' data, since other versions cannot read
    this data.

    Args:
        ports: By name, the port of each server and the port of Kafka's controller.
        binaries: The PostgreSQL that wrote the data; None if the stack has no PostgreSQL.
        installations: By kind of source, the MySQL and the MariaDB that wrote the data. A kind that
            the stack does not have is left out.
        format: Version of this document.
    """

    ports: dict[str, int]
    binaries: Binaries | None = None
    installations: Mapping[str, Installation] = field(default_factory=dict)
    format: Literal[1] = 1

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of source of this stack."""
        return tuple(
            kind
            for kind in KINDS
            if kind in self.installations or (kind == POSTGRES and self.binaries is not None)
        )

    @staticmethod
    def file(folder: Path) -> Path:
        """Return the path of the record in a stack's folder."""
        return folder / "stack.json"

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Return the record in a stack's folder.

        Raises:
            StackError: There is no stack in the folder, or its record is not of this version.
        """
        file = cls.file(folder)
        try:
            return _CODEC.read(file.read_bytes(), str(file))
        except FileNotFoundError:
            raise StackError(
                f"there is no stack in {folder}",
                remedy="Start one with `tributary stack up`, or name its folder with --dir.",
            ) from None

    def write(self, folder: Path) -> None:
        """Write the record into a stack's folder."""
        self.file(folder).write_text(_CODEC.write(self, indent=2) + "\n", "utf-8")


_CODEC = Codec(
    Record,
    error=StackError,
    remedy="Another version of Tributary wrote it, or it is damaged. End the stack by that version,"
    " or end the processes that the files in the stack's folder `run` name by their pids. Then"
    " remove the stack's folder, and start a new stack with `tributary stack up`.",
)


@dataclass(frozen=True)
class Layout:
    """The servers of a stack, with folders and ports."""

    postgres: PostgresPair | None
    mysql: Mapping[str, MysqlPair]
    kafka: Kafka
    registry: Registry
    connect: Connect
    metastore: Metastore | None = None
    s3: ObjectStore | None = None
    trino: Trino | None = None

    @property
    def pairs(self) -> tuple[PostgresPair | MysqlPair, ...]:
        """The stack's databases, each a primary with its replica."""
        return (*(() if self.postgres is None else (self.postgres,)), *self.mysql.values())

    @property
    def optional(self) -> tuple[Metastore | ObjectStore | Trino, ...]:
        """The servers of `OPTIONAL` that this stack has."""
        return tuple(one for one in (self.metastore, self.s3, self.trino) if one is not None)

    @property
    def servers(self) -> tuple[Server, ...]:
        """All servers, in the order in which ``status`` shows them."""
        sources = [server for pair in self.pairs for server in (pair.primary, pair.replica)]
        return (*sources, self.kafka, self.registry, self.connect, *self.optional)


def layout(
    folder: Path,
    record: Record,
    software: Callable[[], Software],
    trino_software: Callable[[], TrinoSoftware],
) -> Layout:
    """Return the servers of the stack in a folder; no server is started.

    Args:
        folder: The stack's folder.
        record: The record in the folder.
        software: Returns the software of the Java servers. It is called when such a server is
            started.
        trino_software: Returns Trino's software. It is called when Trino is started.
    """
    ports = record.ports
    passwords = Passwords(folder / SECRETS)
    s3 = ObjectStore(folder=folder / S3, port=ports[S3]) if S3 in ports else None
    store = StoreLogin(s3.endpoint, partial(passwords.get, ACCESS_KEY)) if s3 else None
    return Layout(
        postgres=None
        if record.binaries is None
        else PostgresPair(
            folder=folder / POSTGRES,
            ports=_two_ports(POSTGRES, ports),
            binaries=record.binaries,
            user=database_user(folder / POSTGRES / "primary", record.binaries.folder / "postgres"),
            passwords=passwords,
        ),
        mysql={
            kind: MysqlPair(
                folder=folder / kind,
                ports=_two_ports(kind, ports),
                installation=found,
                user=database_user(folder / kind / "primary", found.server),
                passwords=passwords,
            )
            for kind, found in record.installations.items()
        },
        kafka=Kafka(
            folder=folder / "kafka",
            port=ports["kafka"],
            controller_port=ports["kafka_controller"],
            software=software,
        ),
        registry=Registry(folder=folder / "registry", port=ports["registry"], software=software),
        connect=Connect(
            folder=folder / "connect",
            port=ports["connect"],
            kafka_port=ports["kafka"],
            passwords=passwords,
            software=software,
        ),
        metastore=_metastore(folder, ports, software, store) if METASTORE in ports else None,
        s3=s3,
        trino=_trino(folder / TRINO, ports, trino_software, store) if TRINO in ports else None,
    )


def _two_ports(kind: str, ports: Mapping[str, int]) -> tuple[int, int]:
    """Return the stack's ports for a kind of source: the primary's and the replica's."""
    primary, replica = PAIRS[kind]
    return ports[primary], ports[replica]


def _metastore(
    folder: Path,
    ports: Mapping[str, int],
    software: Callable[[], Software],
    store: StoreLogin | None,
) -> Metastore:
    """Return the stack's Hive metastore, with its folder and port."""
    return Metastore(
        folder=folder / METASTORE, port=ports[METASTORE], software=software, store=store
    )


def _trino(
    folder: Path,
    ports: Mapping[str, int],
    software: Callable[[], TrinoSoftware],
    store: StoreLogin | None,
) -> Trino:
    """Return the stack's Trino, with its folder and ports."""
    return Trino(
        folder=folder,
        port=ports[TRINO],
        metastore_port=ports[METASTORE],
        software=software,
        store=store,
    )
