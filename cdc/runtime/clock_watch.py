"""Finds out whether this machine's clock was set back while the process ran."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

_log = logging.getLogger(__name__)
LEAST_S = 5.0
"""If the machine's clock was set back by fewer seconds than this, no warning is logged."""


class ClockWatch:
    """Compares this machine's clock with a second clock, which is never set.

    The second clock does not run while the machine sleeps. After a sleep, the machine's clock then
    seems to have been set ahead. So a warning is logged only if the machine's clock was set back.
    """

    def __init__(self) -> None:
        self._ahead: float | None = None

    def set_back_s(self, clock: float, steady: float) -> float:
        """Return by how many seconds the machine's clock was set back since the last call, or 0.

        Args:
            clock: The time by the machine's clock, in seconds.
            steady: The time by a clock that is never set, in seconds.
        """
        before, self._ahead = self._ahead, clock - steady
        back = 0.0 if before is None else before - self._ahead
        return back if back >= LEAST_S else 0.0

    def look(self) -> bool:
        """Whether this machine's clock was set back since the last call; if so, log a warning."""
        back = self.set_back_s(time.time(), time.monotonic())
        if back:
            _log.warning(
                "this machine's clock was set back by %s. Commits go on in order, with later times"
                " than the commits before. Until the clock has caught up, readers by time find them"
                " ahead of it, upkeep waits, and so do times that this clock decides: retries of"
                " failed tables if the state store is on this machine, and complete periods",
                timedelta(seconds=round(back)),
            )
        return back > 0.0
