"""The behaviour of the real PostgreSQL connector on which the handoff relies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest

from cdc.debezium import (
    Heartbeat,
    audit,
    latest_heartbeat,
    stored_position,
    wait_for_heartbeat,
    wait_while_sending,
)
from cdc.errors import CaptureError, ConnectError
from cdc.log.position import Lsn
from stack.local import LocalStack
from tests.integration.rigs.captured import Captured, Event, capturing, wait_until
from tests.integration.rigs.postgres import Database, own_database


@pytest.fixture
def captured(database: Database) -> Iterator[Captured]:
    with capturing(database) as started:
        yield started


@pytest.fixture(scope="module")
def shared(stack: LocalStack) -> Iterator[Captured]:
    """A capture for all tests that do not change the connector; each test adds its own table."""
    with own_database(stack) as database, capturing(database) as started:
        yield started


def run_id(event: Event) -> bytes | None:
    """The run id in an event's headers; each start of the connector's task has a new one."""
    return event.headers["__debezium.context.runId"]


def test_the_effective_configuration_is_proven_and_holds_no_secret(
    shared: Captured, stack: LocalStack
) -> None:
    effective = shared.connect.connector(shared.names.connector)
    assert effective is not None
    assert audit(effective, shared.names) == []
    for file in (stack.folder / "secrets").glob("*.password"):
        secret = file.read_text().strip()
        assert secret
        assert not [name for name, value in effective.items() if secret in value]
    assert effective["database.password"].startswith("${directory:")


def test_a_property_changed_by_hand_is_found(captured: Captured) -> None:
    captured.connect.put_connector(
        captured.names.connector, captured.settings(skipped__operations="t")
    )
    effective = captured.connect.connector(captured.names.connector)
    assert effective is not None
    (finding,) = audit(effective, captured.names)
    assert (finding.property, finding.found, finding.required) == (
        "skipped.operations",
        "t",
        "none",
    )


def test_tables_are_added_while_the_connector_runs(shared: Captured) -> None:
    shared.database.execute(
        "CREATE TABLE first (id int PRIMARY KEY)", "CREATE TABLE second (id int PRIMARY KEY)"
    )
    one = shared.add("first")
    shared.database.execute("INSERT INTO first VALUES (1)", "INSERT INTO second VALUES (1)")
    (before,) = shared.events(one, 1)
    two = shared.add("second")
    shared.database.execute("INSERT INTO second VALUES (2)", "INSERT INTO first VALUES (2)")
    (added,) = shared.events(two, 1)
    assert added.after == {"id": 2}, "what came before the publication is not an event"
    assert [event.after for event in shared.events(one, 2)] == [{"id": 1}, {"id": 2}]
    assert run_id(added) == run_id(before), "the task was restarted"


def test_nothing_is_captured_but_the_publication(shared: Captured) -> None:
    shared.database.execute(
        "CREATE TABLE ours (id int PRIMARY KEY)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO ours VALUES (0)",
    )
    topic = shared.add("ours")
    shared.database.execute(
        "INSERT INTO other VALUES (1)",
        "SELECT pg_logical_emit_message(false, 'beat', 'now')",
        "SELECT pg_logical_emit_message(true, E'of\\ntwo lines', repeat('x', 2000000))",
        "SELECT pg_logical_emit_message(true, '', 'without a prefix')",
        "INSERT INTO ours VALUES (1)",
    )
    (event,) = shared.events(topic, 1)
    assert event.after == {"id": 1}, "rows from before the publication were sent: a snapshot ran"
    unpublished = shared.names.topic(shared.table("other"))
    messages = f"{shared.names.topic_prefix}.message"
    assert shared.kafka.topics([unpublished, messages]) == {}


def test_every_operation_arrives_in_the_order_of_the_log(shared: Captured) -> None:
    shared.database.execute("CREATE TABLE item (id int PRIMARY KEY, note text)")
    topic = shared.add("item")
    shared.database.execute(
        "INSERT INTO item VALUES (1, 'a'), (2, 'b')",
        "UPDATE item SET note = 'c' WHERE id = 1",
        "DELETE FROM item WHERE id = 1",
        "TRUNCATE item",
        "INSERT INTO item VALUES (3, 'd')",
    )
    events = shared.events(topic, 7)
    seen = [(event.op, event.key, event.before, event.after) for event in events]
    assert seen == [
        ("c", {"id": 1}, None, {"id": 1, "note": "a"}),
        ("c", {"id": 2}, None, {"id": 2, "note": "b"}),
        ("u", {"id": 1}, None, {"id": 1, "note": "c"}),
        ("d", {"id": 1}, {"id": 1, "note": None}, None),
        (None, {"id": 1}, None, None),
        ("t", None, None, None),
        ("c", {"id": 3}, None, {"id": 3, "note": "d"}),
    ]
    offsets = [event.record.offset for event in events]
    assert offsets == sorted(offsets)
    assert shared.kafka.stable_offsets(topic)[0] > offsets[-1] + 1, "no transaction marker"


def test_a_moved_key_is_a_delete_and_an_insert_that_name_each_other(shared: Captured) -> None:
    shared.database.execute("CREATE TABLE pair (a int, b text, c int, PRIMARY KEY (b, a))")
    topic = shared.add("pair")
    shared.database.execute("INSERT INTO pair VALUES (1, 'x', 7)", "UPDATE pair SET b = 'y'")
    _, deleted, tombstone, inserted = shared.events(topic, 4)
    assert (deleted.op, deleted.key) == ("d", {"b": "x", "a": 1})
    assert deleted.before == {"a": 1, "b": "x", "c": None}
    assert (tombstone.op, tombstone.key) == (None, {"b": "x", "a": 1})
    assert (inserted.op, inserted.key) == ("c", {"b": "y", "a": 1})
    assert inserted.after == {"a": 1, "b": "y", "c": 7}
    assert deleted.headers["__debezium.newkey"] == b'{"b":"y","a":1}'
    assert inserted.headers["__debezium.oldkey"] == b'{"b":"x","a":1}'
    assert deleted.key_schema is not None
    assert [field.column for field in deleted.key_schema.key] == ["b", "a"], "in the index' order"


def test_keys_come_from_the_replica_identity_where_there_is_no_primary_key(
    shared: Captured,
) -> None:
    shared.database.execute(
        "CREATE TABLE code (id int NOT NULL, note text)",
        "CREATE UNIQUE INDEX code_id ON code (id)",
        "ALTER TABLE code REPLICA IDENTITY USING INDEX code_id",
    )
    topic = shared.add("code")
    shared.database.execute("INSERT INTO code VALUES (1, 'a')", "DELETE FROM code")
    inserted, deleted, _ = shared.events(topic, 3)
    assert inserted.key == {"id": 1}
    assert deleted.before == {"id": 1, "note": None}


COLUMNS = ("id", "a b", "a-b", "größe", "grüße", "1st", "select", "$x", "UP", 'q"t', "d.ot", "a_b")


def test_any_name_of_a_column_travels(shared: Captured) -> None:
    quoted = ['"' + name.replace('"', '""') + '"' for name in COLUMNS]
    columns = ", ".join(f"{name} int" for name in quoted)
    key = 'PRIMARY KEY ("größe", id)'
    shared.database.execute(f"CREATE TABLE hostile ({columns}, {key})")
    topic = shared.add("hostile")
    values = dict(zip(COLUMNS, range(len(COLUMNS)), strict=True))
    listed = ", ".join(str(value) for value in values.values())
    shared.database.execute(f"INSERT INTO hostile VALUES ({listed})")
    (event,) = shared.events(topic, 1)
    assert event.after == values
    assert event.schema is not None
    assert event.key_schema is not None
    for name in COLUMNS:
        field = event.schema.field(name)
        assert field is not None
        assert field.column == name
    found = event.key_schema.field("größe")
    assert found is not None
    assert event.key is not None
    assert event.key[found.name] == values["größe"]


@pytest.mark.parametrize("name", ["My Table", "größe", "a.b", "UPPER", "t-1", "2024", "😀"])
def test_any_name_of_a_table_has_the_topic_and_the_schema_that_we_say(
    shared: Captured, name: str
) -> None:
    shared.database.execute(f'CREATE TABLE "{name}" (id int PRIMARY KEY)')
    topic = shared.add(name)
    shared.database.execute(f'INSERT INTO "{name}" VALUES (1)')
    (event,) = shared.events(topic, 1)
    assert event.after == {"id": 1}
    assert event.value is not None
    assert event.value["source"]["table"] == name
    assert event.schema is not None
    assert event.schema.mismatch(topic) is None


def test_heartbeats_carry_the_servers_identity_and_move_the_slot(shared: Captured) -> None:
    wait_for_heartbeat(shared.kafka, shared.names, after=0, timeout_s=30)
    first = latest_heartbeat(shared.kafka, shared.registry, shared.names)
    assert first is not None
    identity = shared.source.identity()
    assert (first.system_identifier, first.timeline) == (
        identity.system_identifier,
        identity.timeline,
    )
    assert first.owner == shared.names.slot
    goal = shared.source.current_position()

    def confirmed() -> bool:
        slot = shared.source.capture(shared.names).kept_log.health()
        assert slot is not None
        return slot.confirmed_flush_lsn is not None and slot.confirmed_flush_lsn >= goal

    wait_until(confirmed, "the slot moving on an idle source", 30)

    def newest() -> Heartbeat:
        found = latest_heartbeat(shared.kafka, shared.registry, shared.names)
        assert found is not None
        return found

    # A keepalive can confirm the position before the next heartbeat is in Kafka.
    wait_until(lambda: newest().topic_offset > first.topic_offset, "the next heartbeat", 30)
    assert newest().beat_at > first.beat_at


def test_a_connector_without_heartbeats_is_told_although_it_runs(captured: Captured) -> None:
    captured.database.execute("REVOKE ALL ON tributary.heartbeat FROM tributary_capture")
    captured.connect.restart(captured.names.connector, only_failed=False)
    captured.connect.wait_running(captured.names.connector)
    wait_until(lambda: _quiet(captured), "the last heartbeat", 30)
    seen = captured.kafka.stable_offsets(captured.names.heartbeat_topic)[0]
    with pytest.raises(CaptureError) as caught:
        wait_for_heartbeat(captured.kafka, captured.names, after=seen, timeout_s=3)
    assert captured.names.heartbeat_topic in str(caught.value)
    assert "heartbeat" in caught.value.remedy


@pytest.mark.breadth
def test_a_connector_that_still_sends_changes_is_waited_for(captured: Captured) -> None:
    """While the connector sends a large transaction, no heartbeats come; here they are blocked."""
    captured.database.execute(
        "CREATE TABLE busy (id serial PRIMARY KEY)",
        "REVOKE ALL ON tributary.heartbeat FROM tributary_capture",
    )
    topic = captured.add("busy")
    wait_until(lambda: _quiet(captured), "the last heartbeat", 30)
    seen = captured.kafka.stable_offsets(captured.names.heartbeat_topic)[0]
    began = time.monotonic()

    def insert() -> None:
        while time.monotonic() < began + 8:
            captured.database.execute("INSERT INTO busy DEFAULT VALUES")
            time.sleep(0.5)
        captured.database.execute("GRANT ALL ON tributary.heartbeat TO tributary_capture")

    writer = threading.Thread(target=insert)
    writer.start()
    try:
        wait_while_sending(
            captured.kafka,
            [topic],
            lambda: wait_for_heartbeat(captured.kafka, captured.names, after=seen, timeout_s=4),
        )
    finally:
        writer.join()
    assert time.monotonic() - began > 8


@pytest.mark.breadth
def test_a_table_that_nobody_captures_can_stop_the_connector_which_is_told_at_once(
    captured: Captured,
) -> None:
    captured.database.execute('CREATE TABLE stranger (a int PRIMARY KEY, "A" int)')
    source, name = captured.source, captured.names.connector
    problem, remedy = source.capture_obstacle() or ("", "")
    assert 'public"."stranger" ("a", "A")' in problem
    assert "RENAME COLUMN" in remedy
    assert "names of columns" in {line.name for line in source.checks() if line.status == "error"}
    captured.connect.restart(name, only_failed=False)
    began = time.monotonic()
    with pytest.raises(ConnectError, match="differ only by case") as caught:
        wait_for_heartbeat(
            captured.kafka,
            captured.names,
            after=1_000_000,
            timeout_s=120,
            require_running=lambda: captured.connect.require_sound(name),
        )
    assert time.monotonic() - began < 60
    assert "Rename one of the columns" in caught.value.remedy
    captured.database.execute('ALTER TABLE stranger RENAME COLUMN "A" TO b')
    assert source.capture_obstacle() is None
    captured.connect.restart(name)
    captured.connect.wait_running(name)


def test_a_slot_that_cannot_be_read_is_told_although_the_connector_runs(captured: Captured) -> None:
    """PostgreSQL looks the publication up as of each change.

    So a change that was made while the publication was renamed can never be decoded.
    """
    publication = captured.names.publication
    captured.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    captured.add("t")
    captured.database.execute(
        f"ALTER PUBLICATION {publication} RENAME TO away",
        "INSERT INTO t VALUES (1)",
        f"ALTER PUBLICATION away RENAME TO {publication}",
    )
    wait_until(lambda: _quiet(captured), "the last heartbeat", 30)
    seen = captured.kafka.stable_offsets(captured.names.heartbeat_topic)[0]
    with pytest.raises(CaptureError) as caught:
        wait_for_heartbeat(captured.kafka, captured.names, after=seen, timeout_s=3)
    assert captured.names.slot in caught.value.remedy
    captured.connect.wait_running(captured.names.connector)


def _quiet(captured: Captured) -> bool:
    topic = captured.names.heartbeat_topic
    before = captured.kafka.stable_offsets(topic)[0]
    return not _grew(captured, topic, before)


def _grew(captured: Captured, topic: str, before: int) -> bool:
    try:
        wait_until(lambda: captured.kafka.stable_offsets(topic)[0] > before, "growth", 2.5)
    except AssertionError:
        return False
    return True


def test_connect_stores_the_position_it_has_reached(shared: Captured) -> None:
    shared.database.execute("CREATE TABLE stored (id int PRIMARY KEY)")
    topic = shared.add("stored")
    shared.database.execute("INSERT INTO stored VALUES (1)")
    shared.events(topic, 1)
    goal = shared.source.current_position()

    def stored() -> Lsn | None:
        found = stored_position(shared.connect, shared.names)
        assert found is None or isinstance(found, Lsn)
        return found

    wait_until(lambda: (stored() or Lsn(0)) >= goal, f"the stored position passing {goal}")


def test_what_is_in_kafka_is_what_committed(captured: Captured) -> None:
    captured.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    topic = captured.add("t")
    with captured.database.connect() as connection:
        connection.autocommit = False
        connection.execute("INSERT INTO t VALUES (1)")
        connection.rollback()
        connection.execute("INSERT INTO t VALUES (2)")
        connection.commit()
    (event,) = captured.events(topic, 1)
    assert event.after == {"id": 2}
    assert event.value is not None
    previous, own = json.loads(event.value["source"]["sequence"])
    # A heartbeat can have been the connector's first commit.
    assert previous is None or int(previous) < int(own)
    assert int(own) == event.value["source"]["lsn"]
