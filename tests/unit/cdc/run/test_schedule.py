"""Which of the waiting tables runs next."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.run.lane import LONG_S, RECENT_S, Entry
from cdc.run.schedule import LATE_SHARE, LATE_SHARE_OF_SLACK, STARVING_SHARE, Rules, Schedule
from schemas.table import TableId

NOW = 1000.0


def entry(name: str, slack: float = 500.0, seconds: float = 1.0, **facts: Any) -> Entry:
    """A waiting table with a target of 900 s, whose start may be delayed by ``slack`` seconds."""
    known = {"tier": "default", "target_s": 900.0, **facts}
    deadline = NOW + slack + seconds
    return Entry(TableId("shop", "public", name), deadline=deadline, seconds=seconds, **known)


def taken(schedule: Schedule, count: int, now: float = NOW) -> list[str]:
    """The names of the next tables in the schedule; the run of each ends at once."""
    found = []
    for _ in range(count):
        one = schedule.take(now)
        if one is None:
            break
        schedule.end(one.table, one.seconds)
        found.append(one.table.name)
    return found


def scheduled(*entries: Entry, workers: int = 1, **rules: Any) -> Schedule:
    schedule = Schedule(Rules(workers, **rules))
    schedule.offer(entries)
    return schedule


def test_the_table_comes_first_that_is_oldest_in_relation_to_its_target() -> None:
    old = entry("old", slack=400.0)
    young = entry("young", slack=300.0, target_s=310.0)
    assert taken(scheduled(young, old), 2) == ["old", "young"]


def test_the_table_with_the_least_slack_comes_first_if_it_cannot_wait() -> None:
    old = entry("old", slack=50.0, seconds=9.0)
    urgent = entry("urgent", slack=5.0, target_s=10.0)
    assert taken(scheduled(old, urgent), 2) == ["urgent", "old"]


def test_long_runs_leave_a_worker_to_short_ones() -> None:
    giants = [entry(f"giant{n}", slack=-500.0 - n, seconds=3 * LONG_S) for n in range(3)]
    schedule = scheduled(*giants, workers=2)
    assert schedule.take(NOW) == giants[2]
    assert schedule.take(NOW) is None, "the other worker waits for a short run"
    schedule.offer([*giants, entry("small")])
    assert schedule.take(NOW) == entry("small")
    assert schedule.take(NOW) is None
    assert {table.name for table in schedule.running} == {"giant2", "small"}


def long_runs(schedule: Schedule, count: int, now: float = NOW) -> int:
    """Offer this many late tables with long runs; return how many of them start."""
    giants = [entry(f"g{n}", slack=-11.0, seconds=11.0) for n in range(count)]
    schedule.offer([*schedule.waiting, *giants])
    return sum(one is not None and one.long for one in [schedule.take(now) for _ in range(count)])


def test_long_runs_of_a_lane_leave_a_tier_with_waiting_tables_its_share() -> None:
    schedule = scheduled(workers=8, shares={"critical": 0.5}, ends=True)
    schedule.offer([entry(f"c{n}", tier="critical", seconds=9.9) for n in range(20)])
    assert long_runs(schedule, 12) == 4
    assert len(schedule.running) == 8


def test_long_runs_of_a_lane_leave_a_tier_the_workers_that_it_has_used_recently() -> None:
    """Two of eight workers had work of the tier for ten minutes, in runs of 5.5 s."""
    schedule, now = scheduled(workers=8, shares={"critical": 0.9}), NOW
    for number in range(200):
        now = NOW + 3.0 * number
        schedule.offer([entry("critical", tier="critical", seconds=5.5)])
        assert schedule.take(now) == entry("critical", tier="critical", seconds=5.5)
        schedule.end(entry("critical").table, 5.5)
    schedule.offer([])
    assert long_runs(schedule, 9, now) == 4, "twice two workers are left to the tier"
    assert long_runs(schedule, 9, now + 9 * RECENT_S) == 2, "six of eight in all"


def test_workers_that_an_idle_tier_does_not_need_are_lent_only_once() -> None:
    """Two tiers with backlogs divide what the idle one leaves, and each keeps its own part."""
    shares = {"critical": 0.5, "standard": 0.2, "bulk": 0.1}
    schedule = Schedule(Rules(16, shares), is_new=False)
    work_of_tier(schedule, "critical", workers=4.0, until=NOW)
    backlog = [
        entry(f"{tier}{n}", tier=tier, slack=-11.0, seconds=11.0)
        for tier in ("standard", "bulk")
        for n in range(16)
    ]
    schedule.offer(backlog)
    started = [one.tier for one in (schedule.take(NOW) for _ in range(16)) if one is not None]
    assert started.count("standard") == 5, "two thirds of the eight that critical does not need"
    assert started.count("bulk") == 2


def work_of_tier(schedule: Schedule, tier: str, *, workers: float, until: float) -> None:
    """Let a tier's short runs use this number of workers on average for ten minutes."""
    for number in range(200):
        now = until - 3.0 * (200 - number)
        for one in (entry(f"{tier}{n}", tier=tier, seconds=3.0) for n in range(int(workers))):
            schedule.offer([one])
            assert schedule.take(now) == one
            schedule.end(one.table, 3.0)
    schedule.offer([])


def test_a_clock_that_is_set_back_leaves_an_idle_tier_no_workers_for_hours() -> None:
    schedule = scheduled(workers=8, shares={"critical": 0.9})
    assert schedule.take(NOW + 7_200.0) is None, "the process begins with a clock two hours ahead"
    assert long_runs(schedule, 9, NOW) == 6


def test_a_machine_that_slept_still_knows_the_recent_work_of_an_idle_tier() -> None:
    """The clock of a run does not count the sleep, so that the run seems to end in the past."""
    schedule = Schedule(Rules(8, {"critical": 0.5}), is_new=False)
    work_of_tier(schedule, "critical", workers=2.0, until=NOW)
    sleeper, awake = entry("sleeper", tier="critical"), NOW + 600.0
    schedule.offer([sleeper])
    assert schedule.take(NOW) == sleeper
    work_of_tier(schedule, "critical", workers=2.0, until=awake)
    schedule.end(sleeper.table, 0.5)
    assert long_runs(schedule, 9, awake) == 4


@pytest.mark.parametrize(("workers", "share"), [(3, 0.5), (8, 0.35), (6, 0.33)])
def test_a_command_that_ends_leaves_no_worker_idle_for_a_part_of_a_place(
    workers: int, share: float
) -> None:
    giants = [
        entry(f"{tier}{n}", tier=tier, seconds=3 * LONG_S)
        for tier in ("critical", "other")
        for n in range(9)
    ]
    schedule = scheduled(*giants, workers=workers, shares={"critical": share}, ends=True)
    assert None not in [schedule.take(NOW) for _ in range(workers)]


@pytest.mark.parametrize(("after_s", "most"), [(0.0, 1), (4 * RECENT_S, 6)])
def test_a_tier_that_has_no_table_takes_workers_from_others_only_at_first(
    after_s: float, most: int
) -> None:
    schedule = scheduled(workers=8, shares={"critical": 0.9})
    assert schedule.take(NOW) is None
    assert long_runs(schedule, 9, NOW + after_s) == most


def test_a_long_run_that_hangs_keeps_one_other_long_run_of_its_lane_waiting_no_longer() -> None:
    """The tier wants nine tenths of eight workers, so that one place is left to the others."""
    schedule = scheduled(workers=8, shares={"critical": 0.9})
    critical = [entry(f"c{n}", tier="critical") for n in range(20)]
    hanging = [entry(f"h{n}", failing=True) for n in range(3)]
    schedule.offer([*hanging, *critical])
    taken_for_good(schedule, 8, NOW)
    assert sum(one.table in schedule.running for one in hanging) == 1
    for one in critical:
        if one.table in schedule.running:
            schedule.end(one.table, 1.0)
    for now, most in ((NOW + 121.0, 1), (NOW + 123.0, 2), (NOW + 500.0, 2)):
        waiting = [one for one in hanging if one.table not in schedule.running]
        schedule.offer([*waiting, *critical])
        taken_for_good(schedule, 8, now)
        assert sum(one.table in schedule.running for one in hanging) == most
        for one in critical:
            if one.table in schedule.running:
                schedule.end(one.table, 1.0)


def taken_for_good(schedule: Schedule, count: int, now: float) -> None:
    """Start the next runs of the schedule, which go on."""
    for _ in range(count):
        schedule.take(now)


def test_a_command_that_ends_uses_the_shares_of_lanes_that_are_done() -> None:
    giants = [entry(f"giant{n}", seconds=3 * LONG_S) for n in range(9)]
    critical = entry("critical", tier="critical", seconds=3 * LONG_S)
    schedule = scheduled(*giants, critical, workers=4, shares={"critical": 0.5}, ends=True)
    first = [schedule.take(NOW) for _ in range(4)]
    assert first.count(None) == 0, "the lane of critical has no more tables"
    assert critical in first
    schedule.end(critical.table, 30.0)
    assert schedule.take(NOW + 30.0) is not None, "no worker is left to a lane that is done"


def test_a_long_run_takes_the_last_worker_if_it_would_be_late_otherwise() -> None:
    urgent = [entry(f"t{n}", slack=5.0 + n, seconds=2 * LONG_S) for n in range(2)]
    schedule = scheduled(*urgent, workers=2)
    assert [schedule.take(NOW), schedule.take(NOW)] == urgent
    failing = entry("failing", slack=5.0, failing=True)
    schedule = scheduled(urgent[0], failing, workers=2)
    assert [schedule.take(NOW), schedule.take(NOW)] == [urgent[0], None]


def test_one_worker_also_takes_long_runs() -> None:
    assert taken(scheduled(entry("giant", seconds=3 * LONG_S)), 1) == ["giant"]


def test_late_tables_run_if_the_others_can_wait() -> None:
    late = entry("late", slack=-11.0, seconds=5.0)
    assert taken(scheduled(late, entry("kept")), 2) == ["late", "kept"]


@pytest.mark.parametrize(
    ("slack", "target_s", "first"),
    [(-9.0, 900.0, "missed"), (-11.0, 900.0, "kept"), (-1.9, 20.0, "missed"), (-2.1, 20.0, "kept")],
)
def test_a_table_that_just_misses_its_deadline_keeps_its_place(
    slack: float, target_s: float, first: str
) -> None:
    """If it counted as late, it would wait until the others of the same rush are served."""
    schedule = scheduled(entry("late", slack=-500.0, seconds=100.0))
    assert taken(schedule, 1) == ["late"]  # late tables have had their part
    schedule.offer([entry("missed", slack, target_s=target_s, ran_at=NOW), entry("kept", 1.0)])
    assert taken(schedule, 1) == [first]


def test_late_tables_have_a_part_of_the_work_if_the_others_cannot_wait() -> None:
    schedule, order = scheduled(), []
    for _ in range(100):
        kept = [entry(f"kept{n}", slack=0.5) for n in range(5)]
        schedule.offer([entry("late", slack=-11.0, ran_at=NOW), *kept])
        order += taken(schedule, 1)
    part = order.count("late") / len(order)
    assert LATE_SHARE * 0.7 < part < LATE_SHARE * 1.5


def test_late_tables_have_a_quarter_of_the_work_while_the_others_can_wait() -> None:
    schedule, order = scheduled(), []
    for _ in range(100):
        kept = [entry(f"kept{n}") for n in range(5)]
        schedule.offer([entry("late", slack=-11.0, ran_at=NOW), *kept])
        order += taken(schedule, 1)
    part = order.count("late") / len(order)
    assert LATE_SHARE_OF_SLACK * 0.9 < part < LATE_SHARE_OF_SLACK * 1.2


def test_late_tables_that_have_waited_for_their_target_have_most_of_the_work() -> None:
    schedule, order = scheduled(), list[str]()
    for _ in range(100):
        kept = [entry(f"kept{n}", slack=0.5) for n in range(5)]
        schedule.offer([entry("late", slack=-11.0, ran_at=NOW - 901.0), *kept])
        order += taken(schedule, 1)
    part = order.count("late") / len(order)
    assert STARVING_SHARE * 0.9 < part < STARVING_SHARE * 1.2


def test_a_starving_table_comes_before_a_late_one_with_a_shorter_target() -> None:
    """A backlog of a short target has the lower rank, and it has just run."""
    schedule, order = scheduled(), list[str]()
    for _ in range(100):
        kept = [entry(f"kept{n}", slack=0.5) for n in range(5)]
        backlog = entry("backlog", slack=-11.0, target_s=60.0, ran_at=NOW)
        schedule.offer([backlog, entry("waits", slack=-11.0, ran_at=NOW - 901.0), *kept])
        order += taken(schedule, 1)
    assert 0.6 < order.count("waits") / len(order) < STARVING_SHARE * 1.1


def test_tables_that_fail_again_and_again_leave_the_work_to_others() -> None:
    """The wait for a retry can be longer than the table's target."""
    schedule, order = scheduled(), list[str]()
    for _ in range(100):
        kept = [entry(f"kept{n}", slack=0.5) for n in range(5)]
        failing = entry("failing", slack=-3600.0, ran_at=NOW - 3600.0, failing=True)
        schedule.offer([failing, *kept])
        order += taken(schedule, 1)
    assert order.count("failing") / len(order) < LATE_SHARE * 1.5


@pytest.mark.parametrize(("predicted", "true"), [(250.0, 1.0), (1.0, 250.0)])
def test_late_tables_have_their_part_of_the_true_work(predicted: float, true: float) -> None:
    """A run can end at once, for example if another process holds the table's lease."""
    schedule = scheduled(entry("late", slack=-11.0, seconds=predicted, ran_at=NOW), workers=1)
    first = schedule.take(NOW)
    assert first is not None
    schedule.end(first.table, true)
    order = list[str]()
    for _ in range(60):
        kept = [entry(f"kept{n}", slack=0.5) for n in range(5)]
        schedule.offer([entry("late", slack=-11.0, ran_at=NOW), *kept])
        order += taken(schedule, 1)
    assert ("late" in order[:30]) is (true < predicted), "as much as the run took"


@pytest.mark.parametrize(("load", "most"), [(0.95, 1.5), (1.05, 2.0), (1.5, 2.5)])
def test_no_table_of_a_fleet_with_too_much_work_waits_much_longer_than_others(
    load: float, most: float
) -> None:
    """For 20 minutes, twenty tables run that need about the time that their targets allow.

    Args:
        load: The needed time, as a part of the time that the targets allow.
        most: The longest allowed wait, in freshness targets.
    """
    names, target = [f"t{number}" for number in range(20)], 20.0
    seconds = load * 2 * target / len(names)
    schedule, ends = Schedule(Rules(2)), list[tuple[float, str]]()
    whole, longest = dict.fromkeys(names, NOW), 0.0
    ran_at = dict(whole)
    for second in range(1_200):
        now = NOW + second
        for at, name in [one for one in ends if one[0] <= now]:
            schedule.end(TableId("shop", "public", name), seconds)
            ran_at[name] = at
        ends = [one for one in ends if one[0] > now]
        waiting = {*names} - {name for _, name in ends}
        facts = {name: whole[name] + target - NOW - seconds for name in sorted(waiting)}
        schedule.offer(
            entry(name, slack, seconds, target_s=target, ran_at=ran_at[name])
            for name, slack in facts.items()
        )
        while (one := schedule.take(now)) is not None:
            longest = max(longest, now - whole[one.table.name])
            whole[one.table.name] = now
            ends.append((now + seconds, one.table.name))
    assert longest <= most * target


def test_tables_that_can_wait_one_by_one_may_not_be_able_to_wait_together() -> None:
    schedule, order = scheduled(), list[str]()
    for _ in range(100):
        kept = [entry(f"kept{n}", slack=12.0, target_s=10.0) for n in range(10)]
        schedule.offer([entry("late", slack=-11.0, ran_at=NOW), *kept])
        order += taken(schedule, 1)
    assert order.count("late") / len(order) < LATE_SHARE * 1.5


def test_among_late_tables_short_targets_come_first_and_none_starves() -> None:
    short = entry("short", slack=-11.0, target_s=60.0)
    assert taken(scheduled(entry("long", slack=-200.0), short), 2) == ["short", "long"]
    assert taken(scheduled(entry("long", slack=-900.0), short), 2) == ["long", "short"]
    backlog = entry("backlog", slack=-5000.0, ran_at=NOW - 1.0)
    assert taken(scheduled(backlog, entry("other", slack=-11.0)), 2) == ["other", "backlog"]


def test_a_table_with_more_work_than_its_next_run_does_is_late_before() -> None:
    backlog = entry("backlog", slack=100.0, rest=200.0)
    assert backlog.late(NOW)


def test_tiers_share_the_workers_while_both_have_work() -> None:
    shares = {"critical": 0.75}
    schedule, order = scheduled(shares=shares), []
    for number in range(200):
        schedule.offer(
            [
                entry(f"bulk{number}", slack=1.0),
                entry(f"critical{number}", slack=800.0, tier="critical"),
            ]
        )
        order += taken(schedule, 1)
    part = sum(name.startswith("critical") for name in order) / len(order)
    assert 0.7 < part < 0.8


def test_shares_are_those_of_the_true_work_and_not_of_the_predicted_one() -> None:
    """A tier whose runs take three times as long as predicted gets a third as many runs."""
    schedule, order = scheduled(shares={"critical": 0.75}), list[str]()
    for number in range(400):
        bulk, critical = entry(f"bulk{number}"), entry(f"critical{number}", tier="critical")
        schedule.offer([bulk, critical])
        one = schedule.take(NOW)
        assert one is not None
        schedule.end(one.table, 3.0 if one.tier == "critical" else 1.0)
        order.append(one.tier)
    assert 0.48 < order.count("critical") / len(order) < 0.52


def test_a_tier_counts_on_its_own_workers_only_while_others_have_work() -> None:
    urgent = [entry(f"urgent{n}", slack=9.0, target_s=10.0, tier="critical") for n in range(9)]
    old = entry("old", slack=400.0, tier="critical")
    alone = scheduled(*urgent, old, workers=2, shares={"critical": 0.5})
    assert alone.take(NOW) == old, "the others can wait with two workers"
    beside = scheduled(*urgent, old, entry("bulk"), workers=2, shares={"critical": 0.5})
    assert beside.take(NOW) == urgent[0], "and not with one"


def test_the_share_of_an_idle_tier_is_lent_and_is_no_claim_for_later() -> None:
    schedule = scheduled(shares={"critical": 0.5})
    for number in range(50):
        schedule.offer([entry(f"bulk{number}")])
        assert taken(schedule, 1) == [f"bulk{number}"]
    order = []
    for number in range(20):
        critical = entry(f"critical{number}", tier="critical")
        schedule.offer([entry(f"bulk{number}"), critical])
        order += taken(schedule, 1)
    assert 8 <= sum(name.startswith("critical") for name in order) <= 12


def test_runs_that_hang_on_lent_workers_do_not_shut_out_their_tier_for_hours() -> None:
    """The tier has a share of 5 %, and eight of its runs took ten minutes instead of a second."""
    shares, workers = {"critical": 0.95}, 8
    bulk = [entry(f"bulk{n}") for n in range(workers)]
    schedule = scheduled(*bulk, shares=shares, workers=workers)
    running = [schedule.take(NOW) for _ in range(workers)]
    for one in running:
        assert one is not None
        schedule.end(one.table, 600.0)
    order = list[str]()
    for number in range(6000):  # seconds of one worker: 12.5 minutes of eight
        critical = entry(f"critical{number}", tier="critical")
        schedule.offer([entry(f"bulk{number}"), critical])
        order += taken(schedule, 1)
        if order[-1].startswith("bulk"):
            break
    assert order[-1].startswith("bulk"), "the other tier has not had its turn in minutes"


def test_shares_of_all_workers_still_leave_some_work_to_other_tiers() -> None:
    schedule, order = scheduled(shares={"critical": 1.0}), []
    for number in range(200):
        schedule.offer([entry(f"bulk{number}"), entry(f"critical{number}", tier="critical")])
        order += taken(schedule, 1)
    assert 5 <= sum(name.startswith("bulk") for name in order) <= 15


def test_a_command_that_ends_begins_with_its_longest_runs() -> None:
    entries = [entry("a"), entry("b", seconds=20.0), entry("c", seconds=60.0), entry("d")]
    schedule = scheduled(*entries, workers=3, ends=True)
    started = [one.table.name for _ in range(3) if (one := schedule.take(NOW))]
    assert started[:2] == ["c", "b"]
    assert started[2] in ("a", "d")
    urgent = [entry("giant", seconds=60.0), entry("urgent", slack=1.0), entry("too", slack=1.5)]
    schedule = scheduled(*urgent, workers=2, ends=True)
    assert schedule.take(NOW) == urgent[1], "the others could not be kept without the worker"


def test_a_command_that_ends_leaves_a_worker_to_short_runs_while_there_are_some() -> None:
    giants = [entry(f"giant{n}", slack=5.0 + n, seconds=60.0) for n in range(2)]
    schedule = scheduled(*giants, entry("small"), workers=2, ends=True)
    assert schedule.take(NOW) == giants[0]
    assert schedule.take(NOW) == entry("small")


def test_a_command_that_ends_uses_all_workers_for_long_runs_at_last() -> None:
    giants = [entry(f"giant{n}", seconds=60.0) for n in range(2)]
    schedule = scheduled(*giants, workers=2, ends=True)
    assert schedule.take(NOW) is not None
    assert schedule.take(NOW) is not None


def test_the_shards_of_one_lake_table_never_hold_all_workers() -> None:
    shards = [entry(f"shard{n}", lake="/lake/orders") for n in range(3)]
    schedule = scheduled(*shards, workers=3)
    assert [schedule.take(NOW) is not None for _ in range(3)] == [True, True, False]
    schedule.offer([*shards, entry("other")])
    assert schedule.take(NOW) == entry("other")


def test_running_tables_are_not_offered_again() -> None:
    schedule = scheduled(entry("a"), entry("b"), workers=2)
    first = schedule.take(NOW)
    assert first is not None
    schedule.offer([entry("a"), entry("b")])
    assert {one.table for one in schedule.waiting} == {
        one.table for one in (entry("a"), entry("b")) if one.table != first.table
    }
