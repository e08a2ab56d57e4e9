"""Stores the progress of table copies, so that other processes can show it.

The lake's timeline says which chunks are committed. Only the copying process knows how many rows of
the other chunks it has read. A copy reports both facts here every few seconds. The reports are only
shown: no process decides anything from a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.errors import StateError
from cdc.store.documents import Codec, Part
from cdc.store.table_state import STORE_REMEDY
from cdc.store.tables import copy_rows, named, of_table
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.store.state_store import Store


@dataclass(frozen=True)
class CopyProgress(Part):
    """The progress of a table's copy, as of the copy's newest report.

    Args:
        table: The table.
        beside: Whether the table's next generation is copied, beside the one that readers read.
        attempt: Identity of the attempt that the copy belongs to.
        planned: Number of chunks of the whole copy.
        committed: The chunks that are committed in the lake, by their numbers.
        writing: The chunks of the commit that is being written.
        rows: Number of rows that the copying process has read since ``began_at``.
        rows_expected: Estimated number of rows that the process reads in total from ``began_at``
            on.
        began_at: When the process began to read these rows.
        at: When the process made this report.
        format: Version of this document.
    """

    table: TableId
    beside: bool
    attempt: str
    planned: int
    committed: tuple[int, ...]
    writing: tuple[int, ...]
    rows: int
    rows_expected: int
    began_at: datetime
    at: datetime
    format: Literal[1] = 1

    @property
    def rows_per_s(self) -> float | None:
        """Number of rows read per second since ``began_at``; None before the first rows."""
        spent = (self.at - self.began_at).total_seconds()
        return self.rows / spent if self.rows and spent > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Predicted seconds until all rows are read; None if the rate is not known."""
        rate = self.rows_per_s
        return None if rate is None else max(0, self.rows_expected - self.rows) / rate


PROGRESS = Codec(CopyProgress, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's reports of copies."""


class CopyReports:
    """The newest report of each copy; all processes of a store share these reports.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> Sequence[CopyProgress]:
        """Return, with one SQL statement, the newest report of each copy that has not ended.

        Raises:
            StateError: The state store cannot be used, or a stored document is not a report.
        """
        with self._store.transaction() as connection:
            found = connection.execute(sa.select(copy_rows.c.progress)).scalars().all()
        return [PROGRESS.read(text, "a report of a copy") for text in found]

    def keep(self, report: CopyProgress) -> None:
        """Store a report in place of the copy's earlier report.

        Raises:
            StateError: The state store cannot be used.
        """
        text = {"progress": PROGRESS.write(report)}
        key = {**named(report.table), "beside": report.beside}
        again = sa.update(copy_rows).where(_row_of_copy(report.table, report.beside)).values(**text)
        for _ in range(2):
            try:
                with self._store.transaction() as connection:
                    if connection.execute(again).rowcount != 1:
                        connection.execute(sa.insert(copy_rows).values(**key, **text))
            except IntegrityError:  # another process has just stored the first report
                continue
            return

    def forget(self, table: TableId, *, beside: bool) -> None:
        """Delete the report of a copy that has ended, or of a table that leaves the plan.

        Raises:
            StateError: The state store cannot be used.
        """
        with self._store.transaction() as connection:
            connection.execute(sa.delete(copy_rows).where(_row_of_copy(table, beside)))


def _row_of_copy(table: TableId, beside: bool) -> sa.ColumnElement[bool]:
    """Return the SQL condition on the row with the report of a table's copy."""
    return of_table(copy_rows, table) & (copy_rows.c.beside == beside)
