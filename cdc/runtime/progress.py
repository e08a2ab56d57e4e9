"""How long work reports what it has done, without knowing who watches."""

from __future__ import annotations

import threading
from typing import Protocol

from cdc.errors import StoppedError


class Task(Protocol):
    """One piece of long work."""

    def advance(self, count: int = 1) -> None:
        """Add ``count`` units to what is done. Safe to call from any thread."""

    def note(self, text: str) -> None:
        """Say what is going on, for example what a wait is waiting for."""

    def done(self) -> None:
        """The work ended, well or not."""


class Progress(Protocol):
    """Something that shows tasks."""

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        """Begin a task.

        Args:
            task: What is being done to what, for example ``copy shop:public.orders``.
            total: Expected number of units, ``None`` when unknown.
            unit: What is counted, in the plural.
        """


class NullTask:
    """A task that nobody watches."""

    def advance(self, count: int = 1) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def done(self) -> None:
        """Do nothing."""


class NullProgress:
    """Progress that nobody watches."""

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        """Begin a task that shows nothing."""
        return NullTask()


class Interruptible:
    """Progress whose tasks can be told to end: at the next thing that a wait has to say.

    Every wait says what it waits for, so each can be left there, as a killed process leaves it.

    Args:
        progress: Where tasks are shown.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.interrupted = threading.Event()

    def interrupt(self) -> None:
        """Let no task begin or go on with a wait from now on."""
        self.interrupted.set()

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        """Begin a task.

        Raises:
            StoppedError: All were told to end.
        """
        self.check(task)
        return _InterruptibleTask(self, task, self._progress.start(task, total, unit))

    def check(self, task: str) -> None:
        """See whether a task may go on.

        Raises:
            StoppedError: All were told to end.
        """
        if self.interrupted.is_set():
            raise StoppedError(
                f"{task}: interrupted, since the process was asked to stop",
                remedy="Nothing to do: the next run goes on with it.",
            )


class _InterruptibleTask:
    def __init__(self, whole: Interruptible, name: str, task: Task) -> None:
        self._whole = whole
        self._name = name
        self._task = task

    def advance(self, count: int = 1) -> None:
        self._task.advance(count)

    def note(self, text: str) -> None:
        self._task.note(text)
        self._whole.check(self._name)

    def done(self) -> None:
        self._task.done()
