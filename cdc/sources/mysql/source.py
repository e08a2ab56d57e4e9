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
    rights,
)
from cdc.sources.mysql.binlog_capture import BinlogCapture
from cdc.sources.mysql.connection import Connections
from cdc.sources.mysql.replica_applier import Applier
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
from schemas.errors import TributaryError
from schemas.fingerprint import Fingerprint
from schemas.planned_ddl.mariadb_unreadable import require_readable
from schemas.planned_ddl.mysql_statements import read_planned
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
        self._applier = Applier(self._connections)

    @property
    def name(self) -> str:
        """Key of the MySQL or MariaDB source in ``tributary.yaml``."""
        return self._name

    @property
    def has_replica(self) -> bool:
        """Whether the MySQL or MariaDB source has a replica. If so, copies read from it."""
        return self._config.replica is not None

    shares_views = False
    named_types = None
    """None, since MySQL and MariaDB have no user-defined types."""
    partition_files = None
    """None, since the binlog contains the statements that add, drop and truncate partitions."""

    def tables(self) -> list[TableStats]:
        """Return all tables of a MySQL or MariaDB source except Tributary's own, sorted by name."""
        with self._connections.open("admin") as session:
            return catalog.read_tables(session, self._name, self._config.databases)

    def table_names(
        self, of_schema: Callable[[str], bool] | None = None, *, partitions: bool = True
    ) -> list[TableId]:
        """Return the names of the tables that `tables` returns; none of them is opened.

        No partition is a table of its own in MySQL and MariaDB, so ``partitions`` has no effect.
        """
        with self._connections.open("admin") as session:
            found = catalog.read_names(session, self._config.databases, of_schema)
        return sorted(TableId(self._name, *names) for names in found)

    def total_bytes(self, tables: Collection[TableId]) -> dict[TableId, int]:
        """Return the bytes on disk of each of the given MySQL or MariaDB tables that exists."""
        with self._connections.open("admin") as session:
            return catalog.read_sizes(session, tables)

    def checks(self) -> list[Check]:
        """Check a MySQL or MariaDB source: connections, versions, settings, rights, replica."""
        return checks.run(self._connections)

    def table(self, table: TableId) -> SourceTable:
        """Return the table as the catalog of the MySQL or MariaDB primary describes it."""
        with self._connections.look("admin") as session:
            return catalog.read_table(session, table)

    def reused_sessions(self) -> AbstractContextManager[None]:
        """Let looks at MySQL or MariaDB tables share sessions until the end of the block."""
        return self._connections.series()

    def columns(self, table: SourceTable, settings: TableSettings) -> tuple[Column, ...]:
        """Return the replicated columns of a MySQL or MariaDB table, even without a usable key."""
        return selection.lake_columns(table, settings)

    def planned(self, table: SourceTable, fingerprint: Fingerprint, ddl: str) -> Planned:
        """Return the MySQL or MariaDB table as it would be after DDL statements.

        No statement is executed.
        """
        if self._config.kind == "mariadb":
            require_readable(ddl, table.table)
        statements = read_planned(ddl, table.table)
        with self._connections.open("admin") as session:
            return planned_table.after_statements(session, table.table, fingerprint, statements)

    def stored_value(self, table: SourceTable, column: Column, stored: str) -> StoredValue:
        """Return a new MySQL column's value in older rows, and the column's type rule.

        Older rows are those from before the column was added. The type rule describes how the
        column's values are converted to the lake's type.
        """
        with self._connections.open("admin") as session:
            return lookup.stored_value(session, table, column)

    def schema(self, table: SourceTable, settings: TableSettings) -> TableSchema:
        """Return the lake schema of a MySQL or MariaDB table: columns and record key."""
        return selection.lake_schema(table, settings)

    def identity(self, *, on_replica: bool = False) -> ServerIdentity:
        """Return the identity of the MySQL or MariaDB primary; if ``on_replica``, the replica's."""
        role: Role = "snapshot" if on_replica else "admin"
        with self._connections.open(role, on_replica=on_replica) as session:
            server, reads_only = primary.identity(session, self._config.kind)
        unknown = server.startswith(f"{primary.UNKNOWN}@")
        return ServerIdentity(server, None, in_recovery=reads_only, unknown=unknown)

    def capture(self, names: CaptureNames) -> BinlogCapture:
        """Return the MySQL or MariaDB capture with these names, whether or not it exists."""
        return BinlogCapture(self._connections, names)

    def capture_obstacle(self) -> tuple[str, str] | None:
        """Return why a MySQL or MariaDB connector would stop, and the remedy.

        The result is None if the connector would not stop. A right that the admin login lacks on
        the server counts, too: copies and runs need it, and would fail after all was created.
        """
        for lacking in rights.of_server(self._connections, "admin"):
            return lacking.detail, lacking.remedy
        with self._connections.open("admin") as session:
            return compressed_columns.obstacle(session)

    def cascades_unseen(self) -> bool:
        """Whether the binlog lacks the row changes that InnoDB makes because of foreign keys."""
        with self._connections.open("admin") as session:
            return preparation.cascades_unseen(session)

    def position(self, text: str) -> LogPosition:
        """Parse a position as the server prints it: a GTID set, or a binlog's file and offset."""
        return primary.position(text, self._config.kind)

    def commit_position(self, last: str) -> str | None:
        """Return None, since a MySQL or MariaDB event has no position of an earlier commit."""
        return None

    def wait_for_older_transactions(self, *, timeout_s: float, progress: Progress) -> OlderEnded:
        """Write a marker in MySQL or MariaDB; transactions after it are captured as a whole.

        If a table is added to the connector in the middle of a transaction, the connector can miss
        the transaction's earlier changes of the table. Such a transaction is before the marker in
        the log. So the copy, whose view contains the marker, has all changes of the transaction.
        """
        marker = self.write_marker()
        return OlderEnded(str(marker.id), marker.position)

    def wait_until_visible(
        self, transactions: Collection[int], *, timeout_s: float, progress: Progress
    ) -> Collection[int]:
        """Write a marker in MySQL or MariaDB; return no ids, since all earlier commits are visible.

        MySQL and MariaDB make commits visible in the order of the log. So queries see every
        transaction that the log has before the marker.
        """
        self.write_marker()
        return ()

    def nudge(self) -> None:
        """Write a marker: Connect stores a transaction's position only after a later event."""
        self.write_marker()

    def write_marker(self) -> Marker:
        """Write a new marker row on the MySQL or MariaDB primary, and return the marker."""
        return primary.write_marker(self._connections)

    def wait_for_marker_on_replica(
        self, marker: Marker, *, timeout_s: float, progress: Progress, go_on: bool = False
    ) -> None:
        """Wait until the MySQL or MariaDB replica has executed the marker's transaction."""
        if self.has_replica:
            replica.wait_for_position(
                self._connections,
                self.position(str(marker.position)),
                timeout_s=timeout_s,
                progress=progress,
            )

    @contextmanager
    def open_view(
        self, marker: Marker, *, one_moment: bool, timeout_s: float, progress: Progress
    ) -> Iterator[View]:
        """Open a MySQL or MariaDB view whose sessions read at different moments after the marker.

        ``one_moment`` is ignored: if all sessions must see the same rows, a copy calls
        `open_exact_view`.

        Each session checks that it sees the marker row, so it reads at a moment after the marker.
        If only some sessions see a change, the change has an event at or after O, the topic's
        offsets from which on events are applied. Such events are applied to the copy, which makes
        the copy exact.
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
        """Open a view on the MySQL or MariaDB replica at one position for all sessions.

        The replica's applier is stopped until every session has opened its view.
        """
        if (found := self.exact_view_obstacle(from_primary=from_primary)) is not None:
            problem, remedy = found
            raise ReplicaError(f"source {self._name}: {problem}", remedy=remedy)
        self.wait_for_marker_on_replica(marker, timeout_s=timeout_s, progress=progress)
        opened = exact_view.replica_view(
            self._applier,
            exact_view.Fenced(marker, self.identity(on_replica=True)),
            sessions=sessions,
            resuming=resuming,
            timeout_s=timeout_s,
            progress=progress,
        )
        with opened as view:
            yield view

    def exact_view_obstacle(self, *, from_primary: bool) -> tuple[str, str] | None:
        """Return why `open_exact_view` cannot open a MySQL or MariaDB view, and the remedy.

        The result is None if `open_exact_view` can open such a view.
        """
        on_replica = self.has_replica and not from_primary
        return exact_view.obstacle(self._connections, on_replica=on_replica)

    def replay_paused(self) -> bool:
        """Whether the replica's applier is stopped."""
        return self.has_replica and self._applier.paused()

    def resume_replay(self) -> None:
        """Start the stopped appliers of the replica, as `Applier.resume` describes."""
        if self.has_replica:
            self._applier.resume()

    def assert_view_alive(self, view: View) -> None:
        """Check that the MySQL or MariaDB replica is still the view's server.

        Also check that the replica skips no change and has no change of its own.
        """
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
        """Check that a MySQL or MariaDB replica skips no change and has no change of its own."""
        if view.on_replica:
            replica.require_rows_of_primary(self._connections)

    def read_failure(self, table: TableId, text: str, view: View | None) -> TributaryError | None:
        """Return the typed error for a read of MySQL or MariaDB that failed in Spark.

        The result is None if ``text`` reports that something else failed.

        Args:
            table: The table that Spark read.
            text: The message of Spark's exception.
            view: The view under which Spark read; None without a view.
        """
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
        """Return the MySQL or MariaDB replica's position and lag; None without a replica."""
        if not self.has_replica:
            return None
        now = replica.position(self._connections)
        return ReplicaPosition(now.executed, None, None, now.lag_seconds, now.stopped)

    def size(self, table: SourceTable) -> TableSize:
        """Return an estimate of a MySQL or MariaDB table's current number of rows and bytes."""
        with self._connections.open("snapshot", on_replica=True) as session:
            return boundaries.table_size(session, table)

    def largest_row(self, table: SourceTable) -> int | None:
        """Return the size in bytes of the largest row in a sample; None if the table is empty."""
        opened = self._connections.look("snapshot", on_replica=True, statement_timeout_s=_LOOK_S)
        with opened as session:
            return boundaries.largest_row(session, table)

    def key_obstacle(self, table: SourceTable, key: Sequence[str]) -> tuple[str, str] | None:
        """Return the problem and the remedy if a MySQL or MariaDB key has dates such as 2024-00-00.

        No calendar has such a date. The result is None if no key column has such a date.
        """
        opened = self._connections.look("snapshot", on_replica=True, statement_timeout_s=_LOOK_S)
        with opened as session:
            return boundaries.zero_dates(session, table, key)

    def key_order(self, table: SourceTable, key: Sequence[str]) -> str:
        """Return an empty string: no library outside MySQL or MariaDB sorts the keys."""
        return ""

    def sample_boundaries(
        self,
        table: SourceTable,
        key: Sequence[str],
        chunks: int,
        *,
        size: TableSize | None = None,
    ) -> Boundaries:
        """Return boundaries that cut a MySQL or MariaDB key into ranges of about equal size."""
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
        """Return the query by which Spark reads the ranges of a MySQL or MariaDB table.

        The sessions of an exact view lock the table until the sessions end. So if replication waits
        for this lock, a thread ends the sessions (`cdc.sources.mysql.lock_watch`).
        """
        if view is not None and isinstance(view.split, exact_view.Opening):
            view.split.watch(table.table)
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
        """Return the MySQL or MariaDB rows with the given keys, as values of the lake types."""
        with self._connections.open("snapshot", on_replica=on_replica) as session:
            return lookup.fetch_by_key(session, table, schema, keys, columns)

    def next_inserted(
        self, table: SourceTable, key: Mapping[str, object], transaction: int | None
    ) -> NextInserted:
        """Return a result without a next row, since MySQL and MariaDB connectors skip no rows.

        A restarted connector continues at the right row of an event, since it stores how many rows
        of the event it has sent.
        """
        return NextInserted(known=True)

    def count(self, table: SourceTable, *, on_replica: bool = False) -> int:
        """Count the rows of the MySQL or MariaDB table."""
        opened = self._connections.open(
            "snapshot", on_replica=on_replica, statement_timeout_s=_SAMPLE_S
        )
        with opened as session:
            return lookup.count(session, table)
