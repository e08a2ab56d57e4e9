"""Stores a mark for each capture: the log's end, as a process of Tributary last read it.

The next process that reads the log compares the log with the mark (`cdc.log.continuity`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.log.continuity import LogMark
from cdc.store.tables import log_mark_rows

if TYPE_CHECKING:
    from cdc.store.state_store import Store


class LogMarks:
    """The marks of captures' logs; all processes of a state store read and replace these marks.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, scope: str) -> LogMark | None:
        """Return a capture's stored mark of the log's end; None if no process has stored a mark.

        Args:
            scope: The capture's name, `CaptureNames.resource`.

        Raises:
            StateError: The state store cannot be used.
        """
        asked = sa.select(log_mark_rows).where(log_mark_rows.c.scope == scope)
        with self._store.transaction() as connection:
            row = connection.execute(asked).first()
        return None if row is None else LogMark(row.server, row.file, row.executed)

    def move(self, scope: str, earlier: LogMark | None, now: LogMark) -> None:
        """Replace a capture's stored mark if it is still the mark that this process has read.

        Without this condition, a slow process could restore a mark from before a loss, and the next
        comparison would count that loss again.

        Args:
            scope: The capture's name, `CaptureNames.resource`.
            earlier: The mark that this process has read; None if none was stored.
            now: The new mark.

        Raises:
            StateError: The state store cannot be used.
        """
        values = {"server": now.server, "file": now.file, "executed": now.executed}
        table = log_mark_rows.c
        try:
            with self._store.transaction() as connection:
                if earlier is None:
                    connection.execute(sa.insert(log_mark_rows).values(scope=scope, **values))
                    return
                unchanged = (
                    (table.scope == scope)
                    & (table.server == earlier.server)
                    & (table.file == earlier.file)
                    & (table.executed == earlier.executed)
                )
                connection.execute(sa.update(log_mark_rows).where(unchanged).values(**values))
        except IntegrityError:
            return  # another process has left the first mark

    def forget(self, scope: str) -> None:
        """Remove a capture's mark when the capture or its slot is removed.

        A later capture or slot must not be compared with this mark. A process that read the mark
        before its removal cannot store a new mark afterwards (see `move`).

        Args:
            scope: The capture's name, `CaptureNames.resource`.

        Raises:
            StateError: The state store cannot be used.
        """
        with self._store.transaction() as connection:
            connection.execute(sa.delete(log_mark_rows).where(log_mark_rows.c.scope == scope))
