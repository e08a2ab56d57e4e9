"""Topics, offsets and last records on a real broker."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import confluent_kafka as ck
import pytest
import stamina
from confluent_kafka import admin as ck_admin

from cdc.config import KafkaConfig, RegistryConfig, TopicConfig
from cdc.errors import KafkaError
from cdc.kafka import KafkaAdmin, KnownRecord, Since, TopicLook, never_compacted
from stack.local import LocalStack
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.servers import alter_topic


@pytest.fixture(scope="module")
def config(stack: LocalStack) -> KafkaConfig:
    stack.up()
    addresses = stack.addresses()
    return KafkaConfig(
        bootstrap_servers=addresses.kafka,
        registry=RegistryConfig(url=addresses.registry_url),
        topic=TopicConfig(retention_ms=3_600_000, config={"segment.ms": "600000"}),
    )


@pytest.fixture(scope="module")
def kafka(config: KafkaConfig) -> KafkaAdmin:
    return KafkaAdmin(config)


@pytest.fixture
def name(kafka: KafkaAdmin) -> Iterator[str]:
    topic = f"kafka-{uuid.uuid4()}"
    yield topic
    kafka.delete_topic(topic)


def create(config: KafkaConfig, name: str, partitions: int = 1, **settings: str) -> None:
    """Create a topic without the product's settings, as somebody else would."""
    client = ck_admin.AdminClient(config.librdkafka_config())
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    new = ck_admin.NewTopic(name, num_partitions=partitions, replication_factor=1, config=dotted)
    for future in client.create_topics([new]).values():
        future.result()


def producer(config: KafkaConfig, transaction: bool = False) -> ck.Producer:
    more = {"transactional.id": str(uuid.uuid4())} if transaction else {}
    made = ck.Producer({**config.librdkafka_config(), **more})
    if transaction:
        made.init_transactions(30)
    return made


def send(client: ck.Producer, topic: str, *values: str) -> None:
    for value in values:
        client.produce(topic, key=b"k", value=value.encode(), partition=0)
    assert client.flush(30) == 0


def test_the_known_records_of_many_partitions_are_read_at_once(
    config: KafkaConfig, kafka: KafkaAdmin, name: str
) -> None:
    """All records have the same timestamp, so a search by timestamp cannot distinguish them."""
    partitions, sent_ms = 100, 1_767_225_600_000
    create(config, name, partitions)
    writer = producer(config)
    for partition in range(partitions):
        for _ in range(3):
            writer.produce(name, value=b"v", partition=partition, timestamp=sent_ms)
    assert writer.flush(30) == 0
    known = [KnownRecord(name, partition, 2, sent_ms) for partition in range(partitions)]
    later, behind = KnownRecord(name, 0, 2, sent_ms + 1), KnownRecord(name, 1, 3, sent_ms)
    # One after the other, the reads would take three times this limit.
    found = kafka.replaced([later, behind, *known[2:]], timeout_s=3.0)
    assert "was of" in str(found.pop(later))
    assert "could not be read in time" in str(found.pop(behind)), "the partition ends before"
    assert found == dict.fromkeys(known[2:])


def test_a_topic_is_created_once_with_our_policy(kafka: KafkaAdmin, name: str) -> None:
    created = kafka.ensure_topic(name, config={"max.message.bytes": "2000000"})
    assert (created.name, created.partitions) == (name, 1)
    assert kafka.ensure_topic(name) == created
    assert kafka.topic_id(name) == created.id
    settings = kafka.topic_config(name)
    assert settings["cleanup.policy"] == "delete"
    assert settings["retention.ms"] == "3600000"
    assert settings["segment.ms"] == "600000"
    assert settings["max.message.bytes"] == "2000000"


def test_a_topic_of_ours_keeps_every_record_while_somebody_compacts_it(
    config: KafkaConfig, kafka: KafkaAdmin, name: str
) -> None:
    """A second topic, without the product's settings, shows that the log cleaner has run."""
    plain = f"{name}-plain"
    kafka.ensure_topic(name)
    create(config, plain)
    writer = producer(config)
    for topic in (name, plain):
        quick = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01"}
        alter_topic(config, topic, cleanup_policy="compact", **quick)
    try:
        for turn in range(20):
            for topic in (name, plain):
                send(writer, topic, str(turn))
            time.sleep(0.05)

        def compacted() -> bool:
            send(writer, plain, "more")
            end = kafka.stable_offsets(plain)[0]
            return len(list(kafka.read(plain, 0, 0, end))) < end

        wait_until(compacted, "the cleaner", 120)
        assert [record.value for record in kafka.read(name, 0, 0, 20)] == [
            str(turn).encode() for turn in range(20)
        ]
    finally:
        kafka.delete_topic(plain)


def test_settings_of_many_topics_take_one_call(kafka: KafkaAdmin, name: str) -> None:
    kafka.ensure_topic(name)
    found = kafka.topic_configs([name, f"{name}-gone", name])
    assert list(found) == [name]
    assert found[name] == kafka.topic_config(name)
    assert never_compacted(found[name])
    assert not never_compacted({**found[name], "min.compaction.lag.ms": "604800000"})


def test_compaction_cannot_be_asked_for(kafka: KafkaAdmin, name: str) -> None:
    kafka.ensure_topic(name, config={"cleanup.policy": "compact"})
    assert kafka.topic_config(name)["cleanup.policy"] == "delete"


@pytest.mark.parametrize(
    ("partitions", "settings", "says"),
    [
        (3, {}, "3 partitions"),
        (1, {"cleanup_policy": "compact"}, "cleanup.policy=compact"),
        (1, {"cleanup_policy": "compact,delete"}, "cleanup.policy"),
        (1, {"retention_ms": "60000"}, "60000 ms"),
    ],
)
def test_a_topic_that_would_lose_changes_is_refused(
    config: KafkaConfig,
    kafka: KafkaAdmin,
    name: str,
    partitions: int,
    settings: dict[str, str],
    says: str,
) -> None:
    create(config, name, partitions, **settings)
    with pytest.raises(KafkaError) as caught:
        kafka.ensure_topic(name)
    assert says in str(caught.value)
    assert name in str(caught.value)
    assert caught.value.context["topic"] == name


def test_a_topic_that_keeps_for_ever_is_long_enough(
    config: KafkaConfig, kafka: KafkaAdmin, name: str
) -> None:
    create(config, name, retention_ms="-1")
    kafka.ensure_topic(name)


def test_a_created_again_topic_has_another_id(kafka: KafkaAdmin, name: str) -> None:
    first = kafka.ensure_topic(name)
    assert kafka.delete_topic(name) is True
    deadline = time.monotonic() + 30
    while kafka.topics([name]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert kafka.delete_topic(name) is False
    assert kafka.ensure_topic(name).id != first.id


def test_missing_topics_are_left_out_or_named(kafka: KafkaAdmin, name: str) -> None:
    kafka.ensure_topic(name)
    gone = f"{name}-gone"
    assert list(kafka.topics([name, gone, name])) == [name]
    assert kafka.topics([]) == {}
    assert kafka.stable_offsets_many([gone]) == {}
    assert kafka.stable_offsets_many([name, gone]) == {name: {0: 0}}
    for ask in (
        kafka.topic_id,
        kafka.topic_config,
        kafka.start_offsets,
        kafka.stable_offsets,
        kafka.high_watermarks,
        kafka.latest_record,
    ):
        with pytest.raises(KafkaError) as caught:
            ask(gone)
        assert gone in str(caught.value)
        assert caught.value.remedy


def test_an_open_transaction_holds_the_stable_offset_but_not_the_high_watermark(
    config: KafkaConfig, kafka: KafkaAdmin, name: str
) -> None:
    kafka.ensure_topic(name)
    send(producer(config), name, "a", "b")
    writer = producer(config, transaction=True)
    writer.begin_transaction()
    send(writer, name, "c", "d", "e")
    assert kafka.start_offsets(name) == {0: 0}
    assert kafka.stable_offsets(name) == {0: 2}
    assert kafka.high_watermarks(name) == {0: 5}
    last = kafka.latest_record(name)
    assert last is not None
    assert last.value == b"b"
    assert kafka.first_records({name: (2, 5)}, timeout_s=30)[name].value == b"c"
    writer.commit_transaction(30)
    wait_until(lambda: kafka.stable_offsets(name) == {0: 6}, "the marker", 30)
    assert kafka.high_watermarks(name) == {0: 6}
    last = kafka.latest_record(name)
    assert last is not None
    assert (last.offset, last.key, last.value) == (4, b"k", b"e"), "the marker is no record"
    assert kafka.first_records({name: (5, 6)}, timeout_s=30) == {}
    assert last.timestamp is not None
    assert abs((datetime.now(timezone.utc) - last.timestamp).total_seconds()) < 120


def test_the_first_offset_since_a_time(config: KafkaConfig, kafka: KafkaAdmin, name: str) -> None:
    """By this offset, a run sees whether unapplied changes are older than a freshness target."""
    empty, now = f"{name}-empty", datetime.now(timezone.utc)

    def since(minutes: float) -> dict[int, int]:
        at = now - timedelta(minutes=minutes)
        found = kafka.since({name: at, empty: at, f"{name}-gone": at})
        assert (found.keys(), found[empty]) == ({name, empty}, {0: Since(0, 0)})
        return {n: one.offset for n, one in found[name].items()}

    kafka.ensure_topic(empty)
    kafka.ensure_topic(name)
    try:
        writer = producer(config)
        for minutes in (30, 20, 10):
            sent = int((now - timedelta(minutes=minutes)).timestamp() * 1000)
            writer.produce(name, value=b"v", partition=0, timestamp=sent)
        assert writer.flush(30) == 0
        assert [since(minutes) for minutes in (40, 25, 15, 10)] == [{0: 0}, {0: 1}, {0: 2}, {0: 2}]
        assert since(5) == {0: 3}, "the end, if no record is that new"
        unfinished = producer(config, transaction=True)
        unfinished.begin_transaction()
        send(unfinished, name, "new")
        later = {name: now + timedelta(minutes=5)}
        assert since(5) == {0: 3}
        assert kafka.since(later) == {name: {0: Since(4, 3)}}, "the open transaction counts"
        unfinished.commit_transaction(30)
        assert since(5) == {0: 3}
        wait_until(lambda: kafka.since(later) == {name: {0: Since(5, 5)}}, "the marker", 30)
    finally:
        kafka.delete_topic(empty)


def test_what_was_rolled_back_is_never_read(
    config: KafkaConfig, kafka: KafkaAdmin, name: str
) -> None:
    kafka.ensure_topic(name)
    assert kafka.latest_record(name) is None
    send(producer(config), name, "kept")
    writer = producer(config, transaction=True)
    for _ in range(3):
        writer.begin_transaction()
        send(writer, name, *(["gone"] * 100))
        writer.abort_transaction(30)
    least = 304  # a marker is written a moment after the call returns, and may be written again

    def settled() -> bool:
        stable = kafka.stable_offsets(name)
        return stable == kafka.high_watermarks(name) and stable[0] >= least

    wait_until(settled, "the last marker", 60)
    (end,) = kafka.stable_offsets(name).values()
    last = kafka.latest_record(name)
    assert last is not None
    assert (last.offset, last.value) == (0, b"kept")
    assert [record.value for record in kafka.read(name, 0, 0, end)] == [b"kept"]


def test_a_range_ends_where_it_says(config: KafkaConfig, kafka: KafkaAdmin, name: str) -> None:
    kafka.ensure_topic(name)
    send(producer(config), name, *map(str, range(10)))
    assert [record.offset for record in kafka.read(name, 0, 3, 6)] == [3, 4, 5]
    assert list(kafka.read(name, 0, 4, 4)) == []


def test_a_range_is_read_to_its_end_although_the_partition_ends_before_for_a_moment(
    config: KafkaConfig, kafka: KafkaAdmin, name: str
) -> None:
    """A new leader may show too early an end of its partition for a moment; the read waits."""
    kafka.ensure_topic(name)
    writer = producer(config)
    send(writer, name, "0")
    found = kafka.read(name, 0, 0, 2, timeout_s=20)
    assert next(found).offset == 0
    later = threading.Timer(2, send, (writer, name, "1"))
    later.start()
    try:
        assert [record.offset for record in found] == [1]
    finally:
        later.join()
    with pytest.raises(KafkaError, match="could not be read in time"):
        list(kafka.read(name, 0, 0, 3, timeout_s=2))


def test_one_consumer_reads_the_ends_of_many_topics(
    config: KafkaConfig, kafka: KafkaAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is in its own Kafka transaction, whose end marker takes an offset, too."""
    names = [f"kafka-ahead-{uuid.uuid4()}" for _ in range(20)]
    consumers, assigned, made = 0, 0, ck.Consumer

    class Counted(made):  # type: ignore[misc, valid-type]
        def __init__(self, settings: dict[str, Any]) -> None:
            nonlocal consumers
            consumers += 1
            super().__init__(settings)

        def assign(self, places: list[ck.TopicPartition]) -> None:
            nonlocal assigned
            assigned += 1
            super().assign(places)

    try:
        writer = producer(config, transaction=True)
        for name in names:
            kafka.ensure_topic(name)
        for number in range(40):
            writer.begin_transaction()
            for name in names:
                send(writer, name, f"{name} {number}")
            writer.commit_transaction(30)
        wait_until(lambda: set(kafka.stable_offsets(names[-1]).values()) == {80}, "the marker", 30)
        monkeypatch.setattr(ck, "Consumer", Counted)
        with kafka.reader() as read:
            read.read_ahead(dict.fromkeys(names, (60, 80)))
            for name in names:
                last = read.last(name, 0, 80)
                assert last is not None
                assert (last.offset, last.value) == (78, f"{name} 39".encode())
                assert [one.offset for one in read.read(name, 70, 75)] == [70, 72, 74]
            assert (consumers, assigned) == (1, 1)
            for name in names[:3]:
                early = read.last(name, 0, 60)
                assert early is not None
                assert (early.topic, early.offset) == (name, 58)
                assert [one.offset for one in read.read(name, 0, 5)] == [0, 2, 4]
                assert next(read.read(name, 1, 80)).offset == 2
            assert (consumers, assigned) == (1, 10)
    finally:
        for name in names:
            kafka.delete_topic(name)


def test_offsets_of_many_topics_take_one_moment(kafka: KafkaAdmin) -> None:
    names = [f"kafka-many-{uuid.uuid4()}" for _ in range(60)]
    try:
        for name in names:
            kafka.ensure_topic(name)
        begun = time.monotonic()
        found = kafka.stable_offsets_many(names)
        assert time.monotonic() - begun < 5
        assert found == {name: {0: 0} for name in names}
    finally:
        for name in names:
            kafka.delete_topic(name)


def test_the_cluster_is_named(kafka: KafkaAdmin) -> None:
    cluster, brokers = kafka.ping()
    assert cluster
    assert brokers == 1


@pytest.mark.parametrize("ask", ["ping", "topics", "ensure_topic", "topic_config"])
def test_an_unreachable_cluster_is_told_with_its_address(config: KafkaConfig, ask: str) -> None:
    nowhere = config.model_copy(update={"bootstrap_servers": "127.0.0.1:9"})
    client = KafkaAdmin(nowhere, timeout_s=2)
    arguments = {"ping": (), "topics": (["t"],)}.get(ask, ("t",))
    begun = time.monotonic()
    with stamina.set_testing(True, attempts=2), pytest.raises(KafkaError) as caught:
        getattr(client, ask)(*arguments)
    assert time.monotonic() - begun < 20
    assert "127.0.0.1:9" in str(caught.value)
    assert "kafka.bootstrap_servers" in caught.value.remedy


def test_a_refused_setting_is_the_brokers_reason(kafka: KafkaAdmin, name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        kafka.ensure_topic(name, config={"no.such.setting": "1"})
    assert "no.such.setting" in str(caught.value)
    assert name in str(caught.value)


def test_names_that_kafka_takes_for_one_are_refused(kafka: KafkaAdmin, name: str) -> None:
    kafka.ensure_topic(f"{name}.x")
    try:
        with pytest.raises(KafkaError) as caught:
            kafka.ensure_topic(f"{name}_x")
        assert f"{name}_x" in str(caught.value)
    finally:
        kafka.delete_topic(f"{name}.x")


def test_clients_are_safe_to_share(config: KafkaConfig, kafka: KafkaAdmin, name: str) -> None:

    kafka.ensure_topic(name)
    send(producer(config), name, "a")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kafka.latest_record(name), range(16)))
    assert {record.value for record in found if record is not None} == {b"a"}
    assert len(list(itertools.filterfalse(None, found))) == 0


def test_looks_at_topics_leave_nothing_behind(
    config: KafkaConfig, kafka: KafkaAdmin, name: str
) -> None:
    """The client library leaks each UUID of a topic that it makes."""
    create(config, name)
    kafka.looks([name])

    def uuids() -> int:
        gc.collect()
        return sum(type(one).__name__ == "Uuid" for one in gc.get_objects())

    before = uuids()
    for _ in range(20):
        assert isinstance(kafka.looks([name])[name], TopicLook)
    assert uuids() == before
