"""One MySQL or MariaDB server with its replica, as a `cdc.sources.base.Source`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from typing import Any

from cdc.config import MysqlSourceConfig, TableSettings
from cdc.debezium import CaptureNames
from cdc.errors import ReplicaError, SnapshotLostError
from cdc.log.position import LogPosition
from cdc.runtime.progress import Progress
from cdc.sources import selection
from cdc.sources.mysql import (
    boundaries,
    catalog,
    checks,
    compressed_columns,
    exact_view,
    lookup,
    planned_table,
    preparation,
    primary,
    reader,
    replica,
    replica_applier,
)
from cdc.sources.mysql.binlog_capture import BinlogCapture
from cdc.sources.mysql.connection import Connections
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
from schemas.ddl.mysql_planned import read_planned
from schemas.errors import TributaryError
from schemas.fingerprint import Fingerprint
from schemas.table import Column, TableId, TableSchema

_SAMPLE_S, _LOOK_S = 1800.0, 10.0


class MysqlSource:
    """A source of kind ``mysql`` or ``mariadb``; see `cdc.sources.base.Source` for each method.

    Args:
        name: Key of the source in the configuration.
        config: The source's section of the configuration.
    """

    def __init__(self, name: str, config: MysqlSourceConfig) -> None:
        self._name = name
        self._config = config
        self._connections = Connections(name, config)

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""
        return self._name

    @property
    def has_replica(self) -> bool:
        """Whether snapshots are read from a replica."""
        return self._config.replica is not None

    shares_views = False
    partition_files = None
    """None, since the log contains the statements that add and drop partitions."""

    def tables(self) -> list[TableStats]:
        """Return all tables of the source's databases except Tributary's own, sorted by name."""
        with self._connections.open("admin") as session:
            return catalog.read_tables(session, self._name, self._config.databases)

    def checks(self) -> list[Check]:
        """Check the connections, versions, settings, privileges and the replica."""
        return checks.run(self._connections)

    def table(self, table: TableId) -> SourceTable:
        """Return the table as the primary's catalog describes it."""
        with self._connections.open("admin") as session:
            return catalog.read_table(session, table)

    def columns(self, table: SourceTable, settings: TableSettings) -> tuple[Column, ...]:
        """Return the columns that are replicated, whether or not the table has a usable key."""
        return selection.lake_columns(table, settings)

    def planned(self, table: SourceTable, fingerprint: Fingerprint, ddl: str) -> Planned:
        """Return the table as it would be after DDL statements; no statement is executed."""
        statements = read_planned(ddl, table.table)
        with self._connections.open("admin") as session:
            return planned_table.after_statements(session, table.table, fingerprint, statements)

    def stored_value(self, table: SourceTable, column: Column, stored: str) -> StoredValue:
        """Return a new column's value in older rows, and the type rule that reads the value."""
        with self._connections.open("admin") as session:
            return lookup.stored_value(session, table, column)

    def schema(self, table: SourceTable, settings: TableSettings) -> TableSchema:
        """Return the columns and the record key of the lake table, by the settings."""
        return selection.lake_schema(table, settings)

    def identity(self, *, on_replica: bool = False) -> ServerIdentity:
        """Return the identity of the primary or, if asked, of the replica."""
        role: Role = "snapshot" if on_replica else "admin"
        with self._connections.open(role, on_replica=on_replica) as session:
            server, reads_only = primary.identity(session, self._config.kind)
        unknown = server.startswith(f"{primary.UNKNOWN}@")
        return ServerIdentity(server, None, in_recovery=reads_only, unknown=unknown)

    def capture(self, names: CaptureNames) -> BinlogCapture:
        """Return the capture with these names, whether or not it exists."""
        return BinlogCapture(self._connections, names)

    def capture_obstacle(self) -> tuple[str, str] | None:
        """Return why the server's connector would stop, and the remedy; None if it would run."""
        with self._connections.open("admin") as session:
            return compressed_columns.obstacle(session)

    def cascades_unseen(self) -> bool:
        """Whether InnoDB itself changes rows by foreign keys; the log lacks such changes."""
        with self._connections.open("admin") as session:
            return preparation.cascades_unseen(session)

    def position(self, text: str) -> LogPosition:
        """Parse a position as the server prints it: a GTID set, or a binlog's file and offset."""
        return primary.position(text, self._config.kind)

    def commit_position(self, last: str) -> str | None:
        """Return None, since an event does not show where its transaction ends."""
        return None

    def wait_for_older_transactions(self, *, timeout_s: float, progress: Progress) -> OlderEnded:
        """Write a marker; no transaction after the marker is captured in part.

        If tables are added to the connector in the middle of a transaction, the connector can miss
        the earlier changes of this transaction. The transaction is before the marker in the log, so
        the copy contains all its changes.
        """
        marker = self.write_marker()
        return OlderEnded(str(marker.id), marker.position)

    def wait_until_visible(
        self, transactions: Collection[int], *, timeout_s: float, progress: Progress
    ) -> Collection[int]:
        """Write a marker, whose commit makes all earlier transactions visible; return no id.

        Commits become visible in the order of the log. So queries see every transaction that the
        log has before the marker.
        """
        self.write_marker()
        return ()

    def nudge(self) -> None:
        """Write a marker, since Connect stores a position only when a later transaction begins."""
        self.write_marker()

    def write_marker(self) -> Marker:
        """Write a new marker row on the primary."""
        return primary.write_marker(self._connections)

    def wait_for_marker_on_replica(
        self, marker: Marker, *, timeout_s: float, progress: Progress
    ) -> None:
        """Wait until the replica has executed all transactions up to the marker's position."""
        if self.has_replica:
            replica.wait_for_position(
                self._connections,
                self.position(str(marker.position)),
                timeout_s=timeout_s,
                progress=progress,
            )

    @contextmanager
    def open_view(self, marker: Marker, *, timeout_s: float, progress: Progress) -> Iterator[View]:
        """Open a view whose sessions each read at a moment of their own after the marker.

        Each session proves by the marker row that its moment is after the marker. The records from
        O on contain every change that some sessions see and others do not, so they make the copy
        exact.
        """
        self.wait_for_marker_on_replica(marker, timeout_s=timeout_s, progress=progress)
        identity = self.identity(on_replica=True)
        yield View(
            snapshot_id="",
            # The replica's own position is not used, since the replica can have transactions that
            # the primary lacks. R is the position of a marker after the copy, so it is after every
            # change that the sessions see.
            upper_bound=marker.position,
            opened_at=datetime.now(timezone.utc),
            on_replica=self.has_replica,
            marker=marker,
            identity=identity,
        )

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
        """Open a view on the replica that has the same position in every session.

        The replica's applier is stopped until every session has opened its view.
        """
        if (found := self.exact_view_obstacle(from_primary=from_primary)) is not None:
            problem, remedy = found
            raise ReplicaError(f"source {self._name}: {problem}", remedy=remedy)
        self.wait_for_marker_on_replica(marker, timeout_s=timeout_s, progress=progress)
        opened = exact_view.replica_view(
            self._connections,
            exact_view.Fenced(marker, self.identity(on_replica=True)),
            sessions=sessions,
            resuming=resuming,
            timeout_s=timeout_s,
            progress=progress,
        )
        with opened as view:
            yield view

    def exact_view_obstacle(self, *, from_primary: bool) -> tuple[str, str] | None:
        """Return why `open_exact_view` cannot open a view, and the remedy; None if it can."""
        on_replica = self.has_replica and not from_primary
        return exact_view.obstacle(self._connections, on_replica=on_replica)

    def replay_paused(self) -> bool:
        """Whether the replica's applier is stopped."""
        return self.has_replica and replica_applier.paused(self._connections)

    def resume_replay(self) -> None:
        """Start the replica's applier, even if another process or a person stopped it."""
        if self.has_replica:
            replica_applier.resume(self._connections)

    def assert_view_alive(self, view: View) -> None:
        """Check that the replica is still the same server, and that it has the primary's rows."""
        now = self.identity(on_replica=True)
        if now.system_identifier != view.identity.system_identifier:
            raise SnapshotLostError(
                f"the {self._connections.where(on_replica=True)} of source {self._name} became"
                f" another server during the copy (it was {view.identity.system_identifier}, and"
                f" is now {now.system_identifier})",
                remedy="Point `replica` at one server, and not at several.",
                source=self._name,
            )
        self.assert_rows_of_primary(view)

    def assert_rows_of_primary(self, view: View) -> None:
        """Check that the replica skips no change of the primary, and has executed no other."""
        if view.on_replica:
            replica.require_rows_of_primary(self._connections)

    def read_failure(self, table: TableId, text: str, view: View | None) -> TributaryError | None:
        """Return the typed error of a failed read by Spark, from the text of its exception."""
        if view is not None and view.split is not None and (found := view.split.failure()):
            return found  # the sessions themselves do not know this cause
        together = view is not None and bool(view.snapshot_id)
        known = reader.is_from_server(text)
        return reader.explain_failure(table, text, together=together) if known else None

    def current_position(self) -> LogPosition:
        """Return the primary's position: a GTID set, or a binlog's file and offset."""
        with self._connections.open("admin") as session:
            return primary.executed_position(session, self._config.kind)

    def replica_position(self) -> ReplicaPosition | None:
        """Return the replica's position and lag; None without a replica."""
        if not self.has_replica:
            return None
        now = replica.position(self._connections)
        return ReplicaPosition(now.executed, None, None, now.lag_seconds, now.stopped)

    def size(self, table: SourceTable) -> TableSize:
        """Return an estimate of the table's rows and bytes, from its current size."""
        with self._connections.open("snapshot", on_replica=True) as session:
            return boundaries.table_size(session, table)

    def largest_row(self, table: SourceTable) -> int | None:
        """Return the size in bytes of the largest row in a sample; None if the table is empty."""
        opened = self._connections.open("snapshot", on_replica=True, statement_timeout_s=_LOOK_S)
        with opened as session:
            return boundaries.largest_row(session, table)

    def key_obstacle(self, table: SourceTable, key: Sequence[str]) -> tuple[str, str] | None:
        """Return the problem of zero or partial dates in the key, and the remedy; else None."""
        opened = self._connections.open("snapshot", on_replica=True, statement_timeout_s=_LOOK_S)
        with opened as session:
            return boundaries.zero_dates(session, table, key)

    def sample_boundaries(
        self,
        table: SourceTable,
        key: Sequence[str],
        chunks: int,
        *,
        size: TableSize | None = None,
    ) -> Boundaries:
        """Return boundaries that cut the key into ranges of about equal numbers of rows."""
        opened = self._connections.open("snapshot", on_replica=True, statement_timeout_s=_SAMPLE_S)
        with opened as session:
            known = size or boundaries.table_size(session, table)
            return boundaries.sample_boundaries(session, table, key, chunks, known)

    def snapshot_query(
        self,
        table: SourceTable,
        schema: TableSchema,
        ranges: Sequence[KeyRange],
        *,
        view: View | None,
        fetch_size: int = 10_000,
    ) -> SnapshotQuery:
        """Return the query by which Spark reads the ranges."""
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
        """Return the rows with the given keys, as Python values of the lake types."""
        with self._connections.open("snapshot", on_replica=on_replica) as session:
            return lookup.fetch_by_key(session, table, schema, keys, columns)

    def next_inserted(
        self, table: SourceTable, key: Mapping[str, object], transaction: int
    ) -> NextInserted:
        """Return that there is none, since the binlog numbers the rows of a position."""
        return NextInserted(known=True)

    def count(self, table: SourceTable, *, on_replica: bool = False) -> int:
        """Count the rows of the table."""
        opened = self._connections.open(
            "snapshot", on_replica=on_replica, statement_timeout_s=_SAMPLE_S
        )
        with opened as session:
            return lookup.count(session, table)
