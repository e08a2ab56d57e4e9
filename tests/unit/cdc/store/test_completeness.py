"""Which hours and days are complete, how they are named, and which rows are late."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.config import parse
from cdc.errors import ConfigError
from cdc.store.completeness import (
    SLOT_S,
    Calendar,
    CompletenessRules,
    Covered,
    Seen,
    UnknownPeriodError,
    proven_until,
    repeated_hours,
    rows_of,
    thinned,
)
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

UTC = timezone.utc
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
BERLIN = Calendar("hour", "Europe/Berlin")
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu"),
    *("Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Cairo", "America/Havana"),
)


def moments(first: int, last: int) -> st.SearchStrategy[datetime]:
    """Random times between the starts of two years."""
    start, end = (datetime(year, 1, 1, tzinfo=UTC) for year in (first, last))
    seconds = st.floats(0, (end - start).total_seconds())
    return seconds.map(lambda passed: start + timedelta(seconds=passed))


@given(
    at=moments(2015, 2035),
    unit=st.sampled_from(["hour", "day"]),
    zone=st.sampled_from(ZONES),
)
@example(at=datetime(2026, 10, 25, 0, 59, 59, tzinfo=UTC), unit="hour", zone="Europe/Berlin")
@example(at=datetime(2026, 4, 4, 15, 15, tzinfo=UTC), unit="hour", zone="Australia/Lord_Howe")
@example(at=datetime(2026, 10, 3, 15, 45, tzinfo=UTC), unit="hour", zone="Australia/Lord_Howe")
def test_each_moment_lies_in_one_period_whose_name_names_no_other(
    at: datetime, unit: str, zone: str
) -> None:
    calendar = Calendar(unit, zone)
    period = calendar.holding(at)
    assert period.start <= at < period.end
    assert calendar.holding(period.start) == period == calendar.parse(period.name)
    assert calendar.holding(period.end - timedelta(microseconds=1)) == period
    following = calendar.after(period)
    assert following.start == period.end
    assert calendar.before(following) == period
    assert period.start.timestamp() % SLOT_S == period.end.timestamp() % SLOT_S == 0


def test_days_and_hours_when_the_clocks_are_changed() -> None:
    days = Calendar("day", "Europe/Berlin")
    lengths = {
        day: (found.end - found.start) / HOUR
        for day in ("2026-03-28", "2026-03-29", "2026-10-25")
        if (found := days.parse(day))
    }
    assert lengths == {"2026-03-28": 24, "2026-03-29": 23, "2026-10-25": 25}
    start, names = datetime(2026, 10, 24, 23, tzinfo=UTC), []
    for hour in range(4):
        found = BERLIN.holding(start + hour * HOUR)
        assert found.end - found.start == HOUR
        names.append(found.name)
    assert names == [
        *("2026-10-25T01", "2026-10-25T02+02:00", "2026-10-25T02+01:00", "2026-10-25T03"),
    ]
    assert BERLIN.parse("2026-10-25T02+01:00").start == start + 2 * HOUR
    assert BERLIN.parse("2026-10-25T01+02:00") == BERLIN.parse("2026-10-25T01")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-03-29T02", "the clocks of Europe/Berlin skip the hour 2026-03-29T02"),
        ("2026-10-25T02", "show 2026-10-25T02 twice: 2026-10-25T02+02:00 and 2026-10-25T02+01:00"),
        ("2026-10-25T02+03:00", "is not an hour of Europe/Berlin; it has 2026-10-25T02+02:00"),
        ("2026-11-23", "'2026-11-23' is not an hour of Europe/Berlin such as 2026-11-23T10"),
        ("noon", "'noon' is not an hour"),
        ("2026-11-23T10:30", "is not an hour"),
    ],
)
def test_a_text_that_names_no_hour_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UnknownPeriodError) as refused:
        BERLIN.parse(text)
    assert reason in str(refused.value)


def test_a_text_that_names_no_day_is_refused() -> None:
    for text in ("2026-11-23T10", "2026-13-01", "today"):
        with pytest.raises(UnknownPeriodError, match="is not a day of UTC"):
            Calendar("day").parse(text)
    with pytest.raises(UnknownPeriodError, match="skip the day 2011-12-30"):
        Calendar("day", "Pacific/Apia").parse("2011-12-30")


def test_periods_are_due_once_their_end_and_the_lateness_have_passed() -> None:
    rules = CompletenessRules(Calendar("hour"), lateness=10 * MINUTE)

    def due(proven: datetime, newest: datetime | None) -> list[str]:
        return [one.name for one in rules.due(proven, newest)]

    assert due(NOON + 9 * MINUTE, NOON - HOUR) == []
    assert due(NOON + 10 * MINUTE, NOON - HOUR) == ["2026-11-23T11"]
    assert due(NOON + 10 * MINUTE, NOON) == []
    assert due(NOON + 71 * MINUTE, NOON - HOUR) == ["2026-11-23T11", "2026-11-23T12"]
    assert due(NOON + 9 * MINUTE, None) == ["2026-11-23T10"], "the newest complete one only"
    assert rules.expected_at(NOON) == NOON + HOUR + 10 * MINUTE
    assert due(rules.expected_at(NOON), NOON) == ["2026-11-23T12"]


def beat(minute: int, end: int, topic_id: str = "t") -> Seen:
    return Seen(NOON + minute * MINUTE, topic_id, {0: end, 1: 7})


def proven(
    *seen: Seen, at: int, topic_id: str | None = "t", now: datetime = NOON + HOUR
) -> datetime | None:
    offsets = {0: at, 1: 7}
    return proven_until(seen, offsets, topic_id=topic_id, lateness_s=30, now=now)


def test_a_time_is_proven_by_a_heartbeat_that_the_lake_has_passed_and_by_nothing_else() -> None:
    half = timedelta(seconds=30)
    assert proven(at=9) is None, "that nothing arrived is no proof"
    assert proven(beat(0, 5), at=4) is None
    assert proven(beat(0, 5), at=5) == NOON - half
    assert proven(beat(0, 5), beat(1, 6), beat(2, 9), at=6) == NOON + MINUTE - half
    assert proven(beat(0, 5), at=5, now=NOON - HOUR) == NOON - HOUR, "a server that is ahead"
    assert proven(beat(0, 0, "former"), at=5) is None, "another topic of the same name"
    assert proven(beat(0, 0, "former"), at=5, topic_id=None) == NOON - half


def test_heartbeats_of_a_table_that_is_behind_are_thinned_out() -> None:
    seen = [beat(minute, minute) for minute in range(8)]
    assert thinned(seen, 8) == seen
    left = thinned(seen, 7)
    assert [one.ends[0] for one in left] == [0, 2, 4, 6, 7]


@given(
    now=moments(2026, 2027),
    behind=st.timedeltas(timedelta(), timedelta(days=3)),
    lateness=st.timedeltas(timedelta(), timedelta(hours=2)),
    zone=st.sampled_from(ZONES),
)
def test_rows_are_looked_for_in_each_period_that_can_be_announced(
    now: datetime, behind: timedelta, lateness: timedelta, zone: str
) -> None:
    """A table's first announcement, by any proven time that the watermark allows."""
    rules = CompletenessRules(Calendar("hour", zone), lateness)
    watermark = now - behind
    for reached in (watermark, watermark + behind / 2, now, now + MINUTE):
        for one in rules.due(reached, None):
            assert rules.earliest(watermark, now) <= one.start
            assert one.end <= rules.cut(now)
    assert rules.earliest(None, now) <= rules.earliest(now, now)


def test_the_rows_of_a_period_are_those_of_its_slots() -> None:
    at = int(NOON.timestamp())
    slots = {at - SLOT_S: 1, at: 2, at + 3 * SLOT_S: 4, at + 4 * SLOT_S: 8}
    assert rows_of(NOON, NOON + HOUR, slots) == 6


def test_a_commit_counts_once_and_only_after_the_announcement() -> None:
    covered = Covered("a", "20261123120000000")
    assert not covered.counts("a", "20261123120000000")
    assert covered.counts("a", "20261123120000001")
    assert covered.counts("b", "20261123110000000"), "a commit of the next copy"
    noted = Covered("a", "20261123120000000", "20261123130000000")
    assert not noted.counts("a", "20261123130000000"), "a run saw the commit again"
    assert noted.counts("a", "20261123130000001")


ORDERS = TableId("shop", "public", "orders")


def rules_of(**settings: object) -> CompletenessRules | None:
    config = parse(yaml.safe_dump(minimal() | {"tables": {"public.orders": settings}}))
    return CompletenessRules.of(config.table_settings(ORDERS))


def test_the_settings_give_the_rules() -> None:
    assert rules_of() is None
    assert rules_of(completeness="hour") == CompletenessRules(Calendar("hour"))
    found = rules_of(
        completeness={"by": "day", "zone": "Europe/Berlin", "late": "announce"},
        event_time={"column": "at", "lateness": "2h"},
    )
    assert found == CompletenessRules(Calendar("day", "Europe/Berlin"), 2 * HOUR, "at", True)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"completeness": "week"}, "completeness"),
        ({"completeness": {"by": "hour", "zone": "Mars/Base"}}, "is not a time zone"),
        ({"event_time": {"column": "at"}}, "needs completeness: hour or day"),
        (
            {"completeness": "hour", "event_time": {"column": "at"}, "columns": {"mask": ["at"]}},
            "the lake has no time in this column: at",
        ),
        (
            {
                "completeness": "hour",
                "event_time": {"column": "at"},
                "columns": {"exclude": ["at"]},
            },
            "the column must be replicated: at",
        ),
        ({"completeness": "hour", "event_time": {"column": "at", "lateness": "soon"}}, "lateness"),
    ],
    ids=["length", "zone", "alone", "masked", "excluded", "lateness"],
)
def test_settings_that_cannot_work_are_refused(settings: object, reason: str) -> None:
    document = minimal() | {"tables": {"public.orders": settings}}
    with pytest.raises(ConfigError) as refused:
        parse(yaml.safe_dump(document))
    assert reason in str(refused.value)


@pytest.mark.parametrize("zone", ["Australia/Lord_Howe", "America/Havana", "Pacific/Apia"])
def test_the_hours_that_clocks_show_twice_are_those_with_offsets_in_their_names(zone: str) -> None:
    """The test covers a year in which the zone of Apia skipped a day."""
    calendar, begin = Calendar("hour", zone), datetime(2011, 1, 1, tzinfo=UTC)
    names = [calendar.holding(begin + number * MINUTE * 30).name for number in range(2 * 8760)]
    named = {hour_of(one) for one in names if len(one) > len("2011-01-01T00")}
    assert len(named) == 1
    first, last = hour_of(names[0]), hour_of(names[-1])
    assert {one for one in repeated_hours(zone) if first <= one <= last} == named


def hour_of(name: str) -> int:
    """The local time in an hour's name, as the number of hours since 1970."""
    shown = datetime.strptime(f"{name[:13]}+0000", "%Y-%m-%dT%H%z")
    return int(shown.timestamp()) // 3600


@given(at=moments(1940, 2099), zone=st.sampled_from(ZONES))
@example(at=datetime(1947, 5, 11, 1, 30, tzinfo=UTC), zone="Europe/Berlin")
@example(at=datetime(2099, 10, 25, 0, 30, tzinfo=UTC), zone="Europe/Berlin")
def test_no_other_hour_is_shown_twice(at: datetime, zone: str) -> None:
    name = Calendar("hour", zone).holding(at).name
    assert (hour_of(name) in repeated_hours(zone)) is (len(name) > len("2011-01-01T00"))


def test_clocks_that_are_never_changed_show_no_hour_twice() -> None:
    assert repeated_hours("UTC") == repeated_hours("Etc/GMT+5") == frozenset()
