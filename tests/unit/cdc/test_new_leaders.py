"""What new leaders of idle tables' topics are asked, and what becomes of the tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any, cast

import pytest

from cdc.attempt import Attempt
from cdc.errors import KafkaError
from cdc.kafka import Reached
from cdc.position_check import TopicFacts
from cdc.run import RunContext
from cdc.run.checks import cut_off
from cdc.state import CommitSummary, State, TableRecord
from schemas.table import TableId

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
NAMES = ("orders", "lines", "logs")
SILENT = KafkaError("no answer", remedy="Wait.")


class Kafka:
    """Leaders that answer as they are told to, and how often who was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, str | KafkaError] = {}
        self.calls: list[list[Reached]] = []

    def truncated(
        self, logs: Iterable[Reached], *, timeout_s: float
    ) -> dict[Reached, str | KafkaError | None]:
        self.calls.append(list(logs))
        return {one: self.answers.get(one.topic) for one in self.calls[-1]}


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def context(kafka: Kafka) -> RunContext:
    unused = cast(Any, None)
    return RunContext(
        unused, unused, unused, cast(Any, kafka), unused, {}, unused, unused, run_id="run"
    )


def record(name: str) -> TableRecord:
    return TableRecord(
        table=TableId("shop", "public", name),
        state=State.INCREMENTAL,
        base_path="file:///lake",
        tier="default",
        topic=name,
        publication="p",
        updated_at=NOW,
        attempt=Attempt(uuid.uuid4(), NOW, "file:///lake/a", topic_id="T1"),
        last_commit=CommitSummary({0: 5}, None, None, "20260101000000000", NOW, epochs={0: 3}),
    )


def due(context: RunContext, epoch: int) -> set[str]:
    """The idle tables that a look finds work for while leaders of an epoch lead."""
    idle = [record(name) for name in NAMES]
    topics = {name: TopicFacts("T1", {0: 0}, {0: 5}, {0: epoch}) for name in NAMES}
    return {table.name for table in cut_off(context, idle, topics)}


def test_only_a_cut_makes_an_idle_table_due(
    context: RunContext, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    assert due(context, 3) == set()
    assert kafka.calls == [[]], "the same leader keeps what it has"
    kafka.answers = {"orders": "ends at 4", "lines": SILENT}
    assert due(context, 4) == {"orders"}
    assert kafka.calls[-1] == [Reached(name, 0, 5, 3) for name in NAMES], "in one call"
    assert "1 partitions of idle tables were not checked" in caplog.text
    assert due(context, 4) == {"orders"}
    assert [one.topic for one in kafka.calls[-1]] == ["orders", "lines"], "logs has answered"


def test_a_leader_is_asked_once_and_the_next_one_again(context: RunContext, kafka: Kafka) -> None:
    assert due(context, 4) == due(context, 4) == set()
    assert [len(logs) for logs in kafka.calls] == [3, 0]
    kafka.answers = {"logs": "ends at 2"}
    assert due(context, 5) == {"logs"}
