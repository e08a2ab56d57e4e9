"""When a check is due, and which of its results count."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cdc.config import parse
from cdc.config.checks import CheckSettings
from cdc.store.checks import CheckRecord, CheckResult, Reach, after
from cdc.store.table_state import State
from cdc.store.verifications import VerifyRecord
from operate.check_status import Moment, alarming, is_due, readable, statuses
from tests.records import ATTEMPT, BEGAN, table_record
from tests.unit.cdc.configuration import minimal
from tests.unit.cdc.store.check_results import BROKEN, FAILED, PASSED


def check(**settings: Any) -> CheckSettings:
    return CheckSettings.model_validate({"kind": "not_null", "columns": ["id"], **settings})


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-{text}+00:00")


def done(text: str, **facts: Any) -> CheckResult:
    return replace(PASSED, started_at=at(text), **facts)


NIGHTLY = check(cron="0 3 * * *")


@pytest.mark.parametrize(
    ("last", "now", "expected"),
    [
        (None, "03-01T13:00", False),
        (None, "03-02T02:59", False),
        (None, "03-02T03:00", True),
        (None, "03-09T09:00", True),
        ("03-02T03:00", "03-02T23:00", False),
        ("03-02T03:00", "03-03T03:00", True),
        ("03-02T02:59", "03-02T03:00", True),
        ("03-02T15:00", "03-03T02:00", False),
    ],
)
def test_a_cron_expression_makes_a_check_due_once_each_time(
    last: str | None, now: str, expected: bool
) -> None:
    found = is_due(NIGHTLY, None if last is None else done(last), Moment(at(now), BEGAN))
    assert found is expected


@pytest.mark.parametrize(
    ("last", "first"),
    [
        ("03-02T12:00", "03-03T01:30"),  # winter: UTC+1
        ("03-28T12:00", "03-29T01:00"),  # there is no 02:30: at 03:00, as Debian's cron
        ("03-30T12:00", "03-31T00:30"),  # summer: UTC+2
    ],
)
def test_a_time_is_of_its_zone_also_when_the_clocks_change(last: str, first: str) -> None:
    night = check(cron="30 2 * * *", zone="Europe/Zurich")
    assert not is_due(night, done(last), Moment(at(first) - timedelta(seconds=1), BEGAN))
    assert is_due(night, done(last), Moment(at(first), BEGAN))


@given(
    since=st.timedeltas(timedelta(), timedelta(days=400)),
    wait=st.timedeltas(timedelta(), timedelta(days=3)),
)
def test_a_check_is_due_from_the_next_time_on_and_stays_due(
    since: timedelta, wait: timedelta
) -> None:
    last = BEGAN + since

    def due(after_s: timedelta) -> bool:
        return is_due(NIGHTLY, replace(PASSED, started_at=last), Moment(last + after_s, BEGAN))

    assert not due(timedelta())
    assert due(timedelta(days=1))
    assert not due(wait) or due(wait + timedelta(hours=1))


@pytest.mark.parametrize(
    ("seen", "commits", "expected"),
    [(None, 4, False), (None, 5, True), (7, 11, False), (7, 12, True), (7, 99, True)],
)
def test_a_number_of_commits_makes_a_check_due(
    seen: int | None, commits: int, expected: bool
) -> None:
    last = None if seen is None else done("03-01T13:00", commits=seen)
    moment = Moment(at("03-01T14:00"), BEGAN, commits)
    assert is_due(check(every_commits=5), last, moment) is expected
    both = check(every_commits=5, cron="0 3 * * *")
    assert is_due(both, last, moment) is expected
    assert is_due(both, last, replace(moment, now=at("03-03T04:00")))


def test_a_check_without_a_schedule_or_that_is_left_out_is_never_due() -> None:
    moment = Moment(at("09-01T00:00"), BEGAN, 99)
    assert not is_due(check(), None, moment)
    assert not is_due(check(cron="0 3 * * *", enabled=False), None, moment)


@pytest.mark.parametrize("state", list(State))
def test_only_a_copy_that_readers_see_is_checked(state: State) -> None:
    resumed = State.INCREMENTAL if state in (State.PAUSED, State.FAILED) else None
    record = table_record(state=state, attempt=ATTEMPT, resume_to=resumed)
    expected = state in (State.INCREMENTAL, State.PAUSED, State.FAILED)
    assert readable(record) is expected
    copying = table_record(state=State.FAILED, attempt=ATTEMPT, resume_to=State.BOOTSTRAPPING)
    assert not readable(copying)


FOLLOWED = table_record(attempt=ATTEMPT)


def known(*results: CheckResult) -> CheckRecord:
    found = None
    for one in results:
        found = after(found, one)
    assert found is not None
    return found


def shown(
    settings: CheckSettings, record: CheckRecord | None, verified: VerifyRecord | None = None
) -> tuple[bool, bool, bool]:
    results = {} if record is None else {"keys": record}
    now = at("03-02T04:00")
    (found,) = statuses(
        {"keys": settings}, FOLLOWED, results, now=now, commits=0, verified=verified
    )
    return found.due, found.failed, found.alarms


def test_a_check_that_did_not_work_stays_due_and_hides_no_failure() -> None:
    skipped = replace(BROKEN, outcome="skipped", started_at=at("03-02T03:30"))
    assert shown(NIGHTLY, None) == (True, False, False)
    assert shown(NIGHTLY, known(skipped)) == (True, False, False)
    failed = replace(FAILED, started_at=at("03-02T03:10"))
    assert shown(NIGHTLY, known(failed)) == (False, True, True)
    assert shown(NIGHTLY, known(failed, skipped)) == (False, True, True)
    assert shown(check(cron="0 3 * * *", policy="report"), known(failed)) == (False, True, False)


def test_a_result_of_another_kind_does_not_count() -> None:
    failed = replace(FAILED, started_at=at("03-02T03:10"))
    assert shown(check(kind="unique", cron="0 3 * * *"), known(failed)) == (True, False, False)


def test_a_result_of_verify_counts_only_for_the_copy_that_it_compared() -> None:
    verify = check(kind="verify", cron="0 3 * * *")
    failed = replace(FAILED, kind="verify", started_at=at("03-02T03:10"))
    of_this = known(replace(failed, attempt=str(ATTEMPT.id)))
    assert shown(verify, of_this) == (False, True, True)
    assert shown(verify, known(replace(failed, attempt="another"))) == (True, False, False)


ALL, SAMPLE = Reach("all"), Reach("sample")
DAY = Reach("window", "at", "2026-03-01 00:00:00", "2026-03-02 00:00:00")
NEXT_DAY = replace(DAY, begin=DAY.end, end="2026-03-03 00:00:00")
BOTH_DAYS = replace(DAY, end=NEXT_DAY.end)
PIECE, LAST_PIECE = Reach("pieces"), Reach("pieces", to_end=True)


@pytest.mark.parametrize(
    ("failed", "passed", "ends"),
    [
        ([ALL], ALL, True),
        ([ALL], SAMPLE, False),
        ([ALL], DAY, False),
        ([ALL], LAST_PIECE, False),
        ([SAMPLE], SAMPLE, False),
        ([SAMPLE], ALL, True),
        ([DAY], NEXT_DAY, False),
        ([DAY], replace(BOTH_DAYS, column="paid_at"), False),
        ([DAY], BOTH_DAYS, True),
        ([DAY, NEXT_DAY], NEXT_DAY, False),
        ([DAY, NEXT_DAY], BOTH_DAYS, True),
        ([DAY, SAMPLE], BOTH_DAYS, False),
        ([ALL, SAMPLE], SAMPLE, False),
        ([PIECE], PIECE, False),
        ([PIECE], LAST_PIECE, True),
        ([replace(ALL, primary=True)], ALL, False),
        ([replace(ALL, primary=True)], replace(ALL, primary=True), True),
        ([ALL], replace(ALL, primary=True), True),
    ],
)
def test_a_pass_ends_only_failures_whose_rows_it_has_compared(
    failed: list[Reach], passed: Reach, ends: bool
) -> None:
    of_this = replace(FAILED, kind="verify", attempt=str(ATTEMPT.id))
    results = [replace(of_this, reach=one) for one in failed]
    found = known(*results, replace(of_this, outcome="passed", reach=passed))
    assert shown(check(kind="verify", cron="0 3 * * *"), found)[1] is not ends
    again = known(*results, replace(of_this, outcome="passed", attempt="copied again"))
    assert not again.failed, "it is about another copy"


@pytest.mark.parametrize("primary", [False, True])
def test_verify_of_all_rows_ends_the_failures_before_it(primary: bool) -> None:
    reach = replace(SAMPLE, primary=primary)
    failed = replace(FAILED, kind="verify", attempt=str(ATTEMPT.id), reach=reach)
    settings, before = check(kind="verify", cron="0 3 * * *"), known(failed)
    later = failed.finished_at + timedelta(seconds=1)
    found = VerifyRecord(failed.attempt, later, 9, {}, "0/1", 1.0)
    since = {"primary_equal_since" if primary else "equal_since": failed.finished_at}
    assert shown(settings, before, found)[1], "it began before the check"
    assert not shown(settings, before, replace(found, **since))[1]
    assert shown(settings, before, replace(found, **since, attempt="another"))[1]
    if primary:
        assert shown(settings, before, replace(found, equal_since=later))[1], "by the replica"
    assert shown(check(cron="0 3 * * *"), known(FAILED), replace(found, **since))[1]


def test_a_check_that_left_the_configuration_is_no_condition() -> None:
    document = minimal()
    failed = {"keys": known(FAILED)}
    assert not alarming(parse(yaml.safe_dump(document)), FOLLOWED, failed, None)
    document["defaults"] = {"checks": {"keys": {"kind": "not_null", "columns": ["id"]}}}
    assert alarming(parse(yaml.safe_dump(document)), FOLLOWED, failed, None)
    assert not alarming(parse(yaml.safe_dump(document)), FOLLOWED, {}, None)
    document["defaults"]["checks"]["keys"]["enabled"] = False
    assert not alarming(parse(yaml.safe_dump(document)), FOLLOWED, failed, None)
