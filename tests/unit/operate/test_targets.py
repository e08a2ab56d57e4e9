"""Which freshness targets are missed or cannot be kept, and the messages about them."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
import yaml

from cdc.config import Config, parse
from cdc.kafka import Since
from cdc.run.commits import run_entry
from cdc.run.context import RunResult
from cdc.run.cost import Estimate
from cdc.run.overdue import Held, Missing, overdue
from cdc.run.predictions import Predictions
from cdc.run.schedule import REST, Rules
from cdc.store.attempt import Attempt
from cdc.store.state_store import Store
from cdc.store.table_state import CommitSummary, State, TableRecord
from operate.cli.status import show_status
from operate.conditions import Condition
from operate.needs import Capacity, Need, need_of
from operate.render import Renderer
from operate.status import Status, TableStatus
from operate.targets import (
    PLANNED,
    POSSIBLE,
    Late,
    Shortfall,
    of_tables,
    short_lanes,
    shortfalls,
    shortfalls_now,
    with_bursts,
)
from schemas.table import TableId
from tests.records import table_record
from tests.unit.cdc.configuration import minimal

COST = Estimate(commit_s=2.0, event_s=0.001)
NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
EIGHT = Capacity("workers", 8)


def table(name: str) -> TableId:
    return TableId("shop", "public", name)


def need(name: str, rate: float, *, target: float = 100.0, tier: str = "default") -> Need:
    """The work of a table with this rate of events, if a commit takes 2 s and an event 1 ms."""
    return need_of(table(name), tier, target, COST, rate)


def shown(found: list[Shortfall]) -> list[tuple[str, bool, list[str]]]:
    return [(one.cause, one.missed, [t.name for t in one.tables]) for one in found]


def test_targets_that_are_kept_are_not_named() -> None:
    assert shortfalls([need("a", 1.0), need("b", 0.0)], Rules(2), PLANNED) == []


def test_a_table_that_needs_more_than_a_worker_is_its_own_cause() -> None:
    needs = [need("hot", 900.0), need("calm", 1.0)]
    (found,) = shortfalls(needs, Rules(8), PLANNED)
    assert shown([found]) == [("table", False, ["hot"])]
    assert found.message == (
        "freshness target of shop:public.hot cannot be kept, by prediction: table"
        " shop:public.hot needs 0.93 of one worker by itself, 0.90 for its changes alone"
    )
    assert "a longer target does not help" in found.remedy
    assert shortfalls(needs, Rules(8), POSSIBLE) == [], "a worker of its own keeps it"
    often = need("often", 1.0, target=1.0)
    (found,) = shortfalls([often], Rules(8), POSSIBLE, {often.table: Late(5, 9.0, 3.0)})
    assert (found.cause, found.missed) == ("table", True)
    assert found.remedy == "set its freshness_target_s to at least 3"
    assert shortfalls([need("often", 1.0, target=3.0)], Rules(8), POSSIBLE) == []


def test_too_few_workers_are_told_with_the_load() -> None:
    needs = [need(f"t{n}", 1.0, target=20.0) for n in range(20)] + [need("idle", 0.0)]
    late = {table("t3"): Late(5, 9.0, 3.0), table("idle"): Late(1, 2.0, 3.0)}
    missed, coming = shortfalls(needs, Rules(2), PLANNED, late)
    assert shown([missed]) == [("workers", True, ["t3", "idle"])]
    assert (coming.missed, len(coming.tables)) == (False, 19)
    assert missed.reason == "the tables need 126% of 2 workers"
    assert missed.remedy.startswith("1.8 times the cores, with spark.parallel_tables: 4, or ")
    assert "freshness_target_s of all tables 1.8 times as long" in missed.remedy
    assert missed.message.startswith("freshness targets of shop:public.t3, shop:public.idle are")


def test_too_few_cores_are_named_although_the_workers_seem_to_suffice() -> None:
    """The costs are those of tables that ran alone: eight at a time would take longer on two cores.

    By the clock, eight workers do this in 53 % of their time; the cores need 212 % of theirs.
    """
    alone = Estimate(commit_s=0.8, event_s=0.0, cpu=1.0)
    needs = [need_of(table(f"t{n}"), "bulk", 100.0, alone, 1.0) for n in range(424)]
    assert shortfalls(needs, Rules(8), POSSIBLE) == [], "the number of cores is not known"
    (found,) = shortfalls(needs, Rules(8), POSSIBLE, cores=2)
    assert (found.cause, len(found.tables)) == ("cores", 424)
    assert found.reason == "the tables need 212% of 2 cores"
    assert found.remedy.startswith("2.1 times the cores, 5 in all, or freshness_target_s of all")
    assert shortfalls(needs, Rules(8), POSSIBLE, cores=8) == []
    rules = Rules(8, {"critical": 0.1})
    critical = [replace(one, tier="critical") for one in needs[:100]]
    share, rest = shortfalls([*critical, *needs[100:]], rules, POSSIBLE, cores=2)
    assert (share.cause, rest.cause) == ("share", "share")
    assert share.reason.startswith("tier critical needs 50% of 2 cores, and can have 10%")


def test_a_lane_that_lacks_workers_is_named_beside_one_that_lacks_cores() -> None:
    quick = Estimate(commit_s=0.8, event_s=0.0, cpu=2.0)
    slow = Estimate(commit_s=0.8, event_s=0.0, cpu=0.2)
    critical = [need_of(table(f"c{n}"), "critical", 100.0, quick, 1.0) for n in range(100)]
    rest = [need_of(table(f"r{n}"), "", 100.0, slow, 1.0) for n in range(190)]
    found = shortfalls([*critical, *rest], Rules(2, {"critical": 0.5}), POSSIBLE, cores=2)
    assert [(one.cause, len(one.tables)) for one in found] == [("share", 190), ("share", 100)]
    assert found[0].reason.startswith("the tiers without a pool_share need 95% of 2 workers")
    assert found[1].reason.startswith("tier critical needs 100% of 2 cores, and can have 81%")


def test_one_hot_table_does_not_make_all_others_short() -> None:
    """One hot table uses one worker at most."""
    found = shortfalls([need("hot", 9000.0), need("calm", 1.0)], Rules(8), POSSIBLE)
    assert shown(found) == [("table", False, ["hot"])]


def test_the_tier_is_named_whose_share_is_too_small() -> None:
    critical = [need(f"c{n}", 1.0, target=20.0, tier="critical") for n in range(7)]
    bulk = [need(f"b{n}", 1.0, target=20.0) for n in range(16)]
    rules = Rules(2, {"critical": 0.5})
    (found,) = shortfalls([*critical, *bulk], rules, POSSIBLE)
    assert (found.cause, len(found.tables)) == ("share", 16)
    assert found.reason == (
        "the tiers without a pool_share need 101% of 2 workers, and can have 56% beside the other"
        " tiers"
    )
    assert found.remedies[0] == "a lower pool_share of other tiers"
    tight = Rules(2, {"critical": 0.2, "bulk": 0.8})
    bulk = [replace(one, tier="bulk") for one in bulk[:12]]
    (found,) = shortfalls([*critical, *bulk], tight, POSSIBLE)
    assert [one.name for one in found.tables] == [one.table.name for one in critical]
    assert found.remedies[0] == "a higher tiers.critical.pool_share than 0.2, at their cost"


@pytest.mark.parametrize(
    ("loads", "parts"),
    [
        ({"a": 0.4, REST: 0.5}, {}),
        ({"a": 0.9, REST: 0.05}, {}),
        ({"a": 0.2, REST: 0.9}, {REST: 0.8}),
        ({"a": 0.9, REST: 0.9}, {"a": 0.5, REST: 0.5}),
        ({"a": 0.3, "b": 0.9, REST: 0.9}, {"b": 0.35, REST: 0.35}),
    ],
)
def test_what_a_lane_does_not_need_is_lent_to_the_others(
    loads: dict[str, float], parts: dict[str, float]
) -> None:
    shares = {"a": 0.5} if "b" not in loads else {"a": 0.4, "b": 0.3}
    assert short_lanes(loads, Rules(4, shares), 1.0) == pytest.approx(parts)


def test_late_tables_that_should_be_kept_say_what_they_wait_for() -> None:
    needs = [need(name, 0.01) for name in ("behind", "too", "quiet")]
    late = {
        table("behind"): Late(2_000_000, 600.0, 10.0),
        table("too"): Late(100, 60.0, 10.0),
        table("quiet"): Late(1, 1.0, 7200.0),
    }
    runs, backlog = shortfalls(needs, Rules(2), POSSIBLE, late)
    assert shown([runs, backlog]) == [
        ("runs", True, ["quiet"]),
        ("backlog", True, ["behind", "too"]),
    ]
    assert runs.reason == "no commit for longer than the target, at most for 2 h 0 min"
    assert "run --continuous" in runs.remedy
    assert backlog.reason == (
        "2,000,100 changes that are older than the target wait; they take 11 min 0 s by prediction"
    )
    assert backlog.to_json()["message"] == backlog.message


class Topics:
    """A fake cluster with the first offset since a time, and the end of the readable records."""

    def __init__(self, stable: int = 1_000, **first: dict[int, int]) -> None:
        self.stable, self.first = stable, first
        self.asked: list[dict[str, datetime]] = []

    def since(self, times: dict[str, datetime]) -> dict[str, dict[int, Since]]:
        self.asked.append(times)
        return {
            name: {n: Since(offset, self.stable) for n, offset in self.first[name].items()}
            for name in times
            if name in self.first
        }


def followed(name: str, state: State = State.INCREMENTAL) -> TableRecord:
    """A table whose last commit ends at offset 100."""
    commit = CommitSummary({0: 100}, "0/9", NOW, "20260102000000000", NOW)
    return table_record(table(name), state, topic=name, last_commit=commit)


def copied() -> TableRecord:
    """A table whose copy began at offset 99, and that no run has committed to."""
    attempt = Attempt(UUID(int=1), NOW, "p", start_offsets={0: 99}, handoff_offsets={0: 101})
    return table_record(table("copied"), topic="copied", attempt=attempt)


def test_tables_that_lack_old_changes_are_overdue() -> None:
    kafka = Topics(old={0: 103}, new={0: 100}, cut={0: 7}, copied={0: 103})
    tables = {t.table: (t, NOW) for t in map(followed, ("old", "new", "cut", "gone"))}
    tables[table("copied")] = (copied(), NOW)
    never = table_record(table("never"), topic="never")
    tables[never.table] = (never, NOW)
    late = {table("old"): Missing(3), table("copied"): Missing(4)}
    assert overdue(cast("Any", kafka), tables) == late
    assert kafka.asked == [dict.fromkeys(("old", "new", "cut", "gone", "copied"), NOW)]
    assert overdue(cast("Any", kafka), {}) == {}
    assert len(kafka.asked) == 1, "no call without tables"


@pytest.mark.parametrize(("stable", "held"), [(100, True), (102, True), (103, False)])
def test_a_hanging_transaction_makes_a_table_late_and_is_named(
    tmp_path: Path, stable: int, held: bool
) -> None:
    """A record older than the target, at offset 102, cannot be read."""
    known = config(tmp_path)
    predictions = Predictions(Store(f"sqlite:///{tmp_path}/state.db"))
    kafka, records = Topics(stable, old={0: 103}), [followed("old")]
    (found,) = shortfalls_now(
        known, cast("Any", kafka), predictions, records, freshness, datetime.now(timezone.utc)
    )
    assert shown([found]) == [("transaction" if held else "runs", True, ["old"])]
    assert (f"nobody can read topic old from offset {stable} on" in found.reason) is held
    place = "--topic old --partition 0"
    assert (f"find-hanging {place}" in found.remedy) is held
    assert (f"abort {place} --start-offset {stable}" in found.remedy) is held
    assert ("tributary verify shop:public.old" in found.remedy) is held


def test_a_table_behind_a_hanging_transaction_is_named_once() -> None:
    late = {table("a"): Late(3, 1.0, 10.0, (Held("a", 0, 5),)), table("b"): Late(3, 1.0, 10.0)}
    found = shortfalls([need("a", 5000.0), need("b", 0.01)], Rules(2), POSSIBLE, late)
    assert [one for one in shown(found) if one[1]] == [
        ("transaction", True, ["a"]),
        ("backlog", True, ["b"]),
    ]
    assert [one.cause for one in found if table("a") in one.tables] == ["transaction"]


def config(tmp_path: Path, **tables: dict[str, Any]) -> Config:
    named = {f"public.{name}": settings for name, settings in tables.items()}
    return parse(yaml.safe_dump(minimal() | {"tables": named}), base=tmp_path)


def freshness(_: TableRecord) -> float:
    """The time up to which each table is complete: always `NOW`, which is long ago."""
    return NOW.timestamp()


def test_only_tables_that_runs_follow_are_judged(tmp_path: Path) -> None:
    known = config(tmp_path, bad={"mode": "append"})
    predictions = Predictions(Store(f"sqlite:///{tmp_path}/state.db"))
    records = [followed("old"), copied(), followed("paused", State.PAUSED), followed("bad")]
    kafka = Topics(old={0: 103}, copied={0: 103}, paused={0: 103}, bad={0: 103})
    found = shortfalls_now(
        known, cast("Any", kafka), predictions, records, freshness, datetime.now(timezone.utc)
    )
    assert shown(found) == [("runs", True, ["old", "copied"])]
    assert [[*asked] for asked in kafka.asked] == [["old", "copied"]]
    assert of_tables(found, {table("old"), table("copied"), table("other")}) == found
    assert of_tables(found, {table("other")}) == []
    assert (
        shortfalls_now(
            known,
            cast("Any", kafka),
            predictions,
            records,
            lambda _: math.inf,
            datetime.now(timezone.utc),
        )
        == []
    )
    assert len(kafka.asked) == 1, "no call for tables that are whole"


def test_tables_that_are_loaded_once_a_night_do_not_fill_the_day() -> None:
    """Three thousand of them at staggered hours: 5 % of eight workers, and not 104 %."""
    night = 120_000 / 86_400
    nightly = [need_of(table(str(n)), "", 900.0, COST, night / 1000, 120.0) for n in range(3000)]
    assert EIGHT.load(with_bursts(nightly, {})) < 0.05
    slow = Late(1, 1.0, 1.0)
    assert EIGHT.load(with_bursts(nightly, {table("0"): slow})) < 0.05, "one of them is stuck"
    late = {one.table: slow for one in nightly[::2]}
    held = dict.fromkeys(late, replace(slow, held=(Held("t", 0, 1),)))
    assert EIGHT.load(with_bursts(nightly, held)) < 0.05, "a Kafka transaction is open"
    assert EIGHT.load(with_bursts(nightly, late)) > 1.0, "an overload can look like it"
    others = [need_of(table(f"idle {n}"), "", 900.0, COST, 0.0, 120.0) for n in range(6000)]
    assert EIGHT.load(with_bursts([*others, *nightly], late)) > 1.0, "idle tables prove nothing"
    (stuck, *_), whole = with_bursts(nightly, {table("0"): slow}), nightly[0]
    assert stuck == whole, "a late table can be one that waits for a worker"
    as_usual = [need_of(table(str(n)), "", 900.0, COST, night / 1000) for n in range(3000)]
    assert EIGHT.load(as_usual) > 1.0
    assert need_of(table("often"), "", 900.0, COST, 1.0, 1800.0).rare_load is None


def test_each_table_is_judged_by_its_own_target(tmp_path: Path) -> None:
    known = config(tmp_path, slow={"freshness_target_s": 7200})
    predictions = Predictions(Store(f"sqlite:///{tmp_path}/state.db"))
    records = [followed("usual"), followed("slow")]
    kafka = Topics()
    assert (
        shortfalls_now(
            known, cast("Any", kafka), predictions, records, freshness, datetime.now(timezone.utc)
        )
        == []
    )
    (asked,) = kafka.asked
    assert asked["usual"] - asked["slow"] == timedelta(seconds=7200 - 900)


def test_a_table_that_needs_too_much_is_named_before_it_is_late(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/state.db")
    predictions, hot = Predictions(store), followed("hot")
    for number in range(20):
        done = RunResult(
            *(hot.table, State.INCREMENTAL, 1),
            offsets={0: 100 + 60_000},
            seconds=90.0,
            started_at=NOW + timedelta(minutes=number),
        )
        store.record_run(run_entry("run", hot, done), predictions.learn(hot, done))
    known = config(tmp_path, hot={"freshness_target_s": 60})
    for knows in (predictions, Predictions(store)):
        found = shortfalls_now(known, cast("Any", Topics()), knows, [hot], lambda _: math.inf, NOW)
        assert shown(found) == [("table", False, ["hot"])]


def test_status_shows_targets_with_what_has_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    missed = Shortfall("runs", True, (table("old"),), "no commit", ("run", "wait"))
    found = Status((TableStatus(followed("old"), 3, NOW, 5000.0, 900),), (), targets=(missed,))
    show_status(Renderer(), found, named=False)
    told = capsys.readouterr().out
    assert "freshness target of shop:public.old is missed: no commit\n" in told
    assert "  What to do: run, or wait\n" in told
    assert found.to_json()["targets"] == [missed.to_json()]
    assert not found.failed, "only status --check counts it"
    assert found.conditions == {Condition.LATE: ["shop:public.old"]}
