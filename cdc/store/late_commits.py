"""Stores which captures have a slot that is ahead of Connect's stored position, and since when.

`cdc.capture.sent_records` explains what this difference means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.store.tables import late_commit_rows

if TYPE_CHECKING:
    from cdc.store.state_store import Store


@dataclass(frozen=True)
class LateCommit:
    """A slot's position that Connect has not stored yet, perhaps because a Kafka commit is late.

    Args:
        stored: The position that Connect had stored when a process first found the difference.
        confirmed: The slot's position at that time, which is later than ``stored``.
        age_s: Seconds since that time, by the state store's clock.
    """

    stored: str
    confirmed: str
    age_s: float


class LateCommits:
    """The late commits of captures; all processes of a state store read and replace them.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, scope: str) -> LateCommit | None:
        """Return a capture's late commit; None if the capture has no late commit.

        Args:
            scope: The capture's name, `CaptureNames.resource`.

        Raises:
            StateError: The state store cannot be used.
        """
        rows = late_commit_rows.c
        age = (self._store.clock - rows.since).label("age")
        asked = sa.select(rows.stored, rows.confirmed, age).where(rows.scope == scope)
        with self._store.transaction() as connection:
            row = connection.execute(asked).first()
        return None if row is None else LateCommit(row.stored, row.confirmed, float(row.age))

    def note(self, scope: str, stored: str, confirmed: str) -> LateCommit:
        """Store a capture's late commit unless one is stored already; return the stored commit.

        Args:
            scope: The capture's name, `CaptureNames.resource`.
            stored: The position that Connect has stored.
            confirmed: The slot's position, which is later than ``stored``.

        Raises:
            StateError: The state store cannot be used.
        """
        values = {"scope": scope, "stored": stored, "confirmed": confirmed}
        try:
            with self._store.transaction() as connection:
                new = sa.insert(late_commit_rows).values(since=self._store.clock, **values)
                connection.execute(new)
        except IntegrityError:  # another process has just found it
            pass
        return self.of(scope) or LateCommit(stored, confirmed, 0.0)

    def forget(self, scope: str) -> None:
        """Remove a capture's late commit after it has arrived, or if the slot is new or gone."""
        with self._store.transaction() as connection:
            gone = sa.delete(late_commit_rows).where(late_commit_rows.c.scope == scope)
            connection.execute(gone)
