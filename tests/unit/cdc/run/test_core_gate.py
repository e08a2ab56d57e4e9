"""Large batches of a tier have no more than the tier's part of the cores together."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any, cast

import pytest

from cdc.run import core_gate
from cdc.run.batch_reading import Held
from cdc.run.context import RunResult
from cdc.run.core_gate import CoreGate, all_cores
from cdc.run.lane import LONG_S, RECENT_S, Entry
from cdc.run.schedule import Rules, Schedule
from cdc.run.workers import Work, Workers
from cdc.runtime.step_times import begin_steps
from cdc.store.table_state import State
from tests.unit.cdc.run.waiting_work import WAIT_S, work

NOW = 1000.0


def entry(name: str, tier: str = "other", seconds: float = 3 * LONG_S) -> Entry:
    return work(name, tier=tier, seconds=seconds).entry


def gate(parts: dict[str, float]) -> CoreGate:
    return CoreGate(lambda one: (one.tier, parts[one.tier]))


@pytest.mark.parametrize(
    ("part", "wanted", "cores", "got"),
    [
        (1.0, 20, 8, 8),
        (1.0, 3, 8, 3),
        (0.5, 20, 8, 4),
        (0.5, 3, 8, 3),
        (0.5, 20, 2, 1),
        (0.05, 20, 8, 1),
        (1 / 3, 20, 6, 2),
    ],
)
def test_one_batch_has_the_whole_part_of_its_tier(
    part: float, wanted: int, cores: int, got: int
) -> None:
    with gate({"other": part}).hold(entry("giant"), wanted, cores) as tasks:
        assert tasks == got
    if part == 1.0:
        with all_cores(wanted, cores) as tasks:
            assert tasks == got


def test_a_batch_waits_until_its_tier_has_a_core_again_and_no_other_tier_does() -> None:
    divided, second = gate({"other": 0.5, "critical": 0.5}), threading.Event()

    def hold() -> None:
        with divided.hold(entry("b"), 9, 2) as tasks:
            assert tasks == 1
            second.set()

    with divided.hold(entry("a"), 9, 2) as tasks:
        assert tasks == 1
        waiting = threading.Thread(target=hold, daemon=True)
        waiting.start()
        with divided.hold(entry("c", tier="critical"), 9, 2) as others:
            assert others == 1
        assert not second.wait(0.3)
    assert second.wait(WAIT_S)
    waiting.join()


def test_a_batch_goes_on_with_all_cores_once_other_tiers_have_no_work() -> None:
    parts = {"other": 0.5}
    divided, got = gate(parts), list[int]()

    def hold() -> None:
        with divided.hold(entry("b"), 9, 2) as tasks:
            got.append(tasks)

    with divided.hold(entry("a"), 9, 2):
        waiting = threading.Thread(target=hold, daemon=True)
        waiting.start()
        waiting.join(0.3)
        assert got == []
        parts["other"] = 1.0
        waiting.join(WAIT_S)
    assert got == [2]


def test_batches_that_come_together_divide_the_part() -> None:
    divided = gate({"other": 0.5})
    with ExitStack() as held:
        assert held.enter_context(divided.hold(entry("small"), 1, 8)) == 1
        assert held.enter_context(divided.hold(entry("a"), 9, 8)) == 2, "half of four"
        assert held.enter_context(divided.hold(entry("b"), 9, 8)) == 1


def test_a_task_that_hangs_stops_no_other_batch_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_gate, "LONGEST_WAIT_S", 0.2)
    divided = gate({"other": 0.5})
    with divided.hold(entry("hangs"), 9, 2), divided.hold(entry("b"), 9, 2) as tasks:
        assert tasks == 1


def test_cores_are_given_back_after_an_error() -> None:
    divided = gate({"other": 0.5})
    with pytest.raises(ZeroDivisionError), divided.hold(entry("a"), 9, 2):
        raise ZeroDivisionError
    with divided.hold(entry("b"), 9, 8) as tasks:
        assert tasks == 4


def running(schedule: Schedule, one: Entry, now: float = NOW) -> Entry:
    schedule.offer([*schedule.waiting, one])
    assert schedule.take(now) == one
    return one


def test_a_tier_has_its_share_of_the_cores_while_tables_of_others_wait() -> None:
    schedule = Schedule(Rules(8, {"critical": 0.25}), is_new=False)
    giant = running(schedule, entry("giant"))
    assert schedule.part_of_cores(giant, NOW) == 1.0
    schedule.offer([entry("waits", tier="critical")])
    assert schedule.part_of_cores(giant, NOW) == 0.75
    schedule.offer([entry("waits")])
    assert schedule.part_of_cores(giant, NOW) == 1.0, "a table of the same tier"


def test_recent_work_of_others_counts_until_it_is_negligible() -> None:
    schedule = Schedule(Rules(8, {"critical": 0.5}), is_new=False)
    giant = running(schedule, entry("giant"))
    for number in range(100):
        now = NOW + 3.0 * number
        for name in ("a", "b"):
            one = running(schedule, entry(name, tier="critical", seconds=3.0), now)
            schedule.end(one.table, 3.0)
    assert schedule.part_of_cores(giant, now) == pytest.approx(0.5, abs=0.05), "twice two workers"
    assert schedule.part_of_cores(giant, now + RECENT_S) == pytest.approx(0.82, abs=0.05)
    assert schedule.part_of_cores(giant, now + 3 * RECENT_S) == 1.0


def test_a_single_worker_reads_with_all_cores() -> None:
    schedule = Schedule(Rules(1, {"critical": 0.5}), is_new=False)
    giant = running(schedule, entry("giant"))
    schedule.offer([entry("waits", tier="critical")])
    assert schedule.part_of_cores(giant, NOW) == 1.0


def test_a_run_that_is_not_long_waits_for_no_core() -> None:
    schedule = Schedule(Rules(8, {"critical": 0.25}), is_new=False)
    short = running(schedule, entry("short", seconds=LONG_S))
    schedule.offer([entry("waits", tier="critical")])
    assert schedule.part_of_cores(short, NOW) == 1.0


@pytest.mark.parametrize(("waits", "tasks"), [(True, 4), (False, 8)])
def test_workers_divide_the_cores_by_what_waits_when_a_batch_asks(waits: bool, tasks: int) -> None:
    found, began, go_on = list[int](), threading.Event(), threading.Event()

    def run(one: Work, _: int) -> RunResult:
        if one.entry.tier == "other":
            began.set()
            assert go_on.wait(WAIT_S)
            with one.turn.cores(20, 8) as got:
                found.append(got)
        return RunResult(one.table, State.INCREMENTAL)

    with Workers(Rules(2, {"critical": 0.5}, ends=True), run) as workers:
        workers.begin_round()
        giant = work("giant", tier="other", seconds=3 * LONG_S)
        workers.offer([giant])
        assert began.wait(WAIT_S)
        with workers._changed:  # no other thread takes it, since one is enough for one table
            later = [work("later", tier="critical")] * waits
            workers._waiting = {one.table: one for one in later}
            workers._schedule.offer(one.entry for one in later)
        go_on.set()
        workers.finish()
    assert found == [tasks]


def test_a_batch_gives_back_its_cores_although_spark_has_ended() -> None:
    class Gone:
        def cache(self) -> Gone:
            return self

        def unpersist(self) -> None:
            raise ConnectionError("Spark has ended")

    divided, held = gate({"other": 0.5}), Held()
    assert held.tasks(divided.hold(entry("a"), 9, 2)) == 1
    held.hold(cast("Any", Gone()))
    with pytest.raises(ConnectionError):
        held.drop_all()
    assert divided._held["other"] == 0


def test_a_wait_for_cores_is_a_step_of_its_own() -> None:
    steps, held = begin_steps(), Held()
    held.tasks(gate({"other": 0.5}).hold(entry("a"), 9, 2))
    held.drop_all()
    assert set(steps.ended()) == {"wait"}
