"""One scrape of 3,000 tables: its requests, its metrics and its CPU time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from cdc.capture.evidence import CaptureEvidence
from cdc.config import parse
from cdc.errors import KafkaError
from cdc.kafka.topic_values import Since
from cdc.runtime.progress import NullProgress
from cdc.store.state_store import Store
from operate.context import Services
from operate.metrics import metric_definitions as m
from operate.metrics.exposing import Scrapes
from operate.metrics.facts import FactReader
from operate.metrics.text import as_text
from schemas.table import TableId
from tests.records import table_record
from tests.unit.operate.metrics.filled_store import attempt, document, fill, fill_more, statements

TABLES = 3_000
BOUND_S = 60.0
"""The limit for a scrape's answers, in seconds: long enough for a busy machine to get them all."""
asked = list[int]()
"""The number of topics in each request for the ends of topics."""
CPU_S = 10.0
"""The limit for a scrape's CPU time, in seconds: four times that of a scrape on two busy cores."""


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """Services whose state store has many tables, and whose Kafka knows where each topic ends.

    Connect and the source refuse connections at once.
    """
    monkeypatch.setenv("ADMIN_PW", "canary-admin")
    found = Services(parse(yaml.safe_dump(document(tmp_path))), NullProgress())

    def ends_now(topics: list[str], *, committed: bool) -> dict[str, dict[int, int]]:
        assert not committed
        asked.append(len(topics))
        return {topic: {0: 9} for topic in topics}

    def since(times: Mapping[str, datetime]) -> dict[str, dict[int, Since]]:
        return {topic: {0: Since(9, 9)} for topic in times}

    def no_look(*_: object) -> CaptureEvidence:
        raise KafkaError("the capture is not looked at", remedy="None")

    monkeypatch.setattr(found.kafka, "ping", lambda: ("c", 1))
    monkeypatch.setattr(found, "stream_evidence", no_look)
    monkeypatch.setattr(found.kafka, "ends_now", ends_now)
    monkeypatch.setattr(found.kafka, "since", since)
    sa.event.listen(found.store._engine, "connect", never_waits_for_the_disk)
    yield found
    found.close()


def never_waits_for_the_disk(connection: Any, _record: object) -> None:
    """Let SQLite not wait for the disk, since the test writes thousands of records one by one."""
    connection.execute("PRAGMA synchronous = OFF")


@contextmanager
def one_transaction(store: Store) -> Iterator[None]:
    """Write everything in one transaction: thousands of them would take most of the test's time."""
    with store._engine.begin() as connection, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "transaction", lambda: nullcontext(connection))
        yield


def test_a_scrape_of_three_thousand_tables_is_bounded(services: Services) -> None:
    fill(services)
    few = statements(services, BOUND_S)
    with one_transaction(services.store):
        fill_more(services, TABLES)
    many = list[str]()

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        many.append(statement)

    reader = FactReader(services, BOUND_S)
    scrapes = Scrapes(services.config, reader, cache_s=0.0, bound_s=2 * BOUND_S)
    as_text(scrapes.collect())
    sa.event.listen(services.store._engine, "before_cursor_execute", note)
    asked.clear()
    began = time.process_time()
    text = as_text(scrapes.collect()).decode()
    seconds = time.process_time() - began
    assert len(many) == len(few) <= 40, "with the figures of freshness and the forecast"
    assert asked == [TABLES + 2], "the forecast takes the ends that the status has read"
    names = [line.partition("{")[0] for line in text.splitlines() if line[0] != "#"]
    everywhere = (m.BEHIND, m.FRESHNESS, m.COMMIT_BYTES, m.RUN_SECONDS)
    for metric in everywhere:
        assert names.count(metric.full_name) >= TABLES, metric.full_name
    assert 25 * TABLES < len(names) < 52 * TABLES
    assert m.TIER_LOAD.full_name in names, "the forecast is there"
    assert seconds < CPU_S


def test_a_table_of_a_source_that_is_not_configured_hides_no_other(services: Services) -> None:
    """The table was onboarded after this process read its settings, or its source was removed."""
    fill(services)
    services.store.put(table_record(TableId("billing", "public", "t"), attempt=attempt(9)))
    facts = FactReader(services, BOUND_S).read()
    assert facts.status is not None
    assert len(facts.status.tables) == 3
    assert facts.forecast is not None
    assert [one.connector for one in facts.forecast.captures] == ["tributary_shop_default"]
