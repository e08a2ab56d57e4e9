"""Tables of MySQL and MariaDB on their way to a lake: onboarded, run, verified, followed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from cdc import spark as spark_module
from cdc.config import Config
from cdc.debezium import definition_changes, fresh_starts, listing
from cdc.lake.publish import current_path
from cdc.progress import NullProgress
from cdc.run import RunResult, run_tables
from cdc.state import State, TableRecord
from operate.capture import members
from operate.context import Services
from operate.inventory import discover
from operate.lifecycle import offboard
from operate.onboard import bootstrap, onboard
from operate.outcome import Outcome
from operate.preflight import check
from operate.status import status
from operate.verify.table import Verification, verify_table
from schemas.table import TableId
from stack.local import LocalStack
from tests.integration.captured import wait_until
from tests.integration.mysql import MysqlDatabase
from tests.integration.mysql import database as database
from tests.integration.mysql import mysql_stack as mysql_stack
from tests.integration.shop import succeeded


@pytest.fixture(scope="module")
def spark(
    mysql_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    document = yaml.safe_load(mysql_stack.config_text())
    scratch = str(tmp_path_factory.mktemp("spark"))
    document["spark"] = {
        "master": "local[2]",
        "driver_memory": "2g",
        "conf": {"spark.local.dir": scratch},
    }
    yield spark_module.session(Config.model_validate(document), "tributary-tests")
    spark_module.stop()


@dataclass
class MysqlShop:
    """What the commands work with, on one database.

    Args:
        database: The test's database.
        spark: The session that all tests of a module share.
        folder: Holds state and lake.
        tables: The ``tables`` section of the configuration.
    """

    database: MysqlDatabase
    spark: SparkSession
    folder: Path
    tables: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        document = yaml.safe_load(
            self.database.stack.config_text(
                source=self.database.name, folder=self.folder, kinds=[self.database.kind]
            )
        )
        (section,) = document["sources"].values()
        self.source = self.database.name
        # Names of its own: another test's capture is another's.
        document["sources"] = {self.source: {**section, "databases": [self.database.name]}}
        config = Config.model_validate({**document, "tables": self.tables})
        self.services = Services(config, NullProgress(), spark=self.spark)

    def table(self, name: str) -> TableId:
        return TableId(self.source, self.database.name, name)

    def record(self, name: str) -> TableRecord:
        record = self.services.store.get(self.table(name))
        assert record is not None
        return record

    def query(self, *statements: str) -> list[Any]:
        rows: list[Any] = []
        for statement in statements:
            rows = self.database.query(statement)
        return rows

    def onboard(self, *names: str, with_bootstrap: bool = True) -> list[Outcome]:
        wanted = [self.table(name) for name in names]
        return onboard(self.services, wanted, with_bootstrap=with_bootstrap)

    def run(self) -> list[RunResult]:
        return run_tables(self.services.run_context, self.services.store.tables())

    def verify(self, name: str) -> Verification:
        return verify_table(self.services, self.services.run_context, self.table(name))

    def assert_equal(self, *names: str) -> None:
        for name in names:
            found = self.verify(name)
            assert found.equal, found
            assert found.rows_compared > 0

    @contextmanager
    def writing(self, *statements: str, pause_s: float = 0.002) -> Iterator[list[int]]:
        """Run the statements again and again while the block runs; the list holds how often."""
        stop, done = threading.Event(), [0]

        def work() -> None:
            with self.database.connect() as connection, connection.cursor() as cursor:
                while not stop.wait(pause_s):
                    for statement in statements:
                        cursor.execute(statement)
                    done[0] += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield done
        finally:
            stop.set()
            thread.join()


@pytest.fixture
def shop(database: MysqlDatabase, spark: SparkSession, tmp_path: Path) -> Iterator[MysqlShop]:
    shop = MysqlShop(database, spark, tmp_path)
    yield shop
    for record in shop.services.store.tables():
        if record.state is not State.RETIRED:
            offboard(shop.services, record.table, delete_data=True)
    shop.services.close()


def create(shop: MysqlShop, name: str, rows: int) -> None:
    shop.query(
        f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL, t varchar(40))",
        f"INSERT INTO {name} WITH RECURSIVE n AS (SELECT 1 AS g UNION ALL SELECT g + 1 FROM n"
        f" WHERE g < {min(rows, 1000)}) SELECT g, 0, concat('row ', g) FROM n",
    )
    done = 1000
    while done < rows:
        shop.query(f"INSERT INTO {name} SELECT id + {done}, v, t FROM {name} WHERE id <= {done}")
        done *= 2


def test_a_table_travels_while_it_is_written_to(shop: MysqlShop) -> None:
    create(shop, "orders", 8000)
    create(shop, "parts", 500)
    shop.query(
        "ALTER TABLE parts ADD COLUMN code char(5) DEFAULT 'ab',"
        " ADD COLUMN state enum('on', 'longer') DEFAULT 'on'"
    )
    number = "floor(rand() * 8000) + 1"
    with shop.writing(
        f"UPDATE orders SET v = v + 1 WHERE id = {number}",
        f"DELETE FROM orders WHERE id = {number} AND id % 7 = 0",
        f"INSERT IGNORE INTO orders SELECT {number}, 0, 'again'",
        "UPDATE parts SET v = v + 1 WHERE id = 7",
    ) as done:
        succeeded(shop.onboard("orders"))
        # The other table is brought into a capture that runs.
        succeeded(shop.onboard("parts"))
        assert members(shop.services, shop.services.capture(shop.table("orders"))) == {
            shop.table("orders"),
            shop.table("parts"),
        }
        for result in shop.run():
            assert result.error is None, result.error
    assert done[0] > 50
    shop.assert_equal("orders", "parts")
    # Most rows are the copy's: a text as long as it is, whatever its type's length.
    parts = lake(shop, "parts").groupBy("code", "state").count().collect()
    assert [tuple(row) for row in parts] == [("ab", "on", 500)]
    found = status(shop.services, [])
    assert [one.problem for one in found.captures] == [None]
    assert {one.record.state for one in found.tables} == {State.INCREMENTAL}
    assert [line for line in check(shop.services) if line.status == "error"] == []
    assert {e.stats.table.name: e.summary for e in discover(shop.services)} == {
        "orders": "on the plan",
        "parts": "on the plan",
    }


@pytest.mark.breadth
def test_changes_of_the_table_are_followed_or_ask_for_a_copy(shop: MysqlShop) -> None:
    """What sends no events is told by the statements in the log, one way or the other."""
    create(shop, "t", 20)
    succeeded(shop.onboard("t"))
    shop.query(
        "ALTER TABLE t ADD COLUMN plain int, ADD COLUMN filled varchar(9) NOT NULL DEFAULT 'so'",
        "UPDATE t SET plain = 7 WHERE id = 3",
        "ALTER TABLE t ADD INDEX by_v (v)",
        "OPTIMIZE TABLE t",
        "ALTER TABLE t MODIFY v bigint NOT NULL",
        "UPDATE t SET v = 5000000000, filled = 'other' WHERE id = 4",
    )
    run_without_error(shop)
    shop.assert_equal("t")
    shop.query("ALTER TABLE t DROP COLUMN plain", "INSERT INTO t VALUES (100, 1, 'new', 'x')")
    run_without_error(shop)
    shop.assert_equal("t")
    shop.query("TRUNCATE TABLE t", "INSERT INTO t VALUES (200, 1, 'again', 'y')")
    run_without_error(shop)
    shop.assert_equal("t")
    assert [tuple(row) for row in lake(shop, "t").select("id", "plain").collect()] == [(200, None)]
    # A table under the name of another one: its rows came as no event.
    shop.query(
        "CREATE TABLE u LIKE t",
        "INSERT INTO u VALUES (1, 1, 'swapped in', 'z')",
        "RENAME TABLE t TO t_old, u TO t",
    )
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "RENAME TABLE" in (result.error or {})["message"]
    succeeded(bootstrap(shop.services, [shop.table("t")]))
    shop.assert_equal("t")
    shop.query("ALTER TABLE t DROP COLUMN filled, ADD COLUMN filled varchar(9)")
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP, result


@pytest.mark.breadth
def test_a_connector_without_its_position_is_seen_and_its_tables_are_copied_again(
    shop: MysqlShop,
) -> None:
    create(shop, "t", 10)
    succeeded(shop.onboard("t"))
    shop.query("UPDATE t SET v = 1 WHERE id = 1")
    run_without_error(shop)
    name = shop.services.capture(shop.table("t")).connector
    url = f"{shop.database.stack.addresses().connect_url}/connectors/{name}"
    httpx.put(f"{url}/stop", timeout=60).raise_for_status()
    wait_until(
        lambda: httpx.get(f"{url}/status", timeout=30).json()["tasks"] == [],
        "the connector to stop",
    )
    httpx.delete(f"{url}/offsets", timeout=60).raise_for_status()
    shop.query("UPDATE t SET v = 2 WHERE id = 2")
    httpx.put(f"{url}/resume", timeout=60).raise_for_status()
    wait_until(lambda: starts(shop) == 2, "the connector to begin anew", 120)
    shop.query("UPDATE t SET v = 3 WHERE id = 3")
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "began anew without its stored position" in (result.error or {})["message"]
    succeeded(bootstrap(shop.services, [shop.table("t")]))
    shop.assert_equal("t")


@pytest.mark.breadth
def test_a_capture_goes_with_its_last_table(shop: MysqlShop) -> None:
    create(shop, "a", 3)
    create(shop, "b", 3)
    succeeded(shop.onboard("a", "b"))
    names = shop.services.capture(shop.table("a"))
    offboard(shop.services, shop.table("a"), delete_data=True)
    assert members(shop.services, names) == {shop.table("b")}
    shop.query("UPDATE a SET v = 1", "UPDATE b SET v = 2")
    run_without_error(shop)
    shop.assert_equal("b")
    offboard(shop.services, shop.table("b"), delete_data=True)
    assert shop.services.connect.connector(names.connector) is None
    assert not shop.services.kafka.topics(names.own_topics)


def run_without_error(shop: MysqlShop) -> None:
    results = shop.run()
    assert [result.error for result in results if result.error] == []


def lake(shop: MysqlShop, name: str) -> DataFrame:
    path = current_path(shop.record(name).base_path)
    assert path is not None
    return shop.spark.read.format("hudi").load(path)


def starts(shop: MysqlShop) -> int:
    services = shop.services
    names = services.capture(shop.table("t"))
    return len(fresh_starts(definition_changes(services.kafka, services.schemas, names)))


@pytest.mark.breadth
def test_a_cascade_is_in_the_binlog_or_the_table_is_refused(shop: MysqlShop) -> None:
    """MySQL's server cascades itself since 9.6, and logs it; MariaDB's engine does it unseen."""
    shop.query(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY, parent int,"
        " FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (10, 1), (20, 2)",
    )
    (outcome,) = shop.onboard("child")
    if shop.database.kind == "mariadb":
        assert "changes its rows without an event" in str(outcome.error)
        return
    succeeded([outcome])
    shop.query("DELETE FROM parent WHERE id = 1")
    run_without_error(shop)
    shop.assert_equal("child")
    assert [row.id for row in lake(shop, "child").select("id").collect()] == [20]


@pytest.mark.breadth
def test_a_table_that_left_the_list_is_not_put_back_in_silence(shop: MysqlShop) -> None:
    create(shop, "a", 3)
    create(shop, "b", 3)
    succeeded(shop.onboard("a"))
    services, names = shop.services, shop.services.capture(shop.table("a"))
    running = services.connect.connector(names.connector)
    assert running is not None
    services.connect.put_connector(names.connector, {**running, **listing(names, ())})
    shop.query("UPDATE a SET v = 7 WHERE id = 1")
    succeeded(shop.onboard("b"))
    assert members(services, names) == {shop.table("b")}
    (again,) = shop.onboard("a")
    assert "does not list table" in str(again.error)
    results = {result.table.name: result for result in shop.run()}
    assert results["a"].state is State.NEEDS_BOOTSTRAP
    assert "does not list it" in (results["a"].error or {})["message"]
    succeeded(bootstrap(services, [shop.table("a")]))
    assert members(services, names) == {shop.table("a"), shop.table("b")}
    shop.assert_equal("a", "b")
