"""The borders between copy, stream and topic, on each kind of source: no change may be lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from pyspark.sql import functions as F

from cdc.lake.publish import current_path
from cdc.lake.write import LakeTable
from cdc.store.table_state import State
from operate.onboard import bootstrap
from operate.resync import resync
from operate.tier_capture import members
from tests.integration.rigs.bootstrapping import Watch
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.servers import delete_records
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

NEVER_S = 6.0
"""Seconds without a copied row after which a test concludes that the copy waits."""


@for_each_kind()
def test_a_transaction_that_is_open_while_its_table_joins_loses_nothing(shop: Shop) -> None:
    """It writes before and after its table is captured, and commits during its onboarding."""
    shop.create("first", 10)
    succeeded(shop.onboard("first"))
    shop.create("orders", 3000)
    copied = threading.Event()
    shop.reconfigure(Watch(on_advance={"copy": copied.set}))
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        connection = stack.enter_context(shop.database.begin())
        cursor = stack.enter_context(connection.cursor())
        cursor.execute("UPDATE orders SET v = 1 WHERE id <= 20")
        cursor.execute("INSERT INTO orders VALUES (9001, 1, 'before')")
        onboarding = pool.submit(shop.onboard, "orders")
        table, names = shop.table("orders"), shop.services.capture(shop.table("orders"))
        wait_until(lambda: table in members(shop.services, names), "the table is captured")
        cursor.execute("UPDATE orders SET v = 2 WHERE id BETWEEN 11 AND 30")
        cursor.execute("DELETE FROM orders WHERE id = 31")
        read = copied.wait(NEVER_S if shop.database.waits_for_open_transactions else 120)
        connection.commit()
        succeeded(onboarding.result(300))
    assert read != shop.database.waits_for_open_transactions
    shop.assert_equal("orders")
    lake = shop.lake("orders")
    assert [lake.where(f"v = {v}").count() for v in (1, 2)] == [11, 20]
    assert lake.count() == 3000


@for_each_kind()
def test_a_transaction_that_straddles_the_view_is_not_lost(shop: Shop) -> None:
    """The transaction begins before the fence, and commits after rows of the view were read."""
    shop.create("orders", 3000)
    left: list[ExitStack] = []

    def begin() -> None:
        with ExitStack() as stack:
            connection = stack.enter_context(shop.database.begin())
            cursor = stack.enter_context(connection.cursor())
            cursor.execute("UPDATE orders SET v = 41 WHERE id BETWEEN 100 AND 120")
            shop.database.execute("INSERT INTO orders VALUES (9001, 0, 'pushes the log on')")
            stack.callback(connection.commit)
            left.append(stack.pop_all())

    watch = Watch(
        on_start={"wait for the replica": begin}, on_advance={"copy": lambda: left[0].close()}
    )
    shop.reconfigure(watch)
    succeeded(shop.onboard("orders"))
    assert (watch.on_start, watch.on_advance) == ({}, {}), "both were done"
    shop.assert_equal("orders")
    assert shop.lake("orders").where("v = 41").count() == 21


@for_each_kind()
def test_an_offset_below_the_start_of_its_topic_stops_the_table(shop: Shop) -> None:
    shop.create("orders", 10)
    succeeded(shop.onboard("orders"))
    topic, kafka = shop.record("orders").topic, shop.services.kafka
    start = kafka.stable_offsets(topic)[0]
    shop.database.execute("UPDATE orders SET v = 1 WHERE id = 1")
    shop.settle("orders")
    delete_records(shop.services.config.kafka, topic, kafka.stable_offsets(topic)[0])
    shop.database.execute("UPDATE orders SET v = 2 WHERE id = 2")
    shop.settle("orders")
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert f"offsets {start} to " in (shop.record("orders").reason or "")
    assert shop.lake("orders").where("v > 0").count() == 0, "nothing is sought by itself"
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    shop.assert_equal("orders")


@for_each_kind()
def test_a_next_generation_is_built_beside_the_one_that_serves(shop: Shop) -> None:
    shop.create("orders", 2000)
    succeeded(shop.onboard("orders"))
    former = current_path(shop.record("orders").base_path)
    seen: list[tuple[State, bool, int]] = []

    def while_it_is_built() -> None:
        shop.database.execute("UPDATE orders SET v = 1 WHERE id <= 10")
        shop.settle("orders")
        run_without_error(shop)
        record = shop.record("orders")
        unmoved = current_path(record.base_path) == former
        seen.append((record.state, unmoved, shop.lake("orders").where("v = 1").count()))

    shop.reconfigure(Watch(on_start={"copy": while_it_is_built}))
    succeeded(resync(shop.services, [shop.table("orders")]))
    assert seen == [(State.INCREMENTAL, True, 10)]
    record = shop.record("orders")
    assert (record.generation, record.state) == (2, State.INCREMENTAL)
    assert record.attempt is not None
    assert current_path(record.base_path) == record.attempt.path != former
    assert shop.services.store.builds() == []
    shop.assert_equal("orders")


@for_each_kind()
def test_verify_finds_what_differs_and_nothing_else(shop: Shop) -> None:
    shop.create("orders", 3000)
    succeeded(shop.onboard("orders"))
    plant(shop)
    # Slower than the source is looked at: else a row may never be caught in the lake's state.
    hot = "UPDATE orders SET v = v + 1 WHERE id BETWEEN 100 AND 110"
    with shop.writing(hot, pause_s=0.05) as written:
        found = shop.verify("orders")
    assert written[0] > 5
    kinds = {one.key["id"]: (one.kind, one.columns) for one in found.differences}
    assert kinds == {
        17: ("missing", ()),
        18: ("different", ("t",)),
        19: ("different", ("t",)),
        9001: ("extra", ()),
    }
    assert (found.equal, found.unsettled_count) == (False, 0)


def plant(shop: Shop) -> None:
    """Commit wrong rows to the lake, which the source does not have."""
    record, services = shop.record("orders"), shop.services
    assert record.attempt is not None
    source, settings = services.source(shop.database.name), services.config.table_settings
    schema = source.schema(source.table(record.table), settings(record.table))
    lake = LakeTable(services.spark, record.attempt.path, schema, settings(record.table))
    latest = lake.timeline().latest_offsets()
    assert latest is not None
    rows = lake.read().where("id IN (17, 18, 19)")
    wrong = rows.withColumn("t", F.when(F.col("id") == 18, "wrong")).withColumn(
        "_cdc_op", F.when(F.col("id") == 17, "d").otherwise("u")
    )
    more = rows.where("id = 18").withColumn("id", F.lit(9001))
    lake.upsert(wrong.unionByName(more), latest.record, lambda _timeline: None)
