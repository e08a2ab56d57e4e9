"""What a source database tells the layers above, as values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import UUID

from cdc.log.position import LogPosition
from schemas.catalog import differences
from schemas.changes import Change
from schemas.ddl.mysql_reported import Told
from schemas.table import TableId
from schemas.type_rule import SourceType, TypeRule

ReplicaIdentity = Literal["default", "nothing", "full", "index", "row"]
"""What the log keeps of an old row, by table; ``row``: all of it, whatever the table says."""
TableKind = Literal["table", "partitioned", "unlogged", "foreign", "hypertable", "chunk", "other"]
"""What holds rows, or is the root of what does; a hypertable and its chunks are TimescaleDB's."""


StoredValue = tuple[str | None, TypeRule]
"""What rows older than a column show in it, as text of what its type's rule reads, and that rule;
None where that is NULL."""


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
    """

    table: TableId
    kind: TableKind
    rows_estimate: int | None
    total_bytes: int
    primary_key: tuple[str, ...]
    replica_identity: ReplicaIdentity
    partition_root: TableId | None


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
class Leaf:
    """A partition that holds rows.

    Args:
        table: Which.
        kind: What it is.
        replica_identity: What the log keeps of its old rows; a root has no part in that.
        identity_columns: Columns that identify an old row in the log; empty when nothing does.
    """

    table: TableId
    kind: TableKind
    replica_identity: ReplicaIdentity
    identity_columns: tuple[str, ...]


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
        children: Tables that inherit from it, without partitions.
        leaves: The partitions that hold its rows.
        withheld: Generated columns for which the server refuses UPDATE and DELETE once the table
            is published, where the whole old row is its replica identity.
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
    children: tuple[str, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    withheld: tuple[str, ...] = ()


READ_AT = "read_at"
"""What a source whose log tells all statements had executed before its catalog was read."""

HORIZON = "horizon"
"""Rows by transactions below it were there, or gone, when a catalog without such a log was read."""


@dataclass(frozen=True)
class Fingerprint:
    """The catalog facts that must not change while a table is copied or between runs.

    Args:
        facts: Plain values: strings, integers, lists and dictionaries with string keys. Those of
            `READ_AT` and `HORIZON` are no facts of the table, and are not compared.
    """

    facts: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the facts, as hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The facts as JSON with sorted keys: equal facts give equal text."""
        moments = (READ_AT, HORIZON)
        compared = {name: fact for name, fact in self.facts.items() if name not in moments}
        return json.dumps(compared, sort_keys=True, separators=(",", ":"))

    def diff(self, other: Fingerprint) -> list[str]:
        """What differs, one line each, from this one to ``other``; empty when nothing does."""
        return [*differences("", json.loads(self.to_json()), json.loads(other.to_json()))]


@dataclass(frozen=True)
class Planned:
    """What statements would make of a table.

    Args:
        table: The table.
        fingerprint: Its catalog facts.
        told: Changes that the catalog could not show, but the statements do.
        statements: What the log will tell of them, where the catalog alone cannot say.
    """

    table: SourceTable
    fingerprint: Fingerprint
    told: tuple[Change, ...] = ()
    statements: Told | None = None


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
class Settled:
    """That every further change of tables that were brought into a capture will be in it whole.

    Args:
        by: What that was seen by, as text: x0, or a marker's id.
        captured: What must have been captured before the offsets of their topics mean anything;
            None where the source alone could tell.
    """

    by: str
    captured: LogPosition | None = None


@dataclass(frozen=True)
class Marker:
    """A row written on the primary; a view that shows it contains every earlier commit.

    Args:
        id: Primary key of the row.
        system_identifier: Of the primary that wrote it; None where it may not be read.
        timeline: Of that primary; None where it may not be read, or there is no such thing.
        position: How far the log was written after its commit.
    """

    id: UUID
    system_identifier: str | None
    timeline: int | None
    position: LogPosition


Stored = Callable[[], LogPosition | None]
"""Asks for the position that Connect has stored; None when there is none."""


class LogHealth(Protocol):
    """The log of a source, as far as one capture depends on it."""

    @property
    def title(self) -> str:
        """What it is, as messages name it."""

    @property
    def active(self) -> bool | None:
        """Whether a connector reads it now; None where the server cannot tell."""

    @property
    def retained_bytes(self) -> int | None:
        """Size of the log that is kept; None where it is not known."""

    def problem(
        self, stored: LogPosition | None = None, recorded: LogPosition | None = None
    ) -> str | None:
        """Why changes that were not captured are lost, in words; None when none are.

        Args:
            stored: The position that Connect has stored, read after this; None when there is none
                or it is not known.
            recorded: What a lake table rests on: captured once for sure.
        """

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """Up to where Kafka has acknowledged everything; None while that is not known.

        Args:
            stored: Asks Connect for the position that it has stored.
            exactly_once: Whether the connector writes to Kafka in transactions.
        """

    def facts(self) -> dict[str, Any]:
        """What people see of it, as plain values."""


@dataclass(frozen=True)
class ReplicaPosition:
    """How far a replica is.

    Args:
        replayed: Applied up to here; None where the server has no such function.
        received: Received up to here; None without a stream.
        lag_bytes: From the primary's position to ``replayed``; None when unknown.
        lag_seconds: Age of the last replayed commit, 0 when nothing is left to replay; None when
            unknown.
        paused: Whether replay is paused.
    """

    replayed: LogPosition | None
    received: LogPosition | None
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
        remedy: What to do; empty when ``ok``, and for a note, which asks for nothing.
    """

    name: str
    status: Literal["ok", "note", "warning", "error"]
    detail: str
    remedy: str = ""
