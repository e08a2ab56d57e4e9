"""Bounds what one process's copies take from a source: the sessions, and the rate of reading."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

WAVE_S = 10.0
"""Seconds in which the rate allows one wave. A copy reads a wave as fast as it can, and then waits
until the rate allows the next wave."""
MOST_S = 600.0
"""The longest time for which one read keeps other copies waiting, in seconds. One read can be of a
whole table of any size."""
_CHECK_S = 1.0
"""Pause between two checks of a copy that waits for sessions, in seconds."""


@dataclass(frozen=True)
class CopyBudget:
    """What the copies of a command may take from a source at most.

    Args:
        sessions: The largest number of sessions at the same time; if None, the source's setting
            ``copy_sessions`` applies.
        mb_per_s: The largest rate of reading, in megabytes (1,000,000 bytes) per second; if None,
            the source's setting ``copy_mb_per_s`` applies.
    """

    sessions: int | None = None
    mb_per_s: int | None = None


class CopyRate:
    """The rate at which all copies of one source read together. Safe to share among threads.

    Args:
        mb_per_s: The largest rate, in megabytes (1,000,000 bytes) per second.
    """

    def __init__(self, mb_per_s: int) -> None:
        self.mb_per_s = mb_per_s
        self._free_at = 0.0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def wave_bytes(self) -> int:
        """The bytes that the rate allows in one wave (`WAVE_S`), by the sizes in the catalog."""
        return int(self.mb_per_s * 1_000_000 * WAVE_S)

    def begin(self, size: int, check: Callable[[str], object]) -> None:
        """Wait until the rate allows another read, and count the read.

        Copies begin to read in the order in which they began to wait. A read that fails counts,
        since it can have read everything.

        Args:
            size: The number of bytes to read.
            check: Called about once a second during the wait, with the reason of the wait. If it
                raises an exception, the wait ends.
        """
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or self._free_at > self._now():
                    left = max(0.0, self._free_at - self._now())
                    check(f"{left:.0f} s or more, by the limit of {self.mb_per_s} MB/s")
                    self._pause(min(_CHECK_S, left) if self._queue[0] is ticket else _CHECK_S)
                took = min(MOST_S, size / (self.mb_per_s * 1_000_000))
                self._free_at = max(self._free_at, self._now()) + took
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def _now(self) -> float:
        return time.monotonic()

    def _pause(self, seconds: float) -> None:
        self._changed.wait(seconds)


def share(free: int, wanted: int, waiting: int) -> int:
    """Return the number of sessions that one copy gets now, while other copies want sessions, too.

    A copy leaves one session to each other copy that has none. So the copy of a giant table does
    not hold up the copies of small tables. A copy may get all free sessions if no other copy waits.

    Args:
        free: Number of free sessions, at least one.
        wanted: Number of sessions that the copy can use, at least one.
        waiting: Number of other copies that have no session now.
    """
    return max(1, min(wanted, free - waiting))


class CopySessions:
    """The sessions of the copies of one source. Safe to share among threads.

    Args:
        most: The largest number of sessions that may be open at the same time.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._copies = 0
        self._readers = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Announce a copy. While the block runs, other copies leave a session to this copy."""
        with self._changed:
            self._copies += 1
        try:
            yield
        finally:
            with self._changed:
                self._copies -= 1
                self._changed.notify_all()

    @contextmanager
    def taken(
        self, wanted: int, *, check: Callable[[], object], together: bool = False
    ) -> Iterator[int]:
        """Wait for free sessions, and hold them while the block runs.

        Copies that wait get sessions in the order in which they began to wait.

        Args:
            wanted: Number of sessions that the copy can use.
            check: Called about once a second during the wait. If it raises an exception, the wait
                ends.
            together: Whether the copy waits until it gets all wanted sessions.

        Yields:
            Number of sessions that the copy may open at the same time.
        """
        wanted = max(1, min(wanted, self.most))
        got = self._take(wanted, wanted if together else 1, check)
        try:
            yield got
        finally:
            with self._changed:
                self._free += got
                self._readers -= 1
                self._changed.notify_all()

    def _take(self, wanted: int, least: int, check: Callable[[], object]) -> int:
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or self._free < least:
                    if not self._changed.wait(_CHECK_S):
                        check()
                waiting = max(0, self._copies - self._readers - 1)
                got = max(least, share(self._free, wanted, waiting))
                self._free -= got
                self._readers += 1
                return got
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
