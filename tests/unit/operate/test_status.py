"""The age of a table in `status`, and the captures that `status`, `check` and metrics show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import pytest
import yaml

from cdc.capture.captured_tables import captures_of
from cdc.config import parse
from cdc.debezium import CaptureNames
from cdc.errors import KafkaError
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt, CopyView
from cdc.store.kept_task_looks import TaskLook
from cdc.store.lease import Lease, held_leases
from cdc.store.table_state import CaptureRecord, CommitSummary, State, TableRecord, TierCapture
from operate import status as module
from operate.check import _capture
from operate.context import Services
from operate.metrics.facts import Facts
from operate.metrics.families import families
from operate.server_answers import Answers, CaptureAnswer
from operate.status import Status, TableStatus
from tests.records import table_record
from tests.unit.cdc.capture.capture_evidence import without_connector
from tests.unit.cdc.configuration import minimal

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def shown(
    services: Services,
    committed_at: datetime,
    *,
    end: int,
    watermark: datetime | None = None,
    state: State = State.INCREMENTAL,
) -> TableStatus:
    """The status of a table that has applied 7 offsets of its topic."""
    commit = CommitSummary({0: 7}, "0/9", watermark, "20260102110000000", committed_at)
    record = table_record(state=state, last_commit=commit)
    look = module._SharedFacts(NOW, {record.topic: {0: end}}, None, {}, {}, {}, {}, {})
    return module._table_status(services, look, record, None)


def test_a_table_whose_first_events_nobody_applies_becomes_late(services: Services) -> None:
    """No event was between O and H, so the commits of the table's copy have no watermark."""
    waiting = shown(services, NOW - HOUR, end=9)
    assert (waiting.watermark, waiting.freshness_s, waiting.events_behind) == (None, 3600.0, 2)
    assert waiting.late
    assert not shown(services, NOW - timedelta(seconds=9), end=9).late


def copied(view_at: datetime, **attempt: object) -> TableRecord:
    """The record of a table that was copied, and that no run has committed to."""
    offsets = {"start_offsets": {0: 7}, "handoff_offsets": {0: 8}} | attempt
    view = CopyView("", "0/9", view_at, on_replica=True, system_identifier=None, timeline=None)
    at = view_at - timedelta(seconds=9)
    whole = Attempt(UUID(int=1), at, "p", view=view, **offsets)  # type: ignore[arg-type]
    return table_record(state=State.INCREMENTAL, attempt=whole)


def test_a_copied_table_that_no_run_continues_becomes_late(services: Services) -> None:
    """No runs were scheduled; until a run commits, the age counts from the copy's view."""

    def of(record: TableRecord, end: int, beat: datetime | None = None) -> TableStatus:
        beats = {(record.table.source, record.tier): beat}
        look = module._SharedFacts(NOW, {record.topic: {0: end}}, None, {}, {}, beats, {}, {})
        return module._table_status(services, look, record, None)

    waiting = of(copied(NOW - HOUR), 9)
    assert (waiting.watermark, waiting.freshness_s, waiting.events_behind) == (None, 3600.0, 2)
    assert waiting.late
    assert not of(copied(NOW - timedelta(seconds=9)), 9).late
    idle = of(copied(NOW - HOUR), 7)
    assert (idle.freshness_s, idle.events_behind, idle.late) == (None, 0, False)
    assert of(copied(NOW - HOUR), 7, NOW).watermark == NOW, "a heartbeat proves that it is whole"
    copying = of(copied(NOW - HOUR, handoff_offsets=None), 9)
    assert (copying.freshness_s, copying.events_behind) == (None, None)


def test_an_idle_table_is_fresh_also_without_transactions(tmp_path: Path) -> None:
    """`connect.exactly_once: false` made every table late that had no change for its target."""
    document = minimal()
    document["connect"] = {**document.get("connect", {}), "exactly_once": False}
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    commit = CommitSummary({0: 7}, "0/9", NOW - HOUR, "20260102110000000", NOW - HOUR)
    record = table_record(state=State.INCREMENTAL, last_commit=commit)
    beats = {(record.table.source, record.tier): NOW}
    look = module._SharedFacts(NOW, {record.topic: {0: 7}}, None, {}, {}, beats, {}, {})
    idle = module._table_status(opened, look, record, None)
    assert (idle.freshness_s, idle.late) == (0.0, False)
    assert idle.watermark == NOW - HOUR, "no proof that the lake is complete until now"
    opened.close()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_topic_that_was_deleted_makes_no_table_fresh(
    tmp_path: Path, *, exactly_once: bool
) -> None:
    """Somebody deleted the topic, the connector created it again, and no run has looked yet."""
    document = minimal()
    document["connect"] = {**document.get("connect", {}), "exactly_once": exactly_once}
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    commit = CommitSummary({0: 7}, "0/9", NOW - HOUR, "20260102110000000", NOW - HOUR)
    record = table_record(state=State.INCREMENTAL, last_commit=commit)
    beats = {(record.table.source, record.tier): NOW}
    look = module._SharedFacts(NOW, {record.topic: {0: 3}}, None, {}, {}, beats, {}, {})
    cut = module._table_status(opened, look, record, None)
    assert (cut.events_behind, cut.freshness_s, cut.late) == (None, 3600.0, True)
    assert any(f"topic {record.topic} ends at offset 3" in note for note in cut.notes)
    opened.close()


def test_a_table_without_a_watermark_that_lacks_nothing_is_not_late(services: Services) -> None:
    idle = shown(services, NOW - HOUR, end=7)
    assert (idle.freshness_s, idle.late) == (None, False)


def test_lateness_that_is_allowed_makes_no_table_late(tmp_path: Path) -> None:
    document = minimal() | {"tables": {"*": {"allowed_lateness_s": 7200, "freshness_target_s": 60}}}
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    try:
        for age_s, late in ((7210, False), (7270, True), (5, False)):
            watermark = NOW - timedelta(seconds=age_s)
            found = shown(opened, NOW - HOUR, end=9, watermark=watermark)
            assert (found.freshness_s, found.late) == (max(0, age_s - 7200), late)
    finally:
        opened.close()


def test_a_topic_that_cannot_be_read_hides_no_other(services: Services) -> None:
    commit = CommitSummary({0: 7}, "0/9", NOW, "20260102110000000", NOW)
    away = KafkaError("topic left has a partition without a leader", remedy="")
    ends = {"led": {0: 9}, "left": away}
    look = module._SharedFacts(NOW, ends, None, {}, {}, {}, {}, {}, brief=True)

    def of(topic: str) -> TableStatus:
        record = table_record(topic=topic, last_commit=commit)
        return module._table_status(services, look, record, None)

    assert (of("led").events_behind, of("led").notes) == (2, ())
    assert of("left").events_behind is None
    assert of("left").notes == (f"the number of events behind is unknown: {away.message}",)


@pytest.mark.parametrize("generation", [1, 2])
def test_a_copy_that_nobody_continues_needs_a_bootstrap_if_the_table_has_readers(
    services: Services, generation: int
) -> None:
    record = table_record(state=State.CATCHING_UP, generation=generation)

    def look() -> module._SharedFacts:
        held = held_leases(services.store)
        return module._SharedFacts(NOW, {}, None, {}, {}, {}, {}, {}, held)

    copying = Lease(services.store, record.table, "another process")
    copying.acquire()
    assert not Status((module._table_status(services, look(), record, None),), ()).needs_bootstrap
    copying.release()
    now = Status((module._table_status(services, look(), record, None),), ())
    assert now.needs_bootstrap is (generation == 2)
    again = table_record(state=State.REGISTERED, generation=generation)
    assert not module._table_status(services, look(), again, None).abandoned


def test_a_watermark_counts_whatever_the_time_of_the_commit(services: Services) -> None:
    behind = shown(services, NOW - HOUR, end=9, watermark=NOW - timedelta(seconds=5))
    assert (behind.freshness_s, behind.late) == (5.0, False)


FAST = TierCapture("fast", "shop_fast.public.orders", CaptureRecord("shop_fast", "c2", "p2", "s2"))


def test_behind_an_end_that_is_not_judged_no_heartbeat_counts(services: Services) -> None:
    attempt = Attempt(UUID(int=1), NOW, "p", start_offsets={0: 0})
    commit = CommitSummary({0: 7}, "0/9", NOW - HOUR, "20260102110000000", NOW - HOUR)
    record = table_record(last_commit=commit, attempt=attempt)
    names = services.capture_of(record)

    def of(look: TaskLook) -> TableStatus:
        place, tasks = (names.source, names.tier), {names.connector: look}
        ends, evidence = {record.topic: {0: 7}}, {place: without_connector(names)}
        shared = module._SharedFacts(
            *(NOW, ends, None, {}, evidence, {place: NOW}, {}, tasks), brief=True
        )
        return module._table_status(services, shared, record, None)

    judged = TaskLook("a", NOW, {})
    assert (of(judged).watermark, of(judged).notes) == (NOW, ())
    waiting = of(replace(judged, postponed={record.topic: NOW}))
    assert waiting.watermark == NOW - HOUR
    assert "is not judged yet" in waiting.notes[0]


class Asked(Answers):
    """Fake answers of servers that have no connectors any more."""

    def capture(self, names: CaptureNames) -> CaptureAnswer:
        return CaptureAnswer(without_connector(names), NOW, None)

    def connectors(self) -> list[str]:
        return []

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        return {}


def test_the_capture_of_an_unfinished_move_is_shown_with_its_tables(services: Services) -> None:
    """The new capture's slot retains the primary's log while the copy takes hours or was killed."""
    record = services.store.put(table_record(other=FAST))
    found = module.status(services, (), answers=Asked(services), brief=True)
    default, fast = found.captures
    assert (default.tier, default.moving) == ("default", ())
    assert "move" not in str(default.problem).partition("which creates it")[2]
    assert (fast.tier, fast.connector, fast.moving) == ("fast", "missing", (record.table,))
    assert "there is no connector c2" in str(fast.problem)
    assert f"the move of {record.table}, which has not ended" in str(fast.problem)
    assert fast.to_json()["moving"] == [str(record.table)]
    assert found.failed
    assert found.tables[0].lost is None, "runs go on with the table"

    metrics = families(services.config, Facts({}, NOW, 0.5, found, None, {}))
    shown = {
        one.name.removeprefix("tributary_"): one.value
        for family in metrics
        for one in family.samples
        if one.labels == {"source": "shop", "tier": "fast"}
    }
    assert (shown["connector_up"], shown["log_retained_bytes"]) == (0, 500)
    assert shown["heartbeat_timestamp_seconds"] == NOW.timestamp()
    assert shown["capture_problem"] == 1


def test_check_names_the_move_that_a_capture_is_for(services: Services) -> None:
    record = table_record(other=FAST)
    _, fast = captures_of(services.config, [record])
    lines = _capture(services, without_connector(fast.names), fast, [record])
    (line,) = (one for one in lines if one.status == "error" and one.name == "connector c2")
    assert f"the move of {record.table}, which has not ended" in line.detail
    assert f"Then run `tributary move {record.table}`" in line.remedy
