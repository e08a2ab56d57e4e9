"""Counts the restarts of failed connectors, so that no connector fails and restarts forever."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.store.tables import restart_rows

if TYPE_CHECKING:
    from cdc.store.state_store import Store

LIMIT = 8
"""Maximum number of restarts in a row. The last one is due about an hour after the first.

After the last one, an operator must restart the connector. Restarts during an outage of the source
have no such limit.
"""

_FIRST_PAUSE_S = 30.0
"""Pause between the first restart and the second, in seconds. Each later pause is twice as long
as the pause before it, up to `_LAST_PAUSE_S` or, during an outage, `_OUTAGE_PAUSE_S`."""
_LAST_PAUSE_S = 3600.0
"""Longest pause between two restarts of a connector that reaches its source, in seconds."""
_OUTAGE_PAUSE_S = 300.0
"""Longest pause between two restarts during an outage of the source, in seconds.

The bound makes changes arrive soon after the source is back.
"""
_RECOVERED_S = 600.0
"""A connector has recovered if it still runs this many seconds after its next restart was due."""


@dataclass(frozen=True)
class Restarted:
    """How often a failed connector was restarted, and when it is restarted next.

    Args:
        times: Number of restarts in a row.
        next_at: When the next restart is due, by the state store's clock; None if none is planned.
        now: Whether the caller must restart the connector now.
    """

    times: int
    next_at: datetime | None
    now: bool = False


class Restarts:
    """The restart counts of failed connectors; all processes of a state store share these counts.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def claim(self, connector: str, *, outage: bool = False) -> Restarted:
        """Reserve a connector's next restart for this process, if due; return the restarts so far.

        Args:
            connector: The connector's name.
            outage: Whether the connector failed because it does not reach the source. Such a
                connector is restarted until the source is back.
        """
        limit = math.inf if outage else LIMIT
        longest_s = _OUTAGE_PAUSE_S if outage else _LAST_PAUSE_S
        try:
            with self._store.transaction() as connection:
                at = float(connection.execute(sa.select(self._store.clock)).scalar_one())
                row = connection.execute(
                    sa.select(restart_rows).where(_restarts_of_connector(connector))
                ).first()
                times = 0 if row is None else int(row.times)
                if row is not None and (times >= limit or at < row.next_at):
                    return _restarts_so_far(times, row.next_at, limit)
                next_at = at + min(_FIRST_PAUSE_S * 2 ** min(times, LIMIT), longest_s)
                if row is None:
                    values = {"connector": connector, "times": 1, "next_at": next_at}
                    connection.execute(sa.insert(restart_rows).values(**values))
                    return _restarts_so_far(1, next_at, limit, now=True)
                mine = sa.update(restart_rows).where(
                    _restarts_of_connector(connector), restart_rows.c.times == times
                )
                taken = connection.execute(mine.values(times=times + 1, next_at=next_at)).rowcount
                return _restarts_so_far(times + 1, next_at, limit, now=taken == 1)
        except IntegrityError:  # another process has just claimed the first restart
            return Restarted(1, None)

    def forget_if_stable(self, connector: str) -> None:
        """Delete a connector's stored restarts if the connector has recovered.

        The caller must have seen the connector running. Each restart sets the earliest time of the
        next restart. The connector counts as recovered ten minutes after that time.
        """
        long_ago = restart_rows.c.next_at < self._store.clock - _RECOVERED_S
        with self._store.transaction() as connection:
            connection.execute(
                sa.delete(restart_rows).where(_restarts_of_connector(connector), long_ago)
            )

    def forget(self, connector: str) -> None:
        """Delete a connector's stored restarts, because `retry` restarts the connector."""
        with self._store.transaction() as connection:
            connection.execute(sa.delete(restart_rows).where(_restarts_of_connector(connector)))


def _restarts_of_connector(connector: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition on the row of a connector's automatic restarts."""
    return restart_rows.c.connector == connector


def _restarts_so_far(times: int, next_at: float, limit: float, *, now: bool = False) -> Restarted:
    """Return a connector's stored restarts; after ``limit`` restarts, no further one is planned."""
    due = None if times >= limit else datetime.fromtimestamp(next_at, timezone.utc)
    return Restarted(times, due, now)
