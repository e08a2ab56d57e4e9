"""How often a failed connector was restarted by itself, so that a poisoned one is not for ever."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.store.tables import restart_rows

if TYPE_CHECKING:
    from cdc.store.state_store import Store

LIMIT = 8
"""Restarts in a row, over two hours; then a person has to ask."""

_FIRST_PAUSE_S = 30.0
_LAST_PAUSE_S = 3600.0
_SETTLED_S = 600.0
"""A connector that runs this long after its next try would have been due has got over it."""


@dataclass(frozen=True)
class Restarted:
    """What was tried.

    Args:
        times: Restarts in a row.
        next_at: When the next one is due, by the state store's clock; None when there is none.
        now: Whether the last of them is the caller's to do now.
    """

    times: int
    next_at: datetime | None
    now: bool = False


class Restarts:
    """The restarts of failed connectors, by all processes that share a state store.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def claim(self, connector: str) -> Restarted:
        """Take the next restart, if one is due and no other process has taken it."""
        try:
            with self._store.transaction() as connection:
                at = float(connection.execute(sa.select(self._store.clock)).scalar_one())
                row = connection.execute(sa.select(restart_rows).where(_is(connector))).first()
                times = 0 if row is None else int(row.times)
                if row is not None and (times >= LIMIT or at < row.next_at):
                    return _told(times, row.next_at)
                next_at = at + min(_FIRST_PAUSE_S * 2**times, _LAST_PAUSE_S)
                if row is None:
                    values = {"connector": connector, "times": 1, "next_at": next_at}
                    connection.execute(sa.insert(restart_rows).values(**values))
                    return _told(1, next_at, now=True)
                mine = sa.update(restart_rows).where(_is(connector), restart_rows.c.times == times)
                taken = connection.execute(mine.values(times=times + 1, next_at=next_at)).rowcount
                return _told(times + 1, next_at, now=taken == 1)
        except IntegrityError:  # another process has just taken the first one
            return Restarted(1, None)

    def settle(self, connector: str) -> None:
        """Forget the restarts of a connector that has run for long enough."""
        long_ago = restart_rows.c.next_at < self._store.clock - _SETTLED_S
        with self._store.transaction() as connection:
            connection.execute(sa.delete(restart_rows).where(_is(connector), long_ago))

    def forget(self, connector: str) -> None:
        """Begin to count anew: a person has restarted it."""
        with self._store.transaction() as connection:
            connection.execute(sa.delete(restart_rows).where(_is(connector)))


def _is(connector: str) -> sa.ColumnElement[bool]:
    return restart_rows.c.connector == connector


def _told(times: int, next_at: float, *, now: bool = False) -> Restarted:
    due = None if times >= LIMIT else datetime.fromtimestamp(next_at, timezone.utc)
    return Restarted(times, due, now)
