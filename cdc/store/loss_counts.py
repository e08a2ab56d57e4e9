"""Counts losses of changes, by capture and by table.

A run can miss a loss, since a capture can look healthy again when the run checks it. So each
process that sees a loss counts it here, and each attempt (one copy of a table) records the count
before it records O, the start of the stream. If the count rises after the attempt recorded it, the
attempt lacks changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.store.tables import loss_rows

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.state_store import Store


@dataclass(frozen=True)
class Loss:
    """The losses of one capture or table so far, in the state store.

    Args:
        times: Number of times that a loss was seen. A lasting loss is counted several times.
        what: The newest loss, as a sentence without a period.
        seen_at: Time at which the newest loss was seen, by the state store's clock, aware UTC.
    """

    times: int
    what: str
    seen_at: datetime


class Losses:
    """The losses that were seen by any process with the same state store.

    Rows are never deleted, so a count never falls.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def note(self, scope: str, what: str) -> None:
        """Count one more loss of changes of a capture or a table in the state store.

        Args:
            scope: What has lost changes: a capture (`CaptureNames.resource`), or a table in it.
            what: What was lost, as a sentence without a period.

        Raises:
            StateError: The state store cannot be used.
        """
        try:
            self._count(scope, what)
        except IntegrityError:  # another process has just counted the first one
            self._count(scope, what)

    def seen(self, *scopes: str) -> Mapping[str, Loss]:
        """Return a mapping from name to stored losses, without the names that have no loss.

        Args:
            scopes: Names of captures (`CaptureNames.resource`), and of tables in captures.

        Raises:
            StateError: The state store cannot be used.
        """
        with self._store.transaction() as connection:
            return losses_within(connection, scopes)

    def _count(self, scope: str, what: str) -> None:
        """Count a loss in the state store.

        Raises:
            IntegrityError: Another process has just counted the scope's first loss.
        """
        with self._store.transaction() as connection:
            count_loss(connection, self._store.clock, scope, what)


def losses_within(connection: Connection, scopes: Sequence[str]) -> dict[str, Loss]:
    """Return what `Losses.seen` returns, within a transaction."""
    asked = sa.select(loss_rows).where(loss_rows.c.scope.in_(scopes))
    return {
        row.scope: Loss(row.times, row.what, _loss_moment(row.seen_at))
        for row in connection.execute(asked)
    }


def newest_losses(*seen: Mapping[str, Loss]) -> dict[str, Loss]:
    """Join counts that were read at several times; a count never falls, so the greatest is newest.

    Args:
        seen: Mappings from name to stored losses, as `Losses.seen` returns them.
    """
    joined: dict[str, Loss] = {}
    for one in seen:
        for scope, loss in one.items():
            if scope not in joined or joined[scope].times < loss.times:
                joined[scope] = loss
    return joined


def count_loss(
    connection: Connection, clock: sa.ColumnElement[float], scope: str, what: str
) -> None:
    """Count a loss of changes in the state store, within a transaction.

    Args:
        connection: The transaction's connection.
        clock: The database's clock.
        scope: What has lost changes: a capture (`CaptureNames.resource`), or a table in it.
        what: What was lost, as a sentence without a period.

    Raises:
        IntegrityError: Another process has just counted the scope's first loss.
    """
    now = {"what": what, "seen_at": clock}
    again = sa.update(loss_rows).where(loss_rows.c.scope == scope)
    again = again.values(times=loss_rows.c.times + 1, **now)
    if connection.execute(again).rowcount != 1:
        connection.execute(sa.insert(loss_rows).values(scope=scope, times=1, **now))


def _loss_moment(seconds: float) -> datetime:
    """Convert the stored time of a loss, in seconds since 1970, to an aware time in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc)
