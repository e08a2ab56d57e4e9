"""Counts the commits of each table's runs, so that a check can be due after a number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from cdc.store.tables import MYSQL, commit_count_rows, named, of_table
from schemas.table import TableId

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.state_store import Store


def add_commits(connection: Connection, table: TableId, commits: int) -> None:
    """Add the number of a run's commits to the table's count in the state store.

    Without commits, the count stays as it is. A run of the table and a run of the table's next
    generation can count at the same time. So a single SQL statement reads and changes the count.
    """
    if not commits:
        return
    row, rows = {**named(table), "commits": commits}, commit_count_rows
    more = {"commits": rows.c.commits + commits}
    dialect = connection.dialect.name
    if dialect in MYSQL:
        connection.execute(mysql.insert(rows).values(**row).on_duplicate_key_update(**more))
        return
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    new = insert(rows).values(**row)
    connection.execute(new.on_conflict_do_update(index_elements=list(rows.primary_key), set_=more))


def commit_counts(store: Store, table: TableId | None = None) -> dict[TableId, int]:
    """Return, with one SQL statement, a mapping from table to the number of its runs' commits.

    Args:
        store: The state store.
        table: The only table to return; None for all tables.

    Raises:
        StateError: The state store cannot be used.
    """
    query = sa.select(commit_count_rows)
    if table is not None:
        query = query.where(of_table(commit_count_rows, table))
    with store.transaction() as connection:
        found = connection.execute(query).all()
    return {TableId(row.source, row.schema_name, row.table_name): row.commits for row in found}
