"""What a source database offers to the layers above: one protocol over plain values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from cdc.log.position import LogPosition
from cdc.sources.values import (
    Boundaries,
    Check,
    Fingerprint,
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
from schemas.table import Column, TableId, TableSchema

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.runtime.progress import Progress

__all__ = ["Fingerprint", "Marker", "Source", "SourceTable", "View"]


class Source(Protocol):
    """A configured source.

    Every method may be called from any thread, and raises `cdc.errors.SourceError` when the server
    cannot be reached or refuses.
    """

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def tables(self) -> list[TableStats]:
        """All user tables, without our own, sorted by name."""

    def checks(self) -> list[Check]:
        """Pre-flight of connections, versions, settings, privileges and the replica."""

    @property
    def has_replica(self) -> bool:
        """Whether snapshots are read from a replica."""

    @property
    def shares_views(self) -> bool:
        """Whether a session can take over the view of another one.

        Else those that read under a view of a known position open at the same time, while its block
        runs, and no other can follow.
        """

    def table(self, table: TableId) -> SourceTable:
        """The table as the primary's catalog describes it.

        Raises:
            SourceError: There is no such table.
        """

    def described(self, table: TableId, publication: str) -> tuple[SourceTable, Fingerprint]:
        """The table and its fingerprint as the primary's catalog has them, of one moment.

        Raises:
            SourceError: There is no such table.
        """

    def columns(self, table: SourceTable, settings: TableSettings) -> tuple[Column, ...]:
        """The columns that reach the lake: `schema` without its key, which may be gone.

        Raises:
            UnsupportedTypeError: A column that is kept has a type without a rule.
            SchemaError: A column name that the lake cannot carry, or that the table lacks.
        """

    def planned(self, table: SourceTable, fingerprint: Fingerprint, ddl: str) -> Planned:
        """The table as statements would leave it. None of them is run.

        Raises:
            DdlError: A statement is not understood, or does not fit the table.
        """

    def stored_value(self, table: SourceTable, column: Column, stored: str) -> StoredValue:
        """What rows older than a column show in it.

        Args:
            table: The table.
            column: The column as the lake gets it.
            stored: One of its ``old_values``.

        Raises:
            SourceError: The lake cannot hold it.
        """

    def empty_partitions(self, oids: Collection[int]) -> frozenset[int]:
        """Those of the partitions whose file is empty now.

        Args:
            oids: Object ids of partitions.
        """

    def truncated_partitions(
        self, table: TableId, files: Mapping[int, int], since: str
    ) -> frozenset[int]:
        """Those of the partitions in a new file that have no row of before a look.

        Args:
            table: The table.
            files: By object id of a partition, its file at that look.
            since: The `HORIZON` of that look.
        """

    def schema(self, table: SourceTable, settings: TableSettings) -> TableSchema:
        """The lake schema: column rules applied, generated columns left out, the record key.

        Raises:
            UnsupportedTypeError: A column that is kept has a type without a rule.
            SchemaError: No usable key in ``mode: upsert``, or a column name that the lake cannot
                carry.
        """

    def fingerprint(self, table: TableId, publication: str, *, on_replica: bool) -> Fingerprint:
        """The catalog facts of the table and of its capture, read in a fresh transaction."""

    def fingerprints(
        self, tables: Collection[TableId], publication: str
    ) -> dict[TableId, Fingerprint]:
        """Those of many tables, in one statement, without those that are gone."""

    def identity(self, *, on_replica: bool = False) -> ServerIdentity:
        """Which cluster the server is."""

    def prepare_capture(self, publication: str, *, append: bool = False) -> None:
        """Create, where missing, schema ``tributary``, its tables, their grants, the publication.

        The publication publishes insert, update, delete and truncate via partition roots, one of
        logs (``append``) insert and truncate only; it has our own two tables from the start.
        """

    def unreadable(self, publication: str, slot: str) -> str | None:
        """Why the log that is kept cannot be read on for the capture; None where it can."""

    def planned_capture(
        self, publication: str, slot: str, tables: Sequence[TableId], *, append: bool = False
    ) -> list[str]:
        """The statements that capturing these tables would run now; nothing is run."""

    def add_to_publication(self, publication: str, tables: Sequence[TableId]) -> list[TableId]:
        """Add those tables that are not yet in it; returns the ones that were added."""

    def remove_from_publication(self, publication: str, tables: Sequence[TableId]) -> list[TableId]:
        """Remove those tables that are in it; returns the ones that were removed."""

    def published_tables(self, publication: str) -> list[TableId]:
        """The application's tables that are in the publication; empty when there is none."""

    def drop_publication(self, publication: str) -> None:
        """Drop it if it exists."""

    def audit_publication(
        self, publication: str, table: SourceTable, *, append: bool = False
    ) -> list[str]:
        """What keeps changes of this table from being published as they must be.

        Args:
            publication: The publication.
            table: The table.
            append: Whether only its inserts and TRUNCATE may be published.
        """

    def cascades_unseen(self) -> bool:
        """Whether foreign keys change rows without an event."""

    def ensure_slot(self, slot: str) -> bool:
        """Create the logical slot if it is missing; returns whether it was created.

        Raises:
            CaptureError: A slot of that name exists for another plugin or database.
        """

    def has_slot(self, slot: str) -> bool:
        """Whether there is that slot; true of sources that keep their log without."""

    def log_health(self, slot: str) -> LogHealth:
        """The log as far as the capture of that slot depends on it."""

    def position(self, text: str) -> LogPosition:
        """The position that ``str`` of one of this source's gave.

        Raises:
            StateError: The text is not of that form.
        """

    def commit_position(self, last: str) -> str | None:
        """Up to where every commit lies before the event of that ``POSITION``, if known."""

    def drop_slot(self, slot: str, *, timeout_s: float = 30.0) -> bool:
        """Drop the slot, waiting until its reader has gone; returns whether there was one."""

    def settle(self, *, timeout_s: float, progress: Progress) -> Settled:
        """After tables were brought into a capture: see that no transaction is captured in part.

        One that was open meanwhile may have its later changes captured and its earlier ones not.

        Raises:
            SourceError: Time ran out; names the blocking sessions and prepared transactions.
        """

    def wait_until_visible(
        self, transactions: Collection[int], *, timeout_s: float, progress: Progress
    ) -> None:
        """Wait until the primary shows what transactions did whose changes are in the stream.

        Args:
            transactions: Their ids as the stream has them.
            timeout_s: Bound of the wait.
            progress: Shows it.

        Raises:
            SourceError: Time ran out; names the sessions that still hold them back.
        """

    def nudge(self) -> None:
        """Let the capture's position move on, where it does so with the next change only."""

    def write_marker(self) -> Marker:
        """Write a new marker row on the primary."""

    def wait_for_marker_on_replica(
        self, marker: Marker, *, timeout_s: float, progress: Progress
    ) -> None:
        """Wait until the replica shows the marker and is a standby of the marker's primary.

        Returns at once when there is no replica.

        Raises:
            ReplicaError: Time ran out (with the lag, and whether replay is paused), or the
                replica is no standby of this primary.
        """

    def open_view(
        self, marker: Marker, *, timeout_s: float, progress: Progress
    ) -> AbstractContextManager[View]:
        """Open a view that contains the marker, on the replica or else on the primary.

        The session that exports it stays open until the context ends. On the primary the wait
        for older transactions happens inside.

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
        """Open a view that contains the marker, and of which `View.split` is known.

        Args:
            marker: Must be visible.
            sessions: How many will read at once, each for once; see `shares_views`.
            from_primary: Whether the primary is read although there is a replica.
            resuming: Resumes replay at the end of its block; see `cdc.sources.replay_pause`.
            timeout_s: Bound of each wait, in seconds.
            progress: Where waits are shown.

        Raises:
            ReplicaError: Replay cannot be paused, or the server is not what it must be.
            SourceError: Transactions of the primary stay open for too long.
            SnapshotLostError: The replica cancelled the session.
        """

    def exact_view_obstacle(self, *, from_primary: bool) -> tuple[str, str] | None:
        """Why there can be no such view, and what to do about it; None when there can."""

    def replay_paused(self) -> bool:
        """Whether replay of the replica is paused, or asked to pause."""

    def resume_replay(self) -> None:
        """Let the replica replay again, whoever paused it.

        Raises:
            ReplicaError: It still stands still.
        """

    def assert_view_alive(self, view: View) -> None:
        """Check that sessions can still import the view and its server is what it was.

        Raises:
            SnapshotLostError: The view is gone, or the replica was promoted or re-cloned.
        """

    def read_failure(self, table: TableId, text: str, view: View | None) -> TributaryError | None:
        """What a failed read by Spark means, from the text of its exception; None of another one.

        A lost view becomes `SnapshotLostError`, a session on the wrong server `ReplicaError`, a
        value that the lake cannot hold a `SourceError` that names the column.
        """

    def current_position(self) -> LogPosition:
        """The primary's position: no commit so far lies beyond it."""

    def replica_position(self) -> ReplicaPosition | None:
        """How far the replica is, or None without one."""

    def size(self, table: SourceTable) -> TableSize:
        """Rows and bytes from the present size of the table."""

    def largest_row(self, table: SourceTable) -> int | None:
        """Bytes of the largest of some sampled rows; None when there are none.

        Raises:
            SourceError: The sample takes too long, or the table cannot be read.
        """

    def capture_obstacle(self) -> tuple[str, str] | None:
        """Why nothing of the source can be captured as it is now, and what to do; else None."""

    def missing_rights(self, table: SourceTable, publication: str) -> tuple[str, str] | None:
        """What a login lacks to take the table, and the statements that give it; else None."""

    def key_obstacle(self, table: SourceTable, key: Sequence[str]) -> tuple[str, str] | None:
        """Why rows that are there cannot be found by a key of the lake, and what to do; else None.

        Raises:
            SourceError: The look takes too long, or the table cannot be read.
        """

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
        the view. Read from the replica where there is one.
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
        """How Spark reads those ranges, under the view, or as of now when it is None."""

    def fetch_by_key(
        self,
        table: SourceTable,
        schema: TableSchema,
        keys: Sequence[Sequence[object]],
        columns: Sequence[str],
        *,
        on_replica: bool = False,
    ) -> list[dict[str, Any]]:
        """Rows with those keys as Python values of the lake types; absent keys are left out.

        Args:
            table: The table.
            schema: Its lake schema.
            keys: Values in the order of ``schema.key``, as the lake has them.
            columns: What to fetch beside the key columns, which always come along.
            on_replica: Read from the replica instead of the primary.
        """

    def count(self, table: SourceTable, *, on_replica: bool = False) -> int:
        """Rows, counted."""
