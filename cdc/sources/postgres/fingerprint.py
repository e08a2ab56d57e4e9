"""Reads fingerprints of tables, and finds out which change gave partitions new files."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import psycopg
from psycopg import sql

from cdc.sources.postgres.catalog import (
    ALLOWS_NULL,
    DEFAULT,
    Extensions,
    access_method,
    leaves,
    missing,
    qualify_names,
    read_extensions,
    table_within,
)
from cdc.sources.postgres.connection import Session
from cdc.sources.source_facts import SourceTable
from schemas.fingerprint import Fingerprint
from schemas.table import TableId

_log = logging.getLogger(__name__)


def _indexes(table: str) -> str:
    """Return PostgreSQL's SQL for a JSON object that maps each unique index's id to its facts.

    The indexes are those that can be the table's replica identity. Indexes that contain the primary
    key are left out.

    Args:
        table: The alias of the table's row of ``pg_class`` in the query around this SQL.
    """
    return f"""(
        SELECT coalesce(jsonb_object_agg(i.indexrelid::text, jsonb_build_object(
                   'written', i.xmin::text,
                   'flags', pg_catalog.concat_ws(' ', i.indisclustered, i.indcheckxmin,
                       i.indisvalid, i.indisready, i.indisreplident),
                   'chosen', i.xmin = {table}.xmin AND i.xmin <> made.xmin)), '{{}}')
        FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_class made ON made.oid = i.indexrelid
        LEFT JOIN pg_catalog.pg_index p ON p.indrelid = i.indrelid AND p.indisprimary
        WHERE i.indrelid = {table}.oid AND {table}.relkind = 'r'
          AND i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
          AND (p.indkey::int2[] <@ (i.indkey::int2[])[0:i.indnkeyatts - 1]) IS NOT TRUE)
    """  # noqa: S608 - SQL of our own


_AS_ADDED = """
    (a.attnotnull OR dom.typnotnull AND pg_catalog.age(dom.xmin) >= pg_catalog.age(a.xmin))
    AND (a.xmin = c.xmin OR d.xmin IS NOT NULL AND a.xmin = d.xmin
         AND pg_catalog.age(c.xmin) < pg_catalog.age(a.xmin))"""

_SENT_GENERATED = """(
        SELECT jsonb_agg(a.attname ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_publication p ON p.pubname = %(publication)s
        LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
        WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped
          AND coalesce(NULLIF(to_jsonb(r) -> 'prattrs', 'null') @> to_jsonb(a.attnum::int),
                       to_jsonb(p) ->> 'pubgencols' = 's' AND a.attgenerated = 's'))"""
"""SQL that evaluates to the names of the published generated columns; NULL if there are none."""

# One statement, so one snapshot. Object ids and file nodes are the same on a physical replica.
# - `written` of a column distinguishes ALTER ... TYPE ... USING, which keeps the type and sends no
#   events, from VACUUM FULL. Both give the table a new file, but only the former writes the row of
#   the column in the catalog.
# - `stored` is true while the catalog has the value of a column for rows older than it. A new file
#   has the value itself, so the server writes the row of the column for any rewrite; only ALTER ...
#   TYPE also recreates the column's default, which `default_made` shows.
# - `parts` shows a changed label of an enum or field of a composite: such a change writes no
#   catalog row of the table, but changes what its rows show. The server's own types, with oids
#   below 16384, have no such parts. `parts_written` shows a label that was changed and then back.
# - `granted` and `options` are the rest of a column's row in the catalog, so that the cause of a
#   new `written` can be found.
# - `nullable` is true for a column whose NOT NULL is not validated (`ALLOWS_NULL`).
# - `domain` is the row of the domain that is the column's type. The domain can refuse NULL by
#   itself, which the connector counts as the column's; ALTER DOMAIN writes no row of the table.
# - `as_added` is true if the catalog has no sign that a column became NOT NULL after it was added.
#   Then the transaction that last wrote the column's row also wrote the table's row, which each new
#   column writes; or it wrote the column's default, and the table's row was written later. If only
#   the column's domain refuses NULL, the domain was not written after the column.
# - `attached` shows a partition that was detached and attached again: each link from the partition
#   up to the root is a catalog row, which an attachment wrote.
# - `publication` shows settings that were changed and changed back. It is the whole row of the
#   publication, so that a new owner alone can be distinguished from new settings. A table that
#   comes or goes does not write this row; a new owner or name does.
# - `key_made` shows a primary key that was replaced by another one for a while: a new key has a new
#   oid, and REINDEX keeps the oid.
# - `children` leaves out temporary tables, which are a session's own: copies and the log lack their
#   rows.
# - `indexes` shows a replica identity that was another index for a while: REPLICA IDENTITY writes
#   the row of that index in the catalog, and the row of the table with it.
# - `row_written` distinguishes ATTACH PARTITION and DETACH, which write the catalog rows of the
#   table and of all its columns, from GRANT on all columns, which writes only the columns' rows.
#   It is not compared, since GRANT on the table writes the table's row, too.
# - `snapshot` is not a fact of the table: it shows which transactions this reading shows.
# - `access_method` and `distributed_by_citus` are there only if the log lacks the table's rows, and
#   `sent_generated` only if the publication has generated columns of the table (version 18). So a
#   table has the same facts as in a fingerprint of before these facts were read.
# - `named` shows a table that was renamed, or moved to another schema, and back: that writes the
#   row of its type, as a new owner does.
_QUERY = """
SELECT n.nspname::text, c.relname::text, jsonb_build_object(
    'source_kind', 'postgres',
    'oid', c.oid::int8,
    'snapshot', pg_catalog.pg_current_snapshot()::text,
    'relfilenode', c.relfilenode::int8,
    'kind', c.relkind::text,
    'owner', pg_catalog.pg_get_userbyid(c.relowner),
    'named', (SELECT t.xmin::text FROM pg_catalog.pg_type t WHERE t.oid = c.reltype),
    'row_written', c.xmin::text,
    'persistence', c.relpersistence::text,
    'attributes', c.relnatts::int,
    'replica_identity', c.relreplident::text,
    'columns', (SELECT jsonb_object_agg(a.attnum::text, jsonb_build_object(
                    'name', a.attname, 'type', a.atttypid::int8, 'typmod', a.atttypmod,
                    'shown', pg_catalog.format_type(a.atttypid, a.atttypmod),
                    'nullable', ALLOWS_NULL, 'generated', a.attgenerated <> '',
                    'default', EXPRESSION,
                    'default_made', d.oid::int8, 'stored', a.atthasmissing,
                    'written', a.xmin::text, 'granted', a.attacl::text,
                    'options', pg_catalog.concat_ws(' ', a.attstattarget, a.attstorage, a.attndims,
                        a.attcompression, a.attidentity, a.atthasdef, a.attislocal, a.attinhcount,
                        a.attoptions::text),
                    'domain', to_jsonb(dom), 'as_added', AS_ADDED,
                    'parts', parts.known, 'parts_written', parts.written))
                FROM pg_catalog.pg_attribute a
                LEFT JOIN pg_catalog.pg_attrdef d
                  ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                LEFT JOIN LATERAL (
                    SELECT t.xmin, t.typnotnull, t.typowner::int8, t.typdefault, t.typacl::text
                    FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid AND t.typtype = 'd') AS dom
                  ON true
                LEFT JOIN LATERAL (
                    WITH RECURSIVE part (oid) AS (
                        SELECT a.atttypid WHERE a.atttypid >= 16384
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
                    SELECT jsonb_object_agg(made.part, made.shown) AS known,
                           jsonb_object_agg(made.part, made.written)
                               FILTER (WHERE made.written IS NOT NULL) AS written
                    FROM (SELECT 'label ' || e.oid, e.enumlabel::text, e.xmin::text
                          FROM part JOIN pg_catalog.pg_enum e ON e.enumtypid = part.oid
                          UNION ALL
                          SELECT 'field ' || t.oid || ' ' || f.attnum,
                                 pg_catalog.format_type(f.atttypid, f.atttypmod), NULL
                          FROM part JOIN pg_catalog.pg_type t ON t.oid = part.oid
                          JOIN pg_catalog.pg_attribute f ON f.attrelid = t.typrelid
                          WHERE f.attnum > 0 AND NOT f.attisdropped) AS made (part, shown, written)
                ) AS parts ON true
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'keys', (SELECT coalesce(jsonb_object_agg(
                 CASE WHEN i.indisprimary THEN 'primary' ELSE 'identity' END, i.indkey::text), '{}')
             FROM pg_catalog.pg_index i
             WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)),
    'key_made', (SELECT o.oid::int8 FROM pg_catalog.pg_constraint o
                 WHERE o.conrelid = c.oid AND o.contype = 'p'),
    'indexes', INDEXES_OF_TABLE,
    'partition_of', (SELECT i.inhparent::regclass::text FROM pg_catalog.pg_inherits i
                     WHERE i.inhrelid = c.oid AND c.relispartition),
    'leaves', (SELECT coalesce(jsonb_object_agg(
                   leaf.oid::regclass::text, jsonb_build_object(
                   'oid', leaf.oid::int8, 'relfilenode', leaf.relfilenode::int8,
                   'kind', leaf.relkind::text, 'persistence', leaf.relpersistence::text,
                   'replica_identity', leaf.relreplident::text,
                   'identity', (SELECT array_agg(a.attname::text ORDER BY a.attname)
                                FROM pg_catalog.pg_index i
                                JOIN pg_catalog.pg_attribute a ON a.attrelid = leaf.oid AND a.attnum
                                    = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                                WHERE i.indrelid = leaf.oid AND i.indisreplident),
                   'indexes', INDEXES_OF_LEAF,
                   'attached', (SELECT string_agg(i.xmin::text, ' ' ORDER BY a.place)
                                FROM pg_catalog.pg_partition_ancestors(leaf.oid)
                                     WITH ORDINALITY AS a (oid, place)
                                JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.oid))
                   || jsonb_strip_nulls(jsonb_build_object('access_method', METHOD_OF_LEAF))), '{}')
               FROM LEAVES AS held
               JOIN pg_catalog.pg_class leaf ON leaf.oid = held.oid),
    'children', (SELECT coalesce(jsonb_object_agg(i.inhrelid::regclass::text, i.xmin::text), '{}')
                 FROM pg_catalog.pg_inherits i
                 JOIN pg_catalog.pg_class child ON child.oid = i.inhrelid
                 WHERE i.inhparent = c.oid AND c.relkind <> 'p' AND child.relpersistence <> 't'),
    'publication', (SELECT to_jsonb(p) || jsonb_build_object('written', p.xmin::text)
                    FROM pg_catalog.pg_publication p WHERE p.pubname = %(publication)s),
    'publication_entry', (SELECT r.oid::int8
                  FROM pg_catalog.pg_publication_rel r
                  JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
                  WHERE r.prrelid = c.oid AND p.pubname = %(publication)s))
    || jsonb_strip_nulls(jsonb_build_object(
        'access_method', METHOD_OF_TABLE, 'distributed_by_citus', DISTRIBUTED,
        'sent_generated', SENT_GENERATED))
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN
      (SELECT wanted.schema::name, wanted.relation::name
       FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS wanted (schema, relation))
  AND c.relkind IN ('r', 'p', 'f')
""".replace("LEAVES", leaves("c.oid")).replace("EXPRESSION", DEFAULT)
_FINGERPRINTS = (
    _QUERY.replace("INDEXES_OF_TABLE", _indexes("c"))
    .replace("INDEXES_OF_LEAF", _indexes("leaf"))
    .replace("AS_ADDED", _AS_ADDED)
    .replace("ALLOWS_NULL", ALLOWS_NULL)
    .replace("METHOD_OF_TABLE", access_method("c"))
    .replace("SENT_GENERATED", _SENT_GENERATED)
    .replace("METHOD_OF_LEAF", access_method("leaf"))
)
_DISTRIBUTED = """(
        SELECT true FROM pg_catalog.pg_dist_partition d WHERE d.logicalrelid = c.oid)"""


def read_fingerprints(
    session: Session, tables: Collection[TableId], publication: str
) -> dict[TableId, Fingerprint]:
    """Return the fingerprint of each PostgreSQL table; missing tables are left out.

    The fingerprint includes the table's entry in the publication. A table that was removed from the
    publication and added again has a new entry. No topic has the changes that the table had between
    the removal and the addition.
    """
    with session.transaction():
        qualify_names(session)
        return _fingerprints_within(session, tables, publication, read_extensions(session))


def _fingerprints_within(
    session: Session, tables: Collection[TableId], publication: str, extensions: Extensions
) -> dict[TableId, Fingerprint]:
    """Return what `read_fingerprints` returns, within a transaction after `qualify_names`."""
    named = {(table.schema, table.name): table for table in tables}
    asked = {
        "publication": publication,
        "schemas": [schema for schema, _ in named],
        "names": [name for _, name in named],
    }
    distributed = _DISTRIBUTED if extensions.citus else "NULL::bool"
    rows = session.execute(_FINGERPRINTS.replace("DISTRIBUTED", distributed), asked).fetchall()
    # The server cuts a name that is too long, so another table's row can be found for it.
    return {
        named[schema, name]: Fingerprint(facts)
        for schema, name, facts in rows
        if (schema, name) in named
    }


def read_fingerprint(session: Session, table: TableId, publication: str) -> Fingerprint:
    """Return the fingerprint of one PostgreSQL table; see :func:`read_fingerprints`.

    Raises:
        MissingTableError: There is no such table.
    """
    found = read_fingerprints(session, [table], publication).get(table)
    if found is None:
        raise missing(table)
    return found


def empty_files(session: Session, oids: Collection[int]) -> frozenset[int]:
    """Return the relations that have no row and, by PostgreSQL's statistics, never had one.

    An empty file does not prove that a relation never had a row, since VACUUM also empties a file
    after a DELETE of all rows. So the statistics must also count no insert into the relation. The
    statistics do not count inserts of the last seconds, nor inserts before a crash of the server.
    Every login may read the statistics.
    """
    query = (
        "SELECT c FROM unnest(%s::oid[]) c WHERE pg_catalog.pg_relation_size(c) = 0"
        " AND pg_catalog.pg_stat_get_tuples_inserted(c) = 0"
    )
    return frozenset(int(row[0]) for row in session.execute(query, (list(oids),)))


def written_together(session: Session, oids: Collection[int]) -> int | None:
    """Return the id of the PostgreSQL transaction that last wrote these relations' catalog rows.

    The result is None if no single PostgreSQL transaction wrote all of these rows. TRUNCATE of a
    partition tree writes the catalog rows of all its leaves, and so does a TRUNCATE or GRANT that
    names all leaves.
    """
    row = session.execute(_LAST_WRITERS, (list(oids),)).fetchone()
    return int(row[1]) if row is not None and row[0] == 1 else None


_LAST_WRITERS = """
SELECT count(DISTINCT leaf.xmin::text), min(leaf.xmin::text)
FROM pg_catalog.pg_class leaf WHERE leaf.oid = ANY(%s)
"""
_RENEWED = """
SELECT c.oid::int8, pg_catalog.pg_get_partition_constraintdef(c.oid)
FROM unnest(%s::oid[], %s::oid[]) known (oid, file)
JOIN pg_catalog.pg_class c ON c.oid = known.oid AND c.relfilenode <> known.file
"""
# The server cannot order transactions that are two billion ids apart. The root is read, since that
# needs no more rights than its copy; the partition's bounds spare the other partitions.
_HAS_OLDER = """
SELECT EXISTS (
    SELECT FROM {root} WHERE tableoid = {leaf}::oid AND ({bounds})
    AND pg_catalog.age(xmin) > pg_catalog.age({since}::text::xid8::xid)
    AND pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8
        - {since}::text::int8 < 2147483648)
"""


def truncated(
    session: Session, table: TableId, files: Mapping[int, int], since: str
) -> frozenset[int]:
    """Return the PostgreSQL partitions that a TRUNCATE could have emptied since an earlier look.

    A look is one reading of the catalog. After a TRUNCATE, a partition has a new file, and no row
    from before the earlier look. VACUUM FULL and CLUSTER also give a partition a new file, but the
    rows keep their transaction ids. So a partition with a new file is left out if it has a row from
    before the earlier look.

    If ``since`` is empty, the function returns all partitions with new files. If the search for
    older rows takes too long, the result includes the partitions that were not searched.

    Args:
        session: A session of a role that may read the table.
        table: The table.
        files: The file number of each partition at the earlier look, by the partition's object id.
        since: A transaction id. At the time of the earlier look, every transaction with a lower id
            had ended. Empty if no such id is known.
    """
    leaves = session.execute(_RENEWED, (list(files), list(files.values()))).fetchall()
    found = {int(leaf) for leaf, _ in leaves}
    if not since:
        return frozenset(found)
    try:
        for leaf, bounds in leaves:
            if _has_older(session, table, int(leaf), bounds or "true", since):
                found.remove(int(leaf))
    except psycopg.errors.QueryCanceled:
        _log.warning(
            "the search for older rows in new files of partitions of %s reached its time limit;"
            " partitions that were not searched count as truncated",
            table,
        )
    return frozenset(found)


def _has_older(session: Session, table: TableId, leaf: int, bounds: str, since: str) -> bool:
    """Whether a PostgreSQL partition has a row of a transaction with an id below ``since``.

    Args:
        session: A session of a role that may read the table.
        table: The root table.
        leaf: The partition's object id.
        bounds: The partition's constraint as SQL.
        since: The transaction id.
    """
    # The bounds are the server's own SQL; without parameters a % is not a placeholder.
    query = sql.SQL(_HAS_OLDER).format(
        root=sql.Identifier(table.schema, table.name),
        bounds=sql.SQL(bounds),
        leaf=sql.Literal(leaf),
        since=sql.Literal(since),
    )
    row = session.execute(query).fetchone()
    return row is not None and bool(row[0])


def read_described(
    session: Session, table: TableId, publication: str
) -> tuple[SourceTable, Fingerprint]:
    """Return one PostgreSQL table and its fingerprint, read at one moment.

    Raises:
        SourceError: There is no such table, or the role may not see it.
    """
    with session.transaction():
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        qualify_names(session)
        extensions = read_extensions(session)
        found = table_within(session, table, extensions)
        facts = _fingerprints_within(session, [table], publication, extensions).get(table)
    if facts is None:
        raise missing(table)
    return found, facts
