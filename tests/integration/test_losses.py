"""Losses that ended before a run looked at the table; the state store keeps a record of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bootstrap.errors import BootstrapError
from bootstrap.resync import resync_table
from cdc.debezium import connector_config
from cdc.errors import CaptureError
from cdc.run import RunResult, run_tables
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import State
from operate.check import check
from operate.context import Services
from operate.lifecycle import pause, resume
from operate.status import status
from stack.local import LocalStack
from tests.integration.rigs.bootstrapping import LIMITS, Bootstrapping, Watch, fill
from tests.integration.rigs.postgres import own_database
from tests.integration.rigs.running import spark as spark

COLUMNS = ("id", "v", "t")
ROWS = 100


@dataclass
class Capture:
    """Tables of one capture, whose connector can be set to skip deletes for a while."""

    shop: Bootstrapping

    @property
    def services(self) -> Services:
        return Services(self.shop.config, NullProgress(), spark=self.shop.spark)

    def create(self, *names: str) -> None:
        for name in names:
            fill(self.shop.database, name, ROWS)
        self.shop.add(*names)

    def run(self, *names: str) -> list[RunResult]:
        self.shop.settle()
        return run_tables(self.shop.context(), [self.shop.record(name) for name in names])

    def lose(self, *names: str, seen_by: tuple[str, ...]) -> None:
        """Lose deletes of each table; tables in ``seen_by`` run before the connector is mended."""
        self.skip("d")
        for name in names:
            self.shop.database.execute(f"DELETE FROM {name} WHERE id % 10 = 1")
        self.run(*seen_by)
        self.skip("none")

    def skip(self, operations: str) -> None:
        shop, name = self.shop, self.shop.database.name
        config = shop.config
        wanted = connector_config(
            name, config.source(name), "default", config.kafka, config.connect
        )
        shop.connect.put_connector(
            shop.capture.connector, {**wanted, "skipped.operations": operations}
        )
        shop.connect.wait_running(shop.capture.connector)
        shop.settle()


@pytest.fixture
def capture(stack: LocalStack, spark: SparkSession, tmp_path: Path) -> Iterator[Capture]:
    with (
        own_database(stack) as database,
        closing(Bootstrapping(database, spark, tmp_path)) as opened,
    ):
        yield Capture(opened)


@pytest.mark.breadth
def test_a_loss_is_remembered_for_tables_that_no_run_looked_at(capture: Capture) -> None:
    shop = capture.shop
    capture.create("seen", "paused", "idle", "copied")
    for name in ("seen", "paused", "idle"):
        shop.bootstrap(name)
    pause(capture.services, shop.table("paused"), reason="by a person")

    def lose() -> None:
        capture.lose("seen", "paused", "idle", "copied", seen_by=("seen",))

    copied = shop.bootstrap("copied", Watch(on_start={"copy": lose}))
    assert shop.record("seen").state is State.NEEDS_BOOTSTRAP
    for name in ("paused", "idle"):
        table = shop.table(name)
        (shown,) = status(capture.services, [table]).tables
        assert "skipped.operations" in str(shown.to_json()["lost"])
        (line,) = [one for one in check(capture.services) if one.name == f"table {table}"]
        assert (line.status, "skipped.operations" in line.detail) == ("error", True)

    resume(capture.services, shop.table("paused"))
    for one in capture.run("paused", "idle"):
        assert one.state is State.NEEDS_BOOTSTRAP, one
        assert one.error is not None
        assert "skipped.operations" in one.error.message
    assert {shop.record(name).state for name in ("paused", "idle")} == {State.NEEDS_BOOTSTRAP}
    assert copied.attempts == 2, "a copy that has begun before the loss begins again"
    for name in ("seen", "paused", "idle"):
        shop.bootstrap(name)
        shop.assert_equal(name, COLUMNS)
    shop.catch_up_and_compare("copied", *COLUMNS)


def test_a_run_looks_at_the_capture_of_tables_that_it_leaves_alone(capture: Capture) -> None:
    shop = capture.shop
    capture.create("paused")
    shop.bootstrap("paused")
    pause(capture.services, shop.table("paused"), reason="by a person")
    capture.lose("paused", seen_by=("paused",))
    resume(capture.services, shop.table("paused"))
    assert [one.state for one in capture.run("paused")] == [State.NEEDS_BOOTSTRAP]


@pytest.mark.breadth
def test_a_loss_that_only_a_copy_has_seen_spoils_it_for_good(capture: Capture) -> None:
    shop = capture.shop
    capture.create("orders")

    def lose() -> None:
        capture.skip("d")
        shop.database.execute("DELETE FROM orders WHERE id % 10 = 1")

    with pytest.raises(CaptureError, match=r"skipped\.operations"):
        shop.bootstrap("orders", Watch(on_start={"copy": lose}))
    capture.skip("none")
    assert shop.bootstrap("orders").attempts == 1
    shop.catch_up_and_compare("orders", *COLUMNS)


@pytest.mark.breadth
def test_a_next_generation_lacks_only_losses_after_its_own_start(capture: Capture) -> None:
    shop = capture.shop
    capture.create("orders")
    shop.bootstrap("orders")

    def lose() -> None:
        capture.lose("orders", seen_by=("orders",))
        assert shop.record("orders").state is State.NEEDS_BOOTSTRAP

    def resync(watch: Watch) -> State:
        context, record = shop.context(progress=watch), shop.record("orders")
        return resync_table(context, shop.connect, record, limits=LIMITS).record.state

    resync(Watch(on_start={"wait for": lose}))
    assert shop.record("orders").generation == 2, "it began after the loss"
    shop.catch_up_and_compare("orders", *COLUMNS)
    former = shop.published("orders")

    def change() -> None:
        shop.database.execute("UPDATE orders SET v = 1")  # so that there is something to catch up

    with pytest.raises(BootstrapError, match=r"next generation .* skipped\.operations"):
        resync(Watch(on_start={"copy": change, "copy > is readable": lose}))
    assert shop.published("orders") == former
    resync(Watch())
    shop.catch_up_and_compare("orders", *COLUMNS)


@pytest.mark.breadth
def test_a_loss_that_only_the_next_generation_has_seen_counts_for_the_serving_one(
    capture: Capture,
) -> None:
    shop = capture.shop
    capture.create("orders")
    shop.bootstrap("orders")

    def change() -> None:
        shop.database.execute("UPDATE orders SET v = 1")  # so that there is something to catch up

    def inherit() -> None:
        shop.database.execute("CREATE TABLE heir () INHERITS (orders)")
        shop.database.execute("UPDATE orders SET v = 2 WHERE id = 1")
        shop.settle()

    watch = Watch(on_start={"copy": change, "copy > is readable": inherit})
    context, record = shop.context(progress=watch), shop.record("orders")
    with pytest.raises(BootstrapError, match=r"next generation .*heir"):
        resync_table(context, shop.connect, record, limits=LIMITS)
    shop.database.execute("DROP TABLE heir")
    assert shop.record("orders").state is State.INCREMENTAL
    (stopped,) = capture.run("orders")
    assert stopped.state is State.NEEDS_BOOTSTRAP, stopped
    assert stopped.error is not None
    assert "heir" in stopped.error.message
    shop.bootstrap("orders")
    shop.catch_up_and_compare("orders", *COLUMNS)


@pytest.mark.breadth
def test_a_schema_that_had_another_name_while_the_connector_started_is_noticed(
    capture: Capture,
) -> None:
    shop = capture.shop
    capture.create("orders")
    shop.bootstrap("orders")
    connector, strays = shop.capture.connector, f"{shop.capture.topic_prefix}.elsewhere.orders"

    def restart() -> None:
        shop.connect.stop(connector)
        shop.connect.resume(connector)
        shop.connect.wait_running(connector)
        shop.settle()

    shop.database.execute("ALTER SCHEMA public RENAME TO elsewhere")
    restart()
    shop.database.execute("INSERT INTO elsewhere.orders VALUES (1001, 1, 'under another name')")
    shop.settle()
    shop.database.execute(
        "ALTER SCHEMA elsewhere RENAME TO public",
        "INSERT INTO orders VALUES (1002, 1, 'under its own name again')",
    )
    (stopped,) = capture.run("orders")
    assert stopped.state is State.NEEDS_BOOTSTRAP, stopped
    assert stopped.error is not None
    assert strays in stopped.error.message
    assert f"Restart {connector}" in stopped.error.message

    restart()
    shop.kafka.delete_topic(strays)
    shop.bootstrap("orders")
    shop.database.execute("INSERT INTO orders VALUES (1003, 1, 'after the copy')")
    shop.catch_up_and_compare("orders", *COLUMNS)
    assert shop.record("orders").state is State.INCREMENTAL
