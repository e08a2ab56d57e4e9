"""Finds tables that stop Debezium 3.7 even if they are not captured.

At its start, the connector reads the definitions of all tables of the database. It stops at a table
with columns whose names differ only in case.
"""

from __future__ import annotations

from collections import Counter

from psycopg import sql

from cdc.sources.postgres.connection import Session

# Two lower-case names cannot differ by case only, so a table is a candidate only if a column of it
# has another name.
_CANDIDATES = """
SELECT n.nspname::text, c.relname::text, array_agg(a.attname::text)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema')
GROUP BY 1, 2 HAVING bool_or(a.attname !~ '^[a-z0-9_$]*$') ORDER BY 1, 2
"""


def obstacle(session: Session) -> tuple[str, str] | None:
    """Return the problem and the remedy of PostgreSQL columns whose names differ by case only.

    If a table has such columns, Debezium's connector stops when it starts. The result is None if
    there are no such columns.
    """
    found = []
    for schema, name, columns in session.execute(_CANDIDATES).fetchall():
        times = Counter(column.lower() for column in columns)
        if twice := [column for column in columns if times[column.lower()] > 1]:
            listed = ", ".join(sql.Identifier(column).as_string(None) for column in twice)
            found.append(f"{sql.Identifier(schema, name).as_string(None)} ({listed})")
    if not found:
        return None
    return (
        f"names of columns differ by case only in {', '.join(found)}; Debezium's connector stops at"
        " such a table as it starts, whether or not it captures it",
        "Rename one of the columns there: ALTER TABLE ... RENAME COLUMN ... TO ...;",
    )
