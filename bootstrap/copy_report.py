"""Reports a copy's progress to the state store, for people who use other processes or machines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.errors import StateError
from cdc.store.copy_progress import CopyProgress, CopyReports

if TYPE_CHECKING:
    from cdc.runtime.progress import Task
    from cdc.store.attempt import Attempt, Chunk
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord

EVERY_S = 3.0
"""Shortest time between two reports of a wave, in seconds."""

_log = logging.getLogger(__name__)


class ReportedCopy:
    """Shows a copy's progress in this process, and stores the figures in the state store.

    If a report cannot be stored, the copy continues, since no step depends on reports.

    Args:
        task: Shows the progress in this process, for example on its terminal.
        store: The state store.
        report: The first report.
        clock: Returns a time in seconds that never goes back.
    """

    def __init__(
        self,
        task: Task,
        store: Store,
        report: CopyProgress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._task = task
        self._reports = CopyReports(store)
        self._report = report
        self._clock = clock
        self._kept_at = clock() - EVERY_S
        self._lock = threading.Lock()

    @classmethod
    def begin(
        cls,
        task: Task,
        store: Store,
        record: TableRecord,
        attempt: Attempt,
        done: Collection[int],
        left: Sequence[Sequence[Chunk]],
    ) -> ReportedCopy:
        """Report that a copy begins its remaining waves; return the object for later reports.

        Args:
            task: Shows the progress in this process, for example on its terminal.
            store: The state store.
            record: The table's record.
            attempt: The attempt.
            done: Ids of the committed chunks.
            left: The remaining waves, in order.
        """
        now = datetime.now(timezone.utc)
        report = CopyProgress(
            record.table,
            record.beside,
            str(attempt.id),
            planned=len(done) + sum(map(len, left)),
            committed=tuple(sorted(done)),
            writing=(),
            rows=0,
            rows_expected=sum(chunk.rows_estimate for wave in left for chunk in wave),
            began_at=now,
            at=now,
        )
        return cls(task, store, report)

    def advance(self, count: int = 1) -> None:
        """Count rows that were read; report the count, but at most once per `EVERY_S`."""
        self._task.advance(count)
        self._change(lambda report: replace(report, rows=report.rows + count), in_turn=True)

    def note(self, text: str) -> None:
        """Show what the copy does now; the state store does not get this text."""
        self._task.note(text)

    def done(self) -> None:
        """End the display of ``task``; the last report stays stored until `forget_report`."""
        self._change(lambda report: replace(report, writing=()))
        self._task.done()

    def begin_wave(self, wave: Sequence[Chunk]) -> None:
        """Report, before a commit is written, which chunks the commit contains."""
        chunks = tuple(chunk.id for chunk in wave)
        self._change(lambda report: replace(report, writing=chunks))

    def end_wave(self) -> None:
        """Report that the commit of the wave is complete."""

        def ended(report: CopyProgress) -> CopyProgress:
            committed = tuple(sorted({*report.committed, *report.writing}))
            return replace(report, committed=committed, writing=())

        self._change(ended)

    def _change(
        self, change: Callable[[CopyProgress], CopyProgress], *, in_turn: bool = False
    ) -> None:
        with self._lock:
            self._report = replace(change(self._report), at=datetime.now(timezone.utc))
            now = self._clock()
            if in_turn and now - self._kept_at < EVERY_S:
                return
            self._kept_at = now
            try:
                self._reports.keep(self._report)
            except StateError as error:
                _log.info("the progress of the copy is not reported: %s", error)


def forget_report(store: Store, record: TableRecord) -> None:
    """Delete the report of a bootstrap's copy; if the deletion fails, only log the failure."""
    try:
        CopyReports(store).forget(record.table, beside=record.beside)
    except StateError as error:
        _log.info("the report of an ended copy stays: %s", error)
