"""Interfaces for the progress of long-running work, independent of the display."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from cdc.errors import StoppedError


class Task(Protocol):
    """One piece of long-running work that progress shows."""

    def advance(self, count: int = 1) -> None:
        """Add ``count`` finished units to the shown progress.

        Safe to call from any thread.
        """

    def note(self, text: str) -> None:
        """Show the current situation of the task, for example what a wait waits for."""

    def done(self) -> None:
        """Show that the task has ended, with or without success."""


class Progress(Protocol):
    """A display of the progress of tasks."""

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        """Begin a task whose progress is shown.

        Args:
            task: The action and its object, for example ``copy shop:public.orders``.
            total: Expected number of units; ``None`` if it is not known.
            unit: Name of the units, in the plural.
        """


class NullTask:
    """A task whose progress is not shown."""

    def advance(self, count: int = 1) -> None:
        """Show no progress."""

    def note(self, text: str) -> None:
        """Show no note."""

    def done(self) -> None:
        """Show no end."""


class NullProgress:
    """Progress that is not shown."""

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        """Begin a task whose progress is not shown."""
        return NullTask()


@contextmanager
def shown_as(name: str, progress: Progress | None = None, unit: str = "checks") -> Iterator[Task]:
    """Yield a shown task of unknown length that ends with the block.

    Args:
        name: The action and its object, for example ``wait for the replica``.
        progress: Where to show it; ``None`` shows nothing.
        unit: Name of its units, in the plural.
    """
    task = (progress or NullProgress()).start(name, None, unit)
    try:
        yield task
    finally:
        task.done()


class Interruptible:
    """Progress whose tasks can be interrupted, at the next note of a wait.

    A wait that is shown notes what it waits for, so an interrupt can end it there. An interrupted
    command leaves the same state as a killed one.

    Args:
        progress: Where tasks are shown.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.interrupted = threading.Event()

    def interrupt(self) -> None:
        """Stop every task at its next note, and every later task at its start."""
        self.interrupted.set()

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        """Begin a task that can be interrupted.

        Raises:
            StoppedError: ``interrupt`` was called.
        """
        self.check(task)
        return _InterruptibleTask(self, task, self._progress.start(task, total, unit))

    def check(self, task: str) -> None:
        """Check whether an interruptible task may continue.

        Raises:
            StoppedError: ``interrupt`` was called.
        """
        if self.interrupted.is_set():
            raise StoppedError(
                f"{task}: interrupted, since the process was asked to stop",
                remedy="Nothing to do: the next run goes on with it.",
            )


class _InterruptibleTask:
    """A task of `Interruptible`.

    After an interrupt, ``note`` raises StoppedError.
    """

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
