"""Questions to the leaders of tables' topics, beside offsets, and their effect on the tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest

from cdc.capture.position_check import TopicFacts
from cdc.capture.topic_facts import cut_off, still_in_topic
from cdc.errors import KafkaError, LostHistoryError
from cdc.kafka import KnownRecord, ReachedOffset
from cdc.lake.commit import CommitRecord
from cdc.lake.timeline import Committed
from cdc.run import RunContext
from cdc.store.attempt import Attempt
from cdc.store.state_store import Store
from cdc.store.table_state import CommitSummary, LastRecord, State, TableRecord
from schemas.table import TableId
from tests.records import table_record

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
NAMES = ("orders", "lines", "logs")
SILENT = KafkaError("no answer", remedy="Wait.")


class Kafka:
    """A fake Kafka with given answers, which keeps the questions that it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, str | KafkaError] = {}
        self.calls: list[list[ReachedOffset]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.asked: list[list[KnownRecord]] = []
        self.there: dict[str, str | KafkaError] = {}

    def truncated(
        self, logs: Iterable[ReachedOffset], *, timeout_s: float | None = None
    ) -> dict[ReachedOffset, str | KafkaError | None]:
        self.calls.append(list(logs))
        self.meanwhile()
        return {one: self.answers.get(one.topic) for one in self.calls[-1]}

    def replaced(
        self, known: Iterable[KnownRecord], *, timeout_s: float | None
    ) -> dict[KnownRecord, str | KafkaError | None]:
        self.asked.append(list(known))
        return {one: self.there.get(one.topic) for one in self.asked[-1]}


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(f"sqlite:///{tmp_path / 'state.db'}")
    for name in NAMES:
        found.put(record(name))
    return found


@pytest.fixture
def context(kafka: Kafka, store: Store) -> RunContext:
    unused = cast(Any, None)
    return RunContext(
        unused, unused, store, cast(Any, kafka), unused, {}, unused, unused, run_id="run"
    )


def record(name: str) -> TableRecord:
    return table_record(
        table=TableId("shop", "public", name),
        base_path="file:///lake",
        topic=name,
        updated_at=NOW,
        attempt=Attempt(uuid.uuid4(), NOW, "file:///lake/a", topic_id="T1"),
        last_commit=CommitSummary({0: 5}, None, None, "20260101000000000", NOW, epochs={0: 3}),
    )


def due(context: RunContext, epoch: int) -> set[str]:
    """The names of idle tables for which a look finds work, while all leaders have this epoch."""
    topics = {name: TopicFacts("T1", {0: 0}, {0: 5}, {0: epoch}) for name in NAMES}
    return {table.name for table in cut_off(context, context.store.tables(), topics)}


def test_only_a_cut_makes_an_idle_table_due(
    context: RunContext, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    assert due(context, 3) == set()
    assert kafka.calls == [[]], "the same leader keeps what it has"
    kafka.answers = {"orders": "ends at 4", "lines": SILENT}
    assert due(context, 4) == {"orders"}
    assert {*kafka.calls[-1]} == {ReachedOffset(name, 0, 5, 3) for name in NAMES}, "in one call"
    assert "1 partitions of idle tables were not checked" in caplog.text
    assert due(context, 4) == {"orders"}
    assert {one.topic for one in kafka.calls[-1]} == {"orders", "lines"}, "logs has answered"


def test_a_leader_is_asked_once_and_the_next_one_again(context: RunContext, kafka: Kafka) -> None:
    assert due(context, 4) == due(context, 4) == set()
    assert [len(logs) for logs in kafka.calls] == [3, 0]
    kafka.answers = {"logs": "ends at 2"}
    assert due(context, 5) == {"logs"}


def test_no_other_process_asks_a_leader_again(context: RunContext, kafka: Kafka) -> None:
    assert due(context, 4) == due(replace(context, run_id="next"), 4) == set()
    assert [len(logs) for logs in kafka.calls] == [3, 0]


def test_what_someone_else_wrote_of_a_table_stays(
    context: RunContext, kafka: Kafka, store: Store
) -> None:
    def paused_meanwhile() -> None:
        store.put(replace(one_of(store, "orders"), state=State.PAUSED))

    kafka.meanwhile = paused_meanwhile
    assert due(context, 4) == set()
    epochs = {one.table.name: one.last_commit and one.last_commit.epochs for one in store.tables()}
    assert epochs == {"orders": {0: 3}, "lines": {0: 4}, "logs": {0: 4}}
    assert one_of(store, "orders").state is State.PAUSED


def one_of(store: Store, name: str) -> TableRecord:
    found = store.get(TableId("shop", "public", name))
    assert found is not None
    return found


LAST = LastRecord(4, 1_767_225_600_000)


def test_each_process_asks_once_whether_idle_topics_have_the_last_record_that_was_read(
    context: RunContext, kafka: Kafka, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A restored cluster can have the same epochs and end offsets as before, with other records."""
    for name in NAMES:
        read_to(store, name, LAST)
    kafka.there = {"orders": "the record at offset 4 is another one", "lines": SILENT}
    assert due(context, 3) == {"orders"}
    assert [len(one) for one in kafka.asked] == [3], "in one call"
    assert "1 partitions of idle tables were not asked for the last record read" in caplog.text
    kafka.there = {}
    assert due(context, 3) == set()
    assert {one.topic for one in kafka.asked[-1]} == {"orders", "lines"}, "logs has answered"
    assert due(context, 3) == set()
    assert len(kafka.asked) == 2, "an idle table costs nothing per look"
    read_to(store, "logs", LastRecord(4, LAST.sent_ms + 1))
    assert due(context, 3) == set()
    assert kafka.asked[2:] == [[KnownRecord("logs", 0, 4, LAST.sent_ms + 1)]]


@pytest.mark.parametrize("found", ["the record at offset 4 is another one", SILENT, None])
def test_a_run_goes_on_only_from_the_record_that_the_lake_has_read_last(
    context: RunContext, kafka: Kafka, found: str | KafkaError | None
) -> None:
    orders = record("orders")
    commit = CommitRecord(
        kind="run",
        table=orders.table,
        attempt="a",
        offsets={0: 5},
        epochs={0: 3},
        topic_id="T1",
        last_records={0: LAST},
    )
    latest, now = Committed("1", "commit", commit), TopicFacts("T1", {0: 0}, {0: 9}, {0: 3})
    kafka.there = {} if found is None else {"orders": found}
    if found is None:
        assert still_in_topic(context, orders, latest, now).record.last_records == {0: LAST}
        return
    expected = KafkaError if found is SILENT else LostHistoryError
    with pytest.raises(expected, match=str(found)):
        still_in_topic(context, orders, latest, now)


def read_to(store: Store, name: str, last: LastRecord) -> None:
    """Let a table's last commit name the last record that was read."""
    known = one_of(store, name)
    assert known.last_commit is not None
    store.put(replace(known, last_commit=replace(known.last_commit, last_records={0: last})))
