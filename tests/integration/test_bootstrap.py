"""Bootstraps on the real stack: handoffs under load, in difficult cases, and refused ones."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from bootstrap import handoff
from bootstrap.errors import AttemptSpoiledError, HandoffTimeoutError
from cdc.config import Config
from cdc.errors import CaptureError, PermanentError, ReplicaError, SourceError
from cdc.lake.publish import delete_path
from cdc.lake.timeline import Timeline
from cdc.runtime import spark as spark_module
from cdc.store.table_state import State
from stack.local import LocalStack
from tests.integration.rigs.bootstrapping import (
    Bootstrapping,
    Watch,
    fill,
    fill_wide,
    limits,
    open_transaction,
    writers,
)
from tests.integration.rigs.postgres import Database

COLUMNS = ("id", "v", "t")
WIDE_ROWS = 10_000
"""The number of rows with which a table is copied in several commits."""


@pytest.fixture(scope="module")
def spark(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    document = yaml.safe_load(stack.config_text())
    document["spark"] = {
        "master": "local[2]",
        "driver_memory": "2g",
        "conf": {"spark.local.dir": str(tmp_path_factory.mktemp("spark"))},
    }
    yield spark_module.session(Config.model_validate(document), "tributary-tests")
    spark_module.stop()


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, spark, tmp_path)) as opened:
        yield opened


def test_writers_lose_nothing(shop: Bootstrapping) -> None:
    fill(shop.database, "orders", 20_000)
    shop.add("orders")
    with writers(shop.database, "orders", 20_000) as done:
        result = shop.bootstrap("orders")
    assert sum(done) > 100
    attempt = shop.record("orders").attempt
    assert attempt is not None
    assert attempt.start_offsets is not None
    assert attempt.handoff_offsets is not None
    assert attempt.handoff_offsets[0] > attempt.start_offsets[0], "no event fell between O and H"
    assert (result.record.state, result.attempts) == (State.INCREMENTAL, 1)
    shop.catch_up_and_compare("orders", *COLUMNS)


def test_readers_see_nothing_before_the_handoff_is_reached(shop: Bootstrapping) -> None:
    fill(shop.database, "orders", 1000)
    shop.add("orders")
    seen: list[object] = []

    def look() -> None:
        seen.append((shop.record("orders").state, shop.published("orders")))
        shop.database.execute("UPDATE orders SET v = v + 1 WHERE id = 1")

    shop.bootstrap("orders", Watch(on_start={"copy": look, "copy > readable": look}))
    assert seen == [(State.BOOTSTRAPPING, None), (State.CATCHING_UP, None)]
    assert shop.published("orders") is not None


@pytest.mark.parametrize("rows", [0, pytest.param(1, marks=pytest.mark.breadth)])
def test_empty_and_one_row_tables(shop: Bootstrapping, rows: int) -> None:
    fill(shop.database, "orders", rows)
    shop.add("orders")
    assert shop.bootstrap("orders").rows == rows
    assert len(shop.lake("orders", "id")) == rows
    shop.database.execute("INSERT INTO orders VALUES (7, 8, 'nine')")
    shop.catch_up_and_compare("orders", *COLUMNS)


def test_snapshot_rows_explain_themselves(shop: Bootstrapping) -> None:
    fill(shop.database, "orders", 3)
    shop.add("orders")
    shop.bootstrap("orders")
    attempt = shop.record("orders").attempt
    assert attempt is not None
    rows = shop.lake("orders", "_cdc_op", "_cdc_position", "_cdc_offset", "_cdc_schema_id")
    assert rows == [("r", "0", -1, None)] * 3
    handed_off = Timeline(shop.spark, attempt.path).handoff()
    assert handed_off is not None
    handoff = handed_off.record.require_handoff()
    assert handoff.x0 == attempt.x0
    assert handoff.reads_upto == attempt.reads_upto
    assert handoff.handoff_offsets == attempt.handoff_offsets
    assert handoff.view.system_identifier == shop.source.identity().system_identifier


def test_a_transaction_open_across_the_publication_change_is_waited_for(
    shop: Bootstrapping,
) -> None:
    """The transaction's changes before the publication would be in neither copy nor stream."""
    fill(shop.database, "first", 1)
    shop.add("first")  # a slot is made only when older transactions have ended
    fill(shop.database, "orders", 100)
    with open_transaction(shop.database, "UPDATE orders SET v = 1 WHERE id = 1") as old:
        shop.add("orders")
        old.execute("UPDATE orders SET v = 2 WHERE id = 2")
        finish = threading.Timer(2.0, old.commit)
        finish.start()
        assert shop.bootstrap("orders").seconds > 1
        finish.join()
    shop.catch_up_and_compare("orders", *COLUMNS)


def test_a_transaction_that_never_ends_is_named(shop: Bootstrapping) -> None:
    fill(shop.database, "first", 1)
    shop.add("first")
    fill(shop.database, "orders", 100)
    with open_transaction(shop.database, "UPDATE orders SET v = 1 WHERE id = 1") as old:
        shop.add("orders")
        pid = old.info.backend_pid
        with pytest.raises(SourceError) as stopped:
            shop.bootstrap("orders", limits=limits(older_transactions_s=1.0))
        assert str(pid) in stopped.value.message
        old.rollback()
    record = shop.record("orders")
    assert (record.state, record.resume_to) == (State.FAILED, State.BOOTSTRAPPING)
    assert shop.bootstrap("orders").record.state is State.INCREMENTAL
    shop.catch_up_and_compare("orders", *COLUMNS)


def test_a_transaction_that_straddles_the_view_is_not_lost(shop: Bootstrapping) -> None:
    """In the log, the transaction's changes are before the view's position, its commit after it."""
    fill(shop.database, "orders", 20_000)
    shop.add("orders")
    straddling = open_transaction(
        shop.database, "UPDATE orders SET v = 41 WHERE id BETWEEN 100 AND 120"
    )
    opened: list[object] = []

    def open_it() -> None:
        connection = straddling.__enter__()
        opened.append(connection)
        shop.database.execute("INSERT INTO orders VALUES (900001, 0, 'pushes the log on')")

    def commit() -> None:
        straddling.__exit__(None, None, None)

    # Begun before the fence, committed once rows of the view have been read.
    shop.bootstrap(
        "orders", Watch(on_start={"wait for the replica": open_it}, on_advance={"copy": commit})
    )
    assert opened
    shop.catch_up_and_compare("orders", *COLUMNS)
    assert len(shop.lake("orders", "id", where="v = 41")) == 21


def test_a_rewriting_alter_under_the_view_spoils_the_attempt(
    shop: Bootstrapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rewrite, the view reads no rows from the table, without any error."""
    fill(shop.database, "orders", 5000)
    shop.add("orders")
    removed: list[str] = []

    def remove(spark: SparkSession, path: str) -> None:
        attempt = shop.record("orders").attempt
        assert attempt is not None
        assert attempt.path != path, "the attempt is given up before its files go"
        removed.append(path)
        delete_path(spark, path)

    monkeypatch.setattr(handoff, "delete_path", remove)

    def rewrite() -> None:
        shop.database.execute("ALTER TABLE orders ALTER v TYPE int USING v + 1")
        marker = shop.source.write_marker()
        shop.source.wait_for_marker_on_replica(marker, timeout_s=30, progress=Watch())

    result = shop.bootstrap("orders", Watch(on_start={"copy": rewrite}))
    assert (result.attempts, len(removed)) == (2, 1)
    shop.catch_up_and_compare("orders", *COLUMNS)
    folders = sorted(
        path.name
        for path in (shop.folder / "lake" / shop.database.name / "public" / "orders").iterdir()
    )
    assert len([name for name in folders if name.startswith("attempt=")]) == 1, folders


def test_changes_from_before_a_change_without_an_event_do_not_return(
    shop: Bootstrapping,
) -> None:
    """The connector lags: it reads an update only after an ALTER has rewritten the updated row."""
    shop.database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "INSERT INTO orders VALUES (1, 0), (2, 0)",
    )
    shop.add("orders")
    shop.settle()
    slot = shop.capture.slot
    ((sender,),) = shop.database.rows(
        f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{slot}'"
    )
    go_on = partial(os.kill, sender, signal.SIGCONT)
    os.kill(sender, signal.SIGSTOP)
    try:
        shop.database.execute(
            "UPDATE orders SET v = 10 WHERE id = 1",
            "ALTER TABLE orders ALTER v TYPE int USING v + 1",
        )
        shop.bootstrap("orders", Watch(on_start={"has captured": go_on}))
    finally:
        go_on()
    shop.catch_up_and_compare("orders", "id", "v")


def test_what_is_no_change_for_a_run_leaves_a_copy_alone(shop: Bootstrapping) -> None:
    """If each GRANT started the copy again, a table with daily GRANTs would never be copied."""
    fill(shop.database, "orders", 2000)
    shop.database.execute(
        "CREATE TYPE mood AS ENUM ('sad')", "ALTER TABLE orders ADD m mood DEFAULT 'sad'"
    )
    shop.add("orders")

    def harmless() -> None:
        shop.database.stack.psql(
            "GRANT UPDATE (t) ON orders TO PUBLIC; ALTER TABLE orders ALTER v SET STATISTICS 5;"
            " ALTER TYPE mood ADD VALUE 'calm'; ALTER TABLE orders ALTER t SET DEFAULT 'd';"
            " ALTER TABLE orders OWNER TO CURRENT_USER; GRANT ALL ON orders TO PUBLIC;"
            f" ALTER PUBLICATION {shop.capture.publication} OWNER TO CURRENT_USER",
            database=shop.database.name,
        )
        shop.database.execute("UPDATE orders SET v = 7, m = 'calm' WHERE id < 10")
        marker = shop.source.write_marker()
        shop.source.wait_for_marker_on_replica(marker, timeout_s=30, progress=Watch())

    result = shop.bootstrap("orders", Watch(on_start={"copy": harmless}))
    assert result.attempts == 1
    shop.catch_up_and_compare("orders", *COLUMNS, "m")


def test_a_table_that_is_altered_again_and_again_stops_with_what_differs(
    shop: Bootstrapping,
) -> None:
    fill(shop.database, "orders", 100)
    shop.add("orders")
    watch = Watch()

    def rewrite() -> None:
        watch.on_start["copy"] = rewrite
        shop.database.execute("ALTER TABLE orders ALTER v TYPE int USING v + 1")
        marker = shop.source.write_marker()
        shop.source.wait_for_marker_on_replica(marker, timeout_s=30, progress=Watch())

    watch.on_start["copy"] = rewrite
    with pytest.raises(AttemptSpoiledError, match="was changed while it was copied"):
        shop.bootstrap("orders", watch)
    assert shop.record("orders").state is State.FAILED
    assert shop.published("orders") is None


@pytest.mark.breadth
def test_a_view_that_the_replica_ends_is_replaced(shop: Bootstrapping) -> None:
    fill_wide(shop.database, "orders", WIDE_ROWS)
    shop.add("orders")
    ended: list[int] = []

    copied = threading.Event()

    def end_next() -> None:
        """End the sessions of the next wave: those of the first end before its rows are counted."""
        while not copied.is_set():
            if count := shop.database.end_snapshots():
                ended.append(count)
                return
            time.sleep(0.02)

    with ThreadPoolExecutor(1) as threads:
        watch = Watch(on_advance={"copy": lambda: threads.submit(end_next)})
        try:
            with writers(shop.database, "orders", WIDE_ROWS, count=1):
                result = shop.bootstrap("orders", watch)
        finally:
            copied.set()
    assert ended
    assert result.attempts == 1, "what was committed under the lost view is kept"
    assert result.rows < 1.5 * WIDE_ROWS
    shop.catch_up_and_compare("orders", *COLUMNS)


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("UPDATE orders SET day = 'infinity' WHERE id = 77", "column day of .* holds infinity"),
        ("ALTER TABLE orders ENABLE ROW LEVEL SECURITY", "row-level security policy"),
    ],
)
def test_what_no_further_try_can_read_is_told_at_once(
    shop: Bootstrapping, caplog: pytest.LogCaptureFixture, ddl: str, told: str
) -> None:
    shop.database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, day date)",
        "INSERT INTO orders SELECT g, '2024-01-01' FROM generate_series(1, 100) g",
        ddl,
    )
    shop.add("orders")
    with pytest.raises(PermanentError, match=told) as caught:
        shop.bootstrap("orders")
    assert caught.value.remedy
    assert "tried again" not in caplog.text


def test_settings_that_are_edited_meanwhile_begin_the_copy_again(shop: Bootstrapping) -> None:
    """Rows that were copied by the former settings would keep their values: unmasked text, here."""
    fill(shop.database, "orders", 200)
    shop.add("orders")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shop.bootstrap("orders", Watch(on_start={"copy > has captured": interrupted}))
    attempt = shop.record("orders").attempt
    assert attempt is not None
    assert Timeline(shop.spark, attempt.path).chunks(str(attempt.id)), "all is copied by now"
    shop.configure(public__orders={"columns": {"mask": ["t"]}})
    result = shop.bootstrap("orders")
    assert result.rows == 200, "not one row of the former copy was kept"
    assert set(shop.lake("orders", "t")) == {("***",)}
    assert shop.record("orders").state is State.INCREMENTAL


def test_a_paused_replica_is_waited_for_and_then_named(shop: Bootstrapping) -> None:
    fill(shop.database, "orders", 100)
    shop.add("orders")
    with shop.database.paused():
        with pytest.raises(ReplicaError) as stopped:
            shop.bootstrap("orders", limits=limits(replica_s=1.0))
        assert "paused" in stopped.value.message
        assert "behind" in stopped.value.message
    assert shop.bootstrap("orders").record.state is State.INCREMENTAL
    shop.catch_up_and_compare("orders", *COLUMNS)


def test_without_a_replica_the_primary_is_read(shop: Bootstrapping) -> None:
    fill(shop.database, "orders", 20_000)
    shop.add("orders")
    shop.without_replica()
    with writers(shop.database, "orders", 20_000) as done:
        shop.bootstrap("orders")
    assert sum(done) > 0
    attempt = shop.record("orders").attempt
    assert attempt is not None
    assert attempt.view is not None
    assert attempt.view.on_replica is False
    shop.catch_up_and_compare("orders", *COLUMNS)


def test_a_hanging_kafka_transaction_is_named(shop: Bootstrapping) -> None:
    """The handoff waits until the offset O is readable, and takes the high watermark as H.

    The last stable offset would not do as H, because it can be below committed rows.
    """
    fill(shop.database, "orders", 100)
    shop.add("orders")
    topic = shop.record("orders").topic
    producer = Producer(
        {
            "bootstrap.servers": shop.config.kafka.bootstrap_servers,
            "transactional.id": shop.database.name,
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(20)

    def hang() -> None:
        producer.begin_transaction()
        producer.produce(topic, b"never committed")
        producer.flush(20)
        shop.database.execute("UPDATE orders SET v = v + 9 WHERE id = 9")

    hang()
    for watch, state in (
        (Watch(), State.BOOTSTRAPPING),
        (Watch(on_start={"copy": hang}), State.CATCHING_UP),
    ):
        with pytest.raises(HandoffTimeoutError, match="hanging Kafka transaction") as stopped:
            shop.bootstrap("orders", watch, limits=limits(readable_s=1.0))
        assert "high watermark" in stopped.value.message
        record = shop.record("orders")
        assert (record.state, record.resume_to) == (State.FAILED, state)
        assert shop.published("orders") is None
        producer.abort_transaction(20)
    assert shop.bootstrap("orders").rows == 0, "the copy was done"
    shop.catch_up_and_compare("orders", *COLUMNS)


@pytest.mark.breadth
def test_without_exactly_once_connects_stored_position_decides(shop: Bootstrapping) -> None:
    connect = shop.config.connect.model_copy(update={"exactly_once": False})
    shop.config = shop.config.model_copy(update={"connect": connect})
    fill(shop.database, "orders", 1000)
    shop.add("orders")
    with writers(shop.database, "orders", 1000, count=1):
        shop.bootstrap("orders")
    shop.catch_up_and_compare("orders", *COLUMNS)


def test_a_table_that_is_not_captured_is_refused(shop: Bootstrapping) -> None:
    fill(shop.database, "orders", 10)
    shop.add("orders")
    shop.source.capture(shop.capture).sent_tables.remove([shop.table("orders")])
    with pytest.raises(CaptureError, match="not captured in full") as refused:
        shop.bootstrap("orders")
    assert "onboard" in refused.value.remedy


@pytest.mark.breadth
def test_a_table_out_of_the_publication_during_the_copy_spoils_the_attempt(
    shop: Bootstrapping,
) -> None:
    fill(shop.database, "orders", 100)
    shop.add("orders")

    def out_and_in() -> None:
        shop.source.capture(shop.capture).sent_tables.remove([shop.table("orders")])
        shop.database.execute("UPDATE orders SET v = v + 1")
        shop.source.capture(shop.capture).sent_tables.add([shop.table("orders")])

    result = shop.bootstrap("orders", Watch(on_advance={"copy": out_and_in}))
    assert result.attempts == 2
    shop.catch_up_and_compare("orders", *COLUMNS)


@pytest.mark.breadth
def test_a_topic_made_anew_during_the_copy_spoils_the_attempt(shop: Bootstrapping) -> None:
    fill(shop.database, "orders", 100)
    shop.add("orders")
    topic = shop.record("orders").topic

    def again() -> None:
        shop.kafka.delete_topic(topic)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and shop.kafka.topics([topic]):
            time.sleep(0.1)
        shop.kafka.ensure_topic(topic)

    result = shop.bootstrap("orders", Watch(on_start={"copy": again}))
    assert result.attempts == 2
    shop.catch_up_and_compare("orders", *COLUMNS)


def test_a_second_bootstrap_changes_nothing(shop: Bootstrapping) -> None:
    fill(shop.database, "orders", 10)
    shop.add("orders")
    shop.bootstrap("orders")
    path = shop.published("orders")
    again = shop.bootstrap("orders")
    assert (again.rows, again.attempts, shop.published("orders")) == (0, 0, path)


def test_a_column_added_behind_the_last_look_at_the_copy_is_not_missed(
    shop: Bootstrapping,
) -> None:
    fill(shop.database, "orders", 100)
    shop.add("orders")
    added = "ALTER TABLE orders ADD COLUMN extra int NOT NULL DEFAULT 7"
    watch = Watch(on_start={"copy > has captured": lambda: shop.database.execute(added)})
    assert shop.bootstrap("orders", watch).attempts == 2
    shop.catch_up_and_compare("orders", *COLUMNS, "extra")
