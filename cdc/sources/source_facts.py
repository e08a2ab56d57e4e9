"""The values that a source database reports to the layers above."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import UUID

from cdc.log.position import LogPosition
from schemas.changes import Change
from schemas.fingerprint import Fingerprint
from schemas.statement_effects import StatementEffects
from schemas.table import TableId
from schemas.type_rule import SourceType, TypeRule

if TYPE_CHECKING:
    from schemas.catalog import SourceKind

ReplicaIdentity = Literal["default", "nothing", "full", "index"]
"""What PostgreSQL's log keeps of an old row, by table."""
TableKind = Literal["table", "partitioned", "unlogged", "foreign", "hypertable", "chunk", "other"]
"""The kind of a table. ``partitioned`` is the root of partitions, which hold its rows.

``hypertable`` and ``chunk`` are TimescaleDB's.
"""


StoredValue = tuple[str | None, TypeRule]
"""The value that a column has in rows older than the column, and the rule of the column's type.

The value is the text of what the rule reads; None is NULL.
"""


@dataclass(frozen=True)
class TableStats:
    """One line of ``discover``.

    Args:
        table: Which table.
        kind: ``partitioned`` is the root of a partitioned table.
        rows_estimate: Rows by the server's statistics; None when it was never analyzed.
        total_bytes: Bytes on disk with TOAST and indexes, over all partitions.
        primary_key: Its columns in key order; empty without one.
        replica_identity: What the log keeps of an old row; None if the source has no such setting,
            since its log has whole rows.
        partition_root: The root, when this table is itself a partition.
    """

    table: TableId
    kind: TableKind
    rows_estimate: int | None
    total_bytes: int
    primary_key: tuple[str, ...]
    replica_identity: ReplicaIdentity | None
    partition_root: TableId | None


@dataclass(frozen=True)
class SourceColumn:
    """One live column of a source table, in catalog order.

    Args:
        name: Exactly as in the catalog.
        type: Its type, taken apart.
        nullable: Whether the table allows NULL.
        generated: Whether it is a generated column that the log does not carry.
        default_sql: The default as the catalog prints it.
        old_values: The values that the column has in rows older than it. The catalog stores such a
            value when a column is added with a default, and keeps it when the default is dropped.
            Each is the text of an array with one element. Partitions with the same value share one
            entry; None is for partitions without a stored value.
        number: Its number in the catalog, which no later column of the table gets; None if the
            server does not number columns.
    """

    name: str
    type: SourceType
    nullable: bool
    generated: bool
    default_sql: str | None
    old_values: tuple[str | None, ...] = ()
    number: int | None = None


@dataclass(frozen=True)
class Leaf:
    """A partition that holds rows.

    Args:
        table: Which table.
        kind: What it is.
        replica_identity: What the log keeps of its old rows; the root's has no effect on that.
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
        kind: What it is.
        columns: Live columns in catalog order.
        primary_key: Its columns in key order; empty without one.
        unique_indexes: Column tuples of valid, immediate, complete unique indexes on plain columns
            (the primary key's among them).
        replica_identity: What the log keeps of an old row; None if the source has no such setting,
            since its log has whole rows.
        identity_columns: Columns that identify an old row in the log; empty for ``nothing``.
        owner: The owning role.
        source_kind: The kind of its source, whose SQL remedies are written in.
        partition_root: The root, when this table is itself a partition.
        updated: Rows updated since the server's statistics began.
        deleted: Rows deleted since then.
        hazards: What could stop the connector for all tables of its tier, one sentence each.
        children: Tables that inherit from it, without partitions.
        leaves: The partitions that hold its rows.
        withheld: Generated columns that are not published. They make the server refuse UPDATE and
            DELETE once the table is published, if its replica identity is the whole old row.
        number: Its number in the catalog, which stays when it is renamed; None if the server does
            not number tables.
    """

    table: TableId
    kind: TableKind
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...]
    unique_indexes: tuple[tuple[str, ...], ...]
    replica_identity: ReplicaIdentity | None
    identity_columns: tuple[str, ...]
    owner: str
    source_kind: SourceKind
    partition_root: TableId | None = None
    updated: int = 0
    deleted: int = 0
    hazards: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    withheld: tuple[str, ...] = ()
    number: int | None = None

    @property
    def logs_whole_rows(self) -> bool:
        """Whether the log has the whole old row of each UPDATE and DELETE."""
        return self.replica_identity in (None, "full")

    @property
    def identity_in_log(self) -> frozenset[str] | None:
        """The columns that the log has of an old row; None if it has all columns of some rows."""
        logged = self.leaves or (self,)
        if any(one.replica_identity in (None, "full") for one in logged):
            return None
        return frozenset(name for one in logged for name in one.identity_columns)


@dataclass(frozen=True)
class Look:
    """What a source shows of a table at one moment, and of how the table became so.

    Args:
        table: The table as the catalog has it.
        fingerprint: The catalog's facts.
        statements: The effects of the statements in the log since the catalog that the lake
            follows; None if the catalog shows every change.
    """

    table: SourceTable
    fingerprint: Fingerprint
    statements: StatementEffects | None = None


@dataclass(frozen=True)
class Planned:
    """A table as planned statements would leave it.

    Args:
        table: The table after the statements.
        fingerprint: Its catalog facts after the statements.
        beyond_catalog: Changes that the statements show and the catalog could not show.
        statements: What the log will report of the statements; None if the catalog alone is enough.
    """

    table: SourceTable
    fingerprint: Fingerprint
    beyond_catalog: tuple[Change, ...] = ()
    statements: StatementEffects | None = None


@dataclass(frozen=True)
class ServerIdentity:
    """The identity of a server: of its cluster for PostgreSQL, of the server itself for MySQL.

    Args:
        system_identifier: PostgreSQL: given by initdb, the same on all physical replicas; None if
            the server does not let us read it. MySQL: the id of this one server.
        timeline: Raised by every promotion; None if the server does not let us read it, or has no
            timelines.
        in_recovery: Whether it is a standby now. MySQL: whether it is read-only.
        unknown: Whether it has lost what it is recognized by.
    """

    system_identifier: str | None
    timeline: int | None
    in_recovery: bool
    unknown: bool = False


@dataclass(frozen=True)
class Settled:
    """Proof that no further transaction is captured in part for tables added to a capture.

    Args:
        by: The proof as text: x0, or a marker's id.
        captured: The position that must be captured before the offsets of the tables' topics mean
            anything; None if the source alone has proven it.
    """

    by: str
    captured: LogPosition | None = None


@dataclass(frozen=True)
class Marker:
    """A row written on the primary; a view that shows it contains every earlier commit.

    Args:
        id: Primary key of the row.
        system_identifier: Of the primary that wrote it; None if it may not be read.
        timeline: Of that primary; None if it may not be read, or the server has no timelines.
        position: The end of the log, read after the commit of the row.
    """

    id: UUID
    system_identifier: str | None
    timeline: int | None
    position: LogPosition


Stored = Callable[[], LogPosition | None]
"""Reads the position that Connect has stored; None when there is none."""


class LogHealth(Protocol):
    """The log of a source, as far as one capture depends on it."""

    @property
    def title(self) -> str:
        """The name of the log in messages."""

    @property
    def active(self) -> bool | None:
        """Whether a connector reads the log now; None if the server does not report it."""

    @property
    def retained_bytes(self) -> int | None:
        """Size of the log that is kept; None if it is not known."""

    def problem(
        self, stored: LogPosition | None = None, recorded: LogPosition | None = None
    ) -> str | None:
        """Why changes that were not captured are lost, in words; None when none are.

        Args:
            stored: The position that Connect has stored, read later than this health; None when
                there is none or it is not known.
            recorded: A position that a lake table relies on, and so was certainly captured.
        """

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """The position up to which Kafka has acknowledged everything; None while it is not known.

        Args:
            stored: Reads the position that Connect has stored.
            exactly_once: Whether the connector writes to Kafka in transactions.
        """

    def facts(self) -> dict[str, Any]:
        """The facts of the log that people see, as plain values."""


@dataclass(frozen=True)
class ReplicaPosition:
    """How far a replica is.

    Args:
        replayed: Applied up to here; None if the server has no such function.
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
        lower: The values of the key's columns as the source prints them, in key order.
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
        size: The table's size, as estimated on the way.
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
        status: The result.
        detail: What was seen.
        remedy: What to do; empty when ``ok``. The remedy of a note need not be followed.
    """

    name: str
    status: Literal["ok", "note", "warning", "error"]
    detail: str
    remedy: str = ""
