"""What a source database tells the layers above, as values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from cdc.position import Lsn
from schemas.changes import Change
from schemas.table import TableId
from schemas.type_rule import SourceType

ReplicaIdentity = Literal["default", "nothing", "full", "index"]
TableKind = Literal["table", "partitioned", "unlogged", "foreign", "other"]


@dataclass(frozen=True)
class TableStats:
    """One line of ``discover``.

    Args:
        table: Which table.
        kind: ``partitioned`` is the root of a partitioned table.
        rows_estimate: Rows by the server's statistics; None when it was never analyzed.
        total_bytes: Bytes on disk with TOAST and indexes, over all partitions.
        primary_key: Its columns in key order; empty without one.
        replica_identity: What the log keeps of an old row.
        partition_root: The root, when this table is itself a partition.
        updated: Rows updated since the server's statistics began.
        deleted: Rows deleted since then.
    """

    table: TableId
    kind: TableKind
    rows_estimate: int | None
    total_bytes: int
    primary_key: tuple[str, ...]
    replica_identity: ReplicaIdentity
    partition_root: TableId | None
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class SourceColumn:
    """One live column of a source table, in catalog order.

    Args:
        name: Exactly as in the catalog.
        type: Its type, taken apart.
        attnum: Its number in the catalog, never used again after a drop.
        nullable: Whether the table allows NULL.
        generated: Whether it is a stored generated column: in the table, not in the log.
        default_sql: The default as the catalog prints it.
        old_values: What rows older than the column show, as the catalog stores it when a column is
            added with a default, and keeps when the default is dropped: arrays of one element, one
            for all partitions that agree, None for those without one.
    """

    name: str
    type: SourceType
    attnum: int
    nullable: bool
    generated: bool
    default_sql: str | None
    old_values: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class SourceTable:
    """A source table as its catalog describes it.

    Args:
        table: Which table.
        oid: Its object id.
        kind: What it is.
        columns: Live columns in catalog order.
        primary_key: Its columns in key order; empty without one.
        unique_indexes: Column tuples of valid, immediate, complete unique indexes on plain columns
            (the primary key's among them).
        replica_identity: What the log keeps of an old row.
        identity_columns: Columns that identify an old row in the log; empty for ``nothing``.
        rows_estimate: Rows by the server's statistics; None when it was never analyzed.
        total_bytes: Bytes on disk with TOAST and indexes, over all partitions.
        owner: The owning role.
        partition_root: The root, when this table is itself a partition.
        updated: Rows updated since the server's statistics began.
        deleted: Rows deleted since then.
        hazards: What could stop the connector for all tables of its tier, one sentence each.
    """

    table: TableId
    oid: int
    kind: TableKind
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...]
    unique_indexes: tuple[tuple[str, ...], ...]
    replica_identity: ReplicaIdentity
    identity_columns: tuple[str, ...]
    rows_estimate: int | None
    total_bytes: int
    owner: str
    partition_root: TableId | None = None
    updated: int = 0
    deleted: int = 0
    hazards: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fingerprint:
    """The catalog facts that must not change while a table is copied or between runs.

    Args:
        facts: Plain values: strings, integers, lists and dictionaries with string keys.
    """

    facts: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the facts, as hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The facts as JSON with sorted keys: equal facts give equal text."""
        return json.dumps(self.facts, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Fingerprint:
        """The fingerprint that `to_json` wrote."""
        return cls(json.loads(text))

    def diff(self, other: Fingerprint) -> list[str]:
        """What differs, one line each, from this one to ``other``; empty when nothing does."""
        return _differences("", json.loads(self.to_json()), json.loads(other.to_json()))


@dataclass(frozen=True)
class Planned:
    """What statements would make of a table.

    Args:
        table: The table.
        fingerprint: Its catalog facts.
        told: Changes that the catalog could not show, but the statements do.
    """

    table: SourceTable
    fingerprint: Fingerprint
    told: tuple[Change, ...]


def _differences(path: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        lines = []
        for key in sorted(old.keys() | new.keys()):
            inner = f"{path}.{key}" if path else key
            if key not in new:
                lines.append(f"{inner} is gone (was {json.dumps(old[key])})")
            elif key not in old:
                lines.append(f"{inner} is new ({json.dumps(new[key])})")
            else:
                lines.extend(_differences(inner, old[key], new[key]))
        return lines
    if old != new:
        return [f"{path} was {json.dumps(old)}, is {json.dumps(new)}"]
    return []


@dataclass(frozen=True)
class ServerIdentity:
    """Which cluster a server is, and on which timeline.

    Args:
        system_identifier: Given by initdb, the same on all physical replicas; None where the
            server does not let us read it.
        timeline: Raised by every promotion; None where the server does not let us read it.
        in_recovery: Whether it is a standby now.
    """

    system_identifier: str | None
    timeline: int | None
    in_recovery: bool


@dataclass(frozen=True)
class Marker:
    """A row written on the primary; a view that shows it contains every earlier commit.

    Args:
        id: Primary key of the row.
        system_identifier: Of the primary that wrote it; None where it may not be read.
        timeline: Of that primary; None where it may not be read.
        lsn: The log position after its commit.
    """

    id: UUID
    system_identifier: str | None
    timeline: int | None
    lsn: Lsn


@dataclass(frozen=True)
class View:
    """One consistent image of the database that other sessions can import.

    Args:
        snapshot_id: What ``SET TRANSACTION SNAPSHOT`` takes, on the same server.
        lsn_upper_bound: Replayed so far when it was opened. On a standby, sessions that import it
            later may see more than that.
        opened_at: When, in UTC.
        on_replica: Whether the sessions go to the replica.
        marker: The marker that every session must see inside the view.
        identity: The server the view was opened on.
        warnings: Checks that the server does not permit, one sentence each.
        split: S: the view contains exactly the transactions whose commit record ends at or before
            this position; None where only a bound is known.
    """

    snapshot_id: str
    lsn_upper_bound: Lsn
    opened_at: datetime
    on_replica: bool
    marker: Marker
    identity: ServerIdentity
    warnings: tuple[str, ...] = ()
    split: Lsn | None = None


_LOST = frozenset({"lost", "unreserved"})


@dataclass(frozen=True)
class SlotHealth:
    """A logical replication slot and the log that it holds back.

    Args:
        name: The slot.
        active: Whether a connector reads it now.
        wal_status: ``reserved``, ``extended``, ``unreserved`` or ``lost``.
        confirmed_flush_lsn: The connector has acknowledged everything up to here.
        restart_lsn: The server keeps the log from here on; None when lost.
        retained_bytes: Log kept for the slot; None when lost.
        safe_wal_size: Bytes that can still be written before the slot is in danger; None when
            there is no limit.
    """

    name: str
    active: bool
    wal_status: str | None
    confirmed_flush_lsn: Lsn | None
    restart_lsn: Lsn | None
    retained_bytes: int | None
    safe_wal_size: int | None

    def problem(self, stored: Lsn | None = None) -> str | None:
        """Why changes that were not captured are lost, in words; None when none are.

        Args:
            stored: The position that Connect has stored, read after the slot; None when there is
                none or it is not known. The slot never passes it while the connector is the only
                one to move it.
        """
        if self.wal_status in _LOST:
            return f"has wal_status {self.wal_status}; see max_slot_wal_keep_size"
        confirmed = self.confirmed_flush_lsn
        # Without exactly-once support a slot in use may be a moment ahead of what is stored.
        if not self.active and stored is not None and confirmed is not None and confirmed > stored:
            return (
                f"begins at {confirmed}, after {stored}, up to where Connect has captured: it was"
                " made anew or moved behind the connector"
            )
        return None


@dataclass(frozen=True)
class ReplicaPosition:
    """How far a replica is.

    Args:
        replay_lsn: Applied up to here; None where the server has no such function.
        receive_lsn: Received up to here; None without a stream.
        lag_bytes: From the primary's position to ``replay_lsn``; None when unknown.
        lag_seconds: Age of the last replayed commit, 0 when nothing is left to replay; None when
            unknown.
        paused: Whether replay is paused.
    """

    replay_lsn: Lsn | None
    receive_lsn: Lsn | None
    lag_bytes: int | None
    lag_seconds: float | None
    paused: bool


@dataclass(frozen=True)
class KeyRange:
    """Rows with ``lower <= key < upper``; an end that is None is open.

    Args:
        lower: The key's columns as PostgreSQL prints them, in key order.
        upper: The same.
    """

    lower: tuple[str, ...] | None = None
    upper: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TableSize:
    """How much there is to copy.

    Args:
        rows: Estimated from the table's present size.
        heap_bytes: Bytes of rows on disk with TOAST, without indexes, over all partitions.
    """

    rows: int
    heap_bytes: int


@dataclass(frozen=True)
class Boundaries:
    """Key values of real rows that cut a table into ranges of about the same number of rows.

    Args:
        points: Strictly rising keys as text; ``n`` points make ``n + 1`` ranges.
        size: What was estimated on the way.
    """

    points: tuple[tuple[str, ...], ...]
    size: TableSize


@dataclass(frozen=True)
class SnapshotQuery:
    """What Spark needs to read a table: one JDBC partition per predicate.

    ``spark.read.jdbc(q.url, q.table, predicates=list(q.predicates), properties=q.properties)``,
    then ``.selectExpr(*q.select)`` gives the source columns as lake types, in lake order.

    Args:
        url: JDBC URL without a password.
        table: A parenthesised subquery; its columns have generated names.
        predicates: One per key range, in the order given.
        select: Spark SQL expressions, one per column of the schema.
        properties: JDBC and Spark options; holds the password, so it is not in the repr.
    """

    url: str
    table: str
    predicates: tuple[str, ...]
    select: tuple[str, ...]
    properties: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class Check:
    """One line of pre-flight.

    Args:
        name: What was looked at.
        status: How it is.
        detail: What was seen.
        remedy: What to do; empty when ``ok``.
    """

    name: str
    status: Literal["ok", "warning", "error"]
    detail: str
    remedy: str = ""
