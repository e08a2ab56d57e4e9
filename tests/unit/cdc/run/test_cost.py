"""How a process learns the cost of a table's runs."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from cdc.run.cost import (
    PRIOR,
    Estimate,
    Observation,
    arrival_rate,
    cold_factor,
    estimate,
    events_per_commit,
    learned,
    passed_offsets,
    prior_of,
    written_bytes_per_commit,
)
from cdc.store.table_cost import TABLE_COSTS, TableCost

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


def after(*runs: tuple[int, int, float], cold: float = 1.0, every_s: float = 60.0) -> TableCost:
    """The learned cost after runs, one per ``every_s``; a run is (commits, events, seconds)."""
    known = None
    for number, (commits, events, seconds) in enumerate(runs):
        at = NOW + timedelta(seconds=every_s * number)
        known = learned(known, Observation(commits, events, seconds, at, cold))
    assert known is not None
    return known


def test_a_table_without_runs_has_the_prior() -> None:
    assert estimate(None) == PRIOR
    assert estimate(None, Estimate(3.0, 0.1)) == Estimate(3.0, 0.1)
    assert prior_of([]) == PRIOR
    known = [after(*[(1, 10, seconds)] * 9) for seconds in (2.0, 3.0, 50.0)]
    assert prior_of(known).commit_s == pytest.approx(3.0, rel=0.2)


def test_seconds_of_commits_and_of_events_are_learned() -> None:
    rng = random.Random(1)
    runs = []
    for _ in range(40):
        events = rng.choice((10, 1_000, 100_000, 400_000))
        commits = 1 + events // 200_000
        seconds = (0.5 * commits + 0.0001 * events) * rng.lognormvariate(0.0, 0.1)
        runs.append((commits, events, seconds))
    found = estimate(after(*runs))
    assert found.commit_s == pytest.approx(0.5, rel=0.15)
    assert found.event_s == pytest.approx(0.0001, rel=0.15)
    assert found.seconds(100_000, 2) == pytest.approx(11.0, rel=0.15)
    assert found.events_within(10.5) == pytest.approx(100_000, rel=0.2)


def test_equal_runs_are_predicted_and_the_prior_stands_for_the_rest() -> None:
    found = estimate(after(*[(1, 5, 0.4)] * 20))
    assert found.seconds(5) == pytest.approx(0.4, rel=0.1)
    assert found.event_s == pytest.approx(PRIOR.event_s, rel=0.1)


def test_one_run_that_waited_changes_little_and_a_slow_table_is_soon_known() -> None:
    usual = [(1, 5, 0.5)] * 10
    assert estimate(after(*usual, (1, 5, 500.0))).seconds(5) < 1.0
    assert estimate(after(*usual, *[(1, 5, 20.0)] * 20)).seconds(5) > 10.0


def test_a_first_run_that_waited_is_soon_forgotten() -> None:
    for prior in (PRIOR, Estimate(1.1, 0.0001)):  # of a first table, and of a table among others
        known = None
        for number, seconds in enumerate([120.0, *[1.0] * 14]):
            at = NOW + timedelta(minutes=number)
            known = learned(known, Observation(1, 5, seconds, at), prior)
        assert estimate(known, prior).seconds(5) < 2.0


def test_one_run_shows_that_a_lake_is_slow() -> None:
    assert estimate(after((1, 5, 20.0))).seconds(5) > 12.0
    others = Estimate(20.0, 0.0001)
    known = learned(None, Observation(1, 5, 20.0, NOW), others)
    assert estimate(known, others).seconds(5) == pytest.approx(20.0, rel=0.1)


def test_no_cost_is_negative() -> None:
    for runs in ([(1, 1, 9.0), (1, 100_000, 0.1)] * 9, [(1, 9_000, 0.1), (9, 9_000, 9.0)] * 9):
        found = estimate(after(*runs))
        assert found.commit_s > 0
        assert found.event_s >= 0


def test_the_first_runs_of_a_process_count_as_slower() -> None:
    assert (cold_factor(0), cold_factor(10), cold_factor(99)) == (4.0, 1.0, 1.0)
    assert cold_factor(5) == pytest.approx(2.5)
    assert estimate(after((1, 5, 2.0), cold=4.0)).seconds(5) < 1.0


def test_the_cpu_time_of_a_commit_is_the_same_alone_and_beside_others() -> None:
    """Eight runs at a time on two cores take four times as long by the clock."""
    for seconds, cpu_s in ((0.8, 1.0), (3.3, 1.0)):
        known = None
        for number in range(20):
            at = NOW + timedelta(minutes=number)
            run = Observation(1, 5, seconds, at, cpu_s=cpu_s, cores=2, written_bytes=700)
            known = learned(known, run)
        found = estimate(known)
        assert found.seconds(5) * found.cpu == pytest.approx(1.0, rel=0.1)
        assert known is not None
        assert (known.cores, written_bytes_per_commit(known)) == (2, pytest.approx(700.0))
        assert prior_of([known]).cpu == pytest.approx(cpu_s / seconds)
    assert written_bytes_per_commit(None) == 0.0


def test_a_run_that_waited_for_a_server_has_not_used_the_cores() -> None:
    run = Observation(1, 5, 0.8, NOW, cpu_s=1.0, cores=2)
    known = learned(learned(None, run), replace(run, seconds=500.0, cpu_s=1.0))
    assert estimate(known).cpu > 0.3, "the clock's 500 s count as few"
    wrong = learned(None, replace(run, cpu_s=99.0))
    assert estimate(wrong).cpu == 2.0, "there are two cores"


def test_a_wait_beside_busy_runs_does_not_make_a_commit_look_dear_in_cpu_time() -> None:
    """A run gets an equal part of the CPU time, also while it waits for a server."""
    at = NOW
    run = Observation(1, 5, 1.0, at, cpu_s=0.5, cores=8)
    known = None
    for _ in range(12):
        known = learned(known, run)
    stalled = learned(known, replace(run, seconds=300.0, cpu_s=1200.0))
    assert estimate(stalled).cpu == pytest.approx(0.5, rel=0.1)
    first = learned(None, replace(run, seconds=300.0, cpu_s=1200.0), Estimate(1.0, 0.0, 0.5))
    assert estimate(first).cpu == pytest.approx(0.5, rel=0.1)
    cold = learned(known, replace(run, seconds=600.0, cpu_s=1200.0, cold=2.0))
    assert estimate(cold).cpu == pytest.approx(0.5, rel=0.1)


def test_the_rate_of_arrival_is_learned() -> None:
    assert after((1, 600, 1.0)).events_per_s == 0.0
    assert after((1, 9, 1.0), (1, 600, 1.0)).events_per_s == pytest.approx(10.0)
    assert after((1, 9, 1.0), (1, 600, 1.0), (1, 0, 1.0)).events_per_s == pytest.approx(5.0)
    found = after(*[(1, 600, 1.0)] * 60, *[(1, 6000, 1.0)] * 60).events_per_s
    assert 80.0 < found < 100.0


def test_a_backlog_is_no_rate() -> None:
    """The backlog of ten hours at 100 events per second runs in turns, one after the other."""
    known = after(*[(1, 6000, 1.0)] * 60)
    assert known.events_per_s == pytest.approx(100.0)
    at = known.measured_at + timedelta(hours=10)
    for turn in range(36):
        run = Observation(1, 100_000, 30.0, at + timedelta(seconds=30 * turn), span_s=1000.0)
        known = learned(known, run)
    assert known.events_per_s == pytest.approx(100.0, rel=0.1)


def test_a_burst_is_no_rate_until_it_has_lasted() -> None:
    """Two runs within a minute do not show how many events will come in the next hours."""
    assert arrival_rate(None) == 0.0
    assert arrival_rate(after((1, 9, 1.0), (1, 60_000, 1.0))) == pytest.approx(200.0)
    assert arrival_rate(after(*[(1, 600, 1.0)] * 7)) == pytest.approx(10.0)


def test_a_table_that_gets_no_more_events_needs_no_more_work() -> None:
    known = after(*[(1, 6000, 1.0)] * 60)
    rates = [arrival_rate(known, idle) for idle in (0.0, 450.0, 1800.0, 86400.0)]
    assert rates == pytest.approx([100.0, 75.0, 0.0, 0.0])


def test_a_table_that_is_loaded_once_an_hour_has_its_rate_for_the_whole_hour() -> None:
    known = after(*[(1, 6000, 1.0)] * 60, every_s=3600.0)
    rates = [arrival_rate(known, idle) for idle in (0.0, 1800.0, 3599.0, 4 * 3600.0)]
    assert rates == pytest.approx([6000 / 3600 * part for part in (1.0, 0.875, 0.75, 0.0)], 0.01)


def test_a_table_that_was_loaded_once_a_month_needs_nothing_after_two_days() -> None:
    known = after(*[(1, 6000, 1.0)] * 60, every_s=30 * 86400.0)
    assert arrival_rate(known, 86400.0) > 0
    assert arrival_rate(known, 2 * 86400.0) == 0


def test_the_events_of_a_commit_show_how_often_a_table_commits() -> None:
    assert events_per_commit(None) == 0.0
    assert events_per_commit(after(*[(1, 120_000, 9.0)] * 9)) == pytest.approx(120_000)
    assert events_per_commit(after(*[(3, 300, 2.0)] * 9)) == pytest.approx(100)


def test_offsets_between_two_positions() -> None:
    assert passed_offsets({0: 5, 1: 7}, {0: 9, 1: 7, 2: 4}) == 4


def test_the_sums_are_a_document_of_bounded_size() -> None:
    known = after(*[(3, 123_456_789, 1234.5)] * 500)
    text = TABLE_COSTS.write(known)
    assert TABLE_COSTS.read(text, "the cost") == known
    assert len(text) < 600


def test_runs_that_took_no_time_by_the_clock_are_learned_too() -> None:
    found = estimate(after(*[(1, 0, 0.0)] * 3))
    assert found.commit_s > 0
    assert found.event_s >= 0
