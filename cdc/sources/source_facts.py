"""The values that a source database reports to the layers above."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
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
"""A table's replica identity: which columns of an old row PostgreSQL's log has."""
TableKind = Literal[
    "table", "partitioned", "unlogged", "foreign", "hypertable", "chunk", "distributed", "other"
]
"""The kind of a table. ``partitioned`` is the root of partitions, which hold its rows.

``hypertable`` and ``chunk`` are TimescaleDB's, and ``distributed`` is Citus's.
"""


StoredValue = tuple[str | None, TypeRule]
"""The value of a column in rows older than the column, and the rule of the column's type.

The value is text that the type rule can read; None stands for NULL.
"""


@dataclass(frozen=True)
class TableStats:
    """One line that the command ``discover`` prints about a source's table.

    Args:
        table: The table.
        kind: The table's kind.
        rows_estimate: Number of rows in the server's statistics; None if the table was never
            analyzed.
        total_bytes: Bytes on disk with TOAST and indexes, over all partitions.
        primary_key: The primary key's columns in key order; empty without a primary key.
        replica_identity: PostgreSQL's setting for the columns of an old row in the log; None for
            other sources, whose log has whole rows.
        partition_root: The root, if this table is a partition.
    """

    table: TableId
    kind: TableKind
    rows_estimate: int | None
    total_bytes: int
    primary_key: tuple[str, ...]
    replica_identity: ReplicaIdentity | None = None
    partition_root: TableId | None = None


@dataclass(frozen=True)
class SourceColumn:
    """One live column of a source table.

    Args:
        name: The name in the catalog.
        type: The parsed type.
        nullable: Whether the table's definition allows NULL. If the type is a domain, the domain
            can still refuse NULL.
        generated: Whether this is a generated column, which the log does not contain.
        default_sql: The default as the catalog prints it.
        old_values: The values of the column in rows from before the column was added. The catalog
            stores such a value when a column is added with a default, and keeps it when the default
            is dropped. Partitions can have different values. Each value is an array literal with
            one element, such as ``{5}``; None stands for partitions without such a value.
        number: The column's number in the catalog, which no later column of the table gets; None if
            the server does not number columns.
        refused_by_domain: Whether the column's type is a domain that refuses NULL. A row can still
            have a NULL, for example from a subquery without rows.
        not_validated: Whether the column is NOT NULL by a constraint that older rows need not meet
            (NOT VALID). If so, ``nullable`` is True, but the connector treats the column as NOT
            NULL.
        depends_on: For a virtual generated column of MySQL or MariaDB: what its values depend on
            besides the row, for example the session's time zone. Empty if the values depend on the
            row alone.
        misread_as: Schema and name of another type. The connector can mistake the column's type for
            this type, since both have the same name in different schemas. After the mistake, events
            lack the column's values. Empty if there is no such type.
    """

    name: str
    type: SourceType
    nullable: bool
    generated: bool
    default_sql: str | None
    old_values: tuple[str | None, ...] = ()
    number: int | None = None
    refused_by_domain: bool = False
    not_validated: bool = False
    depends_on: str = ""
    misread_as: str = ""


@dataclass(frozen=True)
class Leaf:
    """A partition that contains rows of a source table, since it has no partitions of its own.

    Args:
        table: The partition.
        kind: The partition's kind.
        replica_identity: The partition's own replica identity. For its rows, PostgreSQL ignores the
            replica identity of the root.
        identity_columns: Columns by which the log identifies an old row; empty if there are none.
        access_method: See `SourceTable`.
    """

    table: TableId
    kind: TableKind
    replica_identity: ReplicaIdentity
    identity_columns: tuple[str, ...]
    access_method: str = ""


@dataclass(frozen=True)
class SourceTable:
    """A table in a source's catalog.

    Args:
        table: The table.
        kind: The table's kind.
        columns: Live columns in catalog order.
        primary_key: The primary key's columns in key order; empty without a primary key.
        unique_indexes: The columns of each unique index, also of the primary key's index. This
            field lacks invalid and deferrable indexes, indexes with a condition, and indexes on
            expressions or on prefixes of columns.
        identity_columns: Columns by which the log identifies an old row; empty if the log has no
            such columns.
        source_kind: The kind of the table's source.
        replica_identity: PostgreSQL's setting for the columns of an old row in the log; None for
            other sources, whose log has whole rows.
        owner: PostgreSQL: the owning role; empty for other sources.
        partition_root: The root, if this table is a partition.
        updated: Rows updated since the server's statistics began.
        deleted: Rows deleted since the server's statistics began.
        hazards: Reasons why the connector could stop for all its tables, one sentence each.
        children: Names of the tables that inherit from this table. Partitions are left out.
        leaves: The partitions that contain the table's rows; empty for a plain table.
        withheld: Generated columns that are not published; empty before PostgreSQL 18. If the
            replica identity is ``full``, the server refuses UPDATE and DELETE of a published table
            with such columns.
        number: The table's number in the catalog, which a rename does not change; None if the
            server does not number tables.
        dropped_by: PostgreSQL: the id of the last transaction that dropped a column; empty if no
            column was dropped.
        access_method: PostgreSQL: the table's access method, if changes of tables with this method
            cannot be captured. Empty if such changes can be captured, as for ``heap``.
        hashed_indexes: MariaDB: names of the unique indexes that are too long for InnoDB. For such
            an index, the server keeps a hash in a hidden column.
    """

    table: TableId
    kind: TableKind
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...]
    unique_indexes: tuple[tuple[str, ...], ...]
    identity_columns: tuple[str, ...]
    source_kind: SourceKind
    replica_identity: ReplicaIdentity | None = None
    owner: str = ""
    partition_root: TableId | None = None
    updated: int = 0
    deleted: int = 0
    hazards: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    withheld: tuple[str, ...] = ()
    number: int | None = None
    dropped_by: str = ""
    access_method: str = ""
    hashed_indexes: tuple[str, ...] = ()

    @property
    def logs_whole_rows(self) -> bool:
        """Whether the source's log has the whole old row of each UPDATE and DELETE."""
        # `check` refuses a server of MySQL or MariaDB that logs less than whole rows.
        return self.source_kind != "postgres" or self.replica_identity == "full"

    @property
    def identity_in_log(self) -> frozenset[str] | None:
        """The columns of an old row that the log contains; None if the log has the whole old row.

        For a partitioned table, the result has each column that the log has for at least one
        partition. It is None if the log has whole old rows of at least one partition.
        """
        logged = self.leaves or (self,)
        if self.source_kind != "postgres" or any(one.replica_identity == "full" for one in logged):
            return None
        return frozenset(name for one in logged for name in one.identity_columns)

    def columns_with_nulls(self, *, trust_domains: bool) -> frozenset[str]:
        """Return the columns that allow NULL, but that the connector can treat as NOT NULL.

        PostgreSQL's connector reads the table's definition from the catalog, some time before or
        after the change that it sends. In between, NOT NULL can have been set or dropped. So the
        result has all columns that allow NULL. The connectors of MySQL and MariaDB read the
        definition from the log, so for these sources the result is empty.

        Args:
            trust_domains: Whether to assume that no row has NULL in a column whose domain refuses
                NULL.
        """
        if self.source_kind != "postgres":
            return frozenset()
        return frozenset(
            one.name
            for one in self.columns
            if one.nullable and not (trust_domains and one.refused_by_domain)
        )


@dataclass(frozen=True)
class Look:
    """A source table at one moment: its catalog entry, its fingerprint, and earlier DDL.

    Args:
        table: The table in the catalog.
        fingerprint: The table's fingerprint: the catalog facts that may not change unseen.
        statements: The effects of the DDL statements since the earlier look whose fingerprint the
            lake's newest commit records. None until the statements are read. Always None for
            PostgreSQL, whose catalog shows all effects.
    """

    table: SourceTable
    fingerprint: Fingerprint
    statements: StatementEffects | None = None


@dataclass(frozen=True)
class Planned:
    """A source table as it would be after planned statements.

    Args:
        table: The table after the statements.
        fingerprint: The table's fingerprint after the statements.
        beyond_catalog: Changes that will not be visible in the catalog, such as values that USING
            computes.
        statements: The effects of the statements as the log will report them; None for PostgreSQL,
            whose log does not report statements.
    """

    table: SourceTable
    fingerprint: Fingerprint
    beyond_catalog: tuple[Change, ...] = ()
    statements: StatementEffects | None = None


@dataclass(frozen=True)
class ServerIdentity:
    """The identity of a source's server: for PostgreSQL its cluster, for MySQL the server itself.

    Args:
        system_identifier: PostgreSQL: the identifier from initdb, which all physical replicas
            share; None if the login may not read it. MySQL: the id of this server.
        timeline: The timeline, which each promotion increases; None if the login may not read it,
            or the server has no timelines.
        in_recovery: Whether the server is a standby now. MySQL: whether it is read-only.
        unknown: MariaDB: whether the id is not known, since the server lacks the row in which
            Tributary stores the id.
    """

    system_identifier: str | None
    timeline: int | None
    in_recovery: bool
    unknown: bool = False


@dataclass(frozen=True)
class OlderEnded:
    """A proof that all transactions from before the capture of a table have ended.

    The connector could capture only some of the changes of such a transaction.

    Args:
        by: For PostgreSQL, x0: the transaction id before which all transactions have ended. For
            MySQL and MariaDB, the id of a marker row that was written after these transactions.
        captured: A position of the log after these transactions. The connector must have captured
            everything up to this position before O, the start of the table's stream in the topic,
            is recorded. None for PostgreSQL, where x0 is the whole proof.
    """

    by: str
    captured: LogPosition | None = None


@dataclass(frozen=True)
class Marker:
    """A row written on a source's primary; an image with this row contains every earlier commit.

    Args:
        id: Primary key of the row.
        system_identifier: Identifier of the primary; None if the login may not read it.
        timeline: Timeline of the primary; None if the login may not read it, or the server has no
            timelines.
        position: The end of the log, read after the row was committed.
    """

    id: UUID
    system_identifier: str | None
    timeline: int | None
    position: LogPosition


@dataclass(frozen=True)
class NextInserted:
    """The row that a transaction inserted next after a given row of the same transaction.

    Args:
        known: Whether the source can find out if there is such a row. False if the given row has
            changed since its insert, or if the key's type cannot be compared.
        key: The key values of the next row, as text; None if there is no such row, or if ``known``
            is False.
    """

    known: bool
    key: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ReplicaPosition:
    """The position of a source's replica.

    Args:
        replayed: Position up to which the log is applied; None if the server does not report it.
        received: Position up to which the log is received; None if it is not known.
        lag_bytes: Bytes between the primary's position and ``replayed``; None if unknown.
        lag_seconds: Age of the last replayed commit in seconds, 0 if nothing is left to replay;
            None if unknown.
        paused: Whether replay is paused.
    """

    replayed: LogPosition | None
    received: LogPosition | None
    lag_bytes: int | None
    lag_seconds: float | None
    paused: bool


@dataclass(frozen=True)
class TimeRange:
    """The rows of a table with ``begin <= column < end``; times are texts in UTC, without a zone.

    Args:
        column: A column with times or dates.
        begin: The first time in the range.
        end: The first time after the range.
    """

    column: str
    begin: str
    end: str


@dataclass(frozen=True)
class KeyRange:
    """The rows of a source table with ``lower <= key < upper``.

    Args:
        lower: Values of the key columns as the source prints them, in key order; None if there is
            no lower bound.
        upper: Values of the key columns at the upper bound; None if there is no upper bound.
        within: Limits the range to rows of this time range; None without such a limit. All ranges
            of a query have the same value of this field.
    """

    lower: tuple[str, ...] | None = None
    upper: tuple[str, ...] | None = None
    within: TimeRange | None = None


@dataclass(frozen=True)
class TableSize:
    """The size of a source table to copy.

    Args:
        rows: Number of rows, estimated from the table's current size.
        heap_bytes: Bytes of rows on disk with TOAST, without indexes, over all partitions.
    """

    rows: int
    heap_bytes: int


@dataclass(frozen=True)
class Boundaries:
    """Keys that cut a source table into ranges of about equally many rows.

    Args:
        points: Keys in strictly ascending order, their values as text; ``n`` keys make ``n + 1``
            ranges.
        size: The table's estimated size.
    """

    points: tuple[tuple[str, ...], ...]
    size: TableSize


@dataclass(frozen=True)
class SnapshotQuery:
    """A query with which Spark reads a source table: one JDBC partition per predicate.

    ``spark.read.jdbc(q.url, q.table, predicates=list(q.predicates), properties=q.properties)``,
    then ``.selectExpr(*q.select)`` gives the source columns as lake types, in lake order.

    Args:
        url: JDBC URL without a password.
        table: A parenthesised subquery; its columns have generated names.
        predicates: One SQL condition per key range, in the order of the caller's ranges.
        select: Spark SQL expressions, one per column of the schema.
        properties: JDBC and Spark options. They contain the password, so the repr leaves them out.
    """

    url: str
    table: str
    predicates: tuple[str, ...]
    select: tuple[str, ...]
    properties: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class Check:
    """One line that the command ``check`` prints about a source.

    Args:
        name: What was checked, for example ``gtid_mode``.
        status: The result of the check.
        detail: What the check found.
        remedy: What to do; empty if ``ok``. The remedy of a note is optional.
    """

    name: str
    status: Literal["ok", "note", "warning", "error"]
    detail: str
    remedy: str = ""
