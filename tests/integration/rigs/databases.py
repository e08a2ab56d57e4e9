"""A database of a test's own, of any kind: what the tests that run for each kind know of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.table import TableId
from stack.local import LocalStack


@dataclass(frozen=True)
class OwnDatabase(ABC):
    """A database of one test.

    Args:
        stack: The stack that it is on.
        name: Its name, which is also the source's: slots, connectors and topics follow it.
        kind: The kind of source, as configurations name it.
    """

    stack: LocalStack
    name: str
    kind: str

    @property
    @abstractmethod
    def schema(self) -> str:
        """The schema of its tables."""

    @property
    @abstractmethod
    def quote(self) -> str:
        """What stands around identifiers."""

    @property
    @abstractmethod
    def waits_for_open_transactions(self) -> bool:
        """Whether a copy begins only when older transactions have ended.

        Else the log has each transaction as a whole, where it was committed.
        """

    @abstractmethod
    def document(self, folder: Path) -> dict[str, Any]:
        """A configuration with this database as the one source; lake and state in the folder."""

    @abstractmethod
    def connect(self) -> AbstractContextManager[Any]:
        """A connection of the owner to the primary, in autocommit mode."""

    @abstractmethod
    def begin(self) -> AbstractContextManager[Any]:
        """The same with a transaction that ends by ``commit`` or ``rollback`` only."""

    @abstractmethod
    def retype(self, table: str, column: str, definition: str) -> str:
        """The statement that gives a column another type."""

    @abstractmethod
    def let_pause(self) -> None:
        """Let the snapshot role pause the replica, as the product asks for it."""

    @abstractmethod
    def paused(self) -> AbstractContextManager[None]:
        """The replica replays nothing while a block runs, as a person stops it."""

    @abstractmethod
    def on_replica(self, statement: str) -> None:
        """Run a statement on the replica, as a person who may do anything there."""

    @abstractmethod
    def end_snapshots(self) -> int:
        """End every session on the replica that reads for a copy; returns how many."""

    @abstractmethod
    def lose_log(self) -> None:
        """Forget all of the log that a capture which stands still has not read."""

    def table(self, name: str) -> TableId:
        """One of its tables, by the name that the product has for it."""
        return TableId(self.name, self.schema, name)

    def label(self, name: str) -> str:
        """One of its tables, as people name it on the command line."""
        return f"{self.schema}.{name}"

    def quoted(self, name: str) -> str:
        """An identifier as SQL."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def execute(self, *statements: str) -> None:
        """Run statements as the owner, each in a transaction of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The answer to a query, asked by the owner."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def load(self, table: str, rows: Iterable[Sequence[Any]], columns: Sequence[str] = ()) -> None:
        """Insert rows in one transaction.

        Args:
            table: The table.
            rows: Values in the order of the columns.
            columns: Their names; by default all that the table has.
        """
        listed = list(rows)
        if not listed:
            return
        into = f"{table} ({', '.join(map(self.quoted, columns))})" if columns else table
        places = ", ".join(["%s"] * len(listed[0]))
        with self.begin() as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {into} VALUES ({places})", listed)
            connection.commit()
