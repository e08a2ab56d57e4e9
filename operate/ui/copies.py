"""Describes unfinished copies for the page: chunks, rate and time left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from cdc.store.table_state import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.store.copy_progress import CopyProgress
    from cdc.store.table_state import TableRecord
    from operate.ui.looks import Look
    from schemas.table import TableId

_BLOCKS = 60
"""Maximum number of blocks in a copy's bar; with more chunks, a block stands for several chunks."""
_SILENT = timedelta(seconds=60)
"""Maximum age of a copy's progress report whose rate and time left are shown."""
_STAGES = {
    State.REGISTERED: "waits for its copy",
    State.BOOTSTRAPPING: "copies rows",
    State.CATCHING_UP: "applies the changes since the copy began",
}


@dataclass(frozen=True)
class Block:
    """A part of a copy's bar: one chunk, or several successive chunks.

    Args:
        place: Number of the block, from 0.
        state: ``committed``, ``writing`` or ``waiting``.
    """

    place: int
    state: str


@dataclass(frozen=True)
class CopyView:
    """A copy that is not complete.

    Args:
        name: The table.
        next_generation: Whether the next generation is copied, beside the serving one.
        stage: What the copy does now, in words.
        working: Whether a process works on the copy.
        blocks: The bar of the copy's chunks.
        committed: Number of committed chunks.
        planned: Number of chunks; 0 before they are planned.
        rows: Number of rows that were read; None without a report.
        rows_expected: Estimated number of rows to read; None without a report.
        rows_per_s: Rows per second; None if not known.
        seconds_left: Predicted seconds until all rows are read; None if not known.
        began_at: When this attempt at the copy began; None if no attempt has begun.
        reported_at: When the copy last reported its progress; None without a report.
    """

    name: str
    next_generation: bool
    stage: str
    working: bool
    blocks: tuple[Block, ...]
    committed: int
    planned: int
    rows: int | None
    rows_expected: int | None
    rows_per_s: float | None
    seconds_left: float | None
    began_at: datetime | None
    reported_at: datetime | None

    @property
    def words(self) -> str:
        """How many of the copy's chunks are committed, in words."""
        if not self.planned:
            return "no chunks are planned yet"
        writing = sum(block.state == "writing" for block in self.blocks)
        being = ", others are being written" if writing else ""
        return f"{self.committed:,} of {self.planned:,} chunks are committed{being}"


def copies(look: Look) -> list[CopyView]:
    """Return the unfinished copies for the page; copies that a process works on come first."""
    status = look.facts.status
    found: list[CopyView] = []
    for table in () if status is None else status.tables:
        for record in (table.record, table.build):
            if record is not None and (stage := _copy_stage(record)) is not None:
                working = not table.half_copied and table.record.state is not State.FAILED
                found.append(_copy_view(record, stage, working, look.copies, look.facts.read_at))
    return sorted(found, key=lambda one: (not one.working, not one.planned, one.name))


def _copy_stage(record: TableRecord) -> str | None:
    """Return how the page names the stage of an unfinished copy; None if nothing is shown."""
    state = record.resume_to if record.state is State.FAILED else record.state
    if record.state is State.REGISTERED and record.attempt is None and not record.beside:
        return None  # nothing has begun, and the list of tables shows it
    return None if state is None else _STAGES.get(state)


def _copy_view(
    record: TableRecord,
    stage: str,
    working: bool,
    reports: Mapping[tuple[TableId, bool], CopyProgress],
    now: datetime,
) -> CopyView:
    """Return an unfinished copy as the page shows it."""
    attempt = record.attempt
    report = reports.get((record.table, record.beside))
    if report is not None and (attempt is None or report.attempt != str(attempt.id)):
        report = None
    copying = (record.resume_to or record.state) is State.BOOTSTRAPPING
    planned = 0 if attempt is None else len(attempt.chunks)
    complete = not copying or (attempt is not None and attempt.reads_upto is not None)
    done = frozenset(range(planned)) if complete else frozenset(report.committed if report else ())
    writing = frozenset(report.writing) if report and working and not complete else frozenset()
    fresh = report is not None and working and not complete
    recent = fresh and report is not None and now - report.at < _SILENT
    return CopyView(
        str(record.table),
        record.beside,
        stage,
        working,
        tuple(_bar_blocks(planned, done, writing)),
        committed=len(done),
        planned=planned,
        rows=None if report is None or complete else report.rows,
        rows_expected=None if report is None or complete else report.rows_expected,
        rows_per_s=report.rows_per_s if recent and report else None,
        seconds_left=report.seconds_left if recent and report else None,
        began_at=None if attempt is None else attempt.started_at.astimezone(timezone.utc),
        reported_at=None if report is None else report.at,
    )


def _bar_blocks(planned: int, done: frozenset[int], writing: frozenset[int]) -> Iterator[Block]:
    """Yield the blocks of a copy's bar. A block is committed if all of its chunks are committed."""
    count = min(planned, _BLOCKS)
    for place in range(count):
        chunks = range(place * planned // count, (place + 1) * planned // count)
        if all(chunk in done for chunk in chunks):
            yield Block(place, "committed")
        elif any(chunk in writing for chunk in chunks):
            yield Block(place, "writing")
        else:
            yield Block(place, "waiting")
