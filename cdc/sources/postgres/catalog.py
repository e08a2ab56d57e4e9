"""Tables, columns, types and fingerprints from the catalog."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any, cast

import psycopg
from psycopg import sql

from cdc.errors import MissingTableError
from cdc.sources.postgres.connection import Session
from cdc.sources.postgres.hazards import hazards
from cdc.sources.values import (
    Fingerprint,
    ReplicaIdentity,
    SourceColumn,
    SourceTable,
    TableKind,
    TableStats,
)
from schemas.table import TableId
from schemas.types_postgres import PostgresType, TypeKind

SCHEMA = "tributary"
"""Schema of our own tables on the source."""

_IDENTITY: dict[str, ReplicaIdentity] = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
_KIND: dict[str, TableKind] = {"r": "table", "p": "partitioned", "f": "foreign"}

# Sizes and rows are summed over the partition tree, in which a plain table is alone.
_TABLES = """
SELECT n.nspname, c.relname, c.oid, c.relkind::text, c.relpersistence::text, c.relreplident::text,
       pg_catalog.pg_get_userbyid(c.relowner), tree.rows, coalesce(tree.bytes, 0),
       array(SELECT a.attname::text
             FROM pg_catalog.pg_index i
             CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
             WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY k.place),
       array(SELECT a.attname::text
             FROM pg_catalog.pg_index i
             CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
             WHERE i.indrelid = c.oid AND i.indisreplident ORDER BY k.place),
       rn.nspname, r.relname, coalesce(tree.updated, 0), coalesce(tree.deleted, 0)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_class r ON c.relispartition AND r.oid = pg_catalog.pg_partition_root(c.oid)
LEFT JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
CROSS JOIN LATERAL (
    SELECT sum(leaf.reltuples) FILTER (WHERE leaf.reltuples >= 0)::int8 AS rows,
           sum(pg_catalog.pg_total_relation_size(leaf.oid))::int8 AS bytes,
           sum(pg_catalog.pg_stat_get_tuples_updated(leaf.oid))::int8 AS updated,
           sum(pg_catalog.pg_stat_get_tuples_deleted(leaf.oid))::int8 AS deleted
    FROM pg_catalog.pg_class leaf
    WHERE leaf.oid = c.oid AND c.relkind <> 'p'
       OR c.relkind = 'p' AND leaf.relkind <> 'p' AND leaf.oid IN
          (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid))) AS tree
WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
  AND ((%(schema)s::text IS NULL AND n.nspname <> 'tributary')
       OR (n.nspname = %(schema)s AND c.relname = %(name)s))
ORDER BY n.nspname, c.relname
"""

_COLUMNS = """
SELECT a.attname, a.attnum, a.atttypid, a.atttypmod, NOT a.attnotnull, a.attgenerated <> '',
       pg_catalog.pg_get_expr(d.adbin, d.adrelid),
       array(SELECT DISTINCT CASE WHEN leaf.atthasmissing THEN leaf.attmissingval::text END
             FROM pg_catalog.pg_attribute leaf
             JOIN pg_catalog.pg_class f ON f.oid = leaf.attrelid AND f.relkind <> 'p'
             WHERE leaf.attname = a.attname
               AND (leaf.attrelid = a.attrelid OR leaf.attrelid IN
                    (SELECT relid FROM pg_catalog.pg_partition_tree(a.attrelid))))
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

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

_TYPES = """
SELECT t.oid, t.typname, t.typtype::text, t.typbasetype, t.typtypmod, e.oid
FROM pg_catalog.pg_type t
LEFT JOIN pg_catalog.pg_type e ON e.typarray = t.oid
WHERE t.oid = ANY(%s)
"""

# One statement, so one snapshot. Object ids and file nodes are the same on a physical replica.
# A column's `written` tells ALTER ... TYPE ... USING, which keeps the type and sends no events,
# from VACUUM FULL: both give the table a new file, but only the former writes the column's row.
# `parts` tells a label of an enum, or a field of a composite, that was changed: no row is written,
# and all show it. Types of the server itself, with oids below 16384, have none.
# `named` tells a table that was renamed, or moved to another schema, and back: that writes the row
# of its type, as a new owner does.
_FINGERPRINTS = """
SELECT n.nspname::text, c.relname::text, jsonb_build_object(
    'oid', c.oid::int8,
    'relfilenode', c.relfilenode::int8,
    'kind', c.relkind::text,
    'owner', pg_catalog.pg_get_userbyid(c.relowner),
    'named', (SELECT t.xmin::text FROM pg_catalog.pg_type t WHERE t.oid = c.reltype),
    'persistence', c.relpersistence::text,
    'attributes', c.relnatts::int,
    'replica_identity', c.relreplident::text,
    'columns', (SELECT jsonb_object_agg(a.attnum::text, jsonb_build_object(
                    'name', a.attname, 'type', a.atttypid::int8, 'typmod', a.atttypmod,
                    'shown', pg_catalog.format_type(a.atttypid, a.atttypmod),
                    'nullable', NOT a.attnotnull, 'generated', a.attgenerated <> '',
                    'default', pg_catalog.pg_get_expr(d.adbin, d.adrelid),
                    'written', a.xmin::text, 'parts', parts.known))
                FROM pg_catalog.pg_attribute a
                LEFT JOIN pg_catalog.pg_attrdef d
                  ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                LEFT JOIN LATERAL (
                    WITH RECURSIVE part (oid) AS (
                        SELECT a.atttypid
                        UNION
                        SELECT inner_type.oid
                        FROM part JOIN pg_catalog.pg_type t ON t.oid = part.oid
                        CROSS JOIN LATERAL (
                            SELECT unnest(ARRAY[t.typelem, t.typbasetype])
                            UNION ALL
                            SELECT r.rngsubtype FROM pg_catalog.pg_range r
                            WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
                            UNION ALL
                            SELECT f.atttypid FROM pg_catalog.pg_attribute f
                            WHERE f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped
                        ) AS inner_type (oid)
                        WHERE inner_type.oid >= 16384)
                    SELECT jsonb_object_agg(made.part, made.shown) AS known
                    FROM (SELECT 'label ' || e.oid, e.enumlabel::text
                          FROM part JOIN pg_catalog.pg_enum e ON e.enumtypid = part.oid
                          UNION ALL
                          SELECT 'field ' || t.oid || ' ' || f.attnum,
                                 pg_catalog.format_type(f.atttypid, f.atttypmod)
                          FROM part JOIN pg_catalog.pg_type t ON t.oid = part.oid
                          JOIN pg_catalog.pg_attribute f ON f.attrelid = t.typrelid
                          WHERE f.attnum > 0 AND NOT f.attisdropped) AS made (part, shown)
                ) AS parts ON a.atttypid >= 16384
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'keys', (SELECT coalesce(jsonb_object_agg(
                 CASE WHEN i.indisprimary THEN 'primary' ELSE 'identity' END, i.indkey::text), '{}')
             FROM pg_catalog.pg_index i
             WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)),
    'leaves', (SELECT coalesce(jsonb_object_agg(
                   leaf.oid::regclass::text, jsonb_build_object(
                   'oid', leaf.oid::int8, 'relfilenode', leaf.relfilenode::int8,
                   'kind', leaf.relkind::text, 'persistence', leaf.relpersistence::text,
                   'replica_identity', leaf.relreplident::text)), '{}')
               FROM pg_catalog.pg_partition_tree(c.oid) t
               JOIN pg_catalog.pg_class leaf ON leaf.oid = t.relid
               WHERE t.isleaf AND leaf.oid <> c.oid),
    'publication_entry', (SELECT r.oid::int8
                  FROM pg_catalog.pg_publication_rel r
                  JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
                  WHERE r.prrelid = c.oid AND p.pubname = %s))
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname::text, c.relname::text) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
  AND c.relkind IN ('r', 'p', 'f')
"""


def read_tables(session: Session, source: str) -> list[TableStats]:
    """All user tables of the database, without our own."""
    names = {field.name for field in dataclasses.fields(TableStats)}
    return [
        TableStats(**{name: value for name, value in facts.items() if name in names})
        for facts in _described(session, source, None)
    ]


def read_table(session: Session, table: TableId) -> SourceTable:
    """One table with its columns.

    Raises:
        SourceError: There is no such table, or the role may not see it.
    """
    with session.transaction():
        _qualify_names(session)
        facts = next(iter(_described(session, table.source, table)), None)
        if facts is None:
            raise _missing(table)
        identity_index = facts.pop("identity_index")
        columns = _columns(session, facts["oid"])
        unique = [tuple(row[0]) for row in session.execute(_UNIQUE, (facts["oid"],))]
    identity: dict[ReplicaIdentity, tuple[str, ...]] = {
        "default": facts["primary_key"],
        "index": identity_index,
        "full": tuple(column.name for column in columns),
        "nothing": (),
    }
    return SourceTable(
        **facts,
        columns=columns,
        unique_indexes=tuple(unique),
        hazards=hazards(columns, facts["replica_identity"]),
        identity_columns=identity[facts["replica_identity"]],
    )


def read_fingerprints(
    session: Session, tables: Collection[TableId], publication: str
) -> dict[TableId, Fingerprint]:
    """The facts of each table that must not change unseen, without those that do not exist.

    Among them which entry of the publication it is: a table that was taken out and put back has
    another one, and its changes in between are in no topic.
    """
    named = {(table.schema, table.name): table for table in tables}
    with session.transaction():
        _qualify_names(session)
        schemas, names = [name[0] for name in named], [name[1] for name in named]
        rows = session.execute(_FINGERPRINTS, (publication, schemas, names)).fetchall()
    return {named[row[0], row[1]]: Fingerprint(row[2]) for row in rows}


def read_fingerprint(session: Session, table: TableId, publication: str) -> Fingerprint:
    """The facts of one table; see :func:`read_fingerprints`.

    Raises:
        MissingTableError: There is no such table.
    """
    found = read_fingerprints(session, [table], publication).get(table)
    if found is None:
        raise _missing(table)
    return found


def empty_files(session: Session, oids: Collection[int]) -> frozenset[int]:
    """Those of the relations whose file is empty. That needs no privilege, and reads no row."""
    query = "SELECT c FROM unnest(%s::oid[]) c WHERE pg_catalog.pg_relation_size(c) = 0"
    return frozenset(int(row[0]) for row in session.execute(query, (list(oids),)))


# TRUNCATE and VACUUM FULL give all of these a new row; a later GRANT, say, only the table's own.
_RENEWED = """
SELECT n.nspname, c.relname,
       (SELECT max(pg_catalog.age(part.xmin)) FROM pg_catalog.pg_class part
        WHERE part.oid = c.oid OR part.oid IN
              (SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = c.oid)),
       pg_catalog.pg_stat_get_tuples_inserted(c.oid), c.oid
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY(%s)
"""


def truncated(session: Session, oids: Collection[int]) -> frozenset[int]:
    """Those of the tables with a new file that lost their rows with the old one.

    Where rows are moved to a new file (VACUUM FULL, CLUSTER), they stay older than it; after a
    TRUNCATE there is none that is. A table that never had a row lost none.
    """
    found = set()
    for schema, name, age, inserted, oid in session.execute(_RENEWED, (list(oids),)).fetchall():
        if inserted and not _has_older(session, sql.Identifier(schema, name), age):
            found.add(int(oid))
    return frozenset(found)


def _has_older(session: Session, table: sql.Identifier, age: int) -> bool:
    """Whether a table has a row of before a transaction; the first rows of its file most often."""
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE pg_catalog.age(xmin) > %s)").format(table)
    try:
        row = session.execute(query, (age,)).fetchone()
    except psycopg.errors.QueryCanceled:
        return False  # more rows than can be looked at in time, and none of them was
    return row is not None and bool(row[0])


def read_described(
    session: Session, table: TableId, publication: str
) -> tuple[SourceTable, Fingerprint]:
    """One table and its fingerprint, of one moment.

    Raises:
        SourceError: There is no such table, or the role may not see it.
    """
    with session.transaction():
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return read_table(session, table), read_fingerprint(session, table, publication)


def _described(session: Session, source: str, only: TableId | None) -> Iterable[dict[str, Any]]:
    parameters = {"schema": only.schema if only else None, "name": only.name if only else None}
    for row in session.execute(_TABLES, parameters).fetchall():
        schema, name, oid, kind, persistence, identity, owner, rows, total = row[:9]
        primary, identity_index, root_schema, root_name, updated, deleted = row[9:]
        yield {
            "table": TableId(source, schema, name),
            "oid": oid,
            "kind": "unlogged" if persistence == "u" else _KIND.get(kind, "other"),
            "rows_estimate": rows,
            "total_bytes": total,
            "primary_key": tuple(primary),
            "replica_identity": _IDENTITY[identity],
            "identity_index": tuple(identity_index),
            "owner": owner,
            "partition_root": TableId(source, root_schema, root_name) if root_name else None,
            "updated": updated,
            "deleted": deleted,
        }


def _columns(session: Session, oid: int) -> tuple[SourceColumn, ...]:
    rows = session.execute(_COLUMNS, (oid,)).fetchall()
    types = _Types(session, {row[2] for row in rows})
    return tuple(
        SourceColumn(
            name=name,
            type=types.describe(type_oid, typmod),
            attnum=attnum,
            nullable=nullable,
            generated=generated,
            default_sql=default,
            old_values=tuple(old_values),
        )
        for name, attnum, type_oid, typmod, nullable, generated, default, old_values in rows
    )


def read_type(session: Session, oid: int, modifier: int) -> PostgresType:
    """One type, taken apart."""
    with session.transaction():
        _qualify_names(session)
        return _Types(session, {oid}).describe(oid, modifier)


class _Types:
    """The types that are needed, with those they are made of."""

    def __init__(self, session: Session, oids: set[int]) -> None:
        self._session = session
        self._rows: dict[int, tuple[str, TypeKind, int, int, int | None]] = {}
        missing = oids
        while missing:
            for oid, *facts in session.execute(_TYPES, (list(missing),)):
                self._rows[oid] = cast("tuple[str, TypeKind, int, int, int | None]", tuple(facts))
            needed = {part for row in self._rows.values() for part in (row[2], row[4]) if part}
            missing = needed - self._rows.keys()

    def describe(self, oid: int, typmod: int) -> PostgresType:
        name, kind, base, base_typmod, element = self._rows[oid]
        row = self._session.execute(
            "SELECT pg_catalog.format_type(%s, %s)", (oid, typmod)
        ).fetchone()
        return PostgresType(
            name=name,
            typmod=typmod,
            kind=kind,
            # the modifier of an array is that of its elements
            element=self.describe(element, typmod) if element else None,
            base=self.describe(base, base_typmod) if kind == "d" else None,
            display=row[0] if row else name,
        )


def _qualify_names(session: Session) -> None:
    """Let the server print every name that is not its own with its schema."""
    session.execute("SET LOCAL search_path TO pg_catalog")


def _missing(table: TableId) -> MissingTableError:
    return MissingTableError(
        f"source {table.source} has no table {table.relation}",
        remedy="List the tables with `tributary discover`; names are case-sensitive. If the table"
        " was dropped, offboard it, or bootstrap it once it is there again.",
        table=table,
    )
