"""Reads the histories in the order of their entries, for programs that send each entry elsewhere.

The state store has a position for each such program: the number of the last entry that was sent,
and the lower numbers for which there was no entry yet. An entry with such a lower number can still
appear, since a transaction that takes a number can end after a transaction that takes a later
number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.errors import StateError
from cdc.store.documents import Codec, Part
from cdc.store.histories import Entry, moment_of, read_entry
from cdc.store.history import RUN_ENTRIES, SCHEMA_ENTRIES, STATE_ENTRIES
from cdc.store.table_state import STORE_REMEDY, State
from cdc.store.tables import (
    lineage_rows,
    of_table,
    run_rows,
    schema_change_rows,
    state_change_rows,
)

if TYPE_CHECKING:
    from cdc.store.history import RunEntry, SchemaEntry, StateEntry
    from cdc.store.state_store import Store
    from schemas.table import TableId

LOOK_BACK = 200
"""A number without an entry is recorded as missing if it is at most this far below `Sent.upto`.

An entry with a missing number can still appear; then it is sent.
"""


@dataclass(frozen=True)
class Sent(Part):
    """How far one history was sent.

    Args:
        upto: Number of the last entry that was sent; 0 if none was.
        missing: Those of the last `LOOK_BACK` numbers before ``upto`` for which there was no entry
            yet.
    """

    upto: int = 0
    missing: tuple[int, ...] = ()

    def back_to(self, number: int) -> Sent:
        """Return this position, changed so that entries above ``number`` count as not sent."""
        if number >= self.upto:
            return self
        return Sent(number, tuple(one for one in self.missing if one <= number))

    def after(self, numbers: Collection[int]) -> Sent:
        """Return this position, changed so that the entries ``numbers`` count as sent, too."""
        upto = max([self.upto, *numbers])
        passed = range(max(self.upto + 1, upto - LOOK_BACK), upto)
        missing = {*self.missing, *passed} - set(numbers)
        return Sent(upto, tuple(sorted(one for one in missing if one >= upto - LOOK_BACK)))


@dataclass(frozen=True)
class LineagePosition(Part):
    """How far each of the tables' histories was sent, for example to a lineage server.

    Args:
        runs: How far the run history was sent.
        schemas: How far the schema history was sent.
        states: How far the history of states was sent.
        format: Version of this document.
    """

    runs: Sent = field(default_factory=Sent)
    schemas: Sent = field(default_factory=Sent)
    states: Sent = field(default_factory=Sent)
    format: Literal[1] = 1


LINEAGE_POSITIONS = Codec(LineagePosition, error=StateError, remedy=STORE_REMEDY)
"""The codec of the lineage positions in the state store."""


@dataclass(frozen=True)
class Numbered:
    """An entry of a history with its number.

    Args:
        number: The entry's number, which no other entry of the history ever has.
        at: When the entry was added, by the state store's clock. For a schema change, when the
            lake followed the change, or when the table stopped at the change.
        entry: The entry.
    """

    number: int
    at: datetime
    entry: RunEntry | SchemaEntry | StateEntry


class Unsent:
    """All histories' entries that were not sent yet under one namespace of OpenLineage.

    Args:
        store: The state store.
        namespace: The namespace of the jobs in OpenLineage events. Each namespace has a position of
            its own.
    """

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def position(self) -> LineagePosition:
        """Return how far the histories were sent; the beginning if no position is stored.

        Raises:
            StateError: The state store cannot be used, or the stored position cannot be read.
        """
        return self._stored() or LineagePosition()

    def since(self, at: datetime) -> LineagePosition:
        """Return a position at which no entry from ``at`` on counts as sent, even if it was sent.

        If a position is stored, an entry from before ``at`` counts as sent only if it was sent. If
        no position is stored, all entries from before ``at`` count as sent.

        Raises:
            StateError: The state store cannot be used, or a stored document cannot be read.
        """
        known, wanted = self._stored(), self.before(at)
        if known is None:
            return wanted
        return LineagePosition(
            known.runs.back_to(wanted.runs.upto),
            known.schemas.back_to(wanted.schemas.upto),
            known.states.back_to(wanted.states.upto),
        )

    def _stored(self) -> LineagePosition | None:
        asked = sa.select(lineage_rows.c.position).where(self._mine)
        with self._store.transaction() as connection:
            stored = connection.execute(asked).scalar()
        if stored is None:
            return None
        return LINEAGE_POSITIONS.read(stored, f"the lineage position of {self._namespace}")

    def keep(self, position: LineagePosition) -> None:
        """Store how far the histories were sent.

        If two processes send at the same time, the position that is stored last replaces the other
        one. Entries that only the other process has sent are then sent again.

        Raises:
            StateError: The state store cannot be used.
        """
        document = LINEAGE_POSITIONS.write(position)
        update = sa.update(lineage_rows).where(self._mine).values(position=document)
        insert = sa.insert(lineage_rows).values(namespace=self._namespace, position=document)
        known = sa.select(lineage_rows.c.namespace).where(self._mine)
        try:
            with self._store.transaction() as connection:
                connection.execute(update if connection.execute(known).first() else insert)
        except IntegrityError:  # another process has stored the first position
            with self._store.transaction() as connection:
                connection.execute(update)

    @property
    def _mine(self) -> sa.ColumnElement[bool]:
        return lineage_rows.c.namespace == self._namespace

    def before(self, at: datetime) -> LineagePosition:
        """Return the position at which all entries from before a time count as sent, and no others.

        Raises:
            StateError: The state store cannot be used, or a stored document is not an entry.
        """
        with self._store.transaction() as connection:
            found = []
            for rows in (run_rows, schema_change_rows, state_change_rows):
                first = sa.select(sa.func.min(rows.c.id)).where(rows.c.noted_at >= at.timestamp())
                newest = sa.select(sa.func.max(rows.c.id))
                since = connection.execute(first).scalar()
                upto = connection.execute(newest).scalar() if since is None else since - 1
                found.append(Sent(upto or 0))
        return LineagePosition(runs=found[0], schemas=found[1], states=found[2])

    def after(self, position: LineagePosition, most: int) -> tuple[list[Numbered], LineagePosition]:
        """Return the next entries in the order of their times, and the position after them.

        Args:
            position: How far the histories were sent.
            most: Maximum number of entries of each history.

        Raises:
            StateError: The state store cannot be used, or a stored document is not an entry.
        """
        with self._store.transaction() as connection:
            runs, schemas, states = (
                connection.execute(_unsent_entries(rows, sent, most)).all()
                for rows, sent in (
                    (run_rows, position.runs),
                    (schema_change_rows, position.schemas),
                    (state_change_rows, position.states),
                )
            )
        found = [_numbered_entry(RUN_ENTRIES, row) for row in runs]
        found += [_numbered_entry(STATE_ENTRIES, row) for row in states]
        for row in schemas:
            entry = read_entry(SCHEMA_ENTRIES, row)
            found.append(Numbered(row.id, entry.at, entry))
        after = LineagePosition(
            position.runs.after(_entry_ids(runs)),
            position.schemas.after(_entry_ids(schemas)),
            position.states.after(_entry_ids(states)),
        )
        return sorted(found, key=lambda one: one.at), after

    def copy_began(self, table: TableId, generation: int, number: int) -> Numbered | None:
        """Return the change of state with which a copy began, or continued after a stop.

        If there are several such changes, the result is the newest one; without such a change, the
        result is None.

        Args:
            table: The table.
            generation: The generation that was copied.
            number: Number of the change of state with which the copy ended.

        Raises:
            StateError: The state store cannot be used, or a stored document is not an entry.
        """
        rows = state_change_rows
        asked = sa.select(rows).where(of_table(rows, table), rows.c.id < number)
        with self._store.transaction() as connection:
            found = connection.execute(asked.order_by(rows.c.id.desc())).all()
        for row in found:
            entry = read_entry(STATE_ENTRIES, row)
            if entry.generation == generation and begins_copy(entry):
                return _numbered_entry(STATE_ENTRIES, row)
        return None


COPYING = frozenset({State.BOOTSTRAPPING, State.CATCHING_UP})
"""The states of a table whose copy is under way."""
_STOPPED = frozenset({State.PAUSED, State.FAILED})


def begins_copy(entry: StateEntry) -> bool:
    """Whether an entry of the state store's history of states begins or continues a copy."""
    if entry.state is State.BOOTSTRAPPING:
        return True
    return entry.state is State.CATCHING_UP and entry.former in _STOPPED


def _unsent_entries(rows: sa.Table, sent: Sent, most: int) -> sa.Select[Any]:
    """Return the SQL query for entries of a history that lineage has not sent yet."""
    wanted = (rows.c.id > sent.upto) | rows.c.id.in_(sent.missing)
    return sa.select(rows).where(wanted).order_by(rows.c.id).limit(most)


def _entry_ids(rows: Iterable[sa.Row[Any]]) -> list[int]:
    """Return the ids of a history's SQL rows, which lineage records as sent."""
    return [row.id for row in rows]


def _numbered_entry(codec: Codec[Entry], row: sa.Row[Any]) -> Numbered:
    """Return a history's entry for lineage, with the id and time of its SQL row."""
    return Numbered(row.id, moment_of(row.noted_at), read_entry(codec, row))
