"""Failures and recoveries of Kafka Connect on the real stack."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import stamina

from cdc.connect import ConnectClient
from cdc.debezium import connector_class
from cdc.errors import ConnectError
from operate.plugin_version import plugin_check
from stack.local import LocalStack
from tests.integration.rigs.captured import Captured, capturing, wait_until
from tests.integration.rigs.plain_worker import PlainWorker
from tests.integration.rigs.plain_worker import plain_worker as plain_worker
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.servers import connect_rest
from tests.integration.rigs.sources import capture_of


@pytest.fixture
def captured(database: Database) -> Iterator[Captured]:
    with capturing(database) as started:
        yield started


def run_id(captured: Captured, topic: str) -> bytes | None:
    """The run id in a topic's last record; it changes with every start of the connector's task."""
    return captured.read(topic)[-1].headers["__debezium.context.runId"]


def test_the_worker_tells_what_it_is(captured: Captured) -> None:
    worker = captured.connect.worker()
    assert worker.version
    assert worker.exactly_once is True
    assert worker.kafka_cluster_id == captured.kafka.ping()[0]
    (plugin,) = [one for one in worker.plugins if one.name == connector_class("postgres")]
    assert plugin.kind == "source"
    assert plugin_check(worker.plugins, "postgres").status == "ok"


def test_the_same_configuration_disturbs_nothing_and_another_one_is_applied(
    captured: Captured,
) -> None:
    connect, name = captured.connect, captured.names.connector
    topic = captured.names.heartbeat_topic
    captured.events(topic, 1)
    before = run_id(captured, topic)
    assert connect.put_connector(name, captured.settings()) is False
    seen = captured.kafka.stable_offsets(topic)[0]
    wait_until(lambda: captured.kafka.stable_offsets(topic)[0] > seen + 2, "another heartbeat")
    assert run_id(captured, topic) == before

    changed = captured.settings(heartbeat__interval__ms="500")
    assert connect.put_connector(name, changed) is True
    connect.wait_running(name)
    assert connect.connector(name) == changed
    seen = captured.kafka.stable_offsets(topic)[0]
    wait_until(lambda: captured.kafka.stable_offsets(topic)[0] > seen, "another heartbeat")
    assert run_id(captured, topic) != before


def test_a_login_that_fails_is_refused_before_anything_is_created(captured: Captured) -> None:
    wrong = "${directory:%s:tributary_marker.password}" % (
        captured.database.stack.folder / "secrets"
    )
    settings = captured.settings(database__password=wrong)
    with pytest.raises(ConnectError) as caught:
        captured.connect.put_connector("other", settings)
    assert "password authentication failed" in str(caught.value)
    assert "credentials.capture" in caught.value.remedy
    assert captured.connect.status("other") is None


@pytest.mark.parametrize(
    ("setting", "value", "field"),
    [
        ("database.hostname", "nowhere.invalid", "database.hostname"),
        ("database.dbname", "nowhere", "database.hostname"),
        ("snapshot.mode", "nonsense", "snapshot.mode"),
        ("slot.name", "Bad-Name", "slot.name"),
        ("tasks.max", "many", "tasks.max"),
    ],
)
def test_a_wrong_setting_is_named(captured: Captured, setting: str, value: str, field: str) -> None:
    with pytest.raises(ConnectError) as caught:
        captured.connect.put_connector("other", {**captured.settings(), setting: value})
    assert caught.value.context["field"] == field
    assert captured.connect.status("other") is None


def test_a_connector_class_that_the_worker_lacks_is_refused(captured: Captured) -> None:
    with pytest.raises(ConnectError) as caught:
        captured.connect.put_connector("other", {"connector.class": "no.such.Connector"})
    assert "no.such.Connector" in str(caught.value)


def test_a_failed_task_is_explained_and_restarted_on_request_only(
    captured: Captured, stack: LocalStack
) -> None:
    connect, name = captured.connect, captured.names.connector
    captured.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    topic = captured.add("t")

    def failed() -> bool:
        status = connect.status(name)
        tasks = () if status is None else status.tasks
        return bool(tasks) and all(task.state == "FAILED" for task in tasks)

    stack.psql("ALTER ROLE tributary_capture NOLOGIN")
    try:
        connect.restart(name, only_failed=False)
        wait_until(failed, "the failure")
        with pytest.raises(ConnectError) as caught:
            connect.wait_running(name)
    finally:
        stack.psql("ALTER ROLE tributary_capture LOGIN")
    assert name in str(caught.value)
    assert "not permitted to log in" in str(caught.value)
    assert "credentials.capture" in caught.value.remedy
    time.sleep(1)
    assert failed(), "nobody asked for a restart"
    connect.restart(name)
    connect.wait_running(name)
    captured.database.execute("INSERT INTO t VALUES (1)")
    captured.events(topic, 1)


def test_a_wait_that_does_not_end_says_what_it_saw(captured: Captured) -> None:
    captured.connect.pause(captured.names.connector)
    with pytest.raises(ConnectError) as caught:
        captured.connect.wait_running(captured.names.connector, timeout_s=2)
    assert "PAUSED" in str(caught.value)
    captured.connect.resume(captured.names.connector)
    captured.connect.wait_running(captured.names.connector)
    with pytest.raises(ConnectError) as caught:
        captured.connect.wait_running("nobody", timeout_s=0.2)
    assert "does not exist yet" in str(caught.value)


def test_a_slot_that_was_created_again_stops_the_connector(captured: Captured) -> None:
    """Without the check the connector would go on from the new slot, and changes would be lost."""
    connect, name, slot = captured.connect, captured.names.connector, captured.names.slot
    wait_until(lambda: connect.offset(name) is not None, "a stored position")
    connect.stop(name)
    capture_of(captured.source, slot=slot).kept_log.drop()
    captured.database.execute("CREATE TABLE between (id int PRIMARY KEY)")
    capture_of(captured.source, slot=slot).kept_log.create()
    connect.resume(name)
    with pytest.raises(ConnectError) as caught:
        connect.wait_running(name)
    assert "no longer available" in str(caught.value)
    assert "tributary bootstrap" in caught.value.remedy

    assert connect.delete(name) is True
    assert connect.status(name) is None
    connect.put_connector(name, captured.settings())
    connect.wait_running(name)
    assert connect.delete("nobody") is False


def test_the_position_is_not_that_of_a_former_connector_of_the_same_name(
    captured: Captured,
) -> None:
    connect, name, kafka = captured.connect, captured.names.connector, captured.kafka
    wait_until(lambda: connect.offset(name) is not None, "a stored position")
    connect.delete(name, forget_offsets=False)
    later = replace(captured.names, topic_prefix=f"{captured.names.topic_prefix}_later")
    kafka.ensure_topics({later.heartbeat_topic: {}, later.marker_topic: {}})
    connect.put_connector(name, captured.settings(topic__prefix=later.topic_prefix))
    wait_until(lambda: connect.offset(name) is not None, "a stored position of its own")
    with connect_rest(captured.database.stack) as rest:
        listed = rest.get(f"/connectors/{name}/offsets").raise_for_status().json()["offsets"]
    stored = {one["partition"]["server"]: one["offset"] for one in listed}
    assert set(stored) == {captured.names.topic_prefix, later.topic_prefix}
    former = stored[captured.names.topic_prefix]["lsn"]
    wait_until(lambda: connect.offset(name)["lsn"] > former, "a position of its own heartbeats")


def test_nothing_is_lost_or_doubled_when_the_worker_is_killed(
    captured: Captured, stack: LocalStack
) -> None:
    captured.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    topic = captured.add("t")
    done = threading.Event()
    written: list[int] = []

    def write() -> None:
        with captured.database.connect() as connection:
            while not done.wait(0.005):
                number = len(written) + 1
                connection.execute(b"INSERT INTO t VALUES (%s)", [number])
                written.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        captured.events(topic, 50)
        stack.server("connect").kill()
        before = len(written)
        stack.server("connect").start()
        wait_until(lambda: len(written) > before + 50, "writes after the crash")
    finally:
        done.set()
        writer.join()
    captured.connect.wait_running(captured.names.connector)
    goal = captured.source.current_position()

    def confirmed() -> bool:
        slot = captured.source.capture(captured.names).kept_log.health()
        assert slot is not None
        return slot.confirmed_flush_lsn is not None and slot.confirmed_flush_lsn >= goal

    wait_until(confirmed, f"the slot reaching {goal}")
    assert [event.after for event in captured.read(topic)] == [{"id": n} for n in written]


def test_an_unreachable_worker_is_told_with_its_address(captured: Captured) -> None:
    config = captured.config.connect.model_copy(update={"url": "http://127.0.0.1:9"})
    with (
        contextlib.closing(ConnectClient(config)) as client,
        stamina.set_testing(True, attempts=2),
        pytest.raises(ConnectError) as caught,
    ):
        client.worker()
    assert "http://127.0.0.1:9" in str(caught.value)
    assert "connect.url" in caught.value.remedy


def test_something_else_than_connect_is_not_taken_for_it(captured: Captured) -> None:
    registry = captured.config.kafka.registry.url
    config = captured.config.connect.model_copy(update={"url": registry})
    with (
        contextlib.closing(ConnectClient(config)) as client,
        stamina.set_testing(True, attempts=2),
        pytest.raises(ConnectError) as caught,
    ):
        client.worker()
    assert registry in str(caught.value)


@pytest.mark.breadth
def test_a_worker_without_exactly_once_is_recognised(
    captured: Captured, plain_worker: PlainWorker
) -> None:
    with contextlib.closing(ConnectClient(plain_worker.config)) as client:
        assert client.worker().exactly_once is False
        with pytest.raises(ConnectError) as caught:
            client.put_connector("other", captured.settings(slot__name="other"))
        assert "exactly-once" in str(caught.value)
        assert "exactly.once.source.support=enabled" in caught.value.remedy
        assert client.names() == []
