"""Adds entries to the state store's histories, within the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from cdc.store.history import FOLLOWED, RUN_ENTRIES, SCHEMA_ENTRIES, STATE_ENTRIES, StateEntry
from cdc.store.table_state import State
from cdc.store.tables import (
    named,
    of_table,
    run_rows,
    schema_change_rows,
    state_change_rows,
    table_rows,
)
from schemas.changes import AddPartition

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.actor import Actor
    from cdc.store.history import RunEntry, SchemaEntry
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

RUNS_WHOLE = 100
"""Number of a table's newest runs that have an entry each.

Earlier runs of one hour share an entry if they are alike. For example, a table with a run every 90
s has 960 runs in a day, which become 24 entries.
"""


@dataclass(frozen=True)
class Writer:
    """Adds entries to histories.

    Args:
        connection: The transaction's connection.
        clock: The state store's clock as a SQL expression.
        by: The command of this process.
        run_id: Identity of the command's runs.
    """

    connection: Connection
    clock: sa.ColumnElement[float]
    by: Actor
    run_id: str

    def add_run(self, entry: RunEntry) -> None:
        """Add an entry to the run history; join two older entries of the table if they are alike.

        The table's newest `RUNS_WHOLE` entries stay as they are. Only the two entries right before
        these `RUNS_WHOLE` entries are compared.
        """
        entry = replace(entry, by=entry.by or self.by)
        row = {**named(entry.table), "noted_at": self.clock, "entry": RUN_ENTRIES.write(entry)}
        self.connection.execute(sa.insert(run_rows).values(**row))
        newest_first = sa.select(run_rows.c.id).where(of_table(run_rows, entry.table))
        newest_first = newest_first.order_by(run_rows.c.id.desc()).limit(2).offset(RUNS_WHOLE)
        self._join(entry.table, self.connection.execute(newest_first).scalars().all())

    def _join(self, table: TableId, ids: Sequence[int]) -> None:
        """Replace two entries of the run history by one entry, if the two are alike.

        A run of a table and a run of the table's next generation hold different leases. So two
        processes can try to join the same entries at the same time. The entries' rows are therefore
        locked before they are read.
        """
        both = sa.select(run_rows.c.id, run_rows.c.entry).where(run_rows.c.id.in_(ids))
        found = self.connection.execute(both.order_by(run_rows.c.id).with_for_update()).all()
        if len(found) != 2:
            return
        name = f"an entry of the run history of table {table}"
        earlier, later = (RUN_ENTRIES.read(row.entry, name) for row in found)
        if (joined := later.after(earlier)) is None:
            return
        first, second = (row.id for row in found)
        self.connection.execute(sa.delete(run_rows).where(run_rows.c.id == first))
        update = sa.update(run_rows).where(run_rows.c.id == second)
        self.connection.execute(update.values(entry=RUN_ENTRIES.write(joined)))

    def add_schema(self, entry: SchemaEntry) -> None:
        """Add an entry to the schema history, unless the history has it already.

        No other process adds the entry meanwhile, since the caller holds the table's lease.
        """
        if self.connection.execute(
            sa.select(schema_change_rows.c.id).where(schema_change_rows.c.entry_key == entry.key)
        ).first():
            return
        entry = replace(entry, by=entry.by or self.by, run_id=entry.run_id or self.run_id)
        if entry.outcome == FOLLOWED:
            self._release_former(entry)
        row = {
            "entry_key": entry.key,
            **named(entry.table),
            "noted_at": entry.at.timestamp(),
            "entry": SCHEMA_ENTRIES.write(entry),
        }
        self.connection.execute(sa.insert(schema_change_rows).values(**row))

    def _release_former(self, entry: SchemaEntry) -> None:
        """Let an attempt's newest followed change expire if it has only brought new partitions.

        With a partition a day, a table would otherwise have an entry with all its columns for each
        day. The entry may go only after ``entry`` has followed: each run adds the newest change of
        its attempt again if the history lacks it. A next generation is another attempt, whose
        changes do not replace those of the generation that runs still follow.
        """
        rows = schema_change_rows
        query = sa.select(rows.c.id, rows.c.entry).where(rows.c.entry_key == entry.former_key)
        former = self.connection.execute(query).first()
        if former is None:
            return
        name = f"an entry of the schema history of table {entry.table}"
        changes = SCHEMA_ENTRIES.read(former.entry, name).changes
        if changes and all(change.kind == AddPartition.__name__ for change in changes):
            update = sa.update(rows).where(rows.c.id == former.id)
            self.connection.execute(update.values(needless_at=entry.at.timestamp()))

    def _release_all(self, table: TableId) -> None:
        """Let all schema changes of a table that leaves the plan expire, from now on.

        People read them after an `offboard`, however old they are.
        """
        rows = schema_change_rows
        update = sa.update(rows).where(of_table(rows, table), rows.c.needless_at.is_(None))
        self.connection.execute(update.values(needless_at=self.clock))

    def former(self, table: TableId, *, beside: bool) -> tuple[State, int] | None:
        """Return the state and generation in a table's stored record; None without a record."""
        where = of_table(table_rows, table) & (table_rows.c.beside == beside)
        query = sa.select(table_rows.c.state, table_rows.c.generation).where(where)
        found = self.connection.execute(query).first()
        return None if found is None else (State(found.state), found.generation)

    def add_state(self, record: TableRecord, former: tuple[State, int] | None) -> None:
        """Add an entry to the history of states if a record's state or generation has changed.

        Args:
            record: The record after the change.
            former: State and generation of the record before the change; None if there was no
                record.
        """
        if (record.state, record.generation) == former:
            return
        if record.state is State.RETIRED and not record.beside:
            self._release_all(record.table)
        why = record.reason or (None if record.error is None else record.error.message)
        self._note(
            StateEntry(
                *(record.table, record.generation, record.beside),
                former=None if former is None else former[0],
                state=record.state,
                why=why,
                by=self.by,
                run_id=self.run_id,
            )
        )

    def add_removal(
        self, table: TableId, former: tuple[State, int] | None, *, beside: bool
    ) -> None:
        """Add a record's removal to the history of states; do nothing if there was no record."""
        if former is None:
            return
        if not beside:
            self._release_all(table)
        facts = (table, former[1], beside, former[0])
        self._note(StateEntry(*facts, state=None, why=None, by=self.by, run_id=self.run_id))

    def _note(self, entry: StateEntry) -> None:
        row = {**named(entry.table), "noted_at": self.clock, "entry": STATE_ENTRIES.write(entry)}
        self.connection.execute(sa.insert(state_change_rows).values(**row))
