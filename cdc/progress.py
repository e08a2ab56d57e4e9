"""How long work reports what it has done, without knowing who watches."""

from __future__ import annotations

from typing import Protocol


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
