"""Says for ``status`` and ``complete`` which hours or days of a table are complete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError
from cdc.runtime.progress import shown_as
from cdc.runtime.waiting import wait_while
from cdc.store.announcements import Announcements
from cdc.store.completeness import CompletenessRules
from cdc.store.table_state import State
from operate.selection import not_on_plan
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.store.announcements import Announcement
    from cdc.store.completeness import Calendar, Period
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from schemas.table import TableId

_POLL_S = (1.0, 10.0)


@dataclass(frozen=True)
class TablePeriods:
    """The complete periods of one table, as ``status`` and metrics show them.

    Args:
        by: Whether periods are hours or days.
        zone: The time zone.
        newest: Name of the newest announced period; None if none was announced.
        newest_end: End of the newest announced period; None if none was announced.
        due_at: When the next period becomes overdue. This is the period's end plus three settings:
            the lateness in ``event_time``, ``allowed_lateness_s``, and the freshness target. None
            if the table is not INCREMENTAL.
        late_rows: Number of late rows that were counted for the table.
    """

    by: str
    zone: str
    newest: str | None
    newest_end: datetime | None
    due_at: datetime | None
    late_rows: int

    def overdue(self, now: datetime) -> bool:
        """Whether the next period should have been announced before ``now``."""
        return self.due_at is not None and now > self.due_at

    def to_json(self) -> dict[str, Any]:
        """Return the periods as values for JSON."""
        return {
            "by": self.by,
            "zone": self.zone,
            "newest": self.newest,
            "newest_end": self.newest_end,
            "due_at": self.due_at,
            "late_rows": self.late_rows,
        }


def table_periods(
    services: Services, records: Iterable[TableRecord]
) -> dict[TableId, TablePeriods]:
    """Return, by table, the periods of each table whose settings ask for complete periods.

    The state store is asked once.

    Raises:
        StateError: The state store cannot be used.
    """
    asked: dict[TableId, tuple[TableRecord, CompletenessRules, timedelta]] = {}
    for record in records:
        try:
            settings = services.config.table_settings(record.table)
        except TributaryError:
            continue  # `status` names the problem
        if (rules := CompletenessRules.of(settings)) is not None:
            more = timedelta(seconds=settings.allowed_lateness_s + settings.freshness_target_s)
            asked[record.table] = record, rules, more
    calendars = {table: rules.calendar for table, (_, rules, _) in asked.items()}
    known = Announcements(services.store).newest(calendars)
    found = {}
    for table, (record, rules, more) in asked.items():
        newest = known.get(table)
        end = None if newest is None else newest.newest_end
        began = None if record.attempt is None else record.attempt.started_at
        since = end or began
        followed = record.state is State.INCREMENTAL and since is not None
        calendar = rules.calendar
        found[table] = TablePeriods(
            calendar.unit,
            calendar.zone,
            newest=None if end is None else calendar.holding(end - timedelta(seconds=1)).name,
            newest_end=end,
            due_at=rules.expected_at(since) + more if followed and since is not None else None,
            late_rows=0 if newest is None else newest.late_rows,
        )
    return found


class Completion(str, Enum):
    """The answer of ``complete`` for one period."""

    COMPLETE = "complete"
    NOT_YET = "not yet"
    CANNOT = "cannot become complete"


@dataclass(frozen=True)
class PeriodAnswer:
    """Whether one period of a table is complete.

    Args:
        table: The table.
        period: The period.
        completion: The answer.
        reason: Why the period is not complete; None if it is complete.
        remedy: What to do; None if the period is complete, or if waiting is enough.
        announcement: The announcement of the period; None if the state store has none. A period
            before the first announced period is complete without an announcement.
    """

    table: TableId
    period: Period
    completion: Completion
    reason: str | None = None
    remedy: str | None = None
    announcement: Announcement | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the answer as values for JSON."""
        return {
            "table": str(self.table),
            "period": self.period.name,
            "start": self.period.start,
            "end": self.period.end,
            "completion": self.completion.value,
            "reason": self.reason,
            "remedy": self.remedy,
            "announcement": None if self.announcement is None else self.announcement.to_json(),
        }


def calendar_of(services: Services, table: TableId) -> Calendar:
    """Return the calendar of a table's periods.

    Raises:
        ConfigError: The settings of the table ask for no complete periods.
    """
    rules = CompletenessRules.of(services.config.table_settings(table))
    if rules is None:
        raise ConfigError(
            f"table {table} has no complete periods, since its settings have no completeness",
            remedy="Set completeness: hour or day for the table; the next run announces its first"
            " period.",
            field="completeness",
            table=table,
        )
    return rules.calendar


def announced(services: Services, table: TableId) -> list[Announcement]:
    """Return the announced periods of a table that the state store still has, oldest first.

    Raises:
        ConfigError: The settings of the table ask for no complete periods.
        StateError: The table is not on the plan, or the state store cannot be used.
    """
    _require_on_plan(services, table)
    return Announcements(services.store).of(table, calendar_of(services, table))


def period_answer(services: Services, table: TableId, period: Period) -> PeriodAnswer:
    """Return whether a period of a table is complete, from what runs have announced.

    Raises:
        ConfigError: The settings of the table ask for no complete periods.
        StateError: The table is not on the plan, or the state store cannot be used.
    """
    record, calendar = _require_on_plan(services, table), calendar_of(services, table)
    known = Announcements(services.store).of(table, calendar)
    own = next((one for one in known if one.starts_at == period.start), None)
    if own is not None or (known and period.end <= known[-1].ends_at):
        return PeriodAnswer(table, period, Completion.COMPLETE, announcement=own)
    if record.state is State.NEEDS_BOOTSTRAP:
        return PeriodAnswer(
            *(table, period, Completion.CANNOT),
            reason=f"table {table} needs a bootstrap: {record.reason}",
            remedy=f"Run `tributary bootstrap {table}`; the new copy proves the periods before it.",
        )
    return PeriodAnswer(table, period, Completion.NOT_YET, *_why_not_complete(record, period))


def wait_for_period(
    services: Services, table: TableId, period: Period, *, timeout_s: float
) -> PeriodAnswer:
    """Wait until a period is complete or cannot become complete, or until the time is up.

    Return the newest answer.

    Args:
        services: The services of the command.
        table: The table.
        period: The period.
        timeout_s: Bound of the wait, in seconds; 0 asks once.

    Raises:
        ConfigError: The settings of the table ask for no complete periods.
        StateError: The table is not on the plan, or the state store cannot be used.
    """
    answers: list[PeriodAnswer] = []

    def lacking() -> str:
        answers[:] = [period_answer(services, table, period)]
        return (answers[0].reason or "") if answers[0].completion is Completion.NOT_YET else ""

    with shown_as(f"wait for {period.name} of table {table}", services.progress) as task:
        wait_while(lacking, timeout_s=timeout_s, poll_s=_POLL_S, task=task)
    return answers[0]


def _require_on_plan(services: Services, table: TableId) -> TableRecord:
    """Return the record of a table whose periods a command shows; it must be on the plan."""
    record = services.store.get(table)
    if record is None or record.state is State.RETIRED:
        raise not_on_plan(table, offboarded=record is not None)
    return record


def _why_not_complete(record: TableRecord, period: Period) -> tuple[str, str | None]:
    """Return, for ``complete``, why a period is not complete yet, and what to do."""
    if record.state is State.INCREMENTAL:
        if period.end > datetime.now(timezone.utc):
            return f"{period.name} is not over", None
        return (
            f"no run has proven {period.name} yet",
            f"If it lasts, see `tributary status {record.table}` and the log of runs.",
        )
    return (
        f"table {record.table} is {record.state.value}",
        f"See `tributary status {record.table}` for what it needs.",
    )
