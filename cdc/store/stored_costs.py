"""Stores the costs of tables' runs, within the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from cdc.store.table_cost import TABLE_COSTS, TableCost
from cdc.store.tables import MYSQL, cost_rows, named
from schemas.table import TableId

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def put_cost(connection: Connection, table: TableId, cost: TableCost) -> None:
    """Insert or replace the stored cost of a table's runs, in one SQL statement.

    A run of the table and a run of its next generation can write the first row at the same time.
    """
    row, key = {**named(table), "cost": TABLE_COSTS.write(cost)}, list(cost_rows.primary_key)
    dialect = connection.dialect.name
    if dialect in MYSQL:
        put = mysql.insert(cost_rows).values(**row)
        connection.execute(put.on_duplicate_key_update(cost=row["cost"]))
        return
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    new = insert(cost_rows).values(**row)
    connection.execute(new.on_conflict_do_update(index_elements=key, set_={"cost": row["cost"]}))


def stored_costs(connection: Connection) -> dict[TableId, TableCost]:
    """Return a mapping from each table to the stored cost of the table's runs."""
    return {
        (table := TableId(row.source, row.schema_name, row.table_name)): TABLE_COSTS.read(
            row.cost, f"the cost of table {table}", table=table
        )
        for row in connection.execute(sa.select(cost_rows))
    }
