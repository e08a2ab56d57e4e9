"""What a source database offers to the layers above: one protocol per use, over plain values."""

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
    Planned,
    ReplicaPosition,
    ServerIdentity,
    Settled,
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
    """What files show of partitions that come, or lose their rows, without an event.

    A partition is named by the number that its fingerprint has.
    """

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """The partitions whose file is empty now."""

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """The partitions with a new file since a reading of the catalog and no row from before it.

        Args:
            table: The table.
            files: Each partition's file at that reading, by the partition.
            since: The transaction id below which all had ended at that reading.
        """

    def written_together(self, partitions: Collection[int]) -> int | None:
        """The one transaction that wrote the catalog rows of these partitions last, or None.

        TRUNCATE of their root does so. Upkeep (VACUUM FULL, pg_repack) has one for each partition.
        """


class TableReader(Protocol):
    """The tables of a source, as its catalog describes them, and what the lake gets of them."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def tables(self) -> list[TableStats]:
        """All user tables, without our own, sorted by name."""

    def table(self, table: TableId) -> SourceTable:
        """The table as the primary's catalog describes it.

        Raises:
            SourceError: There is no such table.
        """

    def columns(self, table: SourceTable, settings: TableSettings) -> tuple[Column, ...]:
        """The columns that reach the lake, as in `schema`; the table need not have a usable key.

        Raises:
            UnsupportedTypeError: A column that is kept has a type without a rule.
            SchemaError: A column name that the lake cannot carry.
        """

    def schema(self, table: SourceTable, settings: TableSettings) -> TableSchema:
        """The lake schema: column rules applied, generated columns left out, the record key.

        Raises:
            UnsupportedTypeError: A column that is kept has a type without a rule.
            SchemaError: No usable key in ``mode: upsert``, or a column name that the lake cannot
                carry.
        """

    def planned(self, table: SourceTable, fingerprint: Fingerprint, ddl: str) -> Planned:
        """The table as statements would leave it; no statement is run.

        Raises:
            DdlError: A statement is not understood, or does not fit the table.
        """

    def largest_row(self, table: SourceTable) -> int | None:
        """Bytes of the largest of some sampled rows; None when there are none.

        Raises:
            SourceError: The sample takes too long, or the table cannot be read.
        """

    def key_obstacle(self, table: SourceTable, key: Sequence[str]) -> tuple[str, str] | None:
        """Why existing rows cannot be found by the lake's key, and what to do; None if they can.

        Raises:
            SourceError: The check takes too long, or the table cannot be read.
        """

    @property
    def partition_files(self) -> PartitionFiles | None:
        """The files of partitions; None if statements in the log report what happens to them."""


class SourceLog(Protocol):
    """The log of a source: positions in it, our markers, and which changes it has."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def identity(self, *, on_replica: bool = False) -> ServerIdentity:
        """The identity of the server."""

    def position(self, text: str) -> LogPosition:
        """The position of this source whose ``str`` is the text.

        Raises:
            StateError: The text is not of that form.
        """

    def commit_position(self, last: str) -> str | None:
        """The log position at or before which only commits lie that precede an event.

        Args:
            last: The event's ``POSITION``.

        Returns:
            The position as text; None if the source's events do not show it.
        """

    def current_position(self) -> LogPosition:
        """The primary's position; every commit so far lies at or before it."""

    def write_marker(self) -> Marker:
        """Write a new marker row on the primary."""

    def settle(self, *, timeout_s: float, progress: Progress) -> Settled:
        """Make sure that no transaction is captured in part after tables were added to a capture.

        If a transaction was open while the tables were added, its later changes may be captured
        and its earlier ones not.

        Raises:
            SourceError: Time ran out; names the blocking sessions and prepared transactions.
        """

    def nudge(self) -> None:
        """Advance the capture's position, on sources where only the next change advances it."""

    def cascades_unseen(self) -> bool:
        """Whether foreign keys change rows without an event."""


class RowLookup(Protocol):
    """Single values and rows, read again from a source."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def stored_value(self, table: SourceTable, column: Column, stored: str) -> StoredValue:
        """The value that a column has in rows older than the column.

        Args:
            table: The table.
            column: The column as the lake gets it.
            stored: One of its ``old_values``.

        Raises:
            SourceError: The lake cannot hold it.
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
        """The rows with those keys as Python values of the lake types, without absent keys.

        Args:
            table: The table.
            schema: Its lake schema.
            keys: Values in the order of ``schema.key``, as the lake has them.
            columns: What to fetch besides the key columns, which are always fetched.
            on_replica: Read from the replica instead of the primary.
        """

    def count(self, table: SourceTable, *, on_replica: bool = False) -> int:
        """The number of rows, counted."""

    def wait_until_visible(
        self, transactions: Collection[int], *, timeout_s: float, progress: Progress
    ) -> None:
        """Wait until the primary shows the changes of transactions that are in the stream.

        Args:
            transactions: The transactions' ids as the stream has them.
            timeout_s: Bound of the wait, in seconds.
            progress: Where the wait is shown.

        Raises:
            SourceError: Time ran out; names the sessions that still hold the transactions back.
        """


class Replay(Protocol):
    """The replay of a replica, which a view of a known position pauses."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def replay_paused(self) -> bool:
        """Whether the replica's replay is paused, or its pause is requested."""

    def resume_replay(self) -> None:
        """Resume the replica's replay, even if another process or a person paused it.

        Raises:
            ReplicaError: Replay is still paused.
        """


class SnapshotReader(Protocol):
    """Copies of tables: views of a source, and the queries that read under them."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    @property
    def has_replica(self) -> bool:
        """Whether snapshots are read from a replica."""

    def replica_position(self) -> ReplicaPosition | None:
        """How far the replica is, or None without a replica."""

    @property
    def shares_views(self) -> bool:
        """Whether a session can take over the view of another session.

        If not, all sessions that read under a view of a known position open at the same time,
        while the block of `open_exact_view` runs. No session can join them later.
        """

    def wait_for_marker_on_replica(
        self, marker: Marker, *, timeout_s: float, progress: Progress
    ) -> None:
        """Wait until the replica shows the marker and is a standby of the marker's primary.

        Returns at once when there is no replica.

        Raises:
            ReplicaError: Time ran out (with the lag, and whether replay is paused), or the
                replica is not a standby of this primary.
        """

    def open_view(
        self, marker: Marker, *, timeout_s: float, progress: Progress
    ) -> AbstractContextManager[View]:
        """Open a view that contains the marker, on the replica if there is one, or on the primary.

        The session that exports the view stays open until the context ends. On the primary this
        method also waits for older transactions.

        Raises:
            ReplicaError: The server is not what it must be.
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
        """Open a view that contains the marker and has a `View.split`.

        Args:
            marker: Must be visible in the view.
            sessions: How many sessions read at the same time, each once; see `shares_views`.
            from_primary: Whether to read the primary even if there is a replica.
            resuming: Resumes replay at the end of its block; see `cdc.sources.replay_pause`.
            timeout_s: Bound of each wait, in seconds.
            progress: Where waits are shown.

        Raises:
            ReplicaError: Replay cannot be paused, or the server is not what it must be.
            SourceError: Transactions of the primary stay open for too long.
            SnapshotLostError: The replica cancelled the session.
        """

    def exact_view_obstacle(self, *, from_primary: bool) -> tuple[str, str] | None:
        """Why `open_exact_view` cannot open a view, and what to do about it; None if it can."""

    def assert_view_alive(self, view: View) -> None:
        """Check that sessions can still read under the view, and that its server is the same one.

        Raises:
            SnapshotLostError: The view is gone, or the replica was promoted or re-cloned.
        """

    def size(self, table: SourceTable) -> TableSize:
        """Rows and bytes by the current size of the table."""

    def sample_boundaries(
        self,
        table: SourceTable,
        key: Sequence[str],
        chunks: int,
        *,
        size: TableSize | None = None,
    ) -> Boundaries:
        """Cut the key into up to ``chunks`` ranges of about the same number of rows.

        Any boundaries give disjoint ranges that cover the table, so they need not be read under
        the view. They are read from the replica if there is one.
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
        """The query by which Spark reads the ranges, under the view, or as of now if it is None."""

    def read_failure(self, table: TableId, text: str, view: View | None) -> TributaryError | None:
        """The error that a failed read by Spark means, from the text of its exception.

        A lost view becomes `SnapshotLostError`, a session on the wrong server `ReplicaError`, a
        value that the lake cannot hold a `SourceError` that names the column. The result is None
        if the text is not of a failed read of this source.
        """


class SentTables(Protocol):
    """The server's own list of the tables whose changes it sends to one capture."""

    @property
    def title(self) -> str:
        """Its kind and name."""

    def add(self, tables: Sequence[TableId]) -> list[TableId]:
        """Add the tables that it lacks; returns the ones that were added."""

    def remove(self, tables: Sequence[TableId]) -> list[TableId]:
        """Remove the tables that it has; returns the ones that were removed."""

    def tables(self) -> list[TableId]:
        """The application's tables in it; empty when it does not exist."""

    def drop(self) -> None:
        """Drop it if it exists."""


class KeptLog(Protocol):
    """The part of the log that the server keeps for one capture until its connector has read it."""

    @property
    def title(self) -> str:
        """The kind and name of what keeps it."""

    def exists(self) -> bool:
        """Whether the server keeps the log for the capture."""

    def create(self) -> bool:
        """Keep the log from now on; returns whether it was not kept before.

        Raises:
            CaptureError: The name serves something else.
        """

    def drop(self, *, timeout_s: float = 30.0) -> bool:
        """Let the log go, waiting until its reader has gone; returns whether it was kept."""


class SourceCapture(Protocol):
    """One capture, as far as the source has a part in it."""

    @property
    def sent_tables(self) -> SentTables | None:
        """The list of captured tables; None if the connector has the list."""

    @property
    def kept_log(self) -> KeptLog | None:
        """The log that is kept; None if the server keeps its log whether or not it is read."""

    def prepare(self) -> None:
        """Create what is missing: schema ``tributary``, its tables and grants, and `sent_tables`.

        The schema's own tables are captured from the start.
        """

    def planned(self, tables: Sequence[TableId]) -> list[str]:
        """The statements that capturing these tables would run now; nothing is run."""

    def removal(self, table: TableId, *, last: bool) -> list[str]:
        """The statements that take a table out on the source; nothing is run, nor read.

        Args:
            table: The table.
            last: Whether the capture goes with it.
        """

    def unreadable(self) -> str | None:
        """Why the capture cannot continue to read the kept log; None if it can."""

    def log_health(self) -> LogHealth:
        """The state of the log that the capture depends on."""

    def audit(self) -> list[str]:
        """The problems that keep changes of all tables from being captured as they must be."""

    def audit_table(self, table: SourceTable) -> list[str]:
        """The problems that keep only this table's changes from being captured as they must be."""

    def missing_rights(self, table: SourceTable) -> tuple[str, str] | None:
        """The rights that logins lack to replicate the table, and the statements that grant them.

        None if no right is missing.
        """

    def described(self, table: TableId) -> tuple[SourceTable, Fingerprint]:
        """The table and its fingerprint, read from the primary's catalog at one moment.

        Raises:
            SourceError: There is no such table.
        """

    def fingerprint(self, table: TableId, *, on_replica: bool) -> Fingerprint:
        """The catalog facts of the table and of its capture, read in a fresh transaction."""

    def fingerprints(self, tables: Collection[TableId]) -> dict[TableId, Fingerprint]:
        """The fingerprints of many tables, of one moment; tables that are gone are left out."""


class Source(TableReader, SourceLog, RowLookup, Replay, SnapshotReader, Protocol):
    """A configured source. A function that needs a part of it takes only the protocol of that part.

    Every method may be called from any thread, and raises `cdc.errors.SourceError` when the server
    cannot be reached or refuses.
    """

    def checks(self) -> list[Check]:
        """Pre-flight of connections, versions, settings, privileges and the replica."""

    def capture_obstacle(self) -> tuple[str, str] | None:
        """Why no table of the source can be captured now, and what to do; None if tables can."""

    def capture(self, names: CaptureNames) -> SourceCapture:
        """The capture of those names, whether or not it exists."""
