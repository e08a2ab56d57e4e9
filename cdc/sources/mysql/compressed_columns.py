"""Finds columns of MariaDB that stop Debezium 3.5, even in tables that are not captured.

For each event, the connector reads the types of the table's columns before it finds out whether it
captures the table. The connector does not know the types of compressed columns. So it stops at the
first event of a table with such a column. It also stops at a DDL statement with COMPRESSED.
"""

from __future__ import annotations

from collections import defaultdict

from cdc.sources.mysql.catalog import SYSTEM
from cdc.sources.mysql.connection import Session, quoted

# The query shows only the tables that the login has a right on. Without the system databases, the
# server opens fewer tables.
_COMPRESSED = f"""
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA NOT IN {SYSTEM} AND COLUMN_TYPE LIKE '%/*M!100301 COMPRESSED*/'
ORDER BY TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME
"""  # noqa: S608 - names of our own
_NAMED = 10


def obstacle(session: Session) -> tuple[str, str] | None:
    """Return which columns would stop MariaDB's connector, and the remedy; None if none would.

    Args:
        session: A session of the admin login on the primary.
    """
    if session.kind != "mariadb":
        return None  # the server would list all columns of all tables for nothing
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
