"""The loop of every wait for a server, a process or another session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from cdc.runtime.progress import Progress, Task, shown_as

T = TypeVar("T")

MOST_WAITS = 24
"""Number of waits after which `wait_while_moving` ends if the caller passes no ``most_s``."""
BACKLOG_S = 6 * 3600.0
"""Bound of all waits for a connector that works through a backlog, in seconds."""
_PAUSE_POLL_S = 0.5


class Clock:
    """The clock of waits, which only moves forward."""

    def now(self) -> float:
        """Return the seconds since an arbitrary fixed moment, for waits."""
        return time.monotonic()

    def sleep(self, seconds: float, stop: threading.Event | None) -> None:
        """Sleep for a number of seconds, or until ``stop`` is set if that happens earlier."""
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
    """Wait until nothing is lacking, or until time runs out; return what is still lacking.

    If the returned value is false, the wait has succeeded. If not, the caller raises its own error
    with this value. The last check takes place when time has run out, so it sees a change during
    the last pause.

    This loop does not use the library stamina, which repeats refused requests elsewhere: stamina
    repeats only calls that raise an exception, logs each check as a retry, cannot be cancelled, and
    does not report what it waits for.

    Args:
        lacking: Checks once; returns what is lacking, or a false value if nothing is lacking. If it
            raises an exception, the wait ends.
        timeout_s: Bound of the wait, in seconds. The first check takes place in any case.
        poll_s: Pause between two checks, in seconds. Two values are the first and the longest
            pause; the pause doubles until it is the longest.
        task: Shows the number of checks and what is lacking. A task of `Interruptible` can also
            interrupt the wait.
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


class Movement:
    """Whether a position moves during a wait."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._newest: str | None = None

    def note(self, position: object) -> None:
        """Note a position that a look of the wait has seen."""
        self._newest = str(position)
        self._seen.add(self._newest)

    def ended(self) -> bool:
        """Whether the position has moved during the wait that ends now; begin the next wait.

        The next wait begins at the newest position that the ended wait has seen.
        """
        moved = len(self._seen) > 1
        self._seen = set() if self._newest is None else {self._newest}
        return moved


def wait_while_moving(
    lacking: Callable[[], T],
    moved: Callable[[], object],
    *,
    timeout_s: float,
    most_s: float | None = None,
    stop: threading.Event | None = None,
    clock: Clock = _CLOCK,
    **how: Any,
) -> T:
    """Wait as `wait_while` does, but begin again after ``timeout_s`` if something has moved.

    So a replica that is hours behind can catch up. For a replica that does not move, the wait ends.

    Args:
        lacking: As for `wait_while`.
        moved: Returns whether something that ``lacking`` looks at has moved since the last call.
        timeout_s: Bound of each wait, in seconds.
        most_s: Bound of all waits together, in seconds; if None, `MOST_WAITS` times ``timeout_s``.
            No wait begins after this time, but one that began earlier lasts for ``timeout_s``.
        stop: Ends all waits early once it is set.
        clock: The clock that measures the time.
        how: The other arguments of `wait_while`.
    """
    deadline = clock.now() + (MOST_WAITS * timeout_s if most_s is None else most_s)
    while True:
        left = wait_while(lacking, timeout_s=timeout_s, stop=stop, clock=clock, **how)
        if not left or not moved() or clock.now() >= deadline:
            return left
        if stop is not None and stop.is_set():
            return left


def pause(
    name: str, seconds: float, progress: Progress | None = None, *, clock: Clock = _CLOCK
) -> None:
    """Pause before the next try. An interrupt of the progress ends the pause within a second.

    Args:
        name: The action and object that are tried again, for the display and the error.
        seconds: Length of the pause, in seconds.
        progress: Shows the pause, and can interrupt it.
        clock: The clock that measures the time.

    Raises:
        StoppedError: The progress was interrupted.
    """
    with shown_as(name, progress) as task:
        wait_while(
            lambda: "a pause before the next try",
            timeout_s=seconds,
            poll_s=_PAUSE_POLL_S,
            task=task,
            clock=clock,
        )


def answered_within(
    limit_s: float, waiting: Generator[Any, Any, T], silent: Callable[[], Exception]
) -> Generator[Any, Any, T]:
    """Wait for a database server's answer, as psycopg does; raise an error if the server is silent.

    Args:
        limit_s: Longest time without a sign of the server, in seconds.
        waiting: The driver's generator. It yields what it waits for, and gets a true value if that
            has happened.
        silent: Returns the error.
    """
    moved = time.monotonic()
    try:
        ready = yield next(waiting)
        while True:
            if ready:
                moved = time.monotonic()
            elif time.monotonic() - moved > limit_s:
                raise silent()
            ready = yield waiting.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result
