"""How old `status` says that a table is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml

from cdc.config import parse
from cdc.errors import KafkaError
from cdc.runtime.progress import NullProgress
from cdc.store.lease import Lease, held_leases
from cdc.store.table_state import CommitSummary, State
from operate import status as module
from operate.context import Services
from operate.status import Status, TableStatus
from tests.records import table_record
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
    return module._table(services, look, record, None)


def test_a_table_whose_first_events_nobody_applies_becomes_late(services: Services) -> None:
    """No event lay between O and H, so its copy's commits have no watermark."""
    waiting = shown(services, NOW - HOUR, end=9)
    assert (waiting.watermark, waiting.freshness_s, waiting.events_behind) == (None, 3600.0, 2)
    assert waiting.late
    assert not shown(services, NOW - timedelta(seconds=9), end=9).late


def test_a_table_without_a_watermark_that_lacks_nothing_is_not_late(services: Services) -> None:
    idle = shown(services, NOW - HOUR, end=7)
    assert (idle.freshness_s, idle.late) == (None, False)


def test_a_topic_that_cannot_be_read_hides_no_other(services: Services) -> None:
    commit = CommitSummary({0: 7}, "0/9", NOW, "20260102110000000", NOW)
    away = KafkaError("topic left has a partition without a leader", remedy="")
    ends = {"led": {0: 9}, "left": away}
    look = module._SharedFacts(NOW, ends, None, {}, {}, {}, {}, {}, brief=True)

    def of(topic: str) -> TableStatus:
        record = table_record(topic=topic, last_commit=commit)
        return module._table(services, look, record, None)

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
    assert not Status((module._table(services, look(), record, None),), ()).needs_bootstrap
    copying.release()
    now = Status((module._table(services, look(), record, None),), ())
    assert now.needs_bootstrap is (generation == 2)
    again = table_record(state=State.REGISTERED, generation=generation)
    assert not module._table(services, look(), again, None).abandoned


def test_a_watermark_counts_whatever_the_time_of_the_commit(services: Services) -> None:
    behind = shown(services, NOW - HOUR, end=9, watermark=NOW - timedelta(seconds=5))
    assert (behind.freshness_s, behind.late) == (5.0, False)
