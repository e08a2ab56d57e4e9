"""One PostgreSQL database with its replica, as a `cdc.sources.base.Source`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from cdc.config import PostgresSourceConfig, TableSettings
from cdc.errors import SourceError
from cdc.log.position import Lsn
from cdc.runtime.progress import Progress
from cdc.sources import selection
from cdc.sources.postgres import (
    boundaries,
    catalog,
    exact_view,
    fingerprint,
    key_order,
    lookup,
    planned,
    primary,
    reader,
    replica,
)
from cdc.sources.postgres import publication as capture
from cdc.sources.postgres.connection import Connections, Role, is_recovery_conflict
from cdc.sources.postgres.logins import Logins
from cdc.sources.postgres.slot import NoSlot, SlotHealth
from cdc.sources.values import (
    Boundaries,
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
from schemas.ddl.postgres_planned import read_ddl
from schemas.fingerprint import Fingerprint
from schemas.table import Column, TableId, TableSchema

_SLOT_TIMEOUT_S, _SAMPLE_S, _LOOK_S = 120.0, 1800.0, 10.0


class PostgresSource(Logins):
    """A source of kind ``postgres``; see `cdc.sources.base.Source` for what each method does.

    Args:
        name: Key of the source in the configuration.
        config: Its section.
    """

    shares_views = True
    position = staticmethod(Lsn.parse)

    def __init__(self, name: str, config: PostgresSourceConfig) -> None:
        self._name = name
        self._config = config
        super().__init__(Connections(name, config))
        self._exporters: dict[str, replica.Exporter] = {}

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""
        return self._name

    @property
    def has_replica(self) -> bool:
        """Whether snapshots are read from a replica."""
        return self._config.replica is not None

    def tables(self) -> list[TableStats]:
        """All user tables, without our own, sorted by name."""
        with self._connections.open("admin") as session:
            return catalog.read_tables(session, self._name)

    def table(self, table: TableId) -> SourceTable:
        """The table as the primary's catalog describes it."""
        with self._connections.open("admin") as session:
            return catalog.read_table(session, table)

    def described(self, table: TableId, publication: str) -> tuple[SourceTable, Fingerprint]:
        """The table and its fingerprint, read from the primary's catalog at one moment."""
        with self._connections.open("admin") as session:
            return fingerprint.read_described(session, table, publication)

    def columns(self, table: SourceTable, settings: TableSettings) -> tuple[Column, ...]:
        """The columns that reach the lake, whether or not there is a usable key."""
        return selection.lake_columns(table, settings)

    def planned(self, table: SourceTable, fingerprint: Fingerprint, ddl: str) -> Planned:
        """The table as statements would leave it; no statement is run."""
        actions = read_ddl(ddl, table.table)
        with self._connections.open("admin") as session:
            return planned.plan(session, table, fingerprint, actions)

    def stored_value(self, table: SourceTable, column: Column, stored: str) -> StoredValue:
        """A column's value in rows older than it, as text of what its rule reads, and the rule."""
        with self._connections.open("admin") as session:
            return lookup.stored_value(session, table, column, stored)

    def empty_partitions(self, oids: Collection[int]) -> frozenset[int]:
        """The partitions whose file is empty now."""
        with self._connections.open("admin") as session:
            return fingerprint.empty_files(session, oids)

    def truncated_partitions(
        self, table: TableId, files: Mapping[int, int], since: str
    ) -> frozenset[int]:
        """The partitions with a new file since a reading of the catalog and no row from before."""
        with self._connections.open("snapshot") as session:
            return fingerprint.truncated(session, table, files, since)

    def written_together(self, oids: Collection[int]) -> bool:
        """Whether one transaction wrote the catalog rows of these partitions last."""
        with self._connections.open("admin") as session:
            return fingerprint.written_together(session, oids)

    def schema(self, table: SourceTable, settings: TableSettings) -> TableSchema:
        """The lake schema: column rules applied, generated columns left out, the record key."""
        return selection.lake_schema(table, settings)

    def fingerprint(self, table: TableId, publication: str, *, on_replica: bool) -> Fingerprint:
        """The catalog facts of the table, read in a fresh transaction."""
        role: Role = "snapshot" if on_replica else "admin"
        with self._connections.open(role, on_replica=on_replica) as session:
            return fingerprint.read_fingerprint(session, table, publication)

    def fingerprints(
        self, tables: Collection[TableId], publication: str
    ) -> dict[TableId, Fingerprint]:
        """The fingerprints of many tables on the primary, in one statement, if they exist."""
        with self._connections.open("admin") as session:
            return fingerprint.read_fingerprints(session, tables, publication)

    def identity(self, *, on_replica: bool = False) -> ServerIdentity:
        """The identity of the server: its cluster, timeline and whether it is a standby."""
        role: Role = "snapshot" if on_replica else "admin"
        with self._connections.open(role, on_replica=on_replica) as session:
            return primary.identity(session)

    def prepare_capture(self, publication: str, *, append: bool = False) -> None:
        """Create what is missing: schema ``tributary``, its tables, grants and the publication."""
        with self._connections.open("admin") as session:
            capture.prepare(session, publication, self._config.credentials, append=append)

    def planned_capture(
        self, publication: str, slot: str, tables: Sequence[TableId], *, append: bool = False
    ) -> list[str]:
        """The statements that capturing these tables would run now; nothing is run."""
        users = self._config.credentials
        with self._connections.open("admin") as session:
            return capture.planned(session, publication, slot, tables, users, append=append)

    def unreadable(self, publication: str, slot: str) -> str | None:
        """Why the slot cannot be read further without its publication; None if it can.

        The server looks up the publication as of each change, so to create it again does not help.
        """
        with self._connections.open("admin") as session:
            known = not self.has_slot(slot) or capture.exists(session, publication)
        return None if known else f"cannot be read on: publication {publication} does not exist"

    def add_to_publication(self, publication: str, tables: Sequence[TableId]) -> list[TableId]:
        """Add the tables that the publication lacks; returns the ones that were added."""
        with self._connections.open("admin") as session:
            return capture.add_tables(session, publication, tables)

    def remove_from_publication(self, publication: str, tables: Sequence[TableId]) -> list[TableId]:
        """Remove the tables that the publication has; returns the ones that were removed."""
        with self._connections.open("admin") as session:
            return capture.remove_tables(session, publication, tables)

    def published_tables(self, publication: str) -> list[TableId]:
        """The application's tables that are in the publication; empty when there is none."""
        with self._connections.open("admin") as session:
            return capture.published(session, publication, self._name)

    def drop_publication(self, publication: str) -> None:
        """Drop the publication if it exists."""
        with self._connections.open("admin") as session:
            capture.drop(session, publication)

    def audit_capture(self, publication: str, *, append: bool) -> list[str]:
        """What keeps changes of all tables from being published as they must be."""
        with self._connections.open("admin") as session:
            return capture.audit(session, publication, append=append)

    def audit_table(
        self, publication: str, table: SourceTable, *, append: bool = False
    ) -> list[str]:
        """What keeps changes of only this table from being published as they must be."""
        with self._connections.open("admin") as session:
            return capture.audit_table(session, publication, table)

    def ensure_slot(self, slot: str) -> bool:
        """Create the logical slot if it is missing; returns whether it was created."""
        with self._connections.open("capture", statement_timeout_s=_SLOT_TIMEOUT_S) as session:
            return capture.ensure_slot(session, slot, self._name)

    def slot_health(self, slot: str) -> SlotHealth | None:
        """The slot now, or None if no slot has that name."""
        with self._connections.open("admin") as session:
            return capture.slot_health(session, slot, self.current_position)

    def has_slot(self, slot: str) -> bool:
        """Whether the slot exists."""
        return self.slot_health(slot) is not None

    def log_health(self, slot: str) -> LogHealth:
        """The state of the slot, on which its capture depends."""
        return self.slot_health(slot) or NoSlot(slot)

    def commit_position(self, last: str) -> str | None:
        """The end of the commit before the event: the first half of the event's position."""
        ended = int(last.partition(":")[0], 16)
        return str(Lsn(ended)) if ended else None

    def drop_slot(self, slot: str, *, timeout_s: float = 30.0) -> bool:
        """Drop the slot, waiting until its reader has gone; returns whether there was one."""
        with self._connections.open("capture") as session:
            return capture.drop_slot(session, slot, self._name, timeout_s)

    def settle(self, *, timeout_s: float, progress: Progress) -> Settled:
        """Take x0 now, and wait until the primary has no open transaction up to x0."""
        with self._connections.open("admin") as session:
            x0 = primary.current_transaction_id(session)
            primary.wait_for_older_transactions(
                session, x0, source=self._name, timeout_s=timeout_s, progress=progress
            )
        return Settled(str(x0))

    def wait_until_visible(
        self, transactions: Collection[int], *, timeout_s: float, progress: Progress
    ) -> None:
        """Wait until the primary shows what these transactions did."""
        with self._connections.open("admin") as session:
            primary.wait_until_visible(
                session, transactions, source=self._name, timeout_s=timeout_s, progress=progress
            )

    def nudge(self) -> None:
        """Do nothing, since the log advances by itself."""

    def write_marker(self) -> Marker:
        """Write a new marker row on the primary."""
        with self._connections.open("marker") as session:
            return primary.write_marker(session)

    def wait_for_marker_on_replica(
        self, marker: Marker, *, timeout_s: float, progress: Progress
    ) -> None:
        """Wait until the replica shows the marker and is a standby of the marker's primary."""
        if self.has_replica:
            replica.wait_for_marker(
                self._connections, marker, timeout_s=timeout_s, progress=progress
            )

    @contextmanager
    def open_view(self, marker: Marker, *, timeout_s: float, progress: Progress) -> Iterator[View]:
        """A view that contains the marker, importable until the block ends.

        On a primary a commit is logged before it is visible: transactions in between must end.
        """
        if self.has_replica:
            self.wait_for_marker_on_replica(marker, timeout_s=timeout_s, progress=progress)
        else:
            self.settle(timeout_s=timeout_s, progress=progress)
        opened = replica.exported_view(self._connections, marker, on_replica=self.has_replica)
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
        """A view that contains the marker and has a known S."""
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
        """Why `open_exact_view` cannot open a view, and what to do about it; None if it can."""
        on_replica = self.has_replica and not from_primary
        return exact_view.obstacle(self._connections, on_replica=on_replica)

    def replay_paused(self) -> bool:
        """Whether the replica's replay is paused, or its pause is requested."""
        return exact_view.replay_state(self._connections) != "not paused"

    def resume_replay(self) -> None:
        """Resume the replica's replay, even if another process or a person paused it."""
        if self.has_replica:
            exact_view.resume(self._connections)

    @contextmanager
    def _watched(self, exporter: replica.Exporter) -> Iterator[View]:
        """Let `assert_view_alive` find the exporter of the view."""
        self._exporters[exporter.view.snapshot_id] = exporter
        try:
            yield exporter.view
        finally:
            del self._exporters[exporter.view.snapshot_id]

    def assert_view_alive(self, view: View) -> None:
        """Check that sessions can still import the view, and that its server is the same one."""
        exporter = self._exporters.get(view.snapshot_id)
        if exporter is None:
            raise replica.closed_view(self._name, view)
        replica.assert_alive(self._connections, exporter)

    def read_failure(self, table: TableId, text: str, view: View | None) -> SourceError | None:
        """The error that a failed read by Spark means, from the text of its exception."""
        if "PSQLException" not in text:
            return None
        if view is not None and is_recovery_conflict(text):
            return replica.lost_view(self._connections, view, "cancelled: conflict with recovery")
        return reader.explain_failure(table, text)

    def current_position(self) -> Lsn:
        """The primary's insert position; every commit so far lies at or before it."""
        with self._connections.open("admin") as session:
            return primary.current_lsn(session)

    def replica_position(self) -> ReplicaPosition | None:
        """How far the replica is, or None without a replica."""
        return replica.replica_position(self._connections) if self.has_replica else None

    def size(self, table: SourceTable) -> TableSize:
        """Rows and bytes by the current size of the table."""
        with self._connections.open("snapshot", on_replica=True) as session:
            return boundaries.table_size(session, table)

    def largest_row(self, table: SourceTable) -> int | None:
        """Bytes of the largest of some sampled rows; None when there are none."""
        opened = self._connections.open("snapshot", on_replica=True, statement_timeout_s=_LOOK_S)
        with opened as session:
            return boundaries.largest_row(session, table)

    def sample_boundaries(
        self,
        table: SourceTable,
        key: Sequence[str],
        chunks: int,
        *,
        size: TableSize | None = None,
    ) -> Boundaries:
        """Cut the key into up to ``chunks`` ranges; into one if the replica sorts differently."""
        if chunks > 1 and self.has_replica and key_order.differs(self._connections, table, key):
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
        """The query by which Spark reads the ranges, under the view, or as of now if it is None."""
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
        """The rows with those keys as Python values of the lake types, without absent keys."""
        with self._connections.open("snapshot", on_replica=on_replica) as session:
            return lookup.fetch_by_key(session, table, schema, keys, columns)

    def count(self, table: SourceTable, *, on_replica: bool = False) -> int:
        """The number of rows, counted."""
        opened = self._connections.open("snapshot", on_replica=on_replica, statement_timeout_s=0)
        with opened as session:
            return lookup.count(session, table)
