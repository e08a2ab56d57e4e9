"""Whether the freshness targets can be kept, and what runs next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import yaml

from cdc.config import parse
from cdc.errors import KafkaError
from cdc.kafka import Since
from cdc.run.commits import run_entry
from cdc.run.context import RunResult
from cdc.run.cost import Estimate
from cdc.run.lane import Entry
from cdc.run.predictions import Predictions
from cdc.run.schedule import Rules
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from cdc.store.table_state import CommitSummary, State, TableRecord
from operate.capture_load import capture_loads
from operate.cli.forecast import show_forecast
from operate.context import Services
from operate.forecast import Forecast, forecast, order_of
from operate.needs import Need, need_of
from operate.render import Renderer
from schemas.table import TableId
from tests.records import table_record
from tests.unit.cdc.configuration import minimal

COST = Estimate(commit_s=2.0, event_s=0.001)


def entry(name: str, *, seconds: float = 2.0, wait: float = 100.0, target: float = 100.0) -> Entry:
    table = TableId("shop", "public", name)
    return Entry(table, "default", 1000.0 + wait + seconds, target, seconds)


def need(name: str, rate: float, *, target: float = 100.0, tier: str = "default") -> Need:
    """The work of a table with this rate of events, if a commit takes 2 s and an event 1 ms."""
    return need_of(TableId("shop", "public", name), tier, target, COST, rate)


def test_a_table_needs_its_commits_and_its_events() -> None:
    busy = need("busy", 100.0)
    assert (busy.commits_load, busy.events_load) == (pytest.approx(2.0 / 80.0), 0.1)
    rare = need("rare", 0.001)
    assert rare.load == pytest.approx(0.001 * 2.001), "no commit without events"
    assert need("idle", 0.0).load == 0.0


def test_targets_can_be_kept_up_to_the_load_of_the_simulations() -> None:
    found = Forecast(Rules(2), (need("a", 100.0), need("b", 100.0, tier="bulk")))
    assert found.kept
    assert found.load == pytest.approx(0.125)
    assert found.tiers == {"bulk": pytest.approx(0.0625), "default": pytest.approx(0.0625)}
    assert found.advice() == []


def test_what_has_to_change_is_named() -> None:
    needs = tuple(need(f"t{n}", 1.0, target=20.0) for n in range(20))
    found = Forecast(Rules(2), needs)
    assert not found.kept
    assert found.load == pytest.approx(1.26)
    assert found.advice() == [
        "the tables need 126% of 2 workers: 1.8 times the cores, with spark.parallel_tables: 4, or"
        " freshness_target_s of all tables 1.8 times as long, or for the tier default, which has"
        " 100% of the load, a longer target, or a job of its own for some of its tables"
    ]
    events = Forecast(Rules(2), tuple(need(f"t{n}", 400.0) for n in range(5)))
    assert [one.remedies[0][:14] for one in events.short] == ["1.5 times the "], "no target helps"
    alone = Forecast(Rules(8), (need("hot", 900.0),))
    assert (alone.kept, alone.load < 0.2) == (False, True)
    assert alone.to_json()["targets"][0]["tables"] == ["shop:public.hot"]


def test_the_load_is_that_of_the_cores_if_they_are_scarcer() -> None:
    needs = tuple(replace(need(f"t{n}", 1.0, target=20.0), cpu=1.2) for n in range(20))
    found = Forecast(Rules(8), needs, cores=2)
    assert not found.kept
    assert found.load == pytest.approx(1.512)
    assert found.tiers == {"default": pytest.approx(1.512)}
    assert found.advice()[0].startswith("the tables need 151% of 2 cores: 2.2 times the cores, 5")
    assert Forecast(Rules(8), needs, cores=0).kept, "the number of cores is not known"


def test_the_share_of_a_tier_is_no_advice_while_all_targets_can_be_kept() -> None:
    """A tier may use the workers that other tiers do not need, so its share is no limit then."""
    needs = tuple(need(f"t{n}", 1.0, target=20.0, tier="critical") for n in range(8))
    assert Forecast(Rules(2, {"critical": 0.1}), needs).kept


def test_the_next_runs_are_those_of_the_schedule() -> None:
    entries = [entry("young"), entry("urgent", wait=1.0), entry("old", wait=50.0)]
    found = order_of(entries, Rules(1), 1000.0, 2)
    assert [(table.name, at) for table, at in found] == [("urgent", 0.0), ("old", 2.0)]
    assert len(order_of(entries, Rules(1), 1000.0, 9)) == 3


def test_the_next_runs_are_those_of_tiers_with_their_shares() -> None:
    entries = [entry(f"t{n}", wait=20.0 + n) for n in range(4)]
    entries += [replace(entry(f"critical{n}", wait=90.0), tier="critical") for n in range(2)]
    alone = [table.name for table, _ in order_of(entries, Rules(1), 1000.0, 4)]
    assert alone == ["t0", "t1", "t2", "t3"]
    shared = order_of(entries, Rules(1, {"critical": 0.5}), 1000.0, 4)
    assert sum(table.name.startswith("critical") for table, _ in shared) == 2


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def test_the_plan_is_made_of_the_state_store_and_the_ends_of_topics(
    services: Services, tmp_path: Path
) -> None:
    now = datetime.now(timezone.utc)
    commit = CommitSummary({0: 100}, "0/9", now, "20260102000000000", now)
    for name in ("busy", "idle", "paused"):
        state = State.PAUSED if name == "paused" else State.INCREMENTAL
        record = table_record(TableId("shop", "public", name), state, topic=name)
        services.store.put(replace(record, last_commit=commit))
    busy = services.store.get(TableId("shop", "public", "busy"))
    assert busy is not None
    predictions = Predictions(services.store)
    for number in range(1, 3):
        result = RunResult(
            *(busy.table, State.INCREMENTAL, 1),
            offsets={0: 700},
            seconds=12.0,
            cpu_s=3.0,
            written_bytes=5_000,
            started_at=now + timedelta(minutes=5 * number),
        )
        entry = run_entry("run", busy, result)
        services.store.record_run(entry, predictions.learn(busy, result, cores=2))
    ends = {"busy": {0: 400}, "idle": {0: 100}}

    def ends_now(topics: list[str], *, committed: bool) -> dict[str, dict[int, int]]:
        return {one: ends[one] for one in topics}

    kafka = SimpleNamespace(ends_now=ends_now)
    services.__dict__["kafka"] = cast("Any", kafka)
    found = forecast(services, ())
    assert [(one.table.name, one.behind) for one in found.needs] == [("busy", 300), ("idle", 0)]
    busy_need, _ = found.needs
    assert busy_need.events_per_s == pytest.approx(2.0)
    assert (busy_need.cpu, busy_need.bytes_per_commit) == (pytest.approx(0.25), 5_000.0)
    assert [table.name for table, _ in found.order] == ["busy"]
    shown = found.to_json()
    assert (shown["kept"], shown["workers"], shown["cores"]) == (True, 8, 2)
    assert (shown["load_of"], len(shown["tables"])) == ("workers", 2)
    assert shown["captures"] == [
        {
            "connector": "tributary_shop_default",
            "events_per_s": pytest.approx(2.0),
            "most_per_s": 10_000,
            "load": pytest.approx(0.0002),
            "near": False,
            "heaviest": ["shop:public.busy", "shop:public.idle"],
        }
    ]
    later = table_record(TableId("billing", "public", "later"), topic="later")
    services.store.put(replace(later, last_commit=commit))
    ends["later"] = {0: 100}
    assert forecast(services, ()).captures == found.captures, "its source was configured since"
    idle = forecast(services, [TableId("shop", "public", "idle")])
    assert idle.order == ()
    assert idle.captures == found.captures, "other tables need the same connector"


def test_a_capture_near_its_limit_is_named_with_the_tables_to_move(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rates = {"a": 5000.0, "b": 1500.0, "c": 10.0, "d": 600.0, "other": 1.0}
    records = [table_record(TableId("shop", "public", name)) for name in rates]

    def connector(record: TableRecord) -> str:
        return "second" if record.table.name == "other" else "first"

    first, second = capture_loads(records, connector, lambda table: rates[table.name], 10_000)
    assert (first.load, first.near, second.near) == (0.711, True, False)
    assert [table.name for table in first.heaviest] == ["a", "b", "d"]
    show_forecast(Renderer(), Forecast(Rules(2), (), captures=(first, second)))
    shown = " ".join(capsys.readouterr().out.split())
    assert "connector first gets about 7,110 events a second, 71% of what one" in shown
    assert "most events: shop:public.a, shop:public.b, shop:public.d" in shown
    assert "connector second" not in shown


def test_a_plan_with_late_tables_is_not_kept(services: Services) -> None:
    """A backlog of ten hours, whose work the workers can do."""
    now = datetime.now(timezone.utc)
    old = now - timedelta(hours=10)
    commit = CommitSummary({0: 100}, "0/9", old, "20260102000000000", old)
    attempt = Attempt(UUID(int=1), old, "p", start_offsets={0: 0}, handoff_offsets={0: 1})
    late = table_record(
        TableId("shop", "public", "late"), State.INCREMENTAL, topic="late", attempt=attempt
    )
    services.store.put(replace(late, last_commit=commit))
    kafka = SimpleNamespace(
        ends_now=lambda topics, **_: {key: {0: 4000} for key in topics},
        since=lambda times: {topic: {0: Since(3900, 4000)} for topic in times},
    )
    services.__dict__["kafka"] = cast("Any", kafka)
    found = forecast(services, ())
    assert [(one.cause, one.missed) for one in found.short] == [("runs", True)]
    assert not found.kept
    services.__dict__["kafka"] = SimpleNamespace(
        ends_now=lambda topics, **_: dict.fromkeys(topics, KafkaError("away", remedy="Wait."))
    )
    unknown = forecast(services, ())
    assert (unknown.short, unknown.kept) == ([], False)
