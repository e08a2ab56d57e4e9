"""Bounds the number of sessions that one process's copies use at a source at the same time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CHECK_S = 1.0
"""Pause between two checks of a copy that waits for sessions, in seconds."""


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
            check: Called about once a second during the wait; ends the wait by an exception.
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
