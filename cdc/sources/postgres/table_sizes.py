"""Reads the sizes of chosen tables, with their indexes and TOAST."""

from __future__ import annotations

from collections.abc import Collection

from cdc.sources.postgres.catalog import leaves
from cdc.sources.postgres.connection import Session
from schemas.table import TableId

# The rows of a partitioned table are in its leaves. Names of type `name` are found by the indexes.
_SIZES = f"""
SELECT n.nspname, c.relname,
       (SELECT coalesce(sum(
            CASE WHEN %(measured)s THEN pg_catalog.pg_total_relation_size(leaf.oid)
                 ELSE leaf.relpages * pg_catalog.current_setting('block_size')::int8
            END), 0)::int8
        FROM (SELECT c.oid WHERE c.relkind <> 'p' UNION ALL {leaves("c.oid")}) AS held
        JOIN pg_catalog.pg_class leaf ON leaf.oid = held.oid)
FROM unnest(%(schemas)s::name[], %(names)s::name[]) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
WHERE c.relkind IN ('r', 'p', 'f')
"""  # noqa: S608 - SQL of our own


def read_sizes(
    session: Session, tables: Collection[TableId], *, measured: bool
) -> dict[TableId, int]:
    """Return the bytes on disk of each of the given PostgreSQL tables that exists.

    Args:
        session: A session on the database.
        tables: The tables.
        measured: Whether the server measures each of the tables, for which it waits for other
            sessions' locks. If not, sizes are those of the last VACUUM or ANALYZE.
    """
    by_name = {(table.schema, table.name): table for table in tables}
    parameters = {
        "schemas": [schema for schema, _ in by_name],
        "names": [name for _, name in by_name],
        "measured": measured,
    }
    found = session.execute(_SIZES, parameters)
    return {by_name[schema, name]: total for schema, name, total in found}
