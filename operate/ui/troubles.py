"""What is not as it should be, each with its remedy, as the page lists it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from operate.render import seconds

if TYPE_CHECKING:
    from operate.status import Status, TableStatus

Tone = Literal["good", "warn", "bad", "quiet"]
"""The colour in which a state is shown; the text beside it always says the same."""


@dataclass(frozen=True)
class Trouble:
    """Something that is not as it should be.

    Args:
        name: What has the trouble, such as a table, a capture or a reader.
        message: What is wrong.
        remedy: What to do; None if no action is known.
        tone: How grave the trouble is.
        table: Whether ``name`` is a table that has a page.
        since: When the trouble began; None if that is not known.
    """

    name: str
    message: str
    remedy: str | None
    tone: Tone = "bad"
    table: bool = True
    since: datetime | None = None


def of_table(table: TableStatus) -> Iterator[Trouble]:
    """Yield the troubles of one table for the page."""
    record, name = table.record, str(table.record.table)
    why = record.reason or (record.error and record.error.message)
    if why:
        tone: Tone = "bad" if record.error is not None else "warn"
        yield Trouble(name, why, table.remedy, tone, since=record.updated_at)
    if (lost := table.lost) is not None:
        yield Trouble(name, lost.message, lost.remedy)
    if table.half_copied and not why:
        message = "its copy is not complete, and no process works on it"
        yield Trouble(name, message, table.remedy or f"Run `tributary bootstrap {name}`.", "warn")
    if (verified := table.verified) is not None and not verified.equal:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in verified.differences.items())
        remedy = f"Run `tributary verify {name}` again; if they stay, `tributary resync {name}`."
        yield Trouble(name, f"verify found differences: {counts}", remedy, since=verified.at)
    for check in table.checks:
        newest = None if check.record is None else check.record.conclusive
        if check.failed and newest is not None:
            remedy = (
                "Correct the rows or the check, then run"
                f" `tributary checks run {name} --name {check.name}`."
            )
            message = f"check {check.name} failed: {newest.detail}"
            tone = "bad" if check.alarms else "warn"
            yield Trouble(name, message, remedy, tone, since=newest.finished_at)
    if table.quarantined:
        message = f"records in quarantine: {table.quarantined:,}"
        yield Trouble(name, message, f"Run `tributary quarantine list {name}`.", "warn")
    if (build := table.build) is not None and build.error is not None:
        message = f"its next generation stopped: {build.error.message}"
        yield Trouble(name, message, build.error.remedy, since=build.updated_at)


def _capture_troubles(status: Status) -> Iterator[Trouble]:
    """Yield the troubles of all captures for the page."""
    for one in status.captures:
        name = f"capture {one.place}"
        if one.problem:
            yield Trouble(name, one.problem, None, table=False)
        if (over := one.over_limit) is not None:
            tone: Tone = "bad" if over.alarms else "warn"
            yield Trouble(name, over.message, over.remedy, tone, table=False)
        if one.warning:
            yield Trouble(name, one.warning, None, "warn", table=False)


def _target_troubles(status: Status) -> Iterator[Trouble]:
    """Yield, for the page, the freshness targets that are missed or cannot be kept."""
    for one in status.targets:
        many = len(one.tables) > 1
        name = f"{len(one.tables):,} tables" if many else str(one.tables[0])
        tone: Tone = "bad" if one.missed else "warn"
        what = "freshness target missed" if one.missed else "freshness target cannot be kept"
        yield Trouble(name, f"{what}: {one.reason}", one.remedy, tone, table=not many)


def of_fleet(status: Status, now: datetime) -> list[Trouble]:
    """Return the page's troubles, grave ones first: store, captures, tables, targets, readers."""
    found: list[Trouble] = []
    if status.empty_store is not None and (problem := status.empty_store.problem) is not None:
        found.append(Trouble("state store", problem.message, problem.remedy, table=False))
    found += _capture_troubles(status)
    for table in status.tables:
        found += of_table(table)
        if (periods := table.periods) is not None and periods.overdue(now):
            message = f"the next complete {periods.by} is overdue"
            remedy = f"See `tributary status {table.record.table}` and the log of runs."
            found.append(Trouble(str(table.record.table), message, remedy, "warn"))
    found += _target_troubles(status)
    for reader in status.readers:
        if reader.late:
            unread = reader.unread_s
            how = reader.state.problem or (
                "must read the whole table" if unread is None else f"{seconds(unread)} behind"
            )
            name = f"reader {reader.state.name} of {reader.table}"
            found.append(Trouble(name, how, "See `tributary readers`.", "warn", table=False))
    return sorted(found, key=lambda one: one.tone != "bad")
