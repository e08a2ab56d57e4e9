"""The findings of data checks from given counts, ages and earlier results."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from cdc.config.checks import CheckSettings
from operate.data_checks.findings import (
    COUNTED,
    PERIOD,
    freshness,
    last_period,
    violations,
    volume,
)
from tests.unit.cdc.store.check_results import PASSED


def check(**settings: Any) -> CheckSettings:
    return CheckSettings.model_validate(settings)


VOLUME = check(kind="volume", history=3)


def past(*numbers: int) -> list[Any]:
    return [replace(PASSED, kind="volume", counts={COUNTED: number}) for number in numbers]


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (5, [], "passed"),
        (50, [100, 100, 100], "passed"),
        (49, [100, 100, 100], "failed"),
        (200, [100, 100, 100], "passed"),
        (201, [100, 100, 100], "failed"),
        (0, [100], "failed"),
        (100, [100, 1, 1000], "passed"),
        (100, [1000, 1000, 1000, 100, 100, 100], "failed"),
        (7, [0, 0], "passed"),
    ],
)
def test_a_volume_is_compared_with_the_median_of_the_history(
    now: int, before: list[int], expected: str
) -> None:
    found = volume(VOLUME, {COUNTED: now}, past(*before))
    assert found.outcome == expected
    assert found.counts == {COUNTED: now}


def test_a_number_of_rows_that_stays_becomes_the_usual_one() -> None:
    history = past(100, 100, 100)
    outcomes = []
    for _ in range(4):
        outcomes.append(volume(VOLUME, {COUNTED: 1000}, history).outcome)
        history.insert(0, past(1000)[0])
    assert outcomes == ["failed", "failed", "passed", "passed"]


def test_a_period_is_not_compared_with_itself() -> None:
    def of(period: int, number: int) -> Any:
        return replace(PASSED, counts={COUNTED: number, PERIOD: period})

    history = [of(3, 1), of(3, 1), of(2, 100), of(2, 9), of(2, 9), of(1, 100)]
    assert volume(VOLUME, {COUNTED: 90, PERIOD: 3}, history).outcome == "passed"
    assert volume(VOLUME, {COUNTED: 9, PERIOD: 3}, history).outcome == "failed"


@pytest.mark.parametrize(
    ("now", "settle", "end"),
    [
        ("2026-03-02T00:09", "10m", "2026-03-01T00:00"),
        ("2026-03-02T00:10", "10m", "2026-03-02T00:00"),
        ("2026-03-02T23:59", "10m", "2026-03-02T00:00"),
        ("2026-03-02T00:10", "1d", "2026-03-01T00:00"),
    ],
)
def test_the_last_period_has_settled(now: str, settle: str, end: str) -> None:
    daily = check(kind="volume", time_column="at", period="1d", settle=settle)
    period = last_period(daily, datetime.fromisoformat(now).replace(tzinfo=timezone.utc))
    assert period is not None
    assert (period[1] - period[0]).total_seconds() == 86400
    assert period[1] == datetime.fromisoformat(end).replace(tzinfo=timezone.utc)
    assert last_period(VOLUME, period[1]) is None


def test_an_age_is_compared_with_its_own_limit_or_the_target() -> None:
    own = check(kind="freshness", max_age="1h")
    assert freshness(own, 3600.0, 60).outcome == "passed"
    assert freshness(own, 3601.0, 60).outcome == "failed"
    assert freshness(check(kind="freshness"), 61.0, 60).outcome == "failed"
    assert freshness(own, None, 60).outcome == "skipped"


def test_violations_are_named_by_column_and_never_by_value() -> None:
    found = violations({"a": 0, "b": 2, "c": 1}, "rows are NULL in", rows=9)
    assert found.outcome == "failed"
    assert found.detail == "2 rows are NULL in b, 1 rows are NULL in c; 9 rows"
    assert found.counts == {"rows": 9, "a": 0, "b": 2, "c": 1}
    assert violations({"a": 0}, "", rows=9).outcome == "passed"
