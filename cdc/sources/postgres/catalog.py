"""Reads tables, columns and types from the catalog."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from cdc.errors import MissingTableError
from cdc.sources.postgres import misread_types
from cdc.sources.postgres.connection import Session, read_by
from cdc.sources.postgres.hazards import hazards
from cdc.sources.source_facts import (
    Leaf,
    ReplicaIdentity,
    SourceColumn,
    SourceTable,
    TableKind,
    TableStats,
)
from schemas.table import TableId
from schemas.types_postgres import PostgresType, TypeKind

SCHEMA = "tributary"
"""Name of the schema with Tributary's own tables on the source."""

_IDENTITY: dict[str, ReplicaIdentity] = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
_CHUNKS = "_timescaledb_internal"
"""Name of the schema with TimescaleDB's chunks, the child tables of hypertables."""
_COUNTS_GENERATED = 180000
"""The first version that refuses UPDATE and DELETE of a published table that has both replica
identity FULL and generated columns."""
_INFINITE = 170000
"""The first version in which an interval can be infinite."""
_KIND: dict[str, TableKind] = {"r": "table", "p": "partitioned", "f": "foreign"}


# With a table's id, pg_get_expr() waits for the table's lock; only a generated column needs the id.
DEFAULT = "pg_catalog.pg_get_expr(d.adbin, CASE WHEN a.attgenerated = '' THEN 0 ELSE d.adrelid END)"
"""SQL that evaluates to the default of column ``a``; ``d`` is the column's ``pg_attrdef`` row."""

# From version 18 on, ADD CONSTRAINT ... NOT NULL c NOT VALID marks the column, and rows with NULL
# stay. Older versions have no such constraints of tables.
ALLOWS_NULL = """(NOT a.attnotnull OR EXISTS (
           SELECT FROM pg_catalog.pg_constraint o
           WHERE o.conrelid = a.attrelid AND o.contype = 'n' AND NOT o.convalidated
             AND o.conkey = ARRAY[a.attnum]))"""
"""SQL that is true if rows can have NULL in column ``a``."""


def leaves(root: str) -> str:
    """Return SQL that selects the object ids of a PostgreSQL table's leaf partitions.

    The SQL does not use ``pg_partition_tree``, which locks each partition and so waits for sessions
    that rewrite a partition.

    Args:
        root: SQL that PostgreSQL evaluates to the table's object id.
    """
    return f"""(
    WITH RECURSIVE tree (oid, kind) AS (
        SELECT r.oid, r.relkind FROM pg_catalog.pg_class r WHERE r.oid = {root} AND r.relkind = 'p'
        UNION ALL
        SELECT p.oid, p.relkind FROM tree
        JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid AND tree.kind = 'p'
        JOIN pg_catalog.pg_class p ON p.oid = i.inhrelid
        WHERE to_jsonb(i) ->> 'inhdetachpending' IS DISTINCT FROM 'true')
    SELECT tree.oid FROM tree WHERE tree.kind <> 'p')"""  # noqa: S608 - SQL of our own


def access_method(table: str) -> str:
    """Return SQL that PostgreSQL evaluates to a table's access method, or to NULL.

    The SQL evaluates to NULL if logical decoding can read the table's rows from the WAL. This is
    possible for two access methods: ``heap``, and Percona's ``tde_heap``, which writes the same WAL
    as ``heap``. The SQL also evaluates to NULL for a partitioned table, which has no rows itself.

    Args:
        table: The alias of the table's row of ``pg_class`` in the query around this SQL.
    """
    return f"""(
        SELECT m.amname::text FROM pg_catalog.pg_am m
        WHERE m.oid = {table}.relam AND {table}.relkind = 'r'
          AND m.amname NOT IN ('heap', 'tde_heap'))"""  # noqa: S608 - SQL of our own


# Sizes and rows are summed over the partition tree; the tree of a plain table is the table itself.
# Only the list of tables has sizes: a read of a size waits for sessions that rewrite the table, a
# partition or an index, which can take hours.
_TABLES = f"""
SELECT n.nspname, c.relname, c.oid, c.relkind::text, c.relpersistence::text, c.relreplident::text,
       pg_catalog.pg_get_userbyid(c.relowner), tree.rows, coalesce(tree.bytes, 0),
       array(SELECT a.attname::text
             FROM pg_catalog.pg_index i
             CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
             WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts
             ORDER BY k.place),
       array(SELECT a.attname::text
             FROM pg_catalog.pg_index i
             CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
             WHERE i.indrelid = c.oid AND i.indisreplident AND k.place <= i.indnkeyatts
             ORDER BY k.place),
       rn.nspname, r.relname, coalesce(tree.updated, 0), coalesce(tree.deleted, 0),
       array(SELECT i.inhrelid::regclass::text FROM pg_catalog.pg_inherits i
             JOIN pg_catalog.pg_class child ON child.oid = i.inhrelid
             WHERE i.inhparent = c.oid AND c.relkind <> 'p' AND child.relpersistence <> 't'
             ORDER BY 1),
       coalesce({access_method("c")}, ''),
       coalesce((SELECT a.xmin::text FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attisdropped
                 ORDER BY pg_catalog.age(a.xmin) LIMIT 1), '')
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_class r ON c.relispartition AND r.oid = pg_catalog.pg_partition_root(c.oid)
LEFT JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
CROSS JOIN LATERAL (
    SELECT sum(leaf.reltuples) FILTER (WHERE leaf.reltuples >= 0)::int8 AS rows,
           sum(CASE WHEN %(name)s::text IS NOT NULL THEN NULL
                    WHEN %(measured)s THEN pg_catalog.pg_total_relation_size(leaf.oid)
                    ELSE leaf.relpages * pg_catalog.current_setting('block_size')::int8
               END)::int8 AS bytes,
           sum(pg_catalog.pg_stat_get_tuples_updated(leaf.oid))::int8 AS updated,
           sum(pg_catalog.pg_stat_get_tuples_deleted(leaf.oid))::int8 AS deleted
    FROM (SELECT c.oid WHERE c.relkind <> 'p' UNION ALL {leaves("c.oid")}) AS held
    JOIN pg_catalog.pg_class leaf ON leaf.oid = held.oid) AS tree
WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
  AND ((%(schema)s::text IS NULL AND n.nspname <> 'tributary')
       OR (n.nspname = %(schema)s AND c.relname = %(name)s))
ORDER BY n.nspname, c.relname
"""  # noqa: S608

# The partitions are listed once, and not once for each column.
_COLUMNS = f"""
SELECT a.attname, a.attnum, a.atttypid, a.atttypmod, {ALLOWS_NULL},
       a.attnotnull AND {ALLOWS_NULL}, a.attgenerated <> '',
       EXISTS (SELECT FROM pg_catalog.pg_type t
               WHERE t.oid = a.atttypid AND t.typtype = 'd' AND t.typnotnull),
       {DEFAULT}, coalesce(held.old_values, '{{}}')
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN (
    SELECT leaf.attname,
           array_agg(DISTINCT CASE WHEN leaf.atthasmissing THEN leaf.attmissingval::text END)
               AS old_values
    FROM pg_catalog.pg_attribute leaf
    WHERE leaf.attrelid = ANY(array(
              SELECT f.oid FROM pg_catalog.pg_class f
              WHERE f.oid = %(table)s AND f.relkind <> 'p'
              UNION ALL {leaves("%(table)s")}))
      AND leaf.attnum > 0 AND NOT leaf.attisdropped
    GROUP BY leaf.attname) AS held ON held.attname = a.attname
WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""  # noqa: S608

# The server uses a partition's own replica identity, not that of the root. A deferrable index does
# not identify a row, since rows can break it until their transaction ends.
_LEAVES = f"""
SELECT n.nspname, leaf.relname, leaf.relkind::text, leaf.relpersistence::text,
       leaf.relreplident::text,
       array(SELECT a.attname::text FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = leaf.oid AND a.attnum > 0 AND NOT a.attisdropped
               AND (leaf.relreplident = 'f' OR a.attnum IN
                    (SELECT unnest(i.indkey::int2[]) FROM pg_catalog.pg_index i
                     WHERE i.indrelid = leaf.oid AND i.indisvalid AND i.indimmediate
                       AND (leaf.relreplident = 'd' AND i.indisprimary
                            OR leaf.relreplident = 'i' AND i.indisreplident)))),
       coalesce({access_method("leaf")}, '')
FROM {leaves("%s")} AS held
JOIN pg_catalog.pg_class leaf ON leaf.oid = held.oid
JOIN pg_catalog.pg_namespace n ON n.oid = leaf.relnamespace
ORDER BY 1, 2
"""  # noqa: S608

_UNIQUE = """
SELECT array(SELECT a.attname::text
             FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_catalog.pg_index i
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY NOT i.indisprimary, i.indexrelid
"""

# No index has `typarray`, so the element is looked up by its id.
_TYPES = """
SELECT t.oid, t.typname, t.typtype::text, t.typbasetype, t.typtypmod, e.oid
FROM pg_catalog.pg_type t
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
WHERE t.oid = ANY(%s)
"""
_SHOWN = """
SELECT wanted.oid, wanted.modifier, pg_catalog.format_type(wanted.oid, wanted.modifier)
FROM unnest(%s::oid[], %s::int4[]) AS wanted (oid, modifier)
"""


def read_tables(session: Session, source: str, *, measured: bool = True) -> list[TableStats]:
    """Return all user tables of the PostgreSQL database except Tributary's own.

    Args:
        session: A session on the database.
        source: Name of the source.
        measured: Whether the server measures each table, for which it waits for other sessions'
            locks. If not, sizes are those of the last VACUUM or ANALYZE.
    """
    names = {field.name for field in dataclasses.fields(TableStats)}
    return [
        TableStats(**{name: value for name, value in facts.items() if name in names})
        for facts in _described(session, source, None, read_extensions(session), measured=measured)
    ]


def read_table(session: Session, table: TableId) -> SourceTable:
    """Return one PostgreSQL table with its columns.

    The function does not wait for locks on partitions or indexes.

    Raises:
        SourceError: There is no such table, or the role may not see it.
    """
    with session.transaction():
        qualify_names(session)
        return table_within(session, table, read_extensions(session))


def table_within(session: Session, table: TableId, extensions: Extensions) -> SourceTable:
    """Return what `read_table` returns, within a transaction after `qualify_names`."""
    facts = next(iter(_described(session, table.source, table, extensions)), None)
    if facts is None:
        raise missing(table)
    identity_index = facts.pop("identity_index")
    for measured in ("rows_estimate", "total_bytes"):
        del facts[measured]
    columns = _read_columns(session, table.schema, facts["number"])
    unique = [tuple(row[0]) for row in session.execute(_UNIQUE, (facts["number"],))]
    # A plain table has no leaves.
    leaves = () if facts["kind"] == "table" else _read_leaves(session, table, facts["number"])
    identity: dict[ReplicaIdentity, tuple[str, ...]] = {
        "default": facts["primary_key"],
        "index": identity_index,
        "full": tuple(column.name for column in columns),
        "nothing": (),
    }
    return SourceTable(
        **facts,
        source_kind="postgres",
        columns=columns,
        unique_indexes=tuple(unique),
        hazards=hazards(columns, facts["replica_identity"]),
        identity_columns=identity[facts["replica_identity"]],
        leaves=leaves,
        withheld=_withheld(session, columns),
    )


def _read_leaves(session: Session, root: TableId, oid: int) -> tuple[Leaf, ...]:
    """Return the leaf partitions of a PostgreSQL table, by the table's object id."""
    return tuple(
        Leaf(
            TableId(root.source, schema, name),
            _kind_of(kind, persistence),
            _IDENTITY[identity],
            tuple(names),
            method,
        )
        for schema, name, kind, persistence, identity, names, method in session.execute(
            _LEAVES, (oid,)
        )
    )


def _withheld(session: Session, columns: Sequence[SourceColumn]) -> tuple[str, ...]:
    """Return the generated columns due to which PostgreSQL can refuse UPDATE and DELETE.

    The server does not publish these columns. With replica identity FULL, PostgreSQL 18 and later
    nevertheless requires them in the old row, and so refuses UPDATE and DELETE.
    """
    if session.info.server_version < _COUNTS_GENERATED:
        return ()
    return tuple(column.name for column in columns if column.generated)


def _described(
    session: Session,
    source: str,
    only: TableId | None,
    extensions: Extensions,
    *,
    measured: bool = True,
) -> Iterable[dict[str, Any]]:
    """Yield PostgreSQL's description of each user table; with ``only``, of that table alone."""
    parameters = {"schema": only.schema if only else None, "name": only.name if only else None}
    hypertables = _hypertables(session) if extensions.timescale else set()
    distributed = _distributed(session) if extensions.citus else set()
    for row in session.execute(_TABLES, {**parameters, "measured": measured}).fetchall():
        schema, name, oid, kind, persistence, identity, owner, rows, total = row[:9]
        primary, identity_index, root_schema, root_name, updated, deleted, children = row[9:16]
        yield {
            "table": TableId(source, schema, name),
            "number": oid,
            "kind": "chunk"
            if schema == _CHUNKS
            else "hypertable"
            if (schema, name) in hypertables
            else "distributed"
            if oid in distributed
            else _kind_of(kind, persistence),
            "rows_estimate": rows,
            "total_bytes": total,
            "primary_key": tuple(primary),
            "replica_identity": _IDENTITY[identity],
            "identity_index": tuple(identity_index),
            "owner": owner,
            "partition_root": TableId(source, root_schema, root_name) if root_name else None,
            "updated": updated,
            "deleted": deleted,
            "children": tuple(children),
            "access_method": row[16],
            "dropped_by": row[17],
        }


def _hypertables(session: Session) -> set[tuple[str, str]]:
    """Return TimescaleDB's hypertables (PostgreSQL), whose rows are in their child tables."""
    query = "SELECT schema_name::text, table_name::text FROM _timescaledb_catalog.hypertable"
    return {(row[0], row[1]) for row in session.execute(query)}


@dataclass(frozen=True)
class Extensions:
    """The extensions of a PostgreSQL database that store rows of tables elsewhere.

    Args:
        timescale: Whether the database has the catalog of TimescaleDB.
        citus: Whether the database has the catalog of Citus (``pg_dist_partition``).
    """

    timescale: bool
    citus: bool


def read_extensions(session: Session) -> Extensions:
    """Return the extensions of the PostgreSQL database that store rows of tables elsewhere."""
    found = session.execute(
        "SELECT to_regclass('_timescaledb_catalog.hypertable') IS NOT NULL,"
        " to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"
    ).fetchone()
    return Extensions(*found) if found is not None else Extensions(timescale=False, citus=False)


def _distributed(session: Session) -> set[int]:
    """Return object ids of Citus's tables (PostgreSQL), whose rows Citus stores in other tables."""
    query = "SELECT logicalrelid::oid FROM pg_catalog.pg_dist_partition"
    return {int(row[0]) for row in session.execute(query)}


def _kind_of(kind: str, persistence: str) -> TableKind:
    """Return a PostgreSQL table's kind by its ``relkind`` and its ``relpersistence``."""
    return "unlogged" if persistence == "u" else _KIND.get(kind, "other")


def _read_columns(session: Session, schema: str, oid: int) -> tuple[SourceColumn, ...]:
    """Return the columns of a PostgreSQL table, by the table's object id."""
    rows = session.execute(_COLUMNS, {"table": oid}).fetchall()
    oids = {row[2] for row in rows}
    types = _Types(session, {(row[2], row[3]) for row in rows})
    others = misread_types.others(session, schema, oids)
    return tuple(
        SourceColumn(
            name=name,
            type=types.describe(type_oid, typmod),
            number=number,
            nullable=nullable,
            not_validated=not_validated,
            generated=generated,
            refused_by_domain=refused_by_domain,
            default_sql=default,
            old_values=tuple(old_values),
            misread_as=others.get(type_oid, ""),
        )
        for (
            name,
            number,
            type_oid,
            typmod,
            nullable,
            not_validated,
            generated,
            refused_by_domain,
            default,
            old_values,
        ) in rows
    )


def read_type(session: Session, oid: int, modifier: int) -> PostgresType:
    """Return one parsed PostgreSQL type by its object id and its type modifier."""
    with session.transaction():
        qualify_names(session)
        return _Types(session, {(oid, modifier)}).describe(oid, modifier)


class _Types:
    """Reads the facts of PostgreSQL types, also of the types' element types and base types.

    Args:
        session: A session with an open transaction, after `qualify_names`.
        wanted: The object id of each type, with the type modifier.
    """

    def __init__(self, session: Session, wanted: Collection[tuple[int, int]]) -> None:
        self._session = session
        self._rows: dict[int, tuple[str, TypeKind, int, int, int | None]] = {}
        missing = {oid for oid, _ in wanted}
        while missing:
            for oid, *facts in session.execute(_TYPES, (list(missing),)):
                self._rows[oid] = cast("tuple[str, TypeKind, int, int, int | None]", tuple(facts))
            needed = {part for row in self._rows.values() for part in (row[2], row[4]) if part}
            missing = needed - self._rows.keys()
        shown = list(self._with_parts(wanted))
        asked = ([oid for oid, _ in shown], [modifier for _, modifier in shown])
        self._shown = {(row[0], row[1]): row[2] for row in session.execute(_SHOWN, asked)}

    def _with_parts(self, wanted: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return the types, and all their element types and base types, each with a modifier."""
        found: set[tuple[int, int]] = set()
        left = set(wanted)
        while left:
            found.add(one := left.pop())
            _, kind, base, base_typmod, element = self._rows[one[0]]
            parts = {(element, one[1])} if element else set()
            left |= (parts | ({(base, base_typmod)} if kind == "d" else set())) - found
        return found

    def describe(self, oid: int, typmod: int) -> PostgresType:
        name, kind, base, base_typmod, element = self._rows[oid]
        return PostgresType(
            name=name,
            typmod=_money_digits(self._session) if name == "money" else typmod,
            kind=kind,
            # the modifier of an array is that of its elements
            element=self.describe(element, typmod) if element else None,
            base=self.describe(base, base_typmod) if kind == "d" else None,
            display=self._shown[oid, typmod],
            infinite=name == "interval" and self._session.info.server_version >= _INFINITE,
        )


def _money_digits(session: Session) -> int:
    """Return the decimal places of PostgreSQL's money as a type modifier; -1 for two places.

    The server stores money as a whole number of the smallest unit. Its setting ``lc_monetary``
    determines the position of the decimal point.
    """
    with session.transaction(force_rollback=True):
        session.execute(
            "SELECT set_config(name, reset_val, true) FROM pg_catalog.pg_settings"
            " WHERE name = 'lc_monetary'"
        )
        row = session.execute("SELECT encode(cash_send(1::int4::money), 'hex')").fetchone()
    digits = len(str(int(row[0], 16))) - 1 if row else 2
    return -1 if digits == 2 else digits


def qualify_names(session: Session) -> None:
    """Make PostgreSQL print every name with its schema, except names of ``pg_catalog``.

    The function also changes the settings by which the server prints defaults and stored values.
    All settings apply to the open transaction only, since a pooler can run the next transaction in
    another session.
    """
    read_by(session, search_path="pg_catalog")


def missing(table: TableId) -> MissingTableError:
    """Return the error for a PostgreSQL table that does not exist."""
    return MissingTableError(
        f"source {table.source} has no table {table.relation}",
        remedy="List the tables with `tributary discover`; names are case-sensitive. If the table"
        f" was dropped, run `tributary offboard {table}`; if it was recreated, run `tributary"
        f" bootstrap {table}`.",
        table=table,
    )
