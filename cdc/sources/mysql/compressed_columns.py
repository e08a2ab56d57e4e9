"""Columns of MariaDB that stop Debezium 3.5 wherever they are on the server, captured or not.

The connector reads the head of each event before it selects tables, and does not know the types of
compressed columns. It cannot read past such an event, or past a statement with that word.
"""

from __future__ import annotations

from collections import defaultdict

from cdc.sources.mysql.connection import Session, quoted

# Any server but MariaDB has no such columns. The login sees the tables that it has a right on.
_COMPRESSED = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS
WHERE COLUMN_TYPE LIKE '%/*M!100301 COMPRESSED*/' ORDER BY TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME
"""
_NAMED = 10


def obstacle(session: Session) -> tuple[str, str] | None:
    """Return why the connector of this server would stop, and the remedy, or None.

    Args:
        session: A session of the admin login on the primary.
    """
    tables: defaultdict[str, list[str]] = defaultdict(list)
    for schema, name, column in session.rows(_COMPRESSED):
        tables[f"{quoted(schema)}.{quoted(name)}"].append(quoted(column))
    if not tables:
        return None
    found = [f"{table} ({', '.join(columns)})" for table, columns in tables.items()]
    more = f" and {len(found) - _NAMED} more tables" if len(found) > _NAMED else ""
    return (
        f"columns are COMPRESSED in {', '.join(found[:_NAMED])}{more}; MariaDB's connector stops at"
        " the first change of such a table, whether or not it captures it",
        "Store these columns without COMPRESSED: ALTER TABLE ... MODIFY ... with the plain type.",
    )
