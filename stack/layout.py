"""Which servers a stack has, and what a folder must remember of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stack.artifacts import Software
from stack.errors import StackError
from stack.jvm import Connect, Kafka, Registry
from stack.metastore import Metastore
from stack.postgres import Binaries, Primary, Replica
from stack.secrets import Passwords
from stack.servers import Server
from stack.unprivileged import database_user

PORTS = ("primary", "replica", "kafka", "kafka_controller", "registry", "connect")
"""What needs a port in every stack."""
METASTORE = "metastore"
"""A server that a stack has only when it is asked for."""
SECRETS = "secrets"
"""Folder of the passwords, inside the stack's."""


@dataclass(frozen=True)
class Record:
    """What a stack's folder remembers, in ``stack.json``.

    Args:
        ports: Port of each name in ``PORTS``, and of the metastore when there is one.
        binaries: The PostgreSQL that made the data; another version could not read it.
    """

    ports: dict[str, int]
    binaries: Binaries

    @staticmethod
    def file(folder: Path) -> Path:
        """Where the record of a stack's folder lies."""
        return folder / "stack.json"

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read the record of a stack's folder.

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
        postgres = document["postgres"]
        return cls(document["ports"], Binaries(Path(postgres["folder"]), postgres["version"]))

    def write(self, folder: Path) -> None:
        """Write the record of a stack's folder."""
        postgres = {"folder": str(self.binaries.folder), "version": self.binaries.version}
        document = {"ports": self.ports, "postgres": postgres}
        self.file(folder).write_text(json.dumps(document, indent=2) + "\n", "utf-8")


@dataclass(frozen=True)
class Layout:
    """The servers of a stack."""

    primary: Primary
    replica: Replica
    kafka: Kafka
    registry: Registry
    connect: Connect
    metastore: Metastore | None = None

    @property
    def servers(self) -> tuple[Server, ...]:
        """All of them, in the order of ``status``."""
        always = (self.primary, self.replica, self.kafka, self.registry, self.connect)
        return always if self.metastore is None else (*always, self.metastore)


def layout(folder: Path, record: Record, software: Callable[[], Software]) -> Layout:
    """The servers of the stack in a folder.

    Args:
        folder: The stack's folder.
        record: What the folder remembers.
        software: Finds the fetched software; called only to start a Java server.
    """
    ports = record.ports
    data = folder / "postgres"
    user = database_user(data / "primary", record.binaries.folder / "postgres")
    passwords = Passwords(folder / SECRETS)
    return Layout(
        primary=Primary(
            data=data / "primary",
            port=ports["primary"],
            binaries=record.binaries,
            user=user,
            passwords=passwords,
        ),
        replica=Replica(
            data=data / "replica",
            port=ports["replica"],
            binaries=record.binaries,
            user=user,
            passwords=passwords,
        ),
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
            secrets=passwords.folder,
            software=software,
        ),
        metastore=Metastore(folder=folder / METASTORE, port=ports[METASTORE], software=software)
        if METASTORE in ports
        else None,
    )
