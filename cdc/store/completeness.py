"""Decides which hours or days of a table are complete, and which rows come late for them.

Nothing here reads a server. A period is complete when the table's proven time has reached the end
of the period plus the allowed lateness. The proven time is a time of the source: the lake has every
change that the source committed before this time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Literal
from zoneinfo import ZoneInfo

from cdc.config.value_types import seconds_of

if TYPE_CHECKING:
    from cdc.config import TableSettings

Unit = Literal["hour", "day"]

SLOT_S = 900
"""Length in seconds of a time slot. Late rows are counted for each slot.

Each time zone's offset from UTC is a multiple of a slot, so each period consists of whole slots.
"""
_CLOCKS_DIFFER = timedelta(minutes=1)
"""How far another process's clock can be ahead of this machine's clock."""
_BEHIND = timedelta(days=7)
"""How far the newest heartbeat can be behind the watermark at a table's first announcement.

The watermark can be ahead of the source's clock, since an event's time can be in the future.
"""
_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_HOUR_LABEL = "%Y-%m-%dT%H"
_LABEL = len("2026-11-23T10")


@dataclass(frozen=True, order=True)
class Period:
    """One hour or day of a zone.

    Args:
        start: The period's first moment, in UTC.
        end: The first moment after the period, in UTC.
        name: The period's name in the zone, such as ``2026-11-23T10`` or ``2026-11-23``.
    """

    start: datetime
    end: datetime
    name: str = field(compare=False)


class UnknownPeriodError(ValueError):
    """The error for a text that does not name exactly one period; its message says why."""


@dataclass(frozen=True)
class Calendar:
    """The hours or days of a zone.

    A day has 23 or 25 hours when the zone's clocks are changed. If the clocks show an hour twice,
    the hour is two periods, whose names contain the offset from UTC.

    Args:
        unit: Whether periods are hours or days.
        zone: The zone's name in the IANA database.
    """

    unit: Unit
    zone: str = "UTC"

    @property
    def clock(self) -> tzinfo:
        """The zone's clock."""
        return _calendar_clock(self.zone)

    def holding(self, at: datetime) -> Period:
        """Return the period in which a moment lies."""
        local = at.astimezone(self.clock)
        if self.unit == "day":
            return self._day(local.date())
        first = at - timedelta(
            minutes=local.minute, seconds=local.second, microseconds=local.microsecond
        )
        start, end = first, first + _HOUR
        if self._offset(start) != local.utcoffset():
            start = self._change(start, at)
        if self._offset(end - _SECOND) != local.utcoffset():
            end = self._change(at, end)
        return Period(_moment_in_utc(start), _moment_in_utc(end), self._hour_name(local))

    def before(self, period: Period) -> Period:
        """Return the period right before another period."""
        return self.holding(period.start - _SECOND)

    def after(self, period: Period) -> Period:
        """Return the period right after another period."""
        return self.holding(period.end)

    def parse(self, text: str) -> Period:
        """Return the period that a text names.

        Raises:
            UnknownPeriodError: The text names no period of this calendar, or an hour that the
                clocks show twice.
        """
        if self.unit == "day":
            return self._parsed_day(text)
        return self._parsed_hour(text)

    def _parsed_hour(self, text: str) -> Period:
        label, offset = text[:_LABEL], text[_LABEL:]
        try:
            moments = _first_moments_of_hour(
                self.zone, datetime.strptime(f"{label}+0000", "%Y-%m-%dT%H%z")
            )
        except ValueError as error:
            raise UnknownPeriodError(
                f"{text!r} is not an hour of {self.zone} such as 2026-11-23T10"
            ) from error
        names = {label + one: self.holding(moment) for one, moment in moments.items()}
        found = [one for name, one in names.items() if text in (name, label)]
        if len(found) == 1:
            return found[0]
        if not names:
            raise UnknownPeriodError(f"the clocks of {self.zone} skip the hour {label}")
        shown = " and ".join(names)
        if offset:
            raise UnknownPeriodError(f"{text!r} is not an hour of {self.zone}; it has {shown}")
        raise UnknownPeriodError(f"the clocks of {self.zone} show {label} twice: {shown}")

    def _parsed_day(self, text: str) -> Period:
        wrong = f"{text!r} is not a day of {self.zone} such as 2026-11-23"
        try:
            found = self._day(date.fromisoformat(text))
        except ValueError as error:
            raise UnknownPeriodError(wrong) from error
        if found.name != text:  # ISO 8601 has other forms of a date
            raise UnknownPeriodError(wrong)
        if found.end <= found.start:
            raise UnknownPeriodError(f"the clocks of {self.zone} skip the day {text}")
        return found

    def _day(self, day: date) -> Period:
        start, end = (
            _moment_in_utc(datetime(one.year, one.month, one.day, tzinfo=self.clock))
            for one in (day, day + _DAY)
        )
        return Period(start, end, day.isoformat())

    def _hour_name(self, local: datetime) -> str:
        label = local.strftime(_HOUR_LABEL)
        wall = local.replace(minute=0, second=0, microsecond=0, fold=0, tzinfo=timezone.utc)
        return (
            label
            if len(_first_moments_of_hour(self.zone, wall)) == 1
            else label + _offset_text(local)
        )

    def _offset(self, at: datetime) -> timedelta | None:
        return at.astimezone(self.clock).utcoffset()

    def _change(self, low: datetime, high: datetime) -> datetime:
        """Return the moment between two given moments at which the zone's offset changes."""
        low, high = _moment_in_utc(low), _moment_in_utc(high)
        first = self._offset(low)
        while high - low > _SECOND:
            middle = (low + (high - low) / 2).replace(microsecond=0)
            if self._offset(middle) == first:
                low = middle
            else:
                high = middle
        return high.replace(microsecond=0)


def _calendar_clock(zone: str) -> tzinfo:
    """Return the clock of a `Calendar`'s zone."""
    return timezone.utc if zone == "UTC" else ZoneInfo(zone)


@lru_cache(maxsize=4096)
def _first_moments_of_hour(zone: str, wall: datetime) -> Mapping[str, datetime]:
    """Return a mapping from UTC offset to when a zone's clocks first show a `Calendar`'s hour.

    An hour that the clocks show twice has two such moments, and an hour that they skip has none.
    The clocks can also be changed by half an hour, so each quarter of the hour is checked.

    Args:
        zone: The zone.
        wall: What the clocks show at the beginning of the hour. The value's offset is ignored.
    """
    clock, found = _calendar_clock(zone), dict[str, datetime]()
    for fold in (0, 1):
        for minute in (0, 15, 30, 45):
            at = _moment_in_utc(wall.replace(minute=minute, tzinfo=clock, fold=fold))
            back = at.astimezone(clock)
            if (back.date(), back.hour) == (wall.date(), wall.hour):
                found.setdefault(_offset_text(back), at)
    return found


@lru_cache(maxsize=64)
def repeated_hours(zone: str) -> frozenset[int]:
    """Return the hours of 1900 to 2099 that a `Calendar` names with their offset from UTC.

    The zone's clocks show these hours with two offsets. Each hour is given as the number of hours
    since 1970, by the zone's clocks.
    """
    if zone == "UTC":
        return frozenset()
    calendar, found = Calendar("hour", zone), set[int]()
    at, end = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (1900, 2100))
    before = calendar._offset(at)
    while at < end:
        later = at + _DAY
        after = calendar._offset(later)
        if after != before:
            change = calendar._change(at, later)
            shown = [
                moment.astimezone(calendar.clock).replace(tzinfo=timezone.utc)
                for moment in (change - _SECOND, change)
            ]
            first, last = (int(one.timestamp()) // 3600 for one in (min(shown), max(shown)))
            for hour in range(first, last + 1):
                wall = datetime.fromtimestamp(hour * 3600, timezone.utc)
                if len(_first_moments_of_hour(zone, wall)) > 1:
                    found.add(hour)
        at, before = later, after
    return frozenset(found)


def _moment_in_utc(at: datetime) -> datetime:
    """Return the start or end of a `Calendar`'s period in UTC."""
    return at.astimezone(timezone.utc)


def _offset_text(local: datetime) -> str:
    """Return an offset from UTC as text, for the name of a repeated hour of a `Calendar`."""
    text = local.strftime("%z")
    return f"{text[:3]}:{text[3:5]}"


@dataclass(frozen=True)
class CompletenessRules:
    """What the settings say about the complete periods of a table.

    Args:
        calendar: The periods.
        lateness: How long after the end of a period its rows may still come.
        column: The column with the time of an event. If None, the time of an event is the time at
            which the source committed the change.
        reannounces: Whether a period is announced again if late rows come for it.
    """

    calendar: Calendar
    lateness: timedelta = timedelta()
    column: str | None = None
    reannounces: bool = False

    @classmethod
    def of(cls, settings: TableSettings) -> CompletenessRules | None:
        """Return the rules in a table's settings; None if the settings ask for no periods."""
        chosen, event = settings.completeness, settings.event_time
        if chosen is None:
            return None
        lateness = timedelta() if event is None else timedelta(seconds=seconds_of(event.lateness))
        return cls(
            Calendar(chosen.by, chosen.zone),
            lateness,
            None if event is None else event.column,
            chosen.late == "announce",
        )

    def due(self, proven: datetime, newest: datetime | None) -> Iterator[Period]:
        """Yield the complete periods that are not announced yet, oldest first.

        If no period was announced yet, only the newest complete period is yielded. Its announcement
        implies that all earlier periods are complete, too.

        Args:
            proven: The table's proven time.
            newest: End of the newest announced period; None if none was announced.
        """
        reached = proven - self.lateness
        period = self.calendar.holding(reached if newest is None else newest)
        if newest is None:
            period = self.calendar.before(period)
        while period.end <= reached:
            yield period
            period = self.calendar.after(period)

    def expected_at(self, newest: datetime) -> datetime:
        """Return what the proven time must reach for the period after ``newest`` to be complete.

        The lake has every change that the source committed before the proven time.

        Args:
            newest: End of the newest announced period.
        """
        return self.calendar.holding(newest).end + self.lateness

    def cut(self, now: datetime) -> datetime:
        """Return the end of the newest period that any process can have announced by now.

        The proven time that a process finds is never later than the clock of that process.
        """
        return self.calendar.holding(now + _CLOCKS_DIFFER - self.lateness).start

    def earliest(self, watermark: datetime | None, now: datetime) -> datetime:
        """Return the start of the earliest period that the first announcement can be about.

        Args:
            watermark: The watermark of the newest commit; None if there is no watermark.
            now: The present time.
        """
        at = min(now, watermark or now) - self.lateness - _BEHIND
        return self.calendar.before(self.calendar.holding(at)).start


@dataclass(frozen=True)
class Seen:
    """A heartbeat of a capture, and the ends of a table's topic, read after the heartbeat.

    The connector sends the changes of the source in the order of the log, and each heartbeat is
    such a change. So all changes from before the heartbeat lie before these ends.

    Args:
        beat: When the source's server wrote the heartbeat, by the server's clock.
        topic_id: UUID of the topic.
        ends: Offset after the topic's last record, by partition.
    """

    beat: datetime
    topic_id: str
    ends: Mapping[int, int]


def proven_until(
    seen: Iterable[Seen],
    offsets: Mapping[int, int],
    *,
    topic_id: str | None,
    lateness_s: int,
    now: datetime,
) -> datetime | None:
    """Return the time of the source up to which heartbeats prove that the lake is complete.

    Only heartbeats prove a time. Rows prove no time, since the time in a row can be ahead of the
    source's clock. A topic without new records proves no time either, since the capture may have
    stopped. The result is None if no heartbeat proves a time.

    Args:
        seen: Heartbeats, each with the ends of the table's topic as read after the heartbeat.
        offsets: The next offset that the lake reads, by partition.
        topic_id: UUID of the topic that the lake has read; None if it is not known.
        lateness_s: The setting ``allowed_lateness_s``.
        now: The time by this machine's clock.
    """
    covered = [
        one.beat
        for one in seen
        if topic_id in (None, one.topic_id)
        and all(offsets.get(partition, 0) >= end for partition, end in one.ends.items())
    ]
    return min(max(covered) - timedelta(seconds=lateness_s), now) if covered else None


def thinned(seen: Sequence[Seen], most: int) -> list[Seen]:
    """Return heartbeats for `proven_until`; drop every second one if there are more than ``most``.

    The oldest and the newest heartbeat are never dropped. The result has the order of ``seen``.
    """
    if len(seen) <= most:
        return list(seen)
    return [one for place, one in enumerate(seen) if place % 2 == 0 or place == len(seen) - 1]


def slot_of(at: datetime) -> int:
    """Return the start of the time slot (`SLOT_S`) by which late rows of periods are counted.

    The result is in seconds since 1970.
    """
    return int(at.timestamp() // SLOT_S) * SLOT_S


def rows_of(start: datetime, end: datetime, slots: Mapping[int, int]) -> int:
    """Return how many of a commit's late rows, counted by time slots, lie in an announced period.

    Args:
        start: Start of the period.
        end: End of the period.
        slots: A mapping from the start of each time slot (`slot_of`) to the number of rows in it.
    """
    first, last = start.timestamp(), end.timestamp()
    return sum(rows for slot, rows in slots.items() if first <= slot < last)


@dataclass(frozen=True)
class Covered:
    """The commit up to which an announcement covers a table.

    Args:
        attempt: Identity of the attempt whose commits the announcement covers.
        instant: The instant of the newest commit that the announcement covers.
        noted: The instant of the newest commit whose late rows are counted; None if there is none.
    """

    attempt: str
    instant: str
    noted: str | None = None

    def counts(self, attempt: str, instant: str) -> bool:
        """Whether a commit's rows are late, and were not counted yet.

        If a run dies before it records its commit, the next run asks again about the same commit.
        """
        if attempt == self.attempt and instant <= self.instant:
            return False
        return self.noted is None or instant > self.noted
