"""Keeps estimates of tables' numbers of rows, so that a source is asked for each one rarely."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.sources.base import Source
    from schemas.table import TableId

_log = logging.getLogger(__name__)

_KEPT_S = 600.0
"""How long an estimate is used, in seconds."""


class RowEstimates:
    """The newest estimates of tables' numbers of rows; safe to share among threads.

    An estimate is used for ten minutes: a table that is larger than its settings allow can wait for
    days, and each new estimate makes PostgreSQL lock all partitions of the table. MySQL and MariaDB
    count up to 100,000 rows.

    Args:
        clock: Returns a time in seconds that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: dict[TableId, tuple[float, int]] = {}

    def last(self, table: TableId) -> int | None:
        """Return a table's last estimate, however old it is; None if there is none."""
        found = self._found.get(table)
        return None if found is None else found[1]

    def ask(self, source: Source, table: TableId) -> int | None:
        """Return a table's last estimate if it is still used, or else a new one of the source.

        The result is None if the source does not answer. The next call asks the source again.
        """
        found = self._found.get(table)
        if found is not None and self._clock() < found[0] + _KEPT_S:
            return found[1]
        try:
            rows = source.size(source.table(table)).rows
        except TributaryError as error:
            _log.warning("the size of table %s cannot be read: %s", table, error)
            return None
        self._found[table] = (self._clock(), rows)
        return rows
