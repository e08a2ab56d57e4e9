"""The loop of every wait for a server, a process or another session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from cdc.runtime.progress import Task

T = TypeVar("T")


class Clock:
    """The clock of waits, which only moves forward."""

    def now(self) -> float:
        """Seconds since some moment, for waits."""
        return time.monotonic()

    def sleep(self, seconds: float, stop: threading.Event | None) -> None:
        """Let a wait's time pass; at most until ``stop`` is set."""
        if stop is None:
            time.sleep(seconds)
        else:
            stop.wait(seconds)


_CLOCK = Clock()


def wait_while(
    lacking: Callable[[], T],
    *,
    timeout_s: float,
    poll_s: float | tuple[float, float],
    task: Task | None = None,
    stop: threading.Event | None = None,
    clock: Clock = _CLOCK,
) -> T:
    """Wait until nothing is lacking; at the end of the time, return what is still lacking.

    A false value means that the wait has succeeded. Otherwise the caller raises its own error with
    the returned value. The last look is at the end of the time, so that a change in the last pause
    is seen.

    This loop does not use stamina, which repeats refused requests elsewhere: stamina repeats only
    calls that raise an exception, logs each look as a retry, cannot be cancelled, and does not
    report what it waits for.

    Args:
        lacking: Looks once; returns what is lacking, or a false value if nothing is. Its exceptions
            end the wait.
        timeout_s: Bound of the wait, in seconds. The first look takes place in any case.
        poll_s: Pause between two looks, in seconds; two values are the first pause, which doubles,
            and the longest one.
        task: Counts the looks and notes what is lacking. Interrupts the wait, if its progress is
            interruptible.
        stop: Ends the wait early once it is set, as if time had run out.
        clock: The clock that measures the time.
    """
    pause, longest = poll_s if isinstance(poll_s, tuple) else (poll_s, poll_s)
    deadline = clock.now() + timeout_s
    while left := lacking():
        if task is not None:
            task.advance()
            task.note(str(left))
        remaining = deadline - clock.now()
        if remaining <= 0 or (stop is not None and stop.is_set()):
            break
        clock.sleep(min(pause, remaining), stop)
        pause = min(pause * 2, longest)
    return left
