"""Interfaces for the progress of long-running work, independent of the display."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from cdc.errors import StoppedError


class Task(Protocol):
    """A long-running operation whose progress is shown."""

    def advance(self, count: int = 1) -> None:
        """Add ``count`` finished units to the shown progress.

        Safe to call from any thread.
        """

    def note(self, text: str) -> None:
        """Show what the task does now, for example what it waits for."""

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
        """Do nothing, since this task's progress is not shown."""

    def note(self, text: str) -> None:
        """Do nothing, since this task's notes are not shown."""

    def done(self) -> None:
        """Do nothing, since this task's end is not shown."""


class NullProgress:
    """Progress that is not shown."""

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        """Begin a task whose progress is not shown."""
        return NullTask()


@contextmanager
def shown_as(name: str, progress: Progress | None = None, unit: str = "checks") -> Iterator[Task]:
    """Yield a `Task` of unknown length that a `Progress` shows until the block ends.

    Args:
        name: The task's action and object, for example ``wait for the replica``.
        progress: The display of the task; ``None`` shows nothing.
        unit: Name of the task's units, in the plural.
    """
    task = (progress or NullProgress()).start(name, None, unit)
    try:
        yield task
    finally:
        task.done()


class Interruptible:
    """A display of progress whose tasks can be interrupted.

    A task that waits calls ``note`` again and again, so an interrupt ends the wait at the next
    ``note``. An interrupted command leaves the same state as a killed command.

    Args:
        progress: The display of the tasks.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.interrupted = threading.Event()

    def interrupt(self) -> None:
        """Stop every task at its next ``note``, and every later task at its start."""
        self.interrupted.set()

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        """Begin a task that can be interrupted.

        Raises:
            StoppedError: ``interrupt`` was called.
        """
        self.check(task)
        return _InterruptibleTask(self, task, self._progress.start(task, total, unit))

    def check(self, task: str) -> None:
        """Refuse to continue a task after an interrupt.

        Args:
            task: The task's action and object, for the error.

        Raises:
            StoppedError: ``interrupt`` was called.
        """
        if self.interrupted.is_set():
            raise stopped(task)


def stopped(task: str) -> StoppedError:
    """Return the error for a task that ends because the process was asked to stop.

    Args:
        task: The task's action and object.
    """
    return StoppedError(
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
