"""The protocols of a source database: one protocol for each use of a source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from cdc.log.continuity import Continuity, LogMark, Sent
from cdc.log.position import LogPosition
from cdc.sources.capture_parts import KeptLog, SentTables
from cdc.sources.key_ranges import KeyRanges
from cdc.sources.log_health import LogHealth
from cdc.sources.missed_changes import MissedChanges
from cdc.sources.source_facts import (
    Check,
    KeyRange,
    Marker,
    OlderEnded,
    ReplicaPosition,
    ServerIdentity,
    SnapshotQuery,
    SourceTable,
    StoredValue,
)
from cdc.sources.table_reader import TableReader
from cdc.sources.views import View
from schemas.errors import TributaryError
from schemas.fingerprint import Fingerprint
from schemas.table import Column, TableId, TableSchema

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from cdc.runtime.progress import Progress

__all__ = [
    "KeptLog",
    "Marker",
    "Replay",
    "RowLookup",
    "SentTables",
    "SnapshotReader",
    "Source",
    "SourceCapture",
    "SourceLog",
    "SourceTable",
    "View",
]


class SourceLog(Protocol):
    """A source's log: positions in it, markers, and the wait for the end of transactions."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def identity(self, *, on_replica: bool = False) -> ServerIdentity:
        """Return the identity of the source's primary or, with ``on_replica``, of its replica."""

    def position(self, text: str) -> LogPosition:
        """Parse a position in this source's log.

        Raises:
            StateError: The text is not a position.
        """

    def commit_position(self, last: str) -> str | None:
        """Return the position of the last commit that precedes an event in the source's log.

        Args:
            last: The event's value of column `cdc.rows.columns.POSITION`.

        Returns:
            The position as text; None if the event does not contain that position.
        """

    def current_position(self) -> LogPosition:
        """Return a position in the log of the source's primary, at or after every commit so far."""

    def write_marker(self) -> Marker:
        """Write a new marker row on the source's primary, and return the marker.

        A view with this row contains every earlier commit.
        """

    def wait_for_older_transactions(self, *, timeout_s: float, progress: Progress) -> OlderEnded:
        """Wait for the end of each source transaction that a capture can contain only in part.

        A capture can lack the changes that a transaction made before a table joined the capture. A
        copy that begins after the transaction has ended contains all changes of the transaction.

        Raises:
            SourceError: The wait reached its bound; the error names the transactions still open.
        """

    def nudge(self) -> None:
        """Write a marker if Connect stores the position of an event only after a later event."""

    def cascades_unseen(self) -> bool:
        """Whether a foreign key's action can change rows of the source without an event."""


class RowLookup(Protocol):
    """Reads single rows and values of a source."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def stored_value(self, table: SourceTable, column: Column, stored: str) -> StoredValue:
        """Return a new column's value in rows older than the column, and the column's type rule.

        The type rule describes how the column's values are converted to the lake's type.

        Args:
            table: The table.
            column: The column in the lake.
            stored: The value as the catalog prints it: one of `SourceColumn.old_values`.

        Raises:
            SourceError: The lake's type cannot represent the value.
        """

    def fetch_by_key(
        self,
        table: SourceTable,
        schema: TableSchema,
        keys: Sequence[Sequence[object]],
        columns: Sequence[str],
        *,
        on_replica: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the source's rows for the given keys, as Python values of the lake's types.

        Args:
            table: The table.
            schema: The table's lake schema.
            keys: Keys, each with its values in the lake's types, in the order of ``schema.key``.
            columns: Columns to fetch in addition to the key columns.
            on_replica: Whether to read from the replica instead of the primary.
        """

    def count(self, table: SourceTable, *, on_replica: bool = False) -> int:
        """Count the rows of a source table."""

    def wait_until_visible(
        self, transactions: Collection[int], *, timeout_s: float, progress: Progress
    ) -> Collection[int]:
        """Wait until queries of the source see the changes of the given transactions.

        Args:
            transactions: The ids of the transactions, as the source's events contain them.
            timeout_s: Bound of the wait, in seconds.
            progress: Shows the wait.

        Returns:
            The ids of all transactions that are open after the wait, as events contain them.

        Raises:
            SourceError: The wait reached its bound; the error names the transactions still open.
        """


class Replay(Protocol):
    """The replay of the log on a source's replica.

    A copy pauses the replay to open an exact view, which is a view at a known log position.
    """

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def replay_paused(self) -> bool:
        """Whether replay on the source's replica is paused, or a pause is requested."""

    def resume_replay(self) -> None:
        """Resume replay on the source's replica; on PostgreSQL, even if another client paused it.

        Raises:
            ReplicaError: Replay is still paused.
        """


class SnapshotReader(KeyRanges, Protocol):
    """Views (consistent images) of a source, and the queries that read tables under a view."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    @property
    def has_replica(self) -> bool:
        """Whether the source has a replica. If so, copies read from it."""

    def replica_position(self) -> ReplicaPosition | None:
        """Return the position of the source's replica; None without a replica."""

    @property
    def shares_views(self) -> bool:
        """Whether a session of the source can import the view of another session.

        If False, `open_exact_view` opens a view for each session, all at the same position.
        """

    def wait_for_marker_on_replica(
        self, marker: Marker, *, timeout_s: float, progress: Progress, go_on: bool = False
    ) -> None:
        """Wait for the marker on the source's replica; check that the replica follows the primary.

        If the source has no replica, return at once.

        Args:
            marker: The marker.
            timeout_s: Bound of the wait, in seconds.
            progress: Shows the wait.
            go_on: Whether the wait begins again at its bound, up to `MOST_WAITS` times, while the
                replica replays. Only PostgreSQL does this. A replica of MySQL or MariaDB can
                execute transactions of its own, so these do not prove that it replays.

        Raises:
            ReplicaError: The wait reached its bound, or the replica does not follow the primary.
                The error reports the replica's lag, and whether its replay is paused.
        """

    def open_view(
        self, marker: Marker, *, one_moment: bool, timeout_s: float, progress: Progress
    ) -> AbstractContextManager[View]:
        """Open a view that contains the marker, on the replica if the source has one.

        A PostgreSQL primary logs a commit before queries see it. So on a PostgreSQL primary, the
        method first waits until each transaction that is open at the call has ended. With
        ``one_moment``, all sessions see the same rows on PostgreSQL; a MySQL or MariaDB source
        ignores ``one_moment``.

        Raises:
            ReplicaError: A session reached the wrong server, or the replica's views lack changes.
            SnapshotLostError: The replica cancelled a session of the view.
        """

    def open_exact_view(
        self,
        marker: Marker,
        *,
        sessions: int,
        from_primary: bool,
        resuming: Callable[[], AbstractContextManager[None]],
        timeout_s: float,
        progress: Progress,
    ) -> AbstractContextManager[View]:
        """Open an exact view of the source: it contains the marker, and its position is known.

        Args:
            marker: The marker that the view must contain.
            sessions: Number of sessions that read under the view. If `shares_views` is False, no
                further session can read under the view.
            from_primary: Whether to read the primary even if there is a replica.
            resuming: Returns a context manager whose exit resumes replay (`replay_pause`).
            timeout_s: Bound of each wait, in seconds.
            progress: Shows the waits.

        Raises:
            ReplicaError: Replay cannot be paused, or a session reached the wrong server.
            SourceError: Transactions on the primary stay open for too long.
            SnapshotLostError: The replica cancelled a session of the view.
        """

    def exact_view_obstacle(self, *, from_primary: bool) -> tuple[str, str] | None:
        """Return why an exact view of the source cannot be opened, and the remedy.

        Return None if an exact view can be opened.
        """

    def assert_view_alive(self, view: View) -> None:
        """Check that the source's sessions can still read under the view, on the same server.

        Raises:
            SnapshotLostError: The view is gone, or the replica was promoted or re-cloned.
            ReplicaError: The replica may have other rows than the primary.
        """

    def assert_rows_of_primary(self, view: View) -> None:
        """Check that the view's server has executed no change that the source's primary lacks.

        The caller calls this method after the sessions have read. If the check passes, the
        sessions have read only rows that the primary had, too.

        Raises:
            ReplicaError: The replica may have other rows than the primary.
        """

    def snapshot_query(
        self,
        table: SourceTable,
        schema: TableSchema,
        ranges: Sequence[KeyRange],
        *,
        view: View | None,
        fetch_size: int = 10_000,
    ) -> SnapshotQuery:
        """Return Spark's query for a table's ranges; without a view, Spark reads current rows."""

    def read_failure(self, table: TableId, text: str, view: View | None) -> TributaryError | None:
        """Convert Spark's error message for a failed read of the source to a typed error.

        The error is `SnapshotLostError` for a lost view, `ReplicaError` for a session on the wrong
        server, and `SourceError` with the column's name for a value that the lake's type cannot
        represent. The result is None if the message is about another failure.
        """


class CatalogLooks(Protocol):
    """Reads what the catalog of the source's server has about captured tables."""

    def audit_table(self, table: SourceTable) -> list[str]:
        """Return a message for each reason why changes of a source table are not captured."""

    def missing_rights(self, table: SourceTable) -> tuple[str, str] | None:
        """Return the missing rights on a table, and the GRANTs to run; None if none is missing."""

    def described(self, table: TableId) -> tuple[SourceTable, Fingerprint]:
        """Return the table and its fingerprint on the source's primary, both as of one moment.

        The fingerprint has the facts of the catalog that may not change unseen.

        Raises:
            SourceError: There is no such table.
        """

    def audited(self, table: TableId) -> tuple[SourceTable, Fingerprint, list[str]]:
        """Return what `described` and `audit_table` return, read in one session.

        Raises:
            SourceError: There is no such table.
        """

    def fingerprint(self, table: TableId, *, on_replica: bool) -> Fingerprint:
        """Return the table's fingerprint on one server of the source, read in a new transaction."""

    def fingerprints(self, tables: Collection[TableId]) -> dict[TableId, Fingerprint]:
        """Return a mapping from each table to its fingerprint, whose facts are as of one moment.

        A table that does not exist, or that changed at each attempt to read it, is left out.
        """


class SourceCapture(CatalogLooks, Protocol):
    """The part of one capture that is on the source's server."""

    @property
    def sent_tables(self) -> SentTables | None:
        """The source's list of captured tables; None if the connector itself has the list."""

    @property
    def kept_log(self) -> KeptLog | None:
        """The log that the server keeps for the capture.

        None if the server purges its log whether or not a capture has read it.
        """

    def prepare(self) -> None:
        """Create what the source lacks for the capture: schema ``tributary`` with its tables.

        If the source keeps the list of captured tables (`sent_tables`), create the list, too.
        """

    def planned(self, tables: Sequence[TableId]) -> list[str]:
        """Return the SQL statements that would add these tables to the capture; execute none."""

    def removal(self, table: TableId | None, *, last: bool) -> list[str]:
        """Return the SQL statements that remove a table from the capture; execute none of them.

        Args:
            table: The table; None to remove the whole capture, whatever tables it has.
            last: Whether this table is the capture's last one. If so, the statements also remove
                the capture itself.
        """

    def unreadable(self) -> str | None:
        """Return why the connector can no longer read the source's log; None if it still can."""

    def continuity(self, earlier: LogMark | None, sent: Sent) -> Continuity | None:
        """Compare the source's log with a mark, which is the end of the log at an earlier call.

        The result is None if the log cannot be compared.

        Args:
            earlier: The mark in an earlier call's result; None without an earlier call.
            sent: Reads the transactions that the connector has sent.
        """

    def log_health(self) -> LogHealth:
        """Return the health of the source's log from which the capture reads."""

    def audit(self) -> list[str]:
        """Return a message for each problem of the source that can affect all captured tables."""


class Source(TableReader, SourceLog, RowLookup, MissedChanges, Replay, SnapshotReader, Protocol):
    """A configured source, with all protocols of this module.

    A function takes the narrowest protocol that has the methods it calls. Methods are thread-safe,
    and raise `cdc.errors.SourceError` if the server cannot be reached.
    """

    def checks(self) -> list[Check]:
        """Check connections, versions, settings, privileges and replica; return the results."""

    def capture_obstacle(self) -> tuple[str, str] | None:
        """Return why the source cannot be captured at all, and the remedy; None if it can be."""

    def capture(self, names: CaptureNames) -> SourceCapture:
        """Return the source's capture with these names, whether or not it exists."""
