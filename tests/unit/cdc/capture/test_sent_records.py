"""Whether a slot that is after Connect's stored position was moved by its own connector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.sent_records import (
    LATE_S,
    SentRecords,
    is_sent,
)
from cdc.debezium.task_streams import TaskStream
from cdc.errors import KafkaError
from cdc.log.position import Lsn
from cdc.sources.postgres.slot import NoSlot, SlotHealth
from cdc.store.late_commits import LateCommits
from cdc.store.state_store import Store
from cdc.store.tables import late_commit_rows
from schemas.table import TableId
from tests.records import table_record
from tests.unit.cdc.task_topics import NAMES, Registry, Sender, Topics

BEATS, ORDERS = NAMES.heartbeat_topic, "shop.public.orders"


@pytest.fixture
def sender() -> Sender:
    return Sender()


def slot(confirmed: int, *, active: bool = False) -> SlotHealth:
    return SlotHealth(
        "s", active, "reserved", Lsn(confirmed), Lsn(1), 0, None, Lsn(9_000), lambda: Lsn(9_000)
    )


def records(
    topics: Topics, store: Store | None = None, *, exactly_once: bool = False
) -> SentRecords:
    kept = store if store is not None else type("Empty", (), {"topics": lambda *_: []})()
    return SentRecords(
        cast("Any", kept),
        lambda: cast("Any", topics),
        lambda: cast("Any", Registry()),
        exactly_once=exactly_once,
    )


def problem(sender: Sender, stored: int, confirmed: int) -> str | None:
    """The problem that a look finds while no connector reads the slot, or None."""
    log = slot(confirmed)
    return log.problem(records(sender.topics).position(NAMES, log, Lsn(stored)))


def test_a_position_that_became_older_is_no_loss(sender: Sender) -> None:
    """A worker that was suspended stores its old position, although another worker has the task."""
    sender.send("a", 0, range(10, 200, 10))
    assert problem(sender, 100, 120) is None
    assert problem(sender, 100, 180) is None


def test_a_slot_that_was_created_again_or_advanced_by_a_stranger_has_lost_changes(
    sender: Sender,
) -> None:
    """Such a slot begins after everything that the connector has sent."""
    sender.send("a", 0, range(10, 200, 10))
    for confirmed in (186, 190, 500):
        assert "something other than the connector moved it" in (
            problem(sender, 100, confirmed) or ""
        )


def test_a_gap_is_found_although_the_connector_went_on_behind_it(sender: Sender) -> None:
    """Another reader has moved the slot between two tasks, and the second task was killed, too."""
    sender.send("a", 0, range(10, 110, 10))
    sender.send("b", 90, range(160, 260, 10))
    assert "something other than the connector moved it" in (problem(sender, 90, 150) or "")
    assert problem(sender, 90, 200) is not None
    assert problem(sender, 90, 95) is None, "task a has sent it"


def test_a_task_that_began_at_the_stored_position_counts(sender: Sender) -> None:
    sender.send("a", 0, range(10, 110, 10))
    sender.send("b", 50, range(60, 160, 10))
    assert problem(sender, 120, 140) is None
    assert problem(sender, 50, 120) is not None, "task b alone can have begun behind a gap"


def test_a_topic_shows_it_while_the_task_reads_a_backlog(sender: Sender, tmp_path: Path) -> None:
    """The task sends heartbeats only after the backlog, so the topic's records must show it."""
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    for name in ("orders", "idle"):
        table = TableId("shop", "public", name)
        store.put(table_record(table, topic=f"shop.public.{name}"))
    sender.send("a", 0, range(10, 60, 10), topic="shop.public.idle")
    sender.send("a", 50, range(60, 6_000, 10), topic=ORDERS, every_s=0.0)
    log, found = slot(5_500), records(sender.topics, store)
    assert found.position(NAMES, log, Lsn(5_000)) == Lsn(5_500)
    assert sender.topics.reads < 300, "a long topic is searched in halves"
    assert found.position(NAMES, slot(6_500), Lsn(5_000)) == Lsn(5_000)
    store.close()


def test_kafka_is_asked_only_if_the_two_differ_while_nothing_reads_the_slot() -> None:
    def opened() -> NoReturn:
        raise AssertionError("it was asked")

    def look(*, exactly_once: bool) -> SentRecords:
        return SentRecords(cast("Any", None), opened, opened, exactly_once=exactly_once)

    stored = Lsn(7)
    for log in (slot(7), slot(6), slot(8, active=True), NoSlot("s")):
        assert look(exactly_once=False).position(NAMES, log, stored) == stored
    assert look(exactly_once=False).position(NAMES, slot(8), None) is None
    with pytest.raises(AssertionError):
        look(exactly_once=False).position(NAMES, slot(8), stored)


def test_without_an_answer_of_kafka_nothing_is_known(sender: Sender) -> None:
    sender.topics.unread.add(BEATS)
    with pytest.raises(KafkaError, match="has no leader"):
        problem(sender, 5, 7)


def test_without_events_a_slot_that_was_moved_has_lost_changes(sender: Sender) -> None:
    assert problem(sender, 5, 7) is not None


@pytest.mark.parametrize(
    ("stream", "sent"),
    [
        (TaskStream(10, 20, 60), True),
        (TaskStream(10, 20, 50), True),
        (TaskStream(10, 20, 49), False),
        (TaskStream(10, 10, 60), False),
        (TaskStream(30, 30, 60), False),
        (TaskStream(10, 30, 60), True),
        (TaskStream(10, 31, 60), False),
    ],
)
def test_a_task_shows_that_all_was_sent(stream: TaskStream, *, sent: bool) -> None:
    assert is_sent(stream, Lsn(30), Lsn(50)) is sent


@st.composite
def lives(draw: st.DrawFn) -> tuple[Sender, int, int, bool]:
    """Random lives of a connector's tasks, between which another reader may advance the slot.

    A life has the sent events, the stored position, the confirmed position, and whether a
    transaction between these positions was not sent.
    """
    log = [10 * number for number in range(1, 60)]
    sender, stored, confirmed, before = Sender(), 0, 0, 0
    sent: set[int] = set()
    for number in range(draw(st.integers(1, 4))):
        if number and draw(st.booleans()):
            confirmed = max(confirmed, draw(st.sampled_from(log)))
        loaded = stored
        if draw(st.booleans()):
            stored = max(stored, before)  # what the former task has sent is stored late
        left = [end for end in log if end > max(loaded, confirmed)]
        ends = left[: draw(st.integers(0, 20))]
        if not ends:
            continue
        sender.send(str(number), loaded, ends, rows=draw(st.integers(1, 40)), every_s=0.0)
        sent.update(ends)
        commits = [loaded, *ends[:-1]]
        before = commits[-1]
        stored = max(stored, draw(st.sampled_from([loaded, *commits])))
        confirmed = max(confirmed, draw(st.sampled_from(commits)))
    lacking = any(stored < end <= confirmed and end not in sent for end in log)
    return sender, stored, confirmed, lacking


@given(lives())
def test_a_gap_is_never_taken_for_the_connectors_own_move(
    life: tuple[Sender, int, int, bool],
) -> None:
    sender, stored, confirmed, lacking = life
    if lacking:
        assert problem(sender, stored, confirmed) is not None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    yield opened
    opened.close()


def let_pass(store: Store, seconds: float) -> None:
    with store.transaction() as connection:
        rows = late_commit_rows
        connection.execute(sa.update(rows).values(since=rows.c.since - seconds))


def transactional(
    sender: Sender, store: Store, stored: int, confirmed: int, *, active: bool = True
) -> str | None:
    """The problem that a look finds if the connector writes in Kafka transactions, or None."""
    log = slot(confirmed, active=active)
    at = records(sender.topics, store, exactly_once=True).position(NAMES, log, Lsn(stored))
    return log.problem(at, exactly_once=True)


@pytest.mark.parametrize("active", [True, False])
def test_a_commit_whose_markers_are_late_in_kafka_is_no_loss(
    sender: Sender, store: Store, *, active: bool
) -> None:
    """Kafka has answered, so the slot is confirmed, but a restarting broker lacks the marker."""
    sender.send("a", 0, range(10, 110, 10))
    assert transactional(sender, store, 100, 120, active=active) is None
    let_pass(store, 30)
    assert transactional(sender, store, 100, 120, active=active) is None
    sender.send("a", 100, (110, 120, 130))
    let_pass(store, 3_600)
    assert transactional(sender, store, 130, 130, active=active) is None
    assert LateCommits(store).of(NAMES.resource) is None
    assert transactional(sender, store, 110, 120, active=active) is None, "what is sent is enough"
    assert LateCommits(store).of(NAMES.resource) is None

    assert transactional(sender, store, 130, 140, active=active) is None
    let_pass(store, 3_600)
    assert transactional(sender, store, 140, 140, active=active) is None, "nothing was sent since"
    assert LateCommits(store).of(NAMES.resource) is None


@pytest.mark.parametrize("active", [True, False])
def test_what_does_not_come_for_a_minute_is_lost(
    sender: Sender, store: Store, *, active: bool
) -> None:
    sender.send("a", 0, range(10, 110, 10))
    assert transactional(sender, store, 100, 120, active=active) is None
    let_pass(store, LATE_S)
    told = transactional(sender, store, 100, 120, active=active) or ""
    assert "something other than the connector moved it" in told
    again = transactional(sender, store, 100, 120, active=active)
    assert again == told, "until the capture is made anew"
    LateCommits(store).forget(NAMES.resource)
    assert transactional(sender, store, 120, 120, active=active) is None


def test_a_connector_that_goes_on_behind_a_gap_does_not_hide_it(
    sender: Sender, store: Store
) -> None:
    """The stored position is after the slot's position at the first look, like a late commit."""
    sender.send("a", 0, range(10, 110, 10))
    assert transactional(sender, store, 100, 150) is None
    sender.send("b", 150, range(160, 260, 10))
    assert transactional(sender, store, 250, 250) is None
    let_pass(store, LATE_S)
    assert "Connect has captured only up to" in (transactional(sender, store, 250, 250) or "")


def test_a_slot_that_begins_before_an_earlier_late_commit_is_another_one(
    sender: Sender, store: Store
) -> None:
    assert transactional(sender, store, 500, 520) is None
    let_pass(store, LATE_S)
    assert transactional(sender, store, 90, 90) is None
    assert LateCommits(store).of(NAMES.resource) is None


def test_no_connector_is_started_while_a_commit_can_be_late(sender: Sender, store: Store) -> None:
    found, log = records(sender.topics, store, exactly_once=True), slot(120)
    assert found.certain_position(NAMES, slot(100), Lsn(100)) == Lsn(100)
    with pytest.raises(KafkaError, match="can be late in Kafka") as refused:
        found.certain_position(NAMES, log, Lsn(100))
    assert "in a minute" in refused.value.remedy
    let_pass(store, LATE_S)
    assert found.certain_position(NAMES, log, Lsn(100)) == Lsn(100)
    assert records(sender.topics).certain_position(NAMES, log, Lsn(100)) == Lsn(100)
