"""The servers of a stack, and the file in the stack's folder that records them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

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
"""The servers that a stack has if they are requested."""
NEEDED = {TRINO: (METASTORE,)}
"""By optional server, the other optional servers that this server needs."""
SECRETS = "secrets"
"""Folder of the passwords, inside the stack's folder."""


@dataclass(frozen=True)
class Record:
    """The record of a stack's servers, in the file ``stack.json`` of its folder.

    The record names the programs that wrote the databases' data, since other versions cannot read
    this data.

    Args:
        ports: Port of each server by name, and the port of Kafka's controller.
        binaries: The PostgreSQL that wrote the data; None if the stack has no PostgreSQL.
        installations: By kind of source, the MySQL and the MariaDB that wrote the data. A kind that
            the stack does not have is left out.
    """

    ports: dict[str, int]
    binaries: Binaries | None = None
    installations: Mapping[str, Installation] = field(default_factory=dict)

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
            StackError: There is no stack in the folder.
        """
        try:
            document = json.loads(cls.file(folder).read_text("utf-8"))
        except FileNotFoundError:
            raise StackError(
                f"there is no stack in {folder}",
                remedy="Start one with `tributary stack up`, or name its folder with --dir.",
            ) from None
        postgres = document.get(POSTGRES)
        return cls(
            document["ports"],
            Binaries(Path(postgres["folder"]), postgres["version"]) if postgres else None,
            {
                kind: _mysql_installation(kind, document[kind])
                for kind in KINDS[1:]
                if kind in document
            },
        )

    def write(self, folder: Path) -> None:
        """Write the record into a stack's folder."""
        document: dict[str, object] = {"ports": self.ports}
        if self.binaries is not None:
            document[POSTGRES] = {
                "folder": str(self.binaries.folder),
                "version": self.binaries.version,
            }
        for kind, found in self.installations.items():
            root = None if found.root is None else str(found.root)
            document[kind] = {"server": str(found.server), "version": found.version, "root": root}
        self.file(folder).write_text(json.dumps(document, indent=2) + "\n", "utf-8")


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


def _mysql_installation(kind: str, found: Mapping[str, str | None]) -> Installation:
    """Return the MySQL or MariaDB installation that a stack's record describes."""
    root = found["root"]
    return Installation(
        kind,
        Path(found["server"] or ""),
        found["version"] or "",
        None if root is None else Path(root),
    )
