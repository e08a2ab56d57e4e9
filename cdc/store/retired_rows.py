"""Deletes what the state store still has of tables that left the plan long ago.

These rows have no use for runs. They stay for a while, since people read them after an `offboard`.
Leases, counts of commits and counts of losses stay for ever: they must never fall.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from cdc.store.table_state import State
from cdc.store.tables import (
    check_rows,
    cost_rows,
    of_table,
    quarantine,
    table_rows,
    verification_rows,
)
from schemas.table import TableId

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord

_LEFT = (quarantine, cost_rows, check_rows, verification_rows)
"""The SQL tables from which rows of retired tables are deleted."""


def forget_retired(store: Store, keep_s: float, batch: int, batches: int) -> int:
    """Delete what the state store has of tables that have been RETIRED for a time.

    Args:
        store: The state store.
        keep_s: For how long the tables have been RETIRED at least, in seconds.
        batch: Maximum number of rows that one transaction deletes.
        batches: Maximum number of transactions that delete rows. The next call goes on.

    Returns:
        Number of deleted rows.

    Raises:
        StateError: The state store cannot be used, or a stored record cannot be read.
    """
    old = _long_retired(store, keep_s)
    if not old:
        return 0
    with store.transaction() as connection:
        found = [(rows, table) for rows in _LEFT for table in _retired_in(connection, rows)]
    gone = 0
    for rows, table in found:
        deleted = batch if table in old else 0
        while deleted == batch and batches > 0:
            deleted, batches = _delete_batch(store, rows, old[table], batch), batches - 1
            gone += deleted
    return gone


def _long_retired(store: Store, keep_s: float) -> dict[TableId, TableRecord]:
    """Return the records of the tables that have been RETIRED for ``keep_s`` seconds.

    All records are read at once, and only those that have changed are parsed. Tables that left the
    plan lately would otherwise cost a query each, at each look.
    """
    upto = store.now() - timedelta(seconds=keep_s)
    return {
        one.table: one
        for one in store.tables()
        if one.state is State.RETIRED and one.updated_at < upto
    }


def _retired_in(connection: Connection, rows: sa.Table) -> list[TableId]:
    """Return the RETIRED tables of which an SQL table of the state store has rows.

    The search begins at the retired tables, so it does not read what other tables have.
    """
    names = [table_rows.c[name] for name in ("source", "schema_name", "table_name")]
    has_rows = (
        sa.select(sa.literal_column("1"))
        .where(*(rows.c[one.name] == one for one in names))
        .exists()
    )
    query = sa.select(*names).where(_is_retired(), has_rows)
    return [TableId(*row) for row in connection.execute(query)]


def _is_retired() -> sa.ColumnElement[bool]:
    """Return the SQL condition that a row of `table_rows` is the record of a RETIRED table."""
    return (table_rows.c.state == State.RETIRED.value) & ~table_rows.c.beside


def _delete_batch(store: Store, rows: sa.Table, record: TableRecord, most: int) -> int:
    """Delete some rows of a RETIRED table unless its record has changed; return their number.

    After an `onboard` and another `offboard`, the table is RETIRED again, but its rows are new. The
    lock on the table's record keeps an `onboard` from putting the table on the plan meanwhile.
    """
    keys: list[Any] = list(rows.primary_key)
    mine = of_table(rows, record.table)
    same = sa.select(table_rows.c.version).where(
        of_table(table_rows, record.table), _is_retired(), table_rows.c.version == record.version
    )
    with store.transaction() as connection:
        if connection.execute(same.with_for_update()).first() is None:
            return 0
        some = connection.execute(sa.select(*keys).where(mine).limit(most)).all()
        if some:
            chosen = sa.tuple_(*keys).in_([tuple(row) for row in some])
            connection.execute(sa.delete(rows).where(mine, chosen))
    return len(some)
