"""Divides the cores of a local Spark among the large batches that tables run at the same time.

Spark's fair pools divide only cores that are free. A task keeps its core to its end: for seconds if
it reads a part of a large batch, or rewrites a file. Where there are few cores, the tasks of a
backlog would thus keep all of them, and each stage of other tables' runs would wait for one.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from cdc.runtime.waiting import wait_while

if TYPE_CHECKING:
    from cdc.run.lane import Entry

_log = logging.getLogger(__name__)

Cores = Callable[[int, int], AbstractContextManager[int]]
"""Holds cores for a batch in a ``with`` block, which gets the number of tasks that may read it.

The arguments are the number of tasks that the batch has work for, and the number of Spark's cores.
"""
LONGEST_WAIT_S = 60.0
"""Seconds after which a batch no longer waits for a core.

So no hanging task stops others. And the run of the waiting batch keeps its table's lease, for which
commands wait.
"""
_POLL_S = 0.1
"""Seconds between two looks of a waiting batch at its lane's part, which time changes."""


def all_cores(wanted: int, cores: int) -> AbstractContextManager[int]:
    """Let a batch have as many of Spark's cores as it has work for, without waiting."""
    return nullcontext(min(wanted, cores))


class CoreGate:
    """Lets the large batches of a lane have only the lane's part of the cores together.

    Safe to share among threads.

    Args:
        part_of: Returns the name of a table's lane, and the part of the cores that the lane may
            have now. If the part is 1, no batch waits.
    """

    def __init__(self, part_of: Callable[[Entry], tuple[str, float]]) -> None:
        self._part_of = part_of
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._batches: Counter[str] = Counter()
        """By lane, the number of batches that hold cores or wait for them."""

    @contextmanager
    def hold(self, entry: Entry, wanted: int, cores: int) -> Iterator[int]:
        """Wait for cores for a batch; hold them in the ``with`` block, which gets their number.

        Args:
            entry: The table.
            wanted: Number of tasks that the batch has work for.
            cores: Number of Spark's cores.
        """
        lane, got = self._part_of(entry)[0], 0

        def none_left() -> bool:
            nonlocal got
            got = self._take(entry, wanted, cores)
            return got == 0

        with self._lock:
            self._batches[lane] += 1
        try:
            if wait_while(none_left, timeout_s=LONGEST_WAIT_S, poll_s=_POLL_S):
                _log.info("table %s goes on, although its lane has no core left", entry.table)
                got = self._take(entry, 1, cores, least=1)
            yield got
        finally:
            with self._lock:
                self._held[lane] -= got
                self._batches[lane] -= 1

    def _take(self, entry: Entry, wanted: int, cores: int, *, least: int = 0) -> int:
        """Take cores for a batch; return their number, which is ``least`` if none is left."""
        lane, part = self._part_of(entry)
        with self._lock:
            most = max(1, int(round(part * cores, 6)))
            free, share = most - self._held[lane], max(1, most // self._batches[lane])
            got = max(least, min(wanted, cores if part >= 1.0 else min(free, share)))
            self._held[lane] += got
        return got
