"""A test's own database, with one interface for all kinds of source."""

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
        stack: The stack whose server has the database.
        name: The name of the database and of its source. Slots, connectors and topics are named
            after it.
        kind: The kind of source, as configurations name it.
    """

    stack: LocalStack
    name: str
    kind: str

    @property
    @abstractmethod
    def schema(self) -> str:
        """The schema of the database's tables."""

    @property
    @abstractmethod
    def quote(self) -> str:
        """The character that SQL puts around identifiers."""

    @property
    @abstractmethod
    def waits_for_open_transactions(self) -> bool:
        """Whether a copy waits at its start for the end of all older transactions.

        A source need not wait if its log has each transaction as a whole, at its commit.
        """

    @abstractmethod
    def document(self, folder: Path) -> dict[str, Any]:
        """A configuration with this database as the one source; lake and state in the folder."""

    @abstractmethod
    def connect(self) -> AbstractContextManager[Any]:
        """A connection of the owner to the primary, in autocommit mode."""

    @abstractmethod
    def begin(self) -> AbstractContextManager[Any]:
        """A connection whose transaction ends by ``commit`` or ``rollback`` only."""

    @abstractmethod
    def retype(self, table: str, column: str, definition: str) -> str:
        """The statement that gives a column another type."""

    @abstractmethod
    def let_pause(self) -> None:
        """Grant the snapshot role the right to pause the replica."""

    @abstractmethod
    def paused(self) -> AbstractContextManager[None]:
        """Stop the replica's replay while a block runs, in the way in which a person stops it."""

    @abstractmethod
    def on_replica(self, statement: str) -> None:
        """Run a statement on the replica as its superuser."""

    @abstractmethod
    def end_snapshots(self) -> int:
        """End every session on the replica that reads for a copy; returns their number."""

    @abstractmethod
    def lose_log(self) -> None:
        """Remove the log that a stopped capture has not read yet."""

    def table(self, name: str) -> TableId:
        """The product's identifier of one of the database's tables."""
        return TableId(self.name, self.schema, name)

    def label(self, name: str) -> str:
        """The name of one of the database's tables on the command line."""
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
        """The rows of a query that the owner of the database runs."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def load(self, table: str, rows: Iterable[Sequence[Any]], columns: Sequence[str] = ()) -> None:
        """Insert rows in one transaction.

        Args:
            table: The table.
            rows: Values in the order of the columns.
            columns: The names of the columns; by default all columns of the table.
        """
        listed = list(rows)
        if not listed:
            return
        into = f"{table} ({', '.join(map(self.quoted, columns))})" if columns else table
        places = ", ".join(["%s"] * len(listed[0]))
        with self.begin() as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {into} VALUES ({places})", listed)
            connection.commit()
