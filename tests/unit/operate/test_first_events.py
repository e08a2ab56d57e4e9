"""The age of a table whose topic has events that the lake does not have yet."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
import yaml

from cdc.config import parse
from cdc.debezium import CaptureNames
from cdc.errors import KafkaError, RegistryError
from cdc.kafka import KafkaRecord, Since
from cdc.runtime.progress import NullProgress
from cdc.runtime.waiting import wait_while
from cdc.store.attempt import Attempt
from cdc.store.quarantine import Quarantine, Quarantined
from cdc.store.table_state import CommitSummary, State
from operate import first_events
from operate.context import Services
from operate.server_answers import Answers, CaptureAnswer
from operate.status import Status, TableStatus, status
from schemas.errors import UnknownSchemaError
from schemas.table import TableId
from tests.records import ORDERS, table_record
from tests.unit.cdc.capture.capture_evidence import without_connector
from tests.unit.cdc.configuration import minimal

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
TARGET_S = 900
EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "ts_ms", "type": "long"}],
            },
        }
    ],
}


def now() -> datetime:
    return datetime.now(timezone.utc)


def event(at: datetime) -> bytes:
    """The value of an event whose source time is ``at``."""
    body = io.BytesIO()
    value = {"source": {"ts_ms": int(at.timestamp() * 1000)}}
    fastavro.schemaless_writer(body, fastavro.parse_schema(EVENT), value)
    return b"\0\0\0\0\4" + body.getvalue()


@dataclass
class Registry:
    """A fake registry with the events' schema under id 4; it raises ``error`` if that is set."""

    error: Exception | None = None

    def schema(self, schema_id: int) -> str:
        if schema_id != 4:
            raise UnknownSchemaError(f"no schema {schema_id}", remedy="Restore the registry.")
        if self.error is not None:
            raise self.error
        return json.dumps(EVENT)


@dataclass
class Kafka:
    """Topics with one record each; ``asked`` has the offsets from which records were read."""

    records: dict[str, KafkaRecord] = field(default_factory=dict)
    asked: list[dict[str, tuple[int, int]]] = field(default_factory=list)
    error: Exception | None = None

    def first_records(
        self, ranges: Mapping[str, tuple[int, int]], *, timeout_s: float
    ) -> dict[str, KafkaRecord]:
        self.asked.append(dict(ranges))
        if self.error is not None:
            raise self.error
        return {topic: self.records[topic] for topic in ranges if topic in self.records}

    def since(self, times: Mapping[str, datetime]) -> dict[str, dict[int, Since]]:
        found: dict[str, dict[int, Since]] = {}
        for topic, at in times.items():
            one = self.records.get(topic)
            if one is not None and one.timestamp is not None:
                offset = one.offset + (one.timestamp < at)
                found[topic] = {0: Since(offset, one.offset + 1)}
        return found

    def put(self, topic: str, at: datetime, sent: datetime | None = None) -> None:
        """Put an event of ``at`` into a topic. Connect sends it at ``sent``, or a second later."""
        sent = at + timedelta(seconds=1) if sent is None else sent
        self.records[topic] = KafkaRecord(topic, 0, 7, b"k", event(at), sent)


class Asked(Answers):
    """Fake answers of servers: each topic ends at offset 8, and a heartbeat has just come."""

    def capture(self, names: CaptureNames) -> CaptureAnswer:
        return CaptureAnswer(without_connector(names), now(), None)

    def connectors(self) -> list[str]:
        return []

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        return {topic: {0: 8} for topic in topics}


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def services(tmp_path: Path, kafka: Kafka) -> Iterator[Services]:
    document = minimal() | {"tables": {"*": {"freshness_target_s": TARGET_S}}}
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    opened.__dict__["kafka"], opened.__dict__["registry"] = kafka, Registry()
    yield opened
    opened.close()


def put(
    services: Services,
    table: TableId = ORDERS,
    *,
    age: timedelta = 10 * HOUR,
    state: State = State.INCREMENTAL,
    committed: bool = True,
) -> str:
    """Put a table into the store; its last commit, up to offset 6, is as old as ``age``.

    If ``committed`` is False, the table has no commit; its copy is as old and began at offset 7.
    """
    at, topic = now() - age, f"shop.{table.name}"
    commit = CommitSummary({0: 7}, "0/9", at, "20260102110000000", at)
    attempt = Attempt(UUID(int=1), at, "p", start_offsets={0: 7}, handoff_offsets={0: 7})
    last = commit if committed else None
    services.store.put(table_record(table, state, topic=topic, last_commit=last, attempt=attempt))
    return topic


def shown(services: Services, answers: Answers | None = None) -> Status:
    return status(services, (), answers=answers or Asked(services), brief=True)


def only(services: Services, answers: Answers | None = None) -> TableStatus:
    (found,) = shown(services, answers).tables
    return found


def age_of(found: TableStatus) -> float:
    assert found.freshness_s is not None
    return found.freshness_s


def test_an_idle_table_with_one_new_event_is_as_old_as_the_event(
    services: Services, kafka: Kafka
) -> None:
    """Before, a table was as old as its last commit, and raised alarms after an idle night."""
    kafka.put(put(services), now() - MINUTE)
    found = only(services)
    assert found.events_behind == 1
    assert 60 <= age_of(found) < 90
    assert not found.late
    assert found.watermark is not None
    assert found.watermark < now() - MINUTE, "the event itself is not in the lake"


def test_a_copied_table_with_one_new_event_is_as_old_as_the_event(
    services: Services, kafka: Kafka
) -> None:
    kafka.put(put(services, committed=False), now() - MINUTE)
    found = only(services)
    assert found.record.last_commit is None
    assert 60 <= age_of(found) < 90


def test_a_table_whose_first_event_waits_for_long_is_late(services: Services, kafka: Kafka) -> None:
    kafka.put(put(services), now() - HOUR)
    found = shown(services)
    (table,) = found.tables
    assert 3600 <= age_of(table) < 3630
    assert table.late
    assert [(one.cause, one.tables) for one in found.targets] == [("runs", (ORDERS,))]


def test_an_event_that_connect_sent_late_is_as_old_as_its_change(
    services: Services, kafka: Kafka
) -> None:
    """After Connect was down for a night, the lake lacks a change of three hours ago."""
    kafka.put(put(services), now() - 3 * HOUR, sent=now() - MINUTE)
    assert 3 * 3600 <= age_of(only(services)) < 3 * 3600 + 30


def test_an_event_that_is_dated_ahead_counts_from_when_connect_sent_it(
    services: Services, kafka: Kafka
) -> None:
    kafka.put(put(services), now() + 24 * HOUR, sent=now() - HOUR)
    assert 3600 <= age_of(only(services)) < 3630


def test_an_event_from_before_the_last_commit_makes_no_table_older(
    services: Services, kafka: Kafka
) -> None:
    kafka.put(put(services, age=HOUR), now() - 24 * HOUR)
    assert 3600 <= age_of(only(services)) < 3630


def test_only_tables_that_would_be_late_are_asked(services: Services, kafka: Kafka) -> None:
    put(services, age=MINUTE)
    assert 60 <= age_of(only(services)) < 90
    assert kafka.asked == []


def test_an_event_is_read_once_while_the_table_has_no_new_commit(
    services: Services, kafka: Kafka
) -> None:
    topic, answers = put(services), Asked(services)
    kafka.put(topic, now() - MINUTE)
    for _ in range(3):
        assert not only(services, answers).late
    assert kafka.asked == [{topic: (7, 8)}]


def test_many_tables_are_read_in_turns(services: Services, kafka: Kafka) -> None:
    for number in range(250):
        kafka.put(put(services, TableId("shop", "public", f"t{number}")), now() - MINUTE)
    answers = Asked(services)
    late = [sum(one.late for one in shown(services, answers).tables) for _ in range(3)]
    assert late == [50, 0, 0]
    assert [len(one) for one in kafka.asked] == [200, 50]


def test_events_that_cannot_be_read_keep_no_other_from_being_read(
    services: Services, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_events, "MOST", 2)
    for name in ("a", "b", "good"):
        kafka.put(put(services, TableId("shop", "public", name)), now() - MINUTE)
    for topic in ("shop.a", "shop.b"):
        kafka.records[topic] = KafkaRecord(topic, 0, 7, b"k", b"\0\0\0\0\5body", now())
    answers = Asked(services)
    late = [{one.record.table.name for one in shown(services, answers).tables if one.late}]
    late += [{one.record.table.name for one in shown(services, answers).tables if one.late}]
    assert late == [{"a", "b", "good"}, {"a", "b"}]


@pytest.mark.parametrize("away", ["kafka", "registry", "no record", "no value", "no event"])
def test_what_cannot_be_read_leaves_the_age_of_the_last_commit(
    services: Services, kafka: Kafka, away: str
) -> None:
    topic = put(services)
    kafka.put(topic, now() - MINUTE)
    if away == "kafka":
        kafka.error = KafkaError("no broker", remedy="Wait.")
    elif away == "registry":
        error = RegistryError("no registry", remedy="Wait.")
        services.__dict__["registry"] = Registry(error)
    elif away == "no record":
        kafka.records.clear()
    else:
        value = None if away == "no value" else b"text"
        kafka.records[topic] = KafkaRecord(topic, 0, 7, b"k", value, now())
    assert age_of(only(services)) >= 10 * 3600


def test_a_registry_that_is_away_is_asked_again(services: Services, kafka: Kafka) -> None:
    kafka.put(put(services), now() - MINUTE)
    answers = Asked(services)
    services.__dict__["registry"].error = RegistryError("no registry", remedy="Wait.")
    assert only(services, answers).late
    services.__dict__["registry"].error = None
    assert not only(services, answers).late


def test_an_event_without_a_schema_hides_no_other(services: Services, kafka: Kafka) -> None:
    first, second = (TableId("shop", "public", name) for name in ("a", "b"))
    for table in (first, second):
        kafka.put(put(services, table), now() - MINUTE)
    kafka.records["shop.a"] = KafkaRecord("shop.a", 0, 7, b"k", b"\0\0\0\0\5body", now())
    late = {one.record.table: one.late for one in shown(services).tables}
    assert late == {first: True, second: False}


def test_a_slow_registry_does_not_hold_status(
    services: Services, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.put(put(services), now() - MINUTE)
    monkeypatch.setattr(first_events, "_LOOK_S", 0.2)
    go_on = threading.Event()

    def schema(_id: int) -> str:
        go_on.wait(30.0)
        return json.dumps(EVENT)

    services.__dict__["registry"].schema = schema
    answers, began = Asked(services), time.monotonic()
    try:
        assert only(services, answers).late
        assert time.monotonic() - began < 10.0
    finally:
        go_on.set()
    wait_while(lambda: only(services, answers).late, timeout_s=10.0, poll_s=0.1)
    assert not only(services, answers).late


def test_the_watermark_stays_before_the_first_record_in_quarantine(
    services: Services, kafka: Kafka
) -> None:
    topic = put(services)
    kafka.put(topic, now() - MINUTE)
    left_out = Quarantined(
        *(ORDERS, str(UUID(int=1)), topic, None, 0, 5, None, "bad", now(), 3, "r1", now()),
        key=b"k",
        value=b"v",
    )
    Quarantine(services.store).keep([left_out])
    found = only(services)
    assert (found.quarantined, age_of(found) >= 10 * 3600) == (1, True)
    assert kafka.asked == []


def test_a_table_that_no_run_follows_is_not_asked(services: Services, kafka: Kafka) -> None:
    kafka.put(put(services, state=State.PAUSED), now() - MINUTE)
    assert age_of(only(services)) >= 10 * 3600
    assert kafka.asked == []
