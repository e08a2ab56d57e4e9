"""One PostgreSQL database with its replica, as a `cdc.sources.base.Source`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from cdc.config import PostgresSourceConfig, TableSettings
from cdc.debezium import CaptureNames
from cdc.errors import SourceError
from cdc.log.position import Lsn
from cdc.runtime.progress import Progress
from cdc.sources import selection
from cdc.sources.postgres import (
    boundaries,
    catalog,
    checks,
    exact_view,
    heap_page,
    key_order,
    letter_case,
    lookup,
    other_publications,
    planned_table,
    primary,
    reader,
    replica,
    table_names,
    table_sizes,
    version,
)
from cdc.sources.postgres.connection import Connections, is_recovery_conflict
from cdc.sources.postgres.named_types import UserTypes
from cdc.sources.postgres.partition_files import PostgresPartitionFiles
from cdc.sources.postgres.slot_capture import PostgresCapture
from cdc.sources.servers import Role
from cdc.sources.source_facts import (
    Boundaries,
    Check,
    KeyRange,
    Marker,
    NextInserted,
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
from schemas.fingerprint import Fingerprint
from schemas.planned_ddl.postgres_statements import read_ddl
from schemas.table import Column, TableId, TableSchema

_log = logging.getLogger(__name__)
T = TypeVar("T")

_LOCKED = "55P03"
"""PostgreSQL's SQLSTATE for a lock that another session has kept for too long."""

_SAMPLE_S, _LOOK_S = 1800.0, 10.0


class PostgresSource:
    """A source of kind ``postgres``; see `cdc.sources.base.Source` for what each method does.

    Args:
        name: Key of the source in the configuration.
        config: The source's section of the configuration.
    """

    shares_views = True
    position = staticmethod(Lsn.parse)

    def __init__(self, name: str, config: PostgresSourceConfig) -> None:
        self._name = name
        self._config = config
        self._connections = Connections(name, config)
        self._exporters: dict[tuple[str, str], replica.Exporter] = {}

    @property
    def name(self) -> str:
        """Key of the PostgreSQL source in ``tributary.yaml``."""
        return self._name

    @property
    def has_replica(self) -> bool:
        """Whether the PostgreSQL source has a replica. If so, copies read from it."""
        return self._config.replica is not None

    def tables(self) -> list[TableStats]:
        """Return all user tables of a PostgreSQL source except Tributary's own, sorted by name.

        If another session keeps a table locked, for example while it rewrites the table, all sizes
        are those of the last VACUUM or ANALYZE.
        """
        return self._measured(partial(catalog.read_tables, source=self._name))

    def total_bytes(self, tables: Collection[TableId]) -> dict[TableId, int]:
        """Return the bytes on disk of each of the given PostgreSQL tables that exists.

        If another session keeps one of them locked, all sizes are those of the last VACUUM or
        ANALYZE.
        """
        return self._measured(partial(table_sizes.read_sizes, tables=tables))

    def _measured(self, read: Callable[..., T]) -> T:
        """Return what ``read`` returns of measured tables or, if one is locked, without sizes.

        Args:
            read: Takes a session, and ``measured``: whether the server measures the tables.
        """
        try:
            with self._connections.open("admin") as session:
                return read(session, measured=True)
        except SourceError as error:
            if error.context.get("sqlstate") != _LOCKED:
                raise
            _log.warning("the tables of source %s are not measured: %s", self._name, error)
        with self._connections.open("admin") as session:
            return read(session, measured=False)

    def table_names(
        self, of_schema: Callable[[str], bool] | None = None, *, partitions: bool = True
    ) -> list[TableId]:
        """Return the names of the tables that `tables` returns, without waiting for any lock."""
        with self._connections.open("admin") as session:
            found = table_names.read_names(session, self._name, partitions=partitions)
        return [one for one in found if of_schema is None or of_schema(one.schema)]

    def checks(self) -> list[Check]:
        """Check connections, versions, settings, privileges and the PostgreSQL replica."""
        return checks.run(self._connections)

    def capture_obstacle(self) -> tuple[str, str] | None:
        """Return why the PostgreSQL source cannot be captured at all, and the remedy.

        For example, the connector would not start, or other tools' subscribers would stop. The
        result is None if the source can be captured.
        """
        with self._connections.open("admin") as session:
            return (
                version.obstacle(session.info.server_version)
                or letter_case.obstacle(session)
                or other_publications.obstacle(session, self._config.credentials.admin.user)
            )

    def capture(self, names: CaptureNames) -> PostgresCapture:
        """Return the PostgreSQL capture with these names, whether or not it exists."""
        return PostgresCapture(self._connections, names)

    def table(self, table: TableId) -> SourceTable:
        """Return the table in the PostgreSQL primary's catalog."""
        with self._connections.open("admin") as session:
            return catalog.read_table(session, table)

    def reused_sessions(self) -> AbstractContextManager[None]:
        """Return a block that does nothing: PostgreSQL's sessions are used again in any case."""
        return nullcontext()

    def columns(self, table: SourceTable, settings: TableSettings) -> tuple[Column, ...]:
        """Return the replicated columns of a PostgreSQL table, even without a usable key."""
        return selection.lake_columns(table, settings)

    def planned(self, table: SourceTable, fingerprint: Fingerprint, ddl: str) -> Planned:
        """Return a PostgreSQL table as it would be after DDL statements, without executing them."""
        actions = read_ddl(ddl, table.table)
        with self._connections.open("admin") as session:
            return planned_table.after_statements(session, table, fingerprint, actions)

    def stored_value(self, table: SourceTable, column: Column, stored: str) -> StoredValue:
        """Return a new PostgreSQL column's value in older rows, and the column's type rule.

        Older rows are those from before the column was added.
        """
        with self._connections.open("admin") as session:
            return lookup.stored_value(session, table, column, stored)

    @property
    def partition_files(self) -> PostgresPartitionFiles:
        """Detects DDL on PostgreSQL partitions by the partitions' files."""
        return PostgresPartitionFiles(self._connections)

    @property
    def named_types(self) -> UserTypes:
        """The user-defined types, which PostgreSQL's connector looks up by name."""
        return UserTypes(self._connections)

    def schema(self, table: SourceTable, settings: TableSettings) -> TableSchema:
        """Return the PostgreSQL table's lake schema: the replicated columns and the record key."""
        return selection.lake_schema(table, settings)

    def identity(self, *, on_replica: bool = False) -> ServerIdentity:
        """Return the identity of a server: its cluster, its timeline, whether it is a standby."""
        role: Role = "snapshot" if on_replica else "admin"
        with self._connections.open(role, on_replica=on_replica, new_login=True) as session:
            return primary.identity(session)

    def commit_position(self, last: str) -> str | None:
        """Return the LSN of the last commit before an event; None if the event lacks this LSN.

        Args:
            last: The event's value of `cdc.rows.columns.POSITION`.
        """
        ended = int(last.partition(":")[0], 16)
        return str(Lsn(ended)) if ended else None

    def cascades_unseen(self) -> bool:
        """Return False, since PostgreSQL logs the rows that a cascade changes."""
        return False

    def wait_for_older_transactions(self, *, timeout_s: float, progress: Progress) -> OlderEnded:
        """Take a new PostgreSQL transaction id, x0; wait for the end of all older transactions."""
        with self._connections.open("admin") as session:
            x0 = primary.current_transaction_id(session)
            primary.wait_for_older_transactions(
                session, x0, source=self._name, timeout_s=timeout_s, progress=progress
            )
        return OlderEnded(str(x0))

    def wait_until_visible(
        self, transactions: Collection[int], *, timeout_s: float, progress: Progress
    ) -> Collection[int]:
        """Wait until queries see the given transactions; return the ids of all open transactions.

        The ids are the lower 32 bits of PostgreSQL's transaction ids.
        """
        with self._connections.open("admin") as session:
            return primary.wait_until_visible(
                session, transactions, source=self._name, timeout_s=timeout_s, progress=progress
            )

    def nudge(self) -> None:
        """Do nothing, since PostgreSQL's log grows even without a marker."""

    def write_marker(self) -> Marker:
        """Write a new marker row on the PostgreSQL primary."""
        with self._connections.open("marker", new_login=True) as session:
            return primary.write_marker(session)

    def wait_for_marker_on_replica(
        self, marker: Marker, *, timeout_s: float, progress: Progress, go_on: bool = False
    ) -> None:
        """Wait until the replica shows the marker and is a standby of the marker's primary."""
        if self.has_replica:
            replica.wait_for_marker(
                self._connections, marker, timeout_s=timeout_s, progress=progress, go_on=go_on
            )

    @contextmanager
    def open_view(
        self, marker: Marker, *, one_moment: bool, timeout_s: float, progress: Progress
    ) -> Iterator[View]:
        """Open a view, an image of PostgreSQL with the marker row, until the block ends.

        If ``one_moment`` is true, all sessions import one snapshot. Otherwise each session takes a
        snapshot of its own, so that none is open for longer than one chunk: the primary's VACUUM
        keeps the rows that an open snapshot can see.

        A commit is in the log of a primary before it is visible. So without a replica, the method
        first waits until each transaction that is open at the call has ended.
        """
        connections = self._connections
        if self.has_replica:
            self.wait_for_marker_on_replica(marker, timeout_s=timeout_s, progress=progress)
        else:
            self.wait_for_older_transactions(timeout_s=timeout_s, progress=progress)
        if not one_moment:
            opened = replica.own_snapshots(connections, marker, on_replica=self.has_replica)
        elif self.has_replica:
            opened = exact_view.shared_view(
                connections, marker, timeout_s=timeout_s, progress=progress
            )
        else:
            opened = replica.primary_view(connections, marker)
        with opened as exporter, self._watched(exporter) as view:
            yield view

    @contextmanager
    def open_exact_view(
        self,
        marker: Marker,
        *,
        sessions: int,
        from_primary: bool,
        resuming: Callable[[], AbstractContextManager[None]],
        timeout_s: float,
        progress: Progress,
    ) -> Iterator[View]:
        """Open a view, an image of PostgreSQL with the marker row, whose log position S is known.

        The view contains exactly the transactions up to S. The view closes at the block's end.
        """
        connections = self._connections
        if self.has_replica and not from_primary:
            self.wait_for_marker_on_replica(marker, timeout_s=timeout_s, progress=progress)
            opened = exact_view.replica_view(
                connections, marker, resuming=resuming, timeout_s=timeout_s, progress=progress
            )
        else:
            opened = exact_view.primary_view(connections, marker, timeout_s=timeout_s)
        with opened as exporter, self._watched(exporter) as view:
            yield view

    def exact_view_obstacle(self, *, from_primary: bool) -> tuple[str, str] | None:
        """Return why `open_exact_view` cannot open a PostgreSQL view, and the remedy.

        The result is None if `open_exact_view` can open a view.
        """
        on_replica = self.has_replica and not from_primary
        return exact_view.obstacle(self._connections, on_replica=on_replica)

    def replay_paused(self) -> bool:
        """Whether the PostgreSQL replica's replay is paused, or its pause is requested."""
        return exact_view.replay_state(self._connections) != "not paused"

    def resume_replay(self) -> None:
        """Resume the PostgreSQL replica's replay, even if another process or a person paused it."""
        if self.has_replica:
            exact_view.resume(self._connections)

    @contextmanager
    def _watched(self, exporter: replica.Exporter) -> Iterator[View]:
        """Let `assert_view_alive` find the PostgreSQL view's exporter while the block runs."""
        known = _known_as(exporter.view)
        self._exporters[known] = exporter
        try:
            yield exporter.view
        finally:
            del self._exporters[known]

    def assert_view_alive(self, view: View) -> None:
        """Check that a copy's view of PostgreSQL is open, and that its server has not changed."""
        if view.snapshot_id or not view.on_replica:
            self._assert_session_alive(view)
        if not view.snapshot_id:
            replica.assert_same_server(self._connections, view)

    def _assert_session_alive(self, view: View) -> None:
        """Check that the PostgreSQL session is alive that was opened with the view."""
        exporter = self._exporters.get(_known_as(view))
        if exporter is None:
            raise replica.closed_view(self._name, view)
        replica.assert_alive(self._connections, exporter)

    def assert_rows_of_primary(self, view: View) -> None:
        """Check that no crash of the PostgreSQL primary can undo what the view has shown.

        With ``synchronous_commit = off``, a primary shows commits before they are on its disk, and
        a crash loses them without an event. A new marker is on the disk, so all that was shown
        before it is, too, if the server has not crashed meanwhile: that would have ended the view's
        session. A standby only shows what is on the primary's disk, and has no other changes.
        """
        if not view.on_replica:
            self.write_marker()
            self._assert_session_alive(view)

    def read_failure(self, table: TableId, text: str, view: View | None) -> SourceError | None:
        """Return the typed error for a read of PostgreSQL that failed in Spark.

        The result is None if ``text`` reports that something else failed.

        Args:
            table: The table that Spark read.
            text: The message of Spark's exception.
            view: The view under which Spark read; None without a view.
        """
        if "PSQLException" not in text:
            return None
        if view is not None and is_recovery_conflict(text):
            return replica.lost_view(self._connections, view, "cancelled: conflict with recovery")
        on_replica = self.has_replica if view is None else view.on_replica
        return reader.explain_failure(table, text, on_replica=on_replica)

    def current_position(self) -> Lsn:
        """Return the end of the PostgreSQL primary's log; all commits so far are before it."""
        with self._connections.open("admin") as session:
            return primary.current_lsn(session)

    def replica_position(self) -> ReplicaPosition | None:
        """Return the PostgreSQL replica's position and lag; None without a replica."""
        return replica.replica_position(self._connections) if self.has_replica else None

    def size(self, table: SourceTable) -> TableSize:
        """Return an estimate of a PostgreSQL table's current number of rows and bytes."""
        with self._connections.open("snapshot", on_replica=True) as session:
            return boundaries.table_size(session, table)

    def largest_row(self, table: SourceTable) -> int | None:
        """Return the size in bytes of the largest row in a sample; None if the sample is empty."""
        opened = self._connections.open("snapshot", on_replica=True, statement_timeout_s=_LOOK_S)
        with opened as session:
            return boundaries.largest_row(session, table)

    def key_obstacle(self, table: SourceTable, key: Sequence[str]) -> tuple[str, str] | None:
        """Return None, since the lake can represent every value of a PostgreSQL key."""

    def key_order(self, table: SourceTable, key: Sequence[str]) -> str | None:
        """Return the versions of the libraries with which PostgreSQL sorts a key's text.

        The result is None if an index can sort the key differently from the server (see
        `cdc.sources.postgres.key_order`).
        """
        return key_order.key_order(self._connections, table, key, has_replica=self.has_replica)

    def sample_boundaries(
        self,
        table: SourceTable,
        key: Sequence[str],
        chunks: int,
        *,
        size: TableSize | None = None,
    ) -> Boundaries:
        """Return keys that cut a PostgreSQL table into up to ``chunks`` ranges of about equal size.

        The result has no keys if an index can sort the table's keys differently from the server
        (see `key_order`).
        """
        if chunks > 1 and self.key_order(table, key) is None:
            chunks = 1
        opened = self._connections.open("snapshot", on_replica=True, statement_timeout_s=_SAMPLE_S)
        with opened as session:
            known = size or boundaries.table_size(session, table)
            return boundaries.sample(session, table, key, chunks, known)

    def snapshot_query(
        self,
        table: SourceTable,
        schema: TableSchema,
        ranges: Sequence[KeyRange],
        *,
        view: View | None,
        fetch_size: int = 10_000,
    ) -> SnapshotQuery:
        """Return the query by which Spark reads the ranges of a PostgreSQL table."""
        return reader.snapshot_query(
            self._connections, table, schema, ranges, view=view, fetch_size=fetch_size
        )

    def fetch_by_key(
        self,
        table: SourceTable,
        schema: TableSchema,
        keys: Sequence[Sequence[object]],
        columns: Sequence[str],
        *,
        on_replica: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the PostgreSQL rows with the given keys, as Python values of the lake's types."""
        with self._connections.open("snapshot", on_replica=on_replica) as session:
            return lookup.fetch_by_key(session, table, schema, keys, columns)

    def next_inserted(
        self, table: SourceTable, key: Mapping[str, object], transaction: int | None
    ) -> NextInserted:
        """Return the row that a transaction inserted next, after a given row of this transaction.

        Only rows in the given row's page of the PostgreSQL table are searched.
        """
        with self._connections.open("snapshot") as session:
            return heap_page.next_inserted(session, table, key, transaction)

    def count(self, table: SourceTable, *, on_replica: bool = False) -> int:
        """Count the rows of the PostgreSQL table."""
        opened = self._connections.open("snapshot", on_replica=on_replica, statement_timeout_s=0)
        with opened as session:
            return lookup.count(session, table)


def _known_as(view: View) -> tuple[str, str]:
    """Return what distinguishes an open view of a PostgreSQL source from others."""
    return view.snapshot_id, str(view.marker.id)
