"""Incremental runs on the real stack: conditions that stop a table, and some that do not."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from cdc.capture import position_check
from cdc.capture.remembered_losses import loss_scopes
from cdc.capture.topic_facts import cut_off, one_topic, topic_facts
from cdc.errors import ConfigError, FencedError, SourceError
from cdc.lake.pointer import local_folder
from cdc.log.position import Lsn
from cdc.run import expiring, plan, run_table, run_tables
from cdc.sources.postgres.slot_capture import PostgresCapture, Slot
from cdc.store.lease import Leases
from cdc.store.loss_counts import Losses
from cdc.store.table_state import Cause, State, transition
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.faults import DownRegistry, FreeLeases, Interrupting, produce, restarted
from tests.integration.rigs.replication import Replication
from tests.integration.rigs.running import Orders
from tests.integration.rigs.running import orders as orders
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.servers import add_partition, alter_topic, delete_records


def test_a_record_that_cannot_be_read_stops_its_table_only(
    orders: Orders, shared: Replication
) -> None:
    other = f"{orders.name}_other"
    orders.execute(f"CREATE TABLE {other} (id int PRIMARY KEY)")
    shared.add(other)
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)", f"INSERT INTO {other} VALUES (1)")
    shared.settle()
    topic = shared.record(orders.name).topic
    produce(shared.config, topic, b"\x00\x00\x00\x00\x01 not avro")
    offset = shared.kafka.stable_offsets(topic)[0] - 1
    records = [shared.record(orders.name), shared.record(other)]
    bad, good = run_tables(shared.context(), records)
    assert (good.error, good.commits) == (None, 1)
    assert shared.lake(other, "id") == [(1,)]
    assert bad.error is not None
    assert bad.error.error == "DecodeError", bad.error
    assert bad.error.context["offset"] == str(offset)
    assert bad.error.context["topic"] == topic
    assert bad.error.context["schema_id"] == "1"
    failed = shared.record(orders.name)
    assert (failed.state, failed.failures) == (State.FAILED, 1)
    assert failed.retry_at is not None
    assert failed.retry_at > datetime.now(timezone.utc)
    assert run_tables(shared.context(), [failed]) == [], "its next try has not come"
    shared.store.put(replace(failed, retry_at=datetime.now(timezone.utc)))
    assert orders.run().error is not None
    again = shared.record(orders.name)
    assert (again.state, again.failures) == (State.FAILED, 2), "pauses grow"


def test_an_unknown_schema_id_names_the_record(orders: Orders, shared: Replication) -> None:
    topic = shared.record(orders.name).topic
    produce(shared.config, topic, b"\x00\x00\x0f\xff\xff body")
    result = orders.run()
    assert result.error is not None
    assert result.error.error == "DecodeError"
    assert result.error.context["schema_id"] == str(0x000FFFFF)
    assert result.error.context["offset"] == "0"


def test_a_failed_table_goes_on_when_its_time_has_come(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    shared.settle()
    broken = shared.context(registry=DownRegistry())
    (result,) = run_tables(broken, [shared.record(orders.name)])
    assert result.error is not None
    assert result.error.error == "RegistryError"
    failed = shared.record(orders.name)
    assert failed.state is State.FAILED
    shared.store.put(replace(failed, retry_at=datetime.now(timezone.utc)))
    assert orders.run().error is None
    healed = shared.record(orders.name)
    assert (healed.state, healed.failures, healed.error) == (State.INCREMENTAL, 0, None)
    orders.assert_equal()


def test_a_table_that_another_run_holds_is_left_alone(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    with Leases(shared.store, owner="someone").hold(shared.table(orders.name)):
        result = orders.run()
    assert (result.skipped, result.error, result.commits) == (True, None, 0)
    assert "someone" in result.warnings[0]
    assert orders.state is State.INCREMENTAL
    assert orders.run().commits == 1


def test_a_batch_that_was_read_before_another_commit_is_refused(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute("DELETE FROM T")
    shared.settle()
    record = shared.record(orders.name)
    # The other run commits while this one is about to: only the guard can notice.
    registry = Interrupting(shared.registry, lambda: orders.run(leases=FreeLeases(shared.store)))
    stale = run_table(shared.context(registry=registry), record)
    assert registry.interrupted
    assert stale.error is not None
    assert stale.error.error == FencedError.__name__
    assert orders.state is State.INCREMENTAL
    assert orders.lake("id") == []


def test_a_topic_that_lost_records_needs_a_bootstrap(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)", "INSERT INTO T VALUES (2, 'a', 'b', 1)")
    shared.settle()
    record, context = shared.record(orders.name), shared.context()
    topic = record.topic
    assert expiring(context, [record]) == []
    alter_topic(shared.config.kafka, topic, retention_ms="3600000", retention_bytes="1000000")
    for_time, for_size = expiring(context, [record])
    assert f"topic {topic}: changes are kept for 1.0 h, less than" in for_time.message
    assert for_time.remedy == f"Set retention.ms=604800000 on topic {topic}."
    assert "1000000 bytes are kept" in for_size.message
    one_topic(context, topic)
    alter_topic(shared.config.kafka, topic, retention_ms="-1", retention_bytes="-1")
    assert len(expiring(context, [record])) == 2, "what a run has just seen is not asked again"
    assert expiring(context, [record]) == []
    delete_records(shared.config.kafka, topic, 1)
    result = orders.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "offsets 0 to 0 of topic" in (shared.record(orders.name).reason or "")
    assert orders.lake("id") == []


def test_a_topic_that_somebody_compacts_stops_its_table_until_it_is_not(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    assert orders.run().error is None
    topic = shared.record(orders.name).topic
    alter_topic(shared.config.kafka, topic, cleanup_policy="compact,delete")
    idle = orders.run()
    assert idle.error is not None, "also without new changes"
    assert (idle.error.error, idle.state) == ("CaptureError", State.FAILED)
    assert "cleanup.policy=compact,delete" in idle.error.message
    assert topic in idle.error.remedy
    alter_topic(shared.config.kafka, topic, cleanup_policy="delete")
    orders.execute("DELETE FROM T")
    failed = shared.record(orders.name)
    shared.store.put(replace(failed, retry_at=datetime.now(timezone.utc)))
    result = orders.run()
    assert (result.error, result.state, orders.lake("id")) == (None, State.INCREMENTAL, [])


def test_a_topic_whose_records_may_be_compacted_away_needs_a_bootstrap(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    shared.settle()
    topic = shared.record(orders.name).topic
    alter_topic(shared.config.kafka, topic, cleanup_policy="compact", min_compaction_lag_ms="0")
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    assert "Kafka may have removed deletes" in (shared.record(orders.name).reason or "")
    assert orders.lake("id") == []


@pytest.mark.breadth  # as after an unclean election: the disk is from before the last changes
def test_a_topic_that_was_cut_off_and_filled_again_needs_a_bootstrap(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    assert orders.run().error is None
    stack, topic = shared.database.stack, shared.record(orders.name).topic
    folder = stack.folder / "kafka" / "data" / f"{topic}-0"
    saved = shared.folder / folder.name
    with restarted(stack, "kafka"):
        shutil.copytree(folder, saved)
    shared.connect.wait_running(shared.capture.connector)
    context = shared.context()
    assert one_topic(context, topic).epochs != orders.newest.epochs, "another leads"
    assert run_tables(context, [shared.record(orders.name)]) == [], "and has all that was read"
    kept = shared.record(orders.name).last_commit
    assert kept is not None
    assert kept.epochs == one_topic(context, topic).epochs, "it is not asked again"
    orders.execute("INSERT INTO T VALUES (2, 'a', 'b', 1)")
    result = orders.run()
    assert (result.error, orders.lake("id")) == (None, [(1,), (2,)]), "another leader loses nothing"
    assert orders.newest.epochs != {}
    with restarted(stack, "kafka"):
        shutil.rmtree(folder)
        shutil.copytree(saved, folder)
    reached = orders.newest.offsets[0]
    wait_until(lambda: shared.kafka.stable_offsets(topic)[0] < reached, "the older log")
    while shared.kafka.stable_offsets(topic)[0] < reached:
        produce(shared.config, topic, b"\x00\x00\x00\x00\x01 of another time")
    record, context = shared.record(orders.name), shared.context()
    assert shared.kafka.stable_offsets(topic) == {0: reached}
    facts = topic_facts(context, [topic])
    assert plan.due([record], facts) == [], "by its offsets it is idle"
    assert cut_off(context, [record], facts) == {record.table}
    produce(shared.config, topic, b"\x00\x00\x00\x00\x01 of another time")
    stopped = run_table(shared.context(), record)
    assert stopped.state is State.NEEDS_BOOTSTRAP, stopped.error
    assert f"topic {topic} partition 0 was cut off" in (shared.record(orders.name).reason or "")
    assert orders.lake("id") == [(1,), (2,)]


def test_more_partitions_of_a_topic_need_a_bootstrap(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    assert orders.run().error is None
    add_partition(shared.config.kafka, topic := shared.record(orders.name).topic)
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    assert f"topic {topic} has 2 partitions" in (shared.record(orders.name).reason or "")


def test_a_recreated_topic_needs_a_bootstrap(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    topic = shared.record(orders.name).topic
    shared.source.capture(shared.capture).sent_tables.remove([shared.table(orders.name)])
    shared.kafka.delete_topic(topic)
    deadline = time.monotonic() + 30
    while shared.kafka.topics([topic]) and time.monotonic() < deadline:
        time.sleep(0.1)
    shared.kafka.ensure_topic(topic)
    result = orders.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "created again" in (shared.record(orders.name).reason or "")


def test_a_table_that_left_the_publication_needs_a_bootstrap(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    shared.settle()
    table = shared.table(orders.name)
    shared.source.capture(shared.capture).sent_tables.remove([table])
    result = orders.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "not in publication" in (shared.record(orders.name).reason or "")


def test_a_table_that_was_out_of_the_publication_for_a_while_needs_a_bootstrap(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    table = shared.table(orders.name)
    shared.source.capture(shared.capture).sent_tables.remove([table])
    orders.execute("INSERT INTO T VALUES (2, 'a', 'b', 1)")
    shared.source.capture(shared.capture).sent_tables.add([table])
    orders.execute("INSERT INTO T VALUES (3, 'a', 'b', 1)")
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    assert "publication_entry" in (shared.record(orders.name).reason or "")
    assert orders.lake("id") == [(1,)]


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ("publish = 'insert, truncate'", "publish = 'insert, update, delete, truncate'"),
        pytest.param(
            "publish_via_partition_root = false",
            "publish_via_partition_root = true",
            marks=pytest.mark.breadth,
        ),
    ],
    ids=["flags", "root"],
)
def test_a_publication_that_was_set_otherwise_for_a_while_needs_a_bootstrap(
    orders: Orders, shared: Replication, change: str, back: str
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute(f"CREATE TABLE {orders.name}_other (id int PRIMARY KEY)")
    shared.add(f"{orders.name}_other")
    orders.execute("INSERT INTO T VALUES (2, 'a', 'b', 1)")
    assert orders.run().error is None, "another table that comes in stops nobody"
    alter = f"ALTER PUBLICATION {shared.capture.publication} SET"
    orders.execute(f"{alter} ({change})", "UPDATE T SET note = 'b'", f"{alter} ({back})")
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    assert "its publication was altered" in (shared.record(orders.name).reason or "")


def test_a_table_that_was_dropped_and_created_again_needs_a_bootstrap(
    orders: Orders, shared: Replication
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute(
        "DROP TABLE T",
        "CREATE TABLE T (id int PRIMARY KEY, note text, body text, price numeric(10,2))",
    )
    shared.source.capture(shared.capture).sent_tables.add([shared.table(orders.name)])
    orders.execute("INSERT INTO T VALUES (2, 'a', 'b', 1)")
    assert orders.run().state is State.NEEDS_BOOTSTRAP


@pytest.mark.parametrize(
    "change", ["ATTACH PARTITION T_b FOR VALUES IN (2)", "DETACH PARTITION T_a"]
)
def test_a_partition_that_comes_or_goes_with_its_rows_needs_a_bootstrap(
    orders: Orders, shared: Replication, change: str
) -> None:
    name = f"{orders.name}_parts"
    statements = (
        f"CREATE TABLE {name} (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
        f"CREATE TABLE {name}_a PARTITION OF {name} FOR VALUES IN (1)",
        f"CREATE TABLE {name}_b (id int, part int NOT NULL, PRIMARY KEY (id, part))",
    )
    shared.database.execute(*statements)
    shared.add(name)
    shared.database.execute(
        f"INSERT INTO {name} VALUES (1, 1)", f"INSERT INTO {name}_b VALUES (2, 2)"
    )
    parts = Orders(shared, name)
    assert parts.run().error is None
    shared.database.execute(f"ALTER TABLE {name} {change.replace('T_', f'{name}_')}")
    assert parts.run().state is State.NEEDS_BOOTSTRAP
    assert "leaves" in (shared.record(name).reason or "")
    assert shared.lake(name, "id") == [(1,)], "what was committed stays readable"


@pytest.mark.breadth
def test_a_partition_that_came_and_went_between_two_looks_leaves_its_rows(
    orders: Orders, shared: Replication
) -> None:
    """A known gap: the rows arrive as events, but neither catalog nor events show their removal."""
    name = f"{orders.name}_parts"
    shared.database.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY) PARTITION BY LIST (id)",
        f"CREATE TABLE {name}_a PARTITION OF {name} FOR VALUES IN (1)",
    )
    shared.add(name)
    shared.database.execute(
        f"INSERT INTO {name} VALUES (1)",
        f"CREATE TABLE {name}_b PARTITION OF {name} FOR VALUES IN (2)",
        f"INSERT INTO {name} VALUES (2)",
        f"DROP TABLE {name}_b",
    )
    assert Orders(shared, name).run().error is None
    assert shared.lake(name, "id") == [(1,), (2,)]


def test_a_changed_replica_identity_needs_a_bootstrap(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    assert orders.run().error is None
    orders.execute("ALTER TABLE T REPLICA IDENTITY NOTHING")
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    assert "identity" in (shared.record(orders.name).reason or "")


def test_a_table_that_was_dropped_is_said_to_be_gone(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute("DROP TABLE T")
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    assert "has no table" in (shared.record(orders.name).reason or "")
    assert orders.lake("id") == [(1,)]


def test_a_source_that_is_down_is_asked_once_for_all_its_idle_tables(
    orders: Orders, shared: Replication, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"{orders.name}_other"
    orders.execute(f"CREATE TABLE {other} (id int PRIMARY KEY)")
    shared.add(other)
    section = shared.config.source(shared.database.name)
    primary = section.primary.model_copy(update={"port": 1})
    down = type(shared.source)(
        shared.database.name, section.model_copy(update={"primary": primary})
    )
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)", f"INSERT INTO {other} VALUES (1)")
    shared.settle()
    names = (orders.name, other)
    run_tables(shared.context(), [shared.record(name) for name in names])
    records = [shared.record(name) for name in names]
    with caplog.at_level("WARNING", logger="cdc.run"):
        context = shared.context(sources={shared.database.name: down})
        assert run_tables(context, records) == []
    assert [len(one.tables) for one in context.unchecked] == [2]
    told = [message for message in caplog.messages if "were not checked" in message]
    assert len(told) == 1, told
    assert told[0].startswith("2 idle tables")
    assert {shared.record(name).state for name in names} == {State.INCREMENTAL}


def test_a_lost_slot_is_found_while_the_catalog_cannot_be_asked(
    orders: Orders, shared: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()

    def away(*_: object) -> None:
        raise SourceError("the catalog cannot be read now", remedy="Wait.")

    monkeypatch.setattr(PostgresCapture, "fingerprints", away)
    monkeypatch.setattr(Slot, "health", lambda *_: None)
    (result,) = run_tables(shared.context(), [shared.record(orders.name)])
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "slot" in str(shared.record(orders.name).reason)


def test_a_log_that_one_table_finds_lost_is_lost_for_its_whole_capture(
    orders: Orders, shared: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture, table = loss_scopes(shared.capture, shared.table(orders.name))
    before = Losses(shared.store).seen(capture, table)
    # As after a restore of the server to a state that is earlier than what the lake has.
    monkeypatch.setattr(position_check, "rests_on", lambda *_: Lsn(2**62))
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    after = Losses(shared.store).seen(capture, table)
    assert table not in after
    assert after[capture].times == (before[capture].times if capture in before else 0) + 1
    assert str(shared.table(orders.name)) in after[capture].what


def test_facts_of_a_topic_that_another_run_has_passed_are_read_again(
    orders: Orders, shared: Replication
) -> None:
    record = shared.record(orders.name)
    stale = one_topic(shared.context(), record.topic)
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    assert orders.run().commits == 1
    orders.execute("INSERT INTO T VALUES (2, 'a', 'b', 1)")
    shared.settle()
    result = run_table(shared.context(), record, topic=stale)
    assert (result.error, result.commits) == (None, 1)
    orders.assert_equal()


def test_a_lake_without_offsets_never_starts_again(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    record = shared.record(orders.name)
    assert record.attempt is not None
    shutil.rmtree(str(local_folder(record.attempt.path)))
    result = orders.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "carries offsets" in (shared.record(orders.name).reason or "")


def test_a_table_that_is_paused_meanwhile_stays_paused(orders: Orders, shared: Replication) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    record = shared.record(orders.name)

    def pause() -> None:
        now = datetime.now(timezone.utc)
        fresh = shared.record(orders.name)
        shared.store.put(transition(fresh, State.PAUSED, at=now, cause=Cause(reason="by a person")))

    shared.settle()
    result = run_table(shared.context(registry=Interrupting(shared.registry, pause)), record)
    assert (result.error, result.commits, result.state) == (None, 1, State.PAUSED)
    paused = shared.record(orders.name)
    assert (paused.state, paused.reason) == (State.PAUSED, "by a person")
    assert paused.last_commit is not None
    assert paused.last_commit.offsets == orders.newest.offsets


def test_a_source_that_cannot_be_opened_stops_no_run(orders: Orders, shared: Replication) -> None:
    """The table is idle: the lake already has all changes, so the run needs no source."""

    class Unopened(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise ConfigError(f"no source {name}", remedy="Name it.", field=f"sources.{name}")

    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    record = shared.record(orders.name)
    assert run_tables(shared.context(sources=Unopened()), [record]) == []


def test_settings_that_clash_for_one_table_stop_that_table(
    orders: Orders, shared: Replication
) -> None:
    """Each of two patterns of tables is valid alone; for a table that matches both, they clash."""
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    shared.settle()
    before = dict(shared.tables)
    only, but = ({"columns": {how: ["id", "note"]}} for how in ("include", "exclude"))
    shared.tables = {**before, f"public.{orders.name}": only, f"public.{orders.name}*": but}
    shared.configure()
    try:
        (result,) = run_tables(shared.context(), [shared.record(orders.name)])
    finally:
        shared.tables = before
        shared.configure()
    assert result.error is not None
    assert "include or exclude" in result.error.message
    failed = shared.record(orders.name)
    shared.store.put(replace(failed, retry_at=datetime.now(timezone.utc)))
    assert orders.run().error is None
    orders.assert_equal()
