"""What a process knows about tables in order to choose the order of their runs."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from cdc.capture.position_check import TopicFacts
from cdc.config import TableSettings
from cdc.errors import KafkaError
from cdc.kafka import Since
from cdc.run.commits import run_entry
from cdc.run.context import RunResult
from cdc.run.cost import PRIOR
from cdc.run.overdue import note_freshness
from cdc.run.predictions import Predictions
from cdc.store.attempt import Attempt
from cdc.store.error_record import ErrorRecord
from cdc.store.state_store import Store
from cdc.store.table_state import CommitSummary, State
from schemas.table import TableId
from tests.records import ORDERS, table_record

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
AT = NOW.timestamp()
COMMIT = CommitSummary({0: 100}, "0/9", NOW, "20260102000000000", NOW)
RECORD = table_record(last_commit=COMMIT)
SETTINGS = TableSettings(freshness_target_s=60, max_events_per_run=1000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path}/state.db")


def result(seconds: float, upto: int = 1100, **facts: object) -> RunResult:
    known = RunResult(
        *(ORDERS, State.INCREMENTAL, 1),
        offsets={0: upto},
        seconds=seconds,
        started_at=NOW + timedelta(minutes=upto),
    )
    return replace(known, **facts)  # type: ignore[arg-type]


def test_a_turn_is_cut_where_its_run_cuts_it(store: Store) -> None:
    """A commit in a turn has fewer events than the settings allow, if events take long."""
    predictions = Predictions(store)
    for number in range(40):
        upto = 100 + 100_000 * (1 + number % 2)
        predictions.learn(RECORD, result(0.0001 * (upto - 100), upto))
    settings = TableSettings(freshness_target_s=60, max_events_per_run=1_000_000)
    fits = predictions.events_of_turn(ORDERS, 30.0)
    assert fits == pytest.approx(300_000, rel=0.2)
    demand = predictions.demand(RECORD, settings, {0: 1_000_100}, 30.0)
    assert demand.seconds == pytest.approx(30.0, rel=0.2)
    assert demand.seconds + demand.rest == pytest.approx(100.0, rel=0.2)
    assert predictions.events_of_turn(ORDERS, math.inf) is None
    assert predictions.demand(RECORD, settings, {0: 1_000_100}, math.inf).rest == 0.0


def test_a_wait_for_cores_is_no_work_of_the_table(store: Store) -> None:
    """Else commits would become so small that no batch waits, and then large again."""
    learned = []
    for waited in (0.0, 50.0):
        predictions = Predictions(store)
        for number in range(40):
            upto = 100 + 100_000 * (1 + number % 2)
            seconds = 0.0001 * (upto - 100) + waited
            predictions.learn(RECORD, result(seconds, upto, steps={"wait": waited}))
        learned.append(predictions.events_of_turn(ORDERS, 30.0))
    assert learned[0] == learned[1]


def test_the_span_of_a_runs_events_is_that_of_the_watermarks(store: Store) -> None:
    predictions = Predictions(store)
    rates = []
    for number in range(9):
        at, mark = NOW + timedelta(seconds=number), NOW + timedelta(seconds=1000)
        predictions.learn(RECORD, result(1.0, 100_100, started_at=at, watermark=mark))
        rates.append(predictions.rate(ORDERS))
    assert rates[-1] == pytest.approx(100.0, rel=0.1), "100,000 events in 1,000 s"


def test_what_was_noted_by_a_clock_that_was_set_back_is_forgotten(store: Store) -> None:
    predictions = Predictions(store)
    predictions.note_whole(ORDERS, AT + 3600.0)
    assert (predictions.fresh_at(RECORD), predictions.knows(ORDERS)) == (AT + 3600.0, True)
    predictions.forget_whole()
    assert (predictions.fresh_at(RECORD), predictions.knows(ORDERS)) == (AT, False)


def test_a_quiet_table_with_a_new_event_is_not_late_in_a_new_process(store: Store) -> None:
    """Its last commit is hours old, and until a moment ago there was nothing to commit."""
    asked = list[tuple[str, float]]()

    class Kafka:
        def since(self, times: dict[str, datetime]) -> dict[str, dict[int, Since]]:
            """Records came 15, 45 and 300 s ago; offset 100 is the first of them in each topic."""
            asked.extend((topic, now - at.timestamp()) for topic, at in times.items())
            came = {"quiet": 15.0, "soon": 45.0, "backlog": 300.0, "silent": 15.0}
            return {
                topic: {0: Since(150 if came[topic] > now - at.timestamp() else 100, 150)}
                for topic, at in times.items()
                if topic != "silent"
            }

    predictions, now = Predictions(store), AT + 3 * 3600.0
    records = {
        name: replace(RECORD, table=TableId("shop", "public", name), topic=name)
        for name in ("quiet", "soon", "backlog", "silent")
    }
    tables = {one.table: (one, 60.0) for one in records.values()}
    for _ in range(2):
        note_freshness(cast("Any", Kafka()), predictions, tables, now)
    ages = {name: now - predictions.fresh_at(one) for name, one in records.items()}
    assert ages == {"quiet": 30.0, "soon": 60.0, "backlog": now - AT, "silent": now - AT}
    first = [(name, 30.0) for name in records]
    again = [("soon", 60.0), ("backlog", 60.0)]
    assert asked == [*first, *again, ("silent", 30.0)], "once, but for the topic without an answer"


def test_costs_are_learned_and_outlive_the_process(store: Store) -> None:
    predictions = Predictions(store)
    assert predictions.estimate(ORDERS) == PRIOR
    for number in range(40):  # the first ten count as slower
        done = result(8.0, 1100 + number)
        cost = predictions.learn(RECORD, done)
        store.record_run(run_entry("run", RECORD, done), cost)
    found = predictions.estimate(ORDERS)
    assert found.seconds(1000) == pytest.approx(8.0, rel=0.2)
    again = Predictions(store).estimate(ORDERS)
    assert again.seconds(1000) == pytest.approx(found.seconds(1000), rel=0.1)
    assert predictions.rate(ORDERS) > 0
    assert len(store.costs()) == 1
    other = replace(ORDERS, name="other")
    assert Predictions(store).estimate(other).commit_s > 3.0, "as the other tables"


def test_runs_that_failed_or_did_nothing_teach_nothing(store: Store) -> None:
    predictions = Predictions(store)
    error = ErrorRecord.of(KafkaError("away", remedy="Wait."))
    assert predictions.learn(RECORD, result(9.0, error=error)) is None
    assert predictions.learn(RECORD, result(9.0, commits=0)) is None
    assert predictions.learn(table_record(), result(9.0)) is None


def test_a_backlog_is_more_than_its_next_run(store: Store) -> None:
    predictions = Predictions(store)
    topic = TopicFacts("T1", {0: 0}, {0: 1_000_100})
    turn = predictions.entry(RECORD, SETTINGS, topic, 30.0)
    whole = predictions.entry(RECORD, SETTINGS, topic, math.inf)
    assert turn.seconds == 30.0
    assert turn.rest == pytest.approx(whole.seconds - 30.0)
    assert whole.seconds == pytest.approx(PRIOR.seconds(1_000_000, 1000))
    large = TableSettings(max_events_per_run=1_000_000)
    assert predictions.entry(RECORD, large, topic, 30.0).seconds == pytest.approx(30.0)
    slow = TopicFacts("T1", {0: 0}, {0: 60_100})
    predictions.learn(RECORD, result(4000.0, 100_100))
    smallest = predictions.entry(RECORD, large, slow, 1.0)
    assert smallest.seconds == predictions.estimate(ORDERS).seconds(50_000), "one commit is whole"


def test_before_its_first_commit_a_table_lacks_what_came_since_its_copy_began(
    store: Store,
) -> None:
    attempt = Attempt(UUID(int=1), NOW, "p", start_offsets={0: 100}, handoff_offsets={0: 105})
    topic = TopicFacts("T1", {0: 0}, {0: 110})
    entry = Predictions(store).entry(table_record(attempt=attempt), SETTINGS, topic, 30.0)
    assert entry.behind == 10


def test_the_deadline_is_that_of_the_oldest_event_which_may_be_missing(store: Store) -> None:
    predictions = Predictions(store)
    topic = TopicFacts("T1", {0: 0}, {0: 101})
    assert predictions.entry(RECORD, SETTINGS, topic, 30.0).deadline == AT + 60.0
    predictions.note_whole(ORDERS, AT + 500.0)
    predictions.note_whole(ORDERS, AT + 400.0)
    entry = predictions.entry(RECORD, SETTINGS, topic, 30.0)
    assert (entry.deadline, entry.ran_at, entry.failing) == (AT + 560.0, AT, False)
    failed = replace(RECORD, state=State.FAILED, updated_at=NOW + timedelta(minutes=1))
    entry = predictions.entry(failed, None, KafkaError("away", remedy="Wait."), 30.0)
    assert (entry.failing, entry.ran_at, entry.target_s) == (True, AT + 60.0, 900.0)
