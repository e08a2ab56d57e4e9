"""The protocols of what a capture has on a source's server: a list of tables, and a kept log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from cdc.sources.sent_table import SentTable
from schemas.fingerprint import Fingerprint
from schemas.table import TableId


class SentTables(Protocol):
    """The source's list of the tables whose changes its server sends to one capture."""

    @property
    def title(self) -> str:
        """Kind and name of the source's list of captured tables, for messages."""

    def add(self, tables: Sequence[TableId]) -> list[TableId]:
        """Add the tables that the source's list lacks; return the added tables."""

    def remove(self, tables: Sequence[TableId]) -> list[TableId]:
        """Remove the given tables that the source's list contains; return the removed tables."""

    def remove_renamed(
        self, known: Collection[Fingerprint], keep: Collection[TableId]
    ) -> list[TableId]:
        """Remove from the list the tables with these fingerprints; return the removed tables.

        A table is removed even if it has another name now. But a table whose present name is in
        ``keep`` stays in the list.
        """

    def added(self) -> Mapping[TableId, SentTable]:
        """Return the tables that were added one by one, each with the SQL to remove the table."""

    def tables(self) -> list[TableId]:
        """Return the tables in the source's list except Tributary's; empty if there is no list."""

    def exists(self) -> bool:
        """Whether the source has the list of captured tables."""

    def drop(self) -> None:
        """Drop the source's list of captured tables if the list exists."""


class KeptLog(Protocol):
    """The part of a source's log that the server retains until one capture has read it."""

    @property
    def title(self) -> str:
        """Kind and name of the object that retains the source's log, for messages."""

    def exists(self) -> bool:
        """Whether the source's server has an object that retains the log for the capture.

        An object does not count if it has the kept log's name, but belongs to another database or
        another tool.
        """

    def require_own(self) -> None:
        """Check that no object for another database or another tool has the kept log's name.

        Raises:
            CaptureError: There is such an object.
        """

    def others(self) -> Sequence[str]:
        """Return the names of the database's other objects that retain the log to send changes."""

    def create(self) -> bool:
        """Make the source retain the log from now on; return False if it already retained the log.

        Raises:
            CaptureError: An object with the kept log's name belongs to another database or another
                tool; or transactions that were already open have not ended in time.
        """

    def drop(self, *, timeout_s: float = 30.0) -> bool:
        """Wait until no session reads the kept log, then drop the log; return whether it existed.

        An object stays if it has the kept log's name, but belongs to another database or another
        tool.
        """

    def reader(self) -> int | None:
        """Return the id of the source's session that reads the log; None if no session reads it."""

    def shown_reader(self) -> str | None:
        """Describe the session that reads the log: program, machine, id; None if there is none."""

    def beat_age_s(self) -> float | None:
        """Return the age in seconds of the connector's newest heartbeat; None if there is none."""
