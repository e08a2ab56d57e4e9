"""Whether a capture without heartbeats is silent, or sends changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.connector_activity import lost_connection
from cdc.capture.onboarded_names import capture_record, captured_by
from cdc.capture.sent_records import SentRecords
from cdc.connect import ConnectorStatus, TaskStatus
from cdc.debezium import CaptureNames, lost_after_s
from cdc.errors import KafkaError
from cdc.kafka import End, TopicInfo, TopicLook
from cdc.log.position import Lsn
from cdc.run import RunContext, silences
from cdc.sources.postgres.slot import SlotHealth
from cdc.store.state_store import Store
from cdc.store.table_state import State, TableRecord
from schemas.table import TableId
from tests.records import table_record

CAPTURE = CaptureNames("shop", "default", "p", "s", "shop-default", "shop", "postgres")
BEATS, ORDERS, LINES = CAPTURE.heartbeat_topic, "shop.public.orders", "shop.public.lines"


class Kafka:
    """A fake Kafka with the age of each topic's newest record, in seconds, and the topic's end."""

    def __init__(self) -> None:
        self.ages_s = {BEATS: 3600.0, ORDERS: 3600.0}
        self.ends = {BEATS: 7, ORDERS: 5, LINES: 0}
        self.unread: set[str] = set()

    def newest_times_each(self, topics: Iterable[str]) -> dict[str, datetime | KafkaError]:
        now, ages = datetime.now(timezone.utc), self.ages_s
        return {
            topic: refused(topic) if topic in self.unread else now - timedelta(seconds=ages[topic])
            for topic in self._readable(topics)
            if topic in {*ages, *self.unread}
        }

    def looks(self, topics: Iterable[str]) -> dict[str, TopicLook | KafkaError]:
        return {
            topic: refused(topic) if topic in self.unread else ends_at(topic, self.ends[topic])
            for topic in self._readable(topics)
            if topic in {*self.ends, *self.unread}
        }

    def _readable(self, topics: Iterable[str]) -> list[str]:
        asked = [*topics]
        if len(asked) > 1 and self.unread.issuperset(asked):
            raise refused(asked[0])
        return asked


def refused(topic: str) -> KafkaError:
    return KafkaError(f"Kafka refused topic {topic}", remedy="Grant the right to describe it.")


def ends_at(topic: str, end: int) -> TopicLook:
    return TopicLook(TopicInfo(topic, "T1", 1, 1), {0: 0}, {0: End(end, 0)}, {0: end})


class Connect:
    """A fake Kafka Connect, with the traces of failed connectors and the restarted connectors."""

    def __init__(self) -> None:
        self.traces: dict[str, str] = {}
        self.restarted: list[str] = []

    def status(self, name: str) -> ConnectorStatus:
        trace = self.traces.get(name, "")
        task = TaskStatus(0, "FAILED" if trace else "RUNNING", "worker", trace)
        return ConnectorStatus(name, "RUNNING", "worker", (task,))

    def offset(self, _name: str) -> None:
        return None

    def restart(self, name: str, *, only_failed: bool) -> None:
        self.restarted.append(name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path / 'state.db'}")
    for topic, tier in ((ORDERS, "default"), (LINES, "default"), ("shop.public.logs", "append")):
        made.put(
            table_record(
                table=TableId("shop", "public", topic.rpartition(".")[2]),
                state=State.REGISTERED,
                base_path="file:///lake",
                tier=tier,
                topic=topic,
                capture=capture_record(CAPTURE),
                updated_at=datetime.now(timezone.utc),
            )
        )
    yield made
    made.close()


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def context(store: Store, kafka: Kafka) -> RunContext:
    source = SimpleNamespace(heartbeat_interval_ms=10_000, kind="postgres")
    connect = SimpleNamespace(exactly_once=True)
    config = SimpleNamespace(sources={"shop": source}, source=lambda _: source, connect=connect)
    leases = SimpleNamespace(hold=lambda _: contextlib.nullcontext())

    return RunContext(
        config=cast(Any, config),
        session=cast(Any, None),
        store=store,
        kafka=cast(Any, kafka),
        registry=cast(Any, None),
        sources={"shop": begins_at(Lsn(400))},
        leases=cast(Any, leases),
        progress=cast(Any, None),
        run_id="run",
    )


def begins_at(at: Lsn) -> Any:
    """A source whose slot has been read up to a position."""
    end = Lsn(900)
    slot = SlotHealth("s", True, "reserved", at, at, 0, None, end, lambda: end)
    return SimpleNamespace(capture=lambda _: SimpleNamespace(log_health=lambda: slot))


def told(context: RunContext) -> str:
    """The reasons of the silences that a run of one table reports, as one text."""
    (record, *_) = (one for one in context.store.tables() if one.topic == ORDERS)
    return "".join(silence.reason for silence in silences(context, [record]))


def test_changes_that_come_without_heartbeats_are_no_silence(
    context: RunContext, kafka: Kafka
) -> None:
    """This happens while one long transaction is sent, here for a table outside the run."""
    assert "its last heartbeat in topic shop.tributary.heartbeat is 3,600 s old" in told(context)
    kafka.ages_s[LINES] = 1.0
    assert told(context) == ""
    kafka.ages_s[LINES] = 600.0
    assert told(context) != ""
    del kafka.ages_s[BEATS]
    assert "holds no heartbeat" in told(context)


def test_topics_that_grow_are_no_silence_whatever_the_senders_clock_says(
    context: RunContext, kafka: Kafka
) -> None:
    assert told(context) != "", "nothing is known of before"
    kafka.ends[LINES] += 1
    assert told(context) == ""
    assert told(context) != "", "not once more"
    kafka.ages_s[BEATS] = 1.0
    assert told(context) == ""
    kafka.ages_s[BEATS] = 600.0
    kafka.ends[LINES] += 1
    assert told(context) != "", "that may have come long ago"


def test_what_is_dated_ahead_does_not_speak_for_the_time_until_then(
    context: RunContext, kafka: Kafka
) -> None:
    kafka.ages_s |= {BEATS: -86_400.0, LINES: -86_400.0}
    assert "is dated 86,400 s ahead of this clock" in told(context)
    kafka.ends[LINES] += 1
    assert told(context) == "", "what grows is no silence"
    kafka.ages_s[BEATS] = -1.0
    assert told(context) == "", "clocks differ by a little"


def of_other_tier(store: Store) -> TableRecord:
    """A table of tier fast, whose connector sends heartbeats."""
    return table_record(
        TableId("shop", "public", "there"), tier="fast", capture=capture_record(FAST)
    )


@pytest.mark.parametrize("both", [False, True])
def test_a_topic_that_cannot_be_read_hides_no_other_capture(
    context: RunContext, kafka: Kafka, both: bool
) -> None:
    (record, *_) = (one for one in context.store.tables() if one.topic == ORDERS)
    connect = Connect()
    connect.traces["shop-fast"] = "java.net.SocketTimeoutException: it took too long"
    context = replace(context, connect=cast(Any, connect))
    kafka.unread = {BEATS, FAST.heartbeat_topic} if both else {BEATS}
    unknown, failed = silences(context, [record, of_other_tier(context.store)])
    assert unknown.capture == CAPTURE
    assert unknown.message == (
        "whether connector shop-default sends changes is not known (Kafka refused topic"
        f" {BEATS}); it may be that no changes come for {record.table}"
    )
    assert unknown.remedy == "Grant the right to describe it."
    assert failed.capture == FAST
    assert "connector shop-fast failed" in failed.message
    assert connect.restarted == ["shop-fast"]


def test_a_failed_connector_is_restarted_although_its_own_topics_cannot_be_read(
    context: RunContext, kafka: Kafka
) -> None:
    connect = Connect()
    connect.traces["shop-default"] = "java.net.SocketTimeoutException: it took too long"
    kafka.unread = {BEATS, ORDERS, LINES}
    assert "connector shop-default failed" in told(replace(context, connect=cast(Any, connect)))
    assert connect.restarted == ["shop-default"]


def test_a_tables_topic_that_cannot_be_read_leaves_silence_unknown_unless_another_one_grows(
    context: RunContext, kafka: Kafka
) -> None:
    kafka.unread = {LINES}
    assert f"is not known (Kafka refused topic {LINES})" in told(context)
    kafka.ends[ORDERS] += 1
    assert told(context) == "", "the capture sends changes"
    kafka.unread = set()
    assert "is 3,600 s old" in told(context), "a topic that can be read again has not grown"


@pytest.mark.parametrize("state", [State.NEEDS_BOOTSTRAP, State.RETIRED])
def test_the_connector_of_tables_that_all_need_a_bootstrap_is_watched(
    context: RunContext, state: State
) -> None:
    """Until the tables are copied, the connector's slot retains the primary's log."""
    (record, *_) = (one for one in context.store.tables() if one.topic == ORDERS)
    connect = Connect()
    connect.traces["shop-default"] = "java.net.SocketTimeoutException: it took too long"
    context = replace(context, connect=cast(Any, connect))
    found = silences(context, [replace(record, state=state)])
    if state is State.RETIRED:
        assert (found, connect.restarted) == ([], [])
        return
    (silence,) = found
    assert (silence.tables, connect.restarted) == ((record.table,), ["shop-default"])
    assert f"`tributary bootstrap {record.table}`" in silence.remedy
    other = replace(record, table=TableId("shop", "public", "lines"), state=State.INCREMENTAL)
    (silence,) = silences(context, [replace(record, state=state), other])
    assert silence.tables == (other.table,), "the tables that need changes are named"


FAST = CaptureNames("shop", "fast", "p2", "s2", "shop-fast", "shop_fast", "postgres")


def moving(store: Store, state: State) -> TableRecord:
    (record,) = (one for one in store.tables() if one.topic == ORDERS)
    return store.put(replace(record, state=state, other=captured_by(FAST, record.table)))


@pytest.mark.parametrize("state", [State.INCREMENTAL, State.FAILED, State.NEEDS_BOOTSTRAP])
def test_a_capture_that_only_a_move_uses_is_watched_for_the_move(
    context: RunContext, kafka: Kafka, state: State
) -> None:
    """The capture's slot retains the primary's log, whether the move goes on or was killed."""
    record = moving(context.store, state)
    kafka.ages_s[BEATS] = 1.0
    (silence,) = silences(context, [record])
    assert (silence.capture, silence.tables, silence.moving) == (FAST, (), (record.table,))
    assert "topic shop_fast.tributary.heartbeat holds no heartbeat" in silence.message
    assert silence.message.endswith(f"the move of {record.table}, which has not ended")
    assert f"`tributary move {record.table}`" in silence.remedy
    assert silence.to_json()["moving"] == [str(record.table)]

    kafka.ages_s[FAST.heartbeat_topic] = 1.0
    assert silences(context, [record]) == []
    del kafka.ages_s[FAST.heartbeat_topic]
    kafka.ages_s["shop_fast.public.orders"] = 1.0
    assert silences(context, [record]) == [], "one long transaction of the table is sent"


def test_a_silence_of_what_tables_follow_also_names_those_that_move_there(
    context: RunContext, kafka: Kafka
) -> None:
    record = moving(context.store, State.INCREMENTAL)
    kafka.ages_s[BEATS] = 1.0
    there = table_record(
        TableId("shop", "public", "there"), tier="fast", capture=capture_record(FAST)
    )
    (silence,) = silences(context, [record, there])
    assert (silence.tables, silence.moving) == ((there.table,), (record.table,))
    assert silence.message.endswith(
        f"no changes come for {there.table}, and the move of {record.table} waits"
    )
    assert "tributary move" not in silence.remedy


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_connector_that_reads_has_a_connection_although_no_heartbeat_comes(
    context: RunContext, kafka: Kafka, kind: str
) -> None:
    """This happens while it reads a backlog, or the changes of tables that nobody captures."""
    names = replace(CAPTURE, kind=kind)
    heartbeats = names.heartbeat_topic

    def lost(ages_s: dict[str, float], names: CaptureNames = names) -> bool:
        kafka.ages_s = ages_s
        return lost_connection(context.kafka, context.config, names)

    after_s = lost_after_s(names, 10_000)
    assert after_s is not None
    assert lost({heartbeats: after_s + 1, names.look_topic: after_s + 1})
    assert lost({heartbeats: after_s + 1}), "it has a topic of another name"
    assert not lost({heartbeats: after_s + 1, names.look_topic: after_s - 5})
    assert not lost({heartbeats: after_s - 5})
    assert not lost({}), "it has just been created"
    assert not lost({heartbeats: 9999.0}, replace(names, kind="postgres"))


@pytest.mark.parametrize(("begins", "restarted"), [(400, True), (500, False)])
def test_a_run_restarts_no_connector_whose_slot_another_reader_has_moved(
    context: RunContext, monkeypatch: pytest.MonkeyPatch, *, begins: int, restarted: bool
) -> None:
    """The connector's next commit would hide the lost changes."""
    monkeypatch.setattr(SentRecords, "_is_sent", lambda *_: False)
    trace = "a.b.SomeException: replication slot s is active"
    status = ConnectorStatus("shop-default", "FAILED", "w", (), trace=trace)
    asked: list[str] = []
    connect = SimpleNamespace(
        status=lambda _: status,
        offset=lambda _: {"lsn_commit": 400},
        restart=lambda name, **_: asked.append(name),
    )
    sources = {"shop": begins_at(Lsn(begins))}
    watched = replace(context, connect=cast(Any, connect), sources=sources)
    if not restarted:
        assert "can be late in Kafka" in told(watched)
        assert asked == [], "it is not known yet whether changes are lost"
        monkeypatch.setattr("cdc.capture.sent_records.LATE_S", 0.0)
    reason = told(watched)
    assert (asked == ["shop-default"]) is restarted
    assert ("not restarted, since replication slot s begins at" in reason) is not restarted
