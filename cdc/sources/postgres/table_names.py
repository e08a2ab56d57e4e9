"""Reads the names of tables from the catalog, without a look at the tables themselves."""

from __future__ import annotations

from cdc.sources.postgres.catalog import SCHEMA
from cdc.sources.postgres.connection import Session
from schemas.table import TableId

# The same tables as in the list of tables with their sizes. A size is the answer of the file
# system about each file of a table, and waits for sessions that rewrite the table.
_NAMES = """
SELECT n.nspname, c.relname
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', %(own)s)
  AND (%(partitions)s OR NOT c.relispartition)
"""


def read_names(session: Session, source: str, *, partitions: bool) -> list[TableId]:
    """Return the names of all user tables of the PostgreSQL database except Tributary's own.

    Args:
        session: A session on the database.
        source: Name of the source.
        partitions: Whether to return partitions, too.
    """
    parameters = {"own": SCHEMA, "partitions": partitions}
    return sorted(TableId(source, *names) for names in session.execute(_NAMES, parameters))
