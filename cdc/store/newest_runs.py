"""Reads the newest entry of each table's run history in one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from cdc.store.history import RUN_ENTRIES
from cdc.store.tables import run_rows, table_rows
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.store.history import RunEntry
    from cdc.store.state_store import Store


class NewestRuns:
    """The newest run of each table on the plan.

    The newest entry of a table's run history does not change until a newer entry is added. So this
    object parses each entry only once.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[TableId, tuple[int, RunEntry]] = {}

    def read(self) -> dict[TableId, RunEntry]:
        """Return the newest run of each table; tables that never ran are left out.

        Raises:
            StateError: The state store cannot be used, or a stored document is not a run's entry.
        """
        other = run_rows.alias("other")
        same = [
            (table_rows.c[name], run_rows.c[name], other.c[name])
            for name in ("source", "schema_name", "table_name")
        ]
        # One search of the index for each table: the history has hundreds of entries of each.
        newest = (
            sa.select(sa.func.max(other.c.id))
            .where(*(theirs == table for table, _, theirs in same))
            .correlate(table_rows)
            .scalar_subquery()
        )
        query = (
            sa.select(*(table for table, _, _ in same), run_rows.c.id, run_rows.c.entry)
            .join_from(table_rows, run_rows, run_rows.c.id == newest)
            .where(table_rows.c.beside.is_(False))
        )
        with self._store.transaction() as connection:
            rows = connection.execute(query).all()
        known = {}
        for row in rows:
            table = TableId(row.source, row.schema_name, row.table_name)
            found = self._known.get(table)
            if found is None or found[0] != row.id:
                name = f"an entry of the run history of table {table}"
                found = (row.id, RUN_ENTRIES.read(row.entry, name))
            known[table] = found
        self._known = known
        return {table: entry for table, (_, entry) in known.items()}
