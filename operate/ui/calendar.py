"""The completeness calendar of a table: which of its last hours or days are complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from operate.periods import announced, calendar_of

if TYPE_CHECKING:
    from cdc.store.announcements import Announcement
    from cdc.store.completeness import Calendar, Period
    from operate.context import Services
    from operate.status import TableStatus
    from operate.ui.troubles import Tone

_SPAN = {"hour": timedelta(days=7), "day": timedelta(weeks=8)}
"""Length of the time that a calendar shows, for each unit of a period: hour or day."""


@dataclass(frozen=True)
class Cell:
    """A cell of a calendar: one hour or day.

    Args:
        name: The period's name.
        short: The period's name within its row: the hour, or the day of the month.
        mark: A sign beside the colour: ``✓`` complete, ``+`` complete with late rows, ``!``
            overdue, ``·`` not complete.
        words: Whether the period is complete, in words.
        tone: How the cell is shown.
    """

    name: str
    short: str
    mark: str
    words: str
    tone: Tone


@dataclass(frozen=True)
class CalendarView:
    """The calendar of one table.

    Args:
        table: The table.
        by: ``hour`` or ``day``.
        zone: The time zone.
        newest: The newest announced period; None if none was announced.
        late_rows: Number of late rows that were counted.
        overdue: Whether the next period is overdue.
        rows: For each row, oldest first, its name and its cells. A row is a day of hours or a week
            of days.
    """

    table: str
    by: str
    zone: str
    newest: str | None
    late_rows: int
    overdue: bool
    rows: Sequence[tuple[str, Sequence[Cell]]]


def calendar(services: Services, table: TableStatus, now: datetime) -> CalendarView | None:
    """Return a table's calendar for the page; None if its settings ask for no complete periods.

    Raises:
        TributaryError: The state store cannot be used, or the table is no longer on the plan.
    """
    if (known := table.periods) is None:
        return None
    name = table.record.table
    periods, found = calendar_of(services, name), announced(services, name)
    by_start = {one.starts_at: one for one in found}
    overdue = known.overdue(now)
    rows: dict[str, list[Cell]] = {}
    for period in _shown_periods(periods, now):
        label, short = _row_and_label(periods, period)
        cell = _period_cell(period, by_start.get(period.start), known.newest_end, now, overdue)
        rows.setdefault(label, []).append(Cell(period.name, short, *cell))
    return CalendarView(
        *(str(name), known.by, known.zone, known.newest, known.late_rows, overdue),
        rows=list(rows.items()),
    )


def _shown_periods(calendar: Calendar, now: datetime) -> list[Period]:
    """Return the periods up to now that the page's calendar shows, oldest first."""
    found, since = [calendar.holding(now)], now - _SPAN[calendar.unit]
    while found[-1].start > since:  # bounded: a period is not longer than 25 hours
        found.append(calendar.before(found[-1]))
    return found[::-1]


def _row_and_label(calendar: Calendar, period: Period) -> tuple[str, str]:
    """Return two names for the page's calendar: of a period's row, and of the period in the row."""
    local = period.start.astimezone(calendar.clock)
    if calendar.unit == "hour":
        return f"{local:%a %Y-%m-%d}", f"{local:%H}"
    monday = local.date() - timedelta(days=local.weekday())
    return f"week of {monday}", f"{local:%d}"


def _period_cell(
    period: Period,
    announcement: Announcement | None,
    newest_end: datetime | None,
    now: datetime,
    overdue: bool,
) -> tuple[str, str, Tone]:
    """Return the mark, the words and the tone of a period's cell in the page's calendar."""
    if newest_end is not None and period.end <= newest_end:
        late = 0 if announcement is None else announcement.late_rows
        if late:
            return "+", f"complete, {late:,} late rows", "warn"
        return "✓", "complete", "good"
    if period.end > now:
        return "·", "not over", "quiet"
    if overdue and (newest_end is None or period.start <= newest_end):
        return "!", "not complete yet, overdue", "bad"
    return "·", "not complete yet", "quiet"
