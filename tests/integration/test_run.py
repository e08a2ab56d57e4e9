"""Incremental runs on the real stack: what each change on the source becomes in the lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc import spark as spark_module
from cdc.config import Config
from cdc.state import State
from stack.local import LocalStack
from tests.integration.conftest import Database
from tests.integration.replication import Replication

ORDERS = """
CREATE TABLE orders (
  id int PRIMARY KEY, note text, body text, price numeric(10,2), at timestamptz,
  wall timestamp, day date, ok boolean, data bytea, doc jsonb, tags text[])
"""
COLUMNS = ("id", "note", "body", "price")
BIG = "(SELECT string_agg(md5(random()::text || n), '') FROM generate_series(1, 400) n)"

pytestmark = pytest.mark.filterwarnings(
    # py4j leaves the socket of a finished thread to the garbage collector.
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
    "ignore:unclosed <socket:ResourceWarning",
)


@pytest.fixture(scope="module")
def spark(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    config = Config.model_validate(
        {
            "sources": {
                "x": {
                    "kind": "postgres",
                    "primary": {"host": "localhost", "database": "x"},
                    "credentials": {"admin": {"user": "x"}},
                }
            },
            "kafka": {
                "bootstrap_servers": "localhost:1",
                "registry": {"url": "http://localhost:1"},
            },
            "connect": {"url": "http://localhost:1"},
            "lake": {"url": (folder / "lake").as_uri()},
            "spark": {
                "master": "local[2]",
                "driver_memory": "2g",
                "conf": {"spark.local.dir": str(folder / "scratch")},
            },
        }
    )
    yield spark_module.session(config, "tributary-tests")
    spark_module.stop()


@pytest.fixture
def replication(database: Database, spark: SparkSession, tmp_path: Path) -> Replication:
    return Replication(database, spark, tmp_path)


@pytest.fixture
def orders(replication: Replication) -> Replication:
    replication.database.execute(ORDERS)
    replication.add("orders")
    return replication


def test_inserts_updates_and_deletes_reach_the_lake(orders: Replication) -> None:
    orders.database.execute(
        "INSERT INTO orders (id, note, price) SELECT n, 'n' || n, n * 1.25"
        " FROM generate_series(1, 100) n",
        "UPDATE orders SET note = 'changed' WHERE id <= 10",
        "DELETE FROM orders WHERE id > 90",
    )
    result = orders.run_one()
    assert result.error is None
    assert (result.state, result.commits) == (State.INCREMENTAL, 1)
    assert result.counts == {"c": 100, "u": 10, "d": 10, "tombstone": 10}
    orders.assert_equal("orders", COLUMNS)
    assert len(orders.lake("orders", "id")) == 90
    assert orders.run() == [], "a table without new offsets has no work"

    orders.database.execute("UPDATE orders SET price = -1.50 WHERE id = 50")
    again = orders.run_one()
    assert (again.error, again.counts) == (None, {"u": 1})
    orders.assert_equal("orders", COLUMNS)
