"""Measures how long each step of a table's run takes, for the history of runs.

A step is a function with the decorator `step`. Its time is measured after `begin_steps` was called
in the same thread, until `StepTimes.ended` is called. If a step calls another step, the time of the
inner step counts for the inner step only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

STEPS = {
    "check": "compare the table's definition and capture with the source's",
    "follow": "follow a change of the schema",
    "wait": "wait for cores that large batches of the tier's other tables hold",
    "read": "read and decode the records of the topic",
    "fill": "look up values that records lack",
    "write": "write the rows to the lake, and commit",
    "upkeep": "delete old files of the lake, cluster, and measure the table's size",
}
"""The steps of a run, each with a description for users. Time outside the steps is not recorded."""


class StepTimes:
    """The seconds that the steps of one run have taken so far.

    Args:
        clock: Returns the time in seconds; it never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: dict[str, float] = {}
        self._open: list[str] = []
        self._since = clock()

    def enter(self, name: str) -> None:
        """Begin a step; the surrounding step's time is paused until this step ends."""
        self._charge()
        self._open.append(name)

    def leave(self) -> None:
        """End the innermost step; the surrounding step's time continues."""
        self._charge()
        self._open.pop()

    def _charge(self) -> None:
        now = self._clock()
        if self._open:
            name = self._open[-1]
            self._spent[name] = self._spent.get(name, 0.0) + now - self._since
        self._since = now

    def ended(self) -> dict[str, float]:
        """Stop the measurement in this thread; return a mapping from step names to seconds."""
        _measured.set(None)
        return {name: round(seconds, 3) for name, seconds in self._spent.items()}


_measured: ContextVar[StepTimes | None] = ContextVar("steps of a run", default=None)


def begin_steps() -> StepTimes:
    """Start and return a measurement of this thread's steps; an earlier measurement ends."""
    times = StepTimes()
    _measured.set(times)
    return times


def step(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that measures a function's time as the time of a step.

    Args:
        name: A key of `STEPS`.
    """

    def decorated(work: Callable[P, T]) -> Callable[P, T]:
        @wraps(work)
        def measured(*arguments: P.args, **options: P.kwargs) -> T:
            times = _measured.get()
            if times is None:
                return work(*arguments, **options)
            times.enter(name)
            try:
                return work(*arguments, **options)
            finally:
                times.leave()

        return measured

    return decorated
