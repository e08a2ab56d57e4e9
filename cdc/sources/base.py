"""The protocols of a source database, one per use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from cdc.log.position import LogPosition
from cdc.sources.source_facts import (
    Boundaries,
    Check,
    KeyRange,
    LogHealth,
    Marker,
    OlderEnded,
    Planned,
    ReplicaPosition,
    ServerIdentity,
    SnapshotQuery,
    SourceTable,
    StoredValue,
    TableSize,
    TableStats,
)
from cdc.sources.views import View
from schemas.errors import TributaryError
from schemas.fingerprint import Fingerprint
from schemas.table import Column, TableId, TableSchema

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.debezium import CaptureNames
    from cdc.runtime.progress import Progress

__all__ = [
    "Fingerprint",
    "KeptLog",
    "Marker",
    "PartitionFiles",
    "Replay",
    "RowLookup",
    "SentTables",
    "SnapshotReader",
    "Source",
    "SourceCapture",
    "SourceLog",
    "SourceTable",
    "TableReader",
    "View",
]


class PartitionFiles(Protocol):
    """The files of partitions, which show attached partitions and lost rows that send no event.

    A partition is identified by its number in the fingerprint.
    """

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """Return the partitions whose file is empty now."""

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """Return the partitions that may have been truncated since a read of the catalog.

        Such a partition has a new file since then, and no row from before.

        Args:
            table: The table.
            files: Each partition's file at that read, by partition.
            since: The transaction id below which all transactions had ended at that read.
        """

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the one transaction that last wrote these partitions' catalog rows, or None.

        TRUNCATE of the root is one transaction; VACUUM FULL has one for each partition.
        """


class TableReader(Protocol):
    """The tables in a source's catalog, and their columns in the lake."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def tables(self) -> list[TableStats]:
        """Return all user tables without those of this product, sorted by name."""

    def table(self, table: TableId) -> SourceTable:
        """Return the table in the primary's catalog.

        Raises:
            SourceError: There is no such table.
        """

    def columns(self, table: SourceTable, settings: TableSettings) -> tuple[Column, ...]:
        """Return the replicated columns, as in `schema`; the table need not have a usable key.

        Raises:
            UnsupportedTypeError: A replicated column has a type without a rule.
            SchemaError: The lake does not allow a column's name.
        """

    def schema(self, table: SourceTable, settings: TableSettings) -> TableSchema:
        """Return the table's lake schema: the replicated columns and the record key.

        Raises:
            UnsupportedTypeError: A replicated column has a type without a rule.
            SchemaError: There is no usable key in ``mode: upsert``, or the lake does not allow a
                column's name.
        """

    def planned(self, table: SourceTable, fingerprint: Fingerprint, ddl: str) -> Planned:
        """Return the table as it would be after DDL statements; no statement is executed.

        Raises:
            DdlError: A statement cannot be parsed, or does not fit the table.
        """

    def largest_row(self, table: SourceTable) -> int | None:
        """Return the size in bytes of the largest row in a sample; None if the table is empty.

        Raises:
            SourceError: The sample takes too long, or the table cannot be read.
        """

    def key_obstacle(self, table: SourceTable, key: Sequence[str]) -> tuple[str, str] | None:
        """Return why the lake's key cannot find existing rows, and the remedy; None if it can.

        Raises:
            SourceError: The check takes too long, or the table cannot be read.
        """

    @property
    def partition_files(self) -> PartitionFiles | None:
        """The files of partitions; None if the log has the DDL statements on partitions."""


class SourceLog(Protocol):
    """The log of a source: its positions, markers, and waits."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def identity(self, *, on_replica: bool = False) -> ServerIdentity:
        """The identity of the server."""

    def position(self, text: str) -> LogPosition:
        """Parse a position of this source.

        Raises:
            StateError: The text is not a position.
        """

    def commit_position(self, last: str) -> str | None:
        """Return the log position up to which every commit precedes an event.

        Args:
            last: The event's ``POSITION``.

        Returns:
            The position as text; None if events of this source do not show it.
        """

    def current_position(self) -> LogPosition:
        """Return the primary's position. Every commit so far is at or before it."""

    def write_marker(self) -> Marker:
        """Write a new marker row on the primary."""

    def wait_for_older_transactions(self, *, timeout_s: float, progress: Progress) -> OlderEnded:
        """Wait until no transaction can be captured in part after tables were added to a capture.

        If a transaction was open while the tables were added, only its later changes may be
        captured.

        Raises:
            SourceError: The wait reached its bound. The error names the blocking sessions and
                prepared transactions.
        """

    def nudge(self) -> None:
        """Advance the capture's position, on sources where only a change advances it."""

    def cascades_unseen(self) -> bool:
        """Whether foreign keys change rows without an event."""


class RowLookup(Protocol):
    """Reads of single rows and values from a source."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def stored_value(self, table: SourceTable, column: Column, stored: str) -> StoredValue:
        """Return the value of a column in rows that are older than the column.

        Args:
            table: The table.
            column: The column in the lake.
            stored: One of the column's ``old_values``.

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
        """Return the rows with the given keys as Python values of the lake types; skip absent keys.

        Args:
            table: The table.
            schema: The table's lake schema.
            keys: Key values of the lake, in the order of ``schema.key``.
            columns: Columns to fetch in addition to the key columns.
            on_replica: Whether to read from the replica instead of the primary.
        """

    def count(self, table: SourceTable, *, on_replica: bool = False) -> int:
        """Count the rows of a table."""

    def wait_until_visible(
        self, transactions: Collection[int], *, timeout_s: float, progress: Progress
    ) -> Collection[int]:
        """Wait until transactions are visible; return those that may be in the log and are not yet.

        Args:
            transactions: Their ids in the stream, as in the result.
            timeout_s: Bound of the wait, in seconds.
            progress: Shows the wait.

        Raises:
            SourceError: The wait reached its bound. The error names the sessions that delay the
                transactions.
        """


class Replay(Protocol):
    """The replay of a replica. Opening an exact view pauses it."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def replay_paused(self) -> bool:
        """Whether the replica's replay is paused, or its pause is requested."""

    def resume_replay(self) -> None:
        """Resume the replica's replay, even if another process or an operator paused it.

        Raises:
            ReplicaError: Replay is still paused.
        """


class SnapshotReader(Protocol):
    """Views of a source, and the queries that read tables under a view."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    @property
    def has_replica(self) -> bool:
        """Whether snapshots are read from a replica."""

    def replica_position(self) -> ReplicaPosition | None:
        """Return the replica's position; None without a replica."""

    @property
    def shares_views(self) -> bool:
        """Whether a session can import the view of another session.

        If not, all sessions of an exact view open at the same time, within the block of
        `open_exact_view`. No session can join later.
        """

    def wait_for_marker_on_replica(
        self, marker: Marker, *, timeout_s: float, progress: Progress
    ) -> None:
        """Wait until the replica shows the marker, and check that it is a standby of the primary.

        Without a replica, return at once.

        Raises:
            ReplicaError: The wait reached its bound, or the replica is not a standby of this
                primary. The error has the lag, and whether replay is paused.
        """

    def open_view(
        self, marker: Marker, *, timeout_s: float, progress: Progress
    ) -> AbstractContextManager[View]:
        """Open a view that contains the marker, on the replica if there is one, or on the primary.

        The session that exports the view is open until the context ends. On the primary, this
        method also waits for older transactions.

        Raises:
            ReplicaError: The server is another server, or has the wrong role.
            SnapshotLostError: The replica cancelled the session.
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
        """Open an exact view: a view that contains the marker and has a `View.split`.

        Args:
            marker: The marker that the view must contain.
            sessions: Number of sessions that read at the same time, each once (see `shares_views`).
            from_primary: Whether to read the primary even if there is a replica.
            resuming: Context that resumes replay at its end (see `cdc.sources.replay_pause`).
            timeout_s: Bound of each wait, in seconds.
            progress: Shows the waits.

        Raises:
            ReplicaError: Replay cannot be paused, or the server is another server, or has the wrong
                role.
            SourceError: Transactions of the primary stay open for too long.
            SnapshotLostError: The replica cancelled the session.
        """

    def exact_view_obstacle(self, *, from_primary: bool) -> tuple[str, str] | None:
        """Return why `open_exact_view` cannot open a view, and the remedy; None if it can."""

    def assert_view_alive(self, view: View) -> None:
        """Check that sessions can still read under the view, and that its server is the same.

        Raises:
            SnapshotLostError: The view is gone, or the replica was promoted or re-cloned.
        """

    def size(self, table: SourceTable) -> TableSize:
        """Return estimates of the table's rows and bytes from its current size."""

    def sample_boundaries(
        self,
        table: SourceTable,
        key: Sequence[str],
        chunks: int,
        *,
        size: TableSize | None = None,
    ) -> Boundaries:
        """Return keys that cut the table into up to ``chunks`` ranges of about equal size.

        Any keys make disjoint ranges that cover the table, so the keys need not be read under the
        view. They are read from the replica if there is one.
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
        """Return Spark's query of the ranges under a view; without a view, as of now."""

    def read_failure(self, table: TableId, text: str, view: View | None) -> TributaryError | None:
        """Return the typed error of a failed read by Spark, from the text of its exception.

        A lost view gives `SnapshotLostError`, and a session on the wrong server `ReplicaError`. A
        value that the lake's type cannot represent gives `SourceError` with the column's name. The
        result is None if the text is not from a failed read of this source.
        """


class SentTables(Protocol):
    """The server's list of the tables of one capture."""

    @property
    def title(self) -> str:
        """Kind and name of the list."""

    def add(self, tables: Sequence[TableId]) -> list[TableId]:
        """Add tables that the list lacks; return the added tables."""

    def remove(self, tables: Sequence[TableId]) -> list[TableId]:
        """Remove tables from the list; return the removed tables."""

    def tables(self) -> list[TableId]:
        """Return the application's tables in the list; empty if the list does not exist."""

    def drop(self) -> None:
        """Drop the list if it exists."""


class KeptLog(Protocol):
    """The log that the server retains for one capture until the connector has read it."""

    @property
    def title(self) -> str:
        """Kind and name of the object that retains the log."""

    def exists(self) -> bool:
        """Return whether the server retains the log for the capture."""

    def create(self) -> bool:
        """Retain the log from now on; return whether it was not retained before.

        Raises:
            CaptureError: The name belongs to an object with another purpose.
        """

    def drop(self, *, timeout_s: float = 30.0) -> bool:
        """Stop retaining the log once its reader is gone; return whether it was retained."""

    def reader(self) -> int | None:
        """Return the number of the session that reads the log; None if no session reads it."""


class SourceCapture(Protocol):
    """The source's part of one capture."""

    @property
    def sent_tables(self) -> SentTables | None:
        """The list of captured tables; None if the connector has the list."""

    @property
    def kept_log(self) -> KeptLog | None:
        """The log retained for the capture; None if the retention does not depend on captures."""

    def prepare(self) -> None:
        """Create what is missing: schema ``tributary``, captured from the start, `sent_tables`."""

    def planned(self, tables: Sequence[TableId]) -> list[str]:
        """Return the statements that would capture these tables; no statement is executed."""

    def removal(self, table: TableId, *, last: bool) -> list[str]:
        """Return the statements that remove a table on the source, without a query.

        Args:
            table: The table.
            last: Whether the capture is removed with this table.
        """

    def unreadable(self) -> str | None:
        """Return why the connector cannot read the retained log any further; None if it can."""

    def log_health(self) -> LogHealth:
        """Return the health of the log that the capture depends on."""

    def audit(self) -> list[str]:
        """Return the problems that keep every table's changes from being captured in full."""

    def audit_table(self, table: SourceTable) -> list[str]:
        """Return why changes of this table, and of no other, are not captured in full."""

    def missing_rights(self, table: SourceTable) -> tuple[str, str] | None:
        """Return the missing rights to replicate the table, and the GRANT statements, or None."""

    def described(self, table: TableId) -> tuple[SourceTable, Fingerprint]:
        """Return the table and its fingerprint, read from the primary's catalog at one moment.

        Raises:
            SourceError: There is no such table.
        """

    def fingerprint(self, table: TableId, *, on_replica: bool) -> Fingerprint:
        """Return the catalog's facts of table and capture, read in a fresh transaction."""

    def fingerprints(self, tables: Collection[TableId]) -> dict[TableId, Fingerprint]:
        """Return the fingerprints of tables, read at one moment; missing tables are left out."""


class Source(TableReader, SourceLog, RowLookup, Replay, SnapshotReader, Protocol):
    """A configured source. A function takes only the narrowest protocol that it needs.

    Methods are thread-safe, and raise `cdc.errors.SourceError` if the server cannot be reached.
    """

    def checks(self) -> list[Check]:
        """Check connections, versions, settings, privileges and the replica."""

    def capture_obstacle(self) -> tuple[str, str] | None:
        """Return why no table can be captured now, and the remedy; None if tables can be."""

    def capture(self, names: CaptureNames) -> SourceCapture:
        """Return the capture with these names, whether or not it exists."""
