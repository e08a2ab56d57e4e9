"""Calls that may hang: each call runs in its own thread, and callers wait for a limited time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from cdc.errors import StateError
from cdc.runtime.daemon_threads import fulfil
from schemas.errors import TributaryError

T = TypeVar("T")


class Overdue(StateError):
    """A call has not returned in time."""


class BoundedCalls:
    """Runs calls in threads that do not keep the process alive.

    While a call has not returned, the same call is not begun a second time. So a service that hangs
    occupies one thread, however often it is asked.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()

    def start(self, key: Hashable, work: Callable[[], T]) -> Future[T]:
        """Begin a call, or return the unfinished call with the same key."""
        return self._call(key, work)[0]

    def start_anew(self, what: str, work: Callable[[], T]) -> Future[T]:
        """Begin a new call; raise an error if an earlier call with the same ``what`` still runs.

        The answer of an earlier call could be out of date.

        Args:
            what: What is asked for.
            work: The call.

        Raises:
            Overdue: An earlier call with the same ``what`` has not returned.
        """
        call, begun = self._call(what, work)
        if not begun:
            raise _overdue_call(what)
        return call

    def _call(self, key: Hashable, work: Callable[[], T]) -> tuple[Future[T], bool]:
        """Return the unfinished call with this key, or a new call; and whether the call is new."""
        with self._lock:
            known = self._running.get(key)
            if known is not None and not known.done():
                return known, False
            begun: Future[T] = Future()
            self._running[key] = begun
        name = f"bounded: {key}"
        threading.Thread(target=fulfil, args=(begun, work), name=name, daemon=True).start()
        return begun, True


def result(call: Future[T], what: str, until: float) -> T:
    """Wait a limited time for the result of a call of `BoundedCalls`, and return the result.

    Args:
        call: The call.
        what: What was asked; the error names it.
        until: The time at which the wait ends, by ``time.monotonic()``.

    Raises:
        Overdue: The call has not returned in time.
        TributaryError: The error that the call has raised.
    """
    wait([call], max(0.0, until - time.monotonic()))
    if not call.done():
        raise _overdue_call(what)
    return call.result()


def _overdue_call(what: str) -> Overdue:
    """Return the error for a call of `BoundedCalls` that did not return in time."""
    return Overdue(
        f"{what} did not answer in time",
        remedy="Run `tributary check`, which waits longer and names the cause.",
    )


def answer(call: Future[T], what: str, until: float) -> T | TributaryError:
    """Return the result of a call of `BoundedCalls`, or the error that `result` raises."""
    try:
        return result(call, what, until)
    except TributaryError as error:
        return error
