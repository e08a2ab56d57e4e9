"""Tables run side by side without waiting for each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from cdc.run import workers as workers_module
from cdc.run.context import RunResult
from cdc.run.schedule import Rules
from cdc.run.workers import DEFERRED_S, Work, Workers
from cdc.store.table_state import State
from tests.unit.cdc.run.waiting_work import WAIT_S, work


class Runs:
    """Fake runs, each of which lasts until the test opens its gate."""

    def __init__(self) -> None:
        self.gates: dict[str, threading.Event] = {}
        self.began: list[str] = []
        self.upto = 9

    def __call__(self, one: Work, _worker: int) -> RunResult:
        gate = self.gates.setdefault(one.table.name, threading.Event())
        self.began.append(one.table.name)
        assert gate.wait(WAIT_S)
        return RunResult(one.table, State.INCREMENTAL, commits=1, offsets={0: self.upto})

    def let_go(self, name: str) -> None:
        self.gates.setdefault(name, threading.Event()).set()


@contextmanager
def opened(runs: Callable[[Work, int], RunResult], count: int, **rules: Any) -> Iterator[Workers]:
    workers = Workers(Rules(count, **rules), runs)
    try:
        yield workers
    finally:
        for gate in getattr(runs, "gates", {}).values():
            gate.set()
        workers.close()


def eventually(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, "it never happens"
        threading.Event().wait(0.005)


def names(results: list[RunResult]) -> list[str]:
    return [one.table.name for one in results]


def test_small_tables_run_again_and_again_while_another_one_runs() -> None:
    runs = Runs()
    with opened(runs, 2) as workers:
        runs.let_go("small")
        workers.offer([work("giant", seconds=30.0)])
        eventually(lambda: "giant" in runs.began)
        for _ in range(3):
            assert workers.begin_round() == {work("giant").table}
            workers.offer([work("small"), work("giant")])
            eventually(lambda: names(workers.results()) == ["small"])
        assert runs.began.count("giant") == 1, "a table that runs does not begin again"


def test_a_round_leaves_out_what_ran_since_it_began() -> None:
    """The round's facts on such a table can be older than the table's last commit."""
    runs = Runs()
    with opened(runs, 1) as workers:
        workers.offer([work("one")])
        eventually(lambda: runs.began)
        workers.begin_round()
        runs.let_go("one")
        eventually(lambda: names(workers.results()) == ["one"])
        workers.finish()
        workers.offer([work("one")])
        assert not workers.busy
        assert workers.untouched([work("one").record, work("two").record])[0].table.name == "two"
        workers.begin_round()
        workers.offer([work("one")])
        assert names(workers.finish()) == ["one"]


def test_a_round_replaces_what_waits_but_not_what_only_a_look_finds() -> None:
    runs = Runs()
    with opened(runs, 1) as workers:
        workers.offer([work("first")])
        eventually(lambda: runs.began)
        workers.begin_round()
        workers.offer([work("found", found=True), work("usual")])
        workers.begin_round()
        workers.offer([work("next")])
        for name in ("first", "found", "usual", "next"):
            runs.let_go(name)
        assert sorted(names(workers.finish())) == ["first", "found", "next"]


def test_a_table_that_began_and_ended_within_a_round_is_left_to_the_next() -> None:
    """The table's run began and ended after the round began, so the round's facts may be old."""
    runs = Runs()
    with opened(runs, 1) as workers:
        workers.offer([work("first"), work("second")])
        eventually(lambda: runs.began)
        first, second = sorted(("first", "second"), key=lambda name: name not in runs.began)
        workers.begin_round()
        runs.let_go(first)
        runs.let_go(second)
        assert names(workers.finish()) == [first, second]
        workers.offer([work(second)])
        assert not workers.busy
        assert names(workers.finish()) == []
        assert runs.began == [first, second]


def test_a_look_at_idle_tables_replaces_what_the_last_look_found() -> None:
    runs = Runs()
    with opened(runs, 1) as workers:
        workers.offer([work("first")])
        eventually(lambda: runs.began)
        workers.begin_round(looks=True)
        workers.offer([work("usual")])
        workers.offer_found([work("found", found=True), work("changed", found=True)])
        workers.begin_round(looks=True)
        changed = work("changed")
        changed = replace(changed, entry=replace(changed.entry, behind=3))
        workers.offer([work("usual"), changed])
        workers.offer_found([work("other", found=True)])
        for name in ("first", "found", "changed", "usual", "other"):
            runs.let_go(name)
        assert sorted(names(workers.finish())) == ["changed", "first", "other", "usual"]


def test_a_look_that_takes_longer_than_a_round_leaves_out_what_ran_since_it_began() -> None:
    runs = Runs()
    for name in ("one", "two"):
        runs.let_go(name)
    with opened(runs, 1) as workers:
        workers.begin_round(looks=True)
        workers.offer([work("one")])
        assert names(workers.finish()) == ["one"]
        workers.begin_round()
        workers.offer([])
        records = [work(name).record for name in ("one", "two")]
        assert [one.table.name for one in workers.untouched(records)] == ["two"]
        workers.offer_found([work("one", found=True), work("two", found=True)])
        assert names(workers.finish()) == ["two"]


def test_a_shard_that_was_deferred_in_a_round_waits_on() -> None:
    """A round that reads its facts before the deferral does not offer the shard again."""
    tried = list[str]()

    def run(one: Work, _worker: int) -> RunResult:
        tried.append(one.table.name)
        return RunResult(one.table, State.INCREMENTAL, deferred=True)

    with opened(run, 1) as workers:
        workers.begin_round()
        shard = work("shard", lake="/lake")
        workers.offer([shard])
        eventually(lambda: tried)
        workers.results()
        workers.offer([shard])
        assert workers.busy


def test_what_a_look_finds_grows_old_while_it_waits() -> None:
    """An idle table has all events, so each look would take it for as fresh as can be.

    In a busy fleet the found table would never run: tables with events are always older.
    """
    runs, order = Runs(), list[str]()
    for name in ("found", "busy"):
        runs.let_go(name)

    def aged(one: Work, age: float) -> Work:
        deadline = time.time() + (1.0 - age) * 900.0
        return replace(one, entry=replace(one.entry, deadline=deadline))

    with opened(runs, 1) as workers:
        workers.offer([work("first")])
        eventually(lambda: runs.began)
        workers.begin_round()
        workers.offer_found([aged(work("found", found=True), 0.2)])
        workers.begin_round(looks=True)
        workers.offer([aged(work("busy"), 0.1)])
        workers.offer_found([aged(work("found", found=True), 0.0)])
        workers.begin_round()
        workers.offer([aged(work("busy"), 0.1), aged(work("found"), 0.0)])
        runs.let_go("first")
        order = names(workers.finish())
    assert order == ["first", "found", "busy"]


def test_close_drops_what_waits_and_finishes_what_runs() -> None:
    runs = Runs()
    with opened(runs, 1) as workers:
        workers.offer([work("first"), work("second")])
        eventually(lambda: runs.began)
        (began,) = runs.began
        threading.Timer(0.05, runs.let_go, (began,)).start()
        workers.close()
        assert names(workers.results()) == [began]


def test_a_table_that_ended_its_turn_early_makes_the_next_round_come_at_once() -> None:
    runs = Runs()
    with opened(runs, 1) as workers:
        runs.let_go("one")
        workers.offer([work("one")])
        workers.finish()
        assert not workers.has_more
        runs.upto = 5
        workers.begin_round()
        workers.offer([work("one")])
        workers.finish()
        assert workers.has_more
        workers.begin_round()
        assert not workers.has_more


def test_rounds_leave_most_of_the_time_to_the_tables_that_run() -> None:
    runs = Runs()
    with opened(runs, 1) as workers:
        assert workers.interval(5.0, 0.6) == 5.0
        workers.offer([work("one"), work("two")])
        assert workers.busy
        assert workers.interval(5.0, 0.05) == pytest.approx(5.0)
        assert workers.interval(5.0, 2.0) == pytest.approx(10.0)
        assert workers.interval(0.1, 0.0) == pytest.approx(0.2)
        runs.upto = 5
        runs.let_go("one")
        eventually(lambda: workers.has_more)
        assert workers.interval(5.0, 0.05) == pytest.approx(0.25)


def test_an_error_of_a_worker_ends_the_command() -> None:
    def broken(_work: Work, _worker: int) -> RunResult:
        raise ConnectionError("the JVM has ended")

    with opened(broken, 2) as workers:
        workers.offer([work("one"), work("two")])
        with pytest.raises(ConnectionError, match="the JVM has ended"):
            workers.finish()


class Shards:
    """Fake runs of shards, whose lake table another process holds, and of other tables."""

    def __init__(self) -> None:
        self.held = True
        self.began: list[tuple[str, bool]] = []

    def __call__(self, one: Work, _worker: int) -> RunResult:
        self.began.append((one.table.name, one.deferred))
        result = RunResult(one.table, State.INCREMENTAL, commits=1, offsets={0: 9})
        if one.entry.lake is None or not self.held:
            return result
        return replace(result, commits=0, skipped=True, deferred=True, warnings=("held by 7",))


def test_a_shard_that_waits_for_another_process_gives_its_worker_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers_module, "FIRST_DEFERRAL_S", 0.3)
    monkeypatch.setattr(workers_module, "_LOOK_S", 0.05)
    shards = Shards()
    with opened(shards, 1, ends=True) as workers:
        workers.offer([work("shard", lake="/lake/orders"), work("other")])
        eventually(lambda: ("other", False) in shards.began)
        assert workers.busy, "the shard comes again"
        shards.held = False
        results = workers.finish()
    assert sorted(shards.began, key=str) == [("other", False), ("shard", False), ("shard", True)]
    of_shard = [one for one in results if one.table.name == "shard"]
    assert [one.commits for one in of_shard] == [0, 1]
    assert of_shard[0].warnings[0] == "held by 7"
    assert "the next try is in" in of_shard[0].warnings[1]
    assert of_shard[1].after(of_shard[0]).commits == 1


def test_the_other_shards_of_a_lake_table_that_is_held_wait_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each of a thousand shards would occupy a worker for one useless try."""
    monkeypatch.setattr(workers_module, "_LOOK_S", 0.05)
    shards = Shards()
    names = [f"shard{n}" for n in range(20)]
    with opened(shards, 2) as workers:
        workers.offer([work(name, lake="/lake/orders") for name in names])
        eventually(lambda: shards.began)
        workers.offer([*(work(name, lake="/lake/orders") for name in names), work("other")])
        eventually(lambda: ("other", False) in shards.began)
        assert len(shards.began) <= 3
        workers.begin_round()
        workers.offer([work("free", lake="/lake/sales")])
        eventually(lambda: ("free", False) in shards.began)


def test_waits_for_another_process_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("cdc.run.workers.time.monotonic", lambda: clock[0])
    workers = Workers(Rules(1, ends=True), Shards())
    one, waits = work("shard", lake="/lake/orders"), list[float]()
    deferred = Shards()(one, 0)
    while workers._judged(one, deferred) != deferred:
        assert one.table in workers._waiting
        assert workers._schedule.waiting == []
        waits.append(workers._deferrals["/lake/orders"].until - clock[0])
        clock[0] += waits[-1]
    assert waits[:6] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert DEFERRED_S - 120.0 < sum(waits) <= DEFERRED_S
    workers._judged(one, replace(deferred, deferred=False, commits=1))
    assert workers._deferrals == {}, "the next wait is short again"
    workers.close()


def test_the_shards_of_one_lake_table_wait_together_and_give_up_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr("cdc.run.workers.time.monotonic", lambda: clock[0])
    workers = Workers(Rules(1, ends=True), Shards())
    waiting = [work(f"shard{n}", lake="/lake/orders") for n in range(20)]
    while waiting:
        one = waiting.pop(0)
        deferred = Shards()(one, 0)
        if workers._judged(one, deferred) != deferred:
            waiting.append(one)
        clock[0] = max(clock[0], workers._deferrals["/lake/orders"].until)
    assert DEFERRED_S - 120.0 < clock[0] <= DEFERRED_S
    workers.close()


def test_runs_that_are_deferred_at_one_time_are_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("cdc.run.workers.time.monotonic", lambda: clock[0])
    workers = Workers(Rules(4), Shards())
    shards = [work(f"shard{n}", lake="/lake/orders") for n in range(3)]
    for one in shards:
        workers._judged(one, Shards()(one, 0))
    assert workers._deferrals["/lake/orders"].until == 5.0
    for _ in range(100):
        clock[0] = workers._deferrals["/lake/orders"].until
        workers._waiting.clear()
        workers._judged(shards[0], Shards()(shards[0], 0))
        assert [*workers._waiting] == [shards[0].table], "continuous runs never give up"
    assert clock[0] > 2 * DEFERRED_S
    workers.close()


@pytest.mark.parametrize(("lake", "comes"), [("/lake/orders", False), (None, True)])
def test_a_deferred_run_does_not_make_the_next_round_come_at_once(
    lake: str | None, comes: bool
) -> None:
    done: list[RunResult] = []

    def run(one: Work, _worker: int) -> RunResult:
        deferred = one.entry.lake is not None
        state = State.INCREMENTAL
        return RunResult(one.table, state, commits=1, offsets={0: 5}, deferred=deferred)

    with opened(run, 1) as workers:
        workers.offer([work("shard", lake=lake)])
        eventually(lambda: done.extend(workers.results()) or done)
        assert workers.has_more is comes
