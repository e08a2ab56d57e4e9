"""Measures a table, and finds keys that cut it into ranges of about equal size."""

from __future__ import annotations

import json
from collections.abc import Sequence

from psycopg import sql

from cdc.sources.postgres.connection import Session
from cdc.sources.postgres.reader import relation
from cdc.sources.source_facts import Boundaries, SourceTable, TableSize

PAGE_BYTES = 8192
PAGES_PER_CHUNK = 300
MAX_SAMPLED_PAGES = 100_000
MAX_SHARE = 0.3
WHOLE_PAGES = 3000
"""If a table has at most this number of pages, every row is read. A sample of so few pages would
hardly be cheaper, and the sample's ranges would be less equal.
"""
MEASURED_ROWS = 5

_BYTES = """
SELECT coalesce(sum(pg_catalog.pg_table_size(c.oid)), 0)::int8,
       coalesce(sum(pg_catalog.pg_relation_size(c.oid)), 0)::int8
FROM pg_catalog.pg_class c
WHERE c.oid = %(oid)s AND c.relkind <> 'p'
   OR c.relkind <> 'p' AND c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%(oid)s))
"""

_PAGES = """
SELECT coalesce(max(pg_catalog.pg_relation_size(c.oid)), 0)::int8
       / current_setting('block_size')::int8
FROM pg_catalog.pg_class c
WHERE c.oid = %(oid)s AND c.relkind <> 'p'
   OR c.relkind <> 'p' AND c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%(oid)s))
"""


def table_size(session: Session, table: SourceTable) -> TableSize:
    """Return the size in bytes of a PostgreSQL table, and the planner's estimate of its rows."""
    heap, _ = _byte_totals(session, table)
    plan = session.execute(
        sql.SQL("EXPLAIN (FORMAT JSON) SELECT FROM {}").format(relation(table))
    ).fetchone()
    described = plan[0] if plan else "[]"
    parsed = json.loads(described) if isinstance(described, str) else described
    return TableSize(rows=int(parsed[0]["Plan"]["Plan Rows"]), heap_bytes=heap)


def sample(
    session: Session,
    table: SourceTable,
    key: Sequence[str],
    chunks: int,
    size: TableSize,
) -> Boundaries:
    """Return up to ``chunks - 1`` keys that cut a PostgreSQL table into ranges of about equal size.

    The server sorts the keys. From a small table, all keys are read. From a large table, the keys
    in a sample of its pages are read; the size of the sample has a maximum.

    A table without a key is cut by its pages. If such a table is partitioned, each chunk has the
    same range of pages of every partition.
    """
    if chunks <= 1:
        return Boundaries((), size)
    if not key:
        return Boundaries(pages(_largest(session, table), chunks), size)
    _, main_bytes = _byte_totals(session, table)
    share = sampled_share(main_bytes, chunks)
    clause = (
        sql.SQL("")
        if share is None
        else sql.SQL(" TABLESAMPLE SYSTEM ({}) REPEATABLE (0)").format(sql.Literal(share * 100))
    )
    columns = [sql.Identifier(name) for name in key]
    names = [sql.Identifier(f"k{number}") for number in range(len(key))]
    # the n-th of m sampled rows begins a chunk where n * chunks / m steps up; a key that occurs
    # twice in the sample (rows move while it is taken) begins a single chunk
    query = sql.SQL(
        "SELECT {texts}, total FROM (SELECT {named}, "
        "row_number() OVER (ORDER BY {names}) AS n, count(*) OVER () AS total "
        "FROM (SELECT {aliased} FROM {table}{sample}) AS keys) AS numbered "
        "WHERE n > 1 AND (n - 1) * {chunks} / total > (n - 2) * {chunks} / total ORDER BY n"
    ).format(
        texts=sql.SQL(", ").join(sql.SQL("{}::text").format(name) for name in names),
        named=sql.SQL(", ").join(names),
        names=sql.SQL(", ").join(names),
        aliased=sql.SQL(", ").join(
            sql.SQL("{} AS {}").format(column, name)
            for column, name in zip(columns, names, strict=True)
        ),
        table=relation(table),
        sample=clause,
        chunks=sql.Literal(chunks),
    )
    rows = session.execute(query).fetchall()
    points = list(dict.fromkeys(tuple(row[:-1]) for row in rows))
    counted = round(rows[0][-1] / (share or 1)) if rows else size.rows
    return Boundaries(tuple(points), TableSize(counted, size.heap_bytes))


def largest_row(session: Session, table: SourceTable) -> int | None:
    """Sample a PostgreSQL table; return the size in bytes of the largest sampled row.

    The size of a row is the sum of the sizes of its values as text. The server must decompress each
    measured row, so only the sampled rows with the largest stored size are measured. The result is
    None if the sample is empty.
    """
    names = [sql.Identifier(column.name) for column in table.columns if not column.generated]
    if not names:
        return None
    pages = _byte_totals(session, table)[1] // PAGE_BYTES
    clause = (
        sql.SQL("")
        if pages <= PAGES_PER_CHUNK
        else sql.SQL(" TABLESAMPLE SYSTEM ({})").format(sql.Literal(100 * PAGES_PER_CHUNK / pages))
    )

    def total(measure: str) -> sql.Composable:
        sizes = (sql.SQL(measure).format(name) for name in names)
        return sql.SQL(" + ").join(sql.SQL("coalesce({}, 0)").format(size) for size in sizes)

    query = sql.SQL(
        "SELECT max({text}) FROM (SELECT {names} FROM {table}{sample}"
        " ORDER BY {stored} DESC LIMIT {rows}) AS sampled"
    ).format(
        text=total("octet_length({}::text)::int8"),
        names=sql.SQL(", ").join(names),
        table=relation(table),
        sample=clause,
        stored=total("pg_column_size({})::int8"),
        rows=sql.Literal(MEASURED_ROWS),
    )
    row = session.execute(query).fetchone()
    return int(row[0]) if row is not None and row[0] is not None else None


def pages(count: int, chunks: int) -> tuple[tuple[str, ...], ...]:
    """Return the ``ctid`` values that cut a PostgreSQL table's pages into about equal ranges.

    No range is empty.
    """
    cuts = sorted({count * number // chunks for number in range(1, chunks)} - {0})
    return tuple((f"({page},0)",) for page in cuts)


def sampled_share(main_bytes: int, chunks: int) -> float | None:
    """Return the share of a PostgreSQL table's pages to sample, 0 to 1; None to read every row."""
    pages = main_bytes // PAGE_BYTES
    if pages <= WHOLE_PAGES:
        return None
    return min(PAGES_PER_CHUNK * chunks / pages, MAX_SAMPLED_PAGES / pages, MAX_SHARE)


def _largest(session: Session, table: SourceTable) -> int:
    """Return the number of pages of a PostgreSQL table.

    For a partitioned table, the result is the number of pages of the largest partition.
    """
    row = session.execute(_PAGES, {"oid": table.number}).fetchone()
    return int(row[0]) if row else 0


def _byte_totals(session: Session, table: SourceTable) -> tuple[int, int]:
    """Return the table's size in bytes with TOAST and without TOAST, over all partitions."""
    row = session.execute(_BYTES, {"oid": table.number}).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)
