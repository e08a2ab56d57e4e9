"""A topic on two brokers: records that unclean elections, restores or retention have removed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.capture.position_check import TopicFacts
from cdc.capture.topic_facts import cut_off, one_topic, still_in_topic, topic_facts
from cdc.config.kafka import KafkaConfig, RegistryConfig
from cdc.errors import KafkaError, LostHistoryError
from cdc.kafka import KafkaAdmin, KnownRecord
from cdc.lake.commit import CommitRecord
from cdc.lake.timeline import Committed
from cdc.run import RunContext, plan
from cdc.store.attempt import Attempt
from cdc.store.state_store import Store
from cdc.store.table_state import CommitSummary, LastRecord, TableRecord
from operate.check_kafka import durability
from schemas.table import TableId
from stack.artifacts import Software, fetch_software
from stack.jvm import Kafka
from stack.ports import HOST, choose
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.servers import alter_topic, wait_until_started, write_properties
from tests.records import table_record

pytestmark = pytest.mark.breadth

TABLE = TableId("shop", "public", "orders")
TOPIC = "shop.public.orders"
CLUSTER = "TwoBrokersTwoBrokersTA"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m"
CONTROLLER, FIRST, SECOND = 1, 2, 3


@dataclass
class Cluster:
    """A Kafka cluster of a controller and two brokers, each a separate process.

    Args:
        folder: Holds the folders of the nodes.
        software: The Kafka software that the nodes run.
    """

    folder: Path
    software: Software
    nodes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = Store(f"sqlite:///{self.folder / 'state.db'}")
        self._ports = {int(n): port for n, port in choose(map(str, (1, 2, 3))).items()}
        for node in self._ports:
            self._configure(node)

    @property
    def config(self) -> KafkaConfig:
        servers = f"{HOST}:{self._ports[FIRST]},{HOST}:{self._ports[SECOND]}"
        return KafkaConfig(
            bootstrap_servers=servers, registry=RegistryConfig(url="http://127.0.0.1:9")
        )

    def start(self, *nodes: int) -> None:
        """Start nodes with the data on their disks."""
        logs = {node: self.folder / f"{node}.log" for node in nodes}
        for node, log in logs.items():
            command = self._kafka(node).command()
            with log.open("wb") as output:
                self.nodes[node] = subprocess.Popen(
                    command.argv,
                    cwd=command.folder,
                    env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        for node, log in logs.items():
            wait_until_started(self.nodes[node], log)

    def kill(self, node: int) -> None:
        self.nodes[node].kill()
        self.nodes.pop(node).wait()

    def stop_all(self) -> None:
        """Kill all nodes at once, as a power failure does."""
        for node in list(self.nodes):
            self.kill(node)

    def move_disks(self, move: Callable[[Path], object]) -> None:
        """Call ``move`` with the data folder of each node; no node may run meanwhile."""
        for node in self._ports:
            move(self._kafka(node).folder / "data")

    def _kafka(self, node: int) -> Kafka:
        ports, folder = self._ports, self.folder / str(node)
        software = lambda: self.software  # noqa: E731
        return Kafka(
            folder=folder,
            port=ports[node],
            controller_port=ports[CONTROLLER],
            software=software,
        )

    def _configure(self, node: int) -> None:
        kafka, is_broker = self._kafka(node), node != CONTROLLER
        data = kafka.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        meta = {"version": "1", "cluster.id": CLUSTER, "node.id": str(node)}
        write_properties(data / "meta.properties", meta)
        listener = "PLAINTEXT" if is_broker else "CONTROLLER"
        write_properties(
            kafka.properties,
            {
                "process.roles": "broker" if is_broker else "controller",
                "node.id": str(node),
                "controller.quorum.voters": f"{CONTROLLER}@{HOST}:{self._ports[CONTROLLER]}",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"{listener}://{HOST}:{self._ports[node]}",
                "log.dirs": str(data),
                "broker.heartbeat.interval.ms": "500",
                "broker.session.timeout.ms": "3000",
                "replica.lag.time.max.ms": "3000",
                "unclean.leader.election.interval.ms": "1000",
                "log.retention.check.interval.ms": "500",
                "log.initial.task.delay.ms": "500",
            },
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("brokers"), fetch_software(()))
    with ExitStack() as ends:
        ends.callback(cluster.store.close)
        ends.callback(lambda: [cluster.kill(node) for node in list(cluster.nodes)])
        cluster.start(CONTROLLER, FIRST, SECOND)
        yield cluster


def create(cluster: Cluster, topic: str, assignment: list[int], **settings: str) -> None:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    new = NewTopic(topic, num_partitions=1, replica_assignment=[assignment], config=dotted)
    admin = AdminClient(cluster.config.librdkafka_config())
    for done in admin.create_topics([new]).values():
        done.result(30)


def produce(cluster: Cluster, topic: str, count: int, *, at_ms: int = 0) -> None:
    """Write records that one broker acknowledges; returns once consumers can read them."""
    kafka = KafkaAdmin(cluster.config)
    end = kafka.stable_offsets(topic)[0] + count
    producer = Producer({**cluster.config.librdkafka_config(), "acks": "1", "log_level": 0})
    for number in range(count):
        producer.produce(topic, value=str(number).encode(), partition=0, timestamp=at_ms)
    assert producer.flush(60) == 0
    wait_until(lambda: kafka.stable_offsets(topic) == {0: end}, "the records", 60)


def leader(cluster: Cluster, topic: str) -> tuple[int, list[int]]:
    """The id of the partition's leader, and the ids of its in-sync replicas."""
    admin = AdminClient({**cluster.config.librdkafka_config(), "log_level": 0})
    partition = admin.list_topics(topic, timeout=10).topics[topic].partitions[0]
    return partition.leader, sorted(partition.isrs)


def reads(cluster: Cluster, topic: str) -> tuple[RunContext, TableRecord, Committed]:
    """The context, table record and commit of a run that has just read all of a topic."""
    unused = cast("Any", None)
    kafka = KafkaAdmin(cluster.config)
    context = RunContext(
        unused, unused, cluster.store, kafka, unused, {}, unused, unused, run_id="run"
    )
    facts, last = one_topic(context, topic), kafka.latest_record(topic)
    read = {}
    if last is not None and last.timestamp is not None:
        read = {0: LastRecord(last.offset, round(last.timestamp.timestamp() * 1000))}
    commit = CommitRecord(
        kind="run",
        table=TABLE,
        attempt=str(UUID(int=1)),
        offsets=facts.stable,
        epochs=facts.epochs,
        last_records=read,
        topic=topic,
        topic_id=facts.id,
    )
    now = datetime.now(timezone.utc)
    record = table_record(
        table=TABLE,
        base_path="file:///lake",
        topic=topic,
        updated_at=now,
        attempt=Attempt(UUID(int=1), now, "/lake/a"),
        last_commit=CommitSummary(facts.stable, None, None, "1", now, facts.epochs, read),
    )
    return context, record, Committed("1", "commit", commit)


@pytest.mark.timeout(300)
def test_an_unclean_election_that_is_written_over_stops_the_table(cluster: Cluster) -> None:
    create(
        cluster,
        TOPIC,
        [FIRST, SECOND],
        min_insync_replicas="1",
        unclean_leader_election_enable="true",
    )
    wait_until(lambda: leader(cluster, TOPIC) == (FIRST, [FIRST, SECOND]), "both in sync", 60)
    produce(cluster, TOPIC, 5)
    context, record, latest = reads(cluster, TOPIC)
    assert latest.record.offsets == {0: 5}

    cluster.kill(SECOND)
    wait_until(lambda: leader(cluster, TOPIC) == (FIRST, [FIRST]), "the follower gone", 60)
    produce(cluster, TOPIC, 5)
    still_in_topic(context, record, latest, one_topic(context, TOPIC))
    context, record, latest = reads(cluster, TOPIC)
    assert latest.record.offsets == {0: 10}, "which only the leader has"

    cluster.kill(FIRST)
    cluster.start(SECOND)
    wait_until(lambda: leader(cluster, TOPIC)[0] == SECOND, "the unclean election", 60)
    facts = one_topic(context, TOPIC)
    assert facts.stable == {0: 5}
    assert facts.epochs != latest.record.epochs
    with pytest.raises(LostHistoryError, match="ends at offset 5, and the lake has read up to 10"):
        still_in_topic(context, record, latest, facts)

    produce(cluster, TOPIC, 5)
    assert cut_off(context, [record], topic_facts(context, [TOPIC])) == {TABLE}, "by offsets idle"
    produce(cluster, TOPIC, 5)
    facts = one_topic(context, TOPIC)
    offsets_alone = replace(latest, record=replace(latest.record, epochs={}, last_records={}))
    still_in_topic(context, record, offsets_alone, facts)
    with pytest.raises(LostHistoryError, match="was cut off below the lake's offset") as caught:
        still_in_topic(context, record, latest, facts)
    assert f"topic {TOPIC} partition 0" in caught.value.message
    assert "tributary bootstrap" in caught.value.remedy

    cluster.start(FIRST)
    wait_until(lambda: leader(cluster, TOPIC)[1] == [FIRST, SECOND], "both in sync again", 60)
    with pytest.raises(LostHistoryError, match="was cut off below the lake's offset"):
        still_in_topic(context, record, latest, one_topic(context, TOPIC))


@pytest.mark.timeout(300)
def test_a_cluster_that_was_restored_and_elects_as_before_stops_the_table(
    cluster: Cluster,
) -> None:
    """All disks are reset to a snapshot, so the same leader epochs recur with other records."""
    topic, saved = f"{TOPIC}.restored", cluster.folder / "saved"
    create(cluster, topic, [FIRST])
    produce(cluster, topic, 5)
    cluster.stop_all()
    cluster.move_disks(lambda disk: shutil.copytree(disk, saved / disk.parent.name))
    cluster.start(CONTROLLER, FIRST, SECOND)
    produce(cluster, topic, 5)
    context, record, latest = reads(cluster, topic)
    assert latest.record.offsets == {0: 10}
    still_in_topic(context, record, latest, one_topic(context, topic))
    assert cut_off(context, [record], topic_facts(context, [topic])) == set()
    assert [*context.proven] == [(topic, 0)]

    cluster.stop_all()
    cluster.move_disks(shutil.rmtree)
    cluster.move_disks(lambda disk: shutil.copytree(saved / disk.parent.name, disk))
    cluster.start(CONTROLLER, FIRST, SECOND)
    produce(cluster, topic, 5)
    context = replace(context, kafka=KafkaAdmin(cluster.config), run_id="next")
    facts = one_topic(context, topic)
    assert facts.stable == {0: 10}, "by its offsets it is idle"
    assert record.last_commit is not None
    # Most often the epochs are those of before by themselves.
    latest = replace(latest, record=replace(latest.record, epochs=facts.epochs))
    record = replace(record, last_commit=replace(record.last_commit, epochs=facts.epochs))
    assert cut_off(context, [record], topic_facts(context, [topic])) == {TABLE}
    produce(cluster, topic, 5)
    found = (
        r"was cut off below the lake's offset.*the record at offset 9 was of .* and is of .* now"
    )
    with pytest.raises(LostHistoryError, match=found):
        still_in_topic(context, record, latest, one_topic(context, topic))


@pytest.mark.timeout(120)
def test_records_with_the_times_of_an_uneven_clock_are_still_those_that_were_read(
    cluster: Cluster,
) -> None:
    """An earlier record has a later timestamp, and the last record that the run read expires."""
    topic = f"{TOPIC}.uneven"
    create(cluster, topic, [SECOND], segment_ms="3000")
    now = int(time.time() * 1000)
    produce(cluster, topic, 1, at_ms=now)
    produce(cluster, topic, 1, at_ms=now - 60_000)
    context, record, latest = reads(cluster, topic)
    assert latest.record.last_records == {0: LastRecord(1, now - 60_000)}
    produce(cluster, topic, 2, at_ms=now + 1)
    still_in_topic(context, record, latest, one_topic(context, topic))
    known = KnownRecord(topic, 0, 1, now - 59_999)
    (answer,) = context.kafka.replaced([known]).values()
    assert "the record at offset 1 was of" in str(answer)
    admin = AdminClient(cluster.config.librdkafka_config())
    for done in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        done.result(30)
    still_in_topic(context, record, latest, one_topic(context, topic))
    assert context.kafka.replaced([known]) == {known: None}, "nothing is left to compare"


@pytest.mark.timeout(120)
def test_a_log_that_was_restored_to_amid_a_millisecond_is_not_the_one_that_was_read(
    cluster: Cluster,
) -> None:
    """Many records have the same timestamp, and the restored log still has the earlier ones."""
    topic = f"{TOPIC}.burst"
    create(cluster, topic, [SECOND])
    now = int(time.time() * 1000)
    produce(cluster, topic, 3, at_ms=now)
    produce(cluster, topic, 1, at_ms=now + 5)
    context, _, _ = reads(cluster, topic)
    there, other = (KnownRecord(topic, 0, offset, now) for offset in (2, 3))
    assert context.kafka.replaced([there]) == {there: None}
    assert "the record at offset 3 was of" in str(context.kafka.replaced([other])[other])


@pytest.mark.timeout(120)
def test_segments_that_expired_unread_stop_the_table(cluster: Cluster) -> None:
    """The brokers' own retention deletes log segments that no run has read yet."""
    topic = f"{TOPIC}.expiring"
    create(cluster, topic, [SECOND], segment_ms="1000", retention_ms="2000")
    produce(cluster, topic, 3)
    context, record, latest = reads(cluster, topic)
    produce(cluster, topic, 3)
    wait_until(lambda: context.kafka.start_offsets(topic)[0] > 3, "the end of what is kept", 60)
    with pytest.raises(LostHistoryError, match=r"offsets 3 to \d+ of topic .* were deleted before"):
        still_in_topic(context, record, latest, one_topic(context, topic))


def test_what_lets_a_topic_lose_changes_is_named_until_it_is_set_as_it_says(
    cluster: Cluster,
) -> None:
    alone, weak = f"{TOPIC}.alone", f"{TOPIC}.weak"
    create(cluster, alone, [FIRST])
    create(
        cluster,
        weak,
        [FIRST, SECOND],
        min_insync_replicas="1",
        unclean_leader_election_enable="true",
    )
    kafka = KafkaAdmin(cluster.config)
    _, brokers = kafka.ping()

    def remedies(topic: str) -> list[str]:
        found = durability(topic, kafka.topic(topic).replicas, brokers, kafka.topic_config(topic))
        return [remedy for _, remedy in found]

    (reassign,) = remedies(alone)
    assert reassign.startswith(f"Reassign topic {alone} to three brokers")
    told = [re.match(rf"Set (\S+)=(\S+) on topic {weak}\.", one) for one in remedies(weak)]
    settings = {one[1]: one[2] for one in told if one is not None}
    assert settings == {"unclean.leader.election.enable": "false", "min.insync.replicas": "2"}
    alter_topic(cluster.config, weak, **settings)
    assert remedies(weak) == []


@pytest.mark.timeout(200)
def test_a_client_goes_on_without_the_broker_that_it_took_for_the_controller(
    cluster: Cluster,
) -> None:
    topic = f"{TOPIC}.everywhere"
    create(cluster, topic, [FIRST, SECOND])
    kafka = KafkaAdmin(cluster.config, timeout_s=5.0)
    taken = kafka._admin.list_topics(timeout=10).controller_id
    cluster.kill(taken)
    try:
        assert kafka.topic(topic).replicas == 2
        wait_until(lambda: kafka.ends_many([topic])[topic][0].offset == 0, "another leader", 60)
    finally:
        cluster.start(taken)


@pytest.mark.timeout(200)
def test_a_topic_without_a_leader_hides_no_other(cluster: Cluster) -> None:
    led, left = f"{TOPIC}.led", f"{TOPIC}.left"
    create(cluster, led, [FIRST])
    create(cluster, left, [SECOND])
    context, record, _ = reads(cluster, led)
    produce(cluster, led, 2)
    cluster.kill(SECOND)
    try:
        wait_until(lambda: leader(cluster, left)[0] == -1, "a topic without a leader", 60)
        began = time.monotonic()
        facts = topic_facts(context, [led, left])
        took = time.monotonic() - began
        seen, error = facts[led], facts[left]
        assert isinstance(seen, TopicFacts)
        assert seen.stable == {0: 2}
        assert isinstance(error, KafkaError)
        assert f"topic {left} has a partition without a leader" in error.message
        assert took < 15, "the other tables do not wait longer"
        for committed in (True, False):
            began = time.monotonic()
            ends = context.kafka.ends_now([led, left, f"{led}-gone"], committed=committed)
            assert time.monotonic() - began < 3, "status and metrics wait for no leader"
            assert ends.pop(led) == {0: 2}
            assert isinstance(ends.pop(left), KafkaError)
            assert ends == {}
        began = time.monotonic()
        known = context.kafka.since(dict.fromkeys((led, left), record.updated_at))
        assert time.monotonic() - began < 3
        assert set(known) == {led}
        sent = context.kafka.newest_times_each([led, left])
        assert isinstance(sent[led], datetime)
        assert isinstance(sent[left], KafkaError)
        other = replace(record, topic=left)
        assert plan.due([record, other], facts) == [record, other]
    finally:
        cluster.start(SECOND)
    wait_until(lambda: leader(cluster, left)[0] == SECOND, "the leader", 60)
    assert isinstance(topic_facts(context, [led, left])[left], TopicFacts)
