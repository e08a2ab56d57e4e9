"""Shards of several databases on servers of two kinds feed one lake table."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.config import Config
from cdc.run import run_tables
from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.discover import at_source
from operate.lifecycle import published_path
from operate.onboard import onboard
from operate.verify.table import verify_table
from stack.local import LocalStack
from stack.mysql_software import MARIADB, MYSQL
from tests.integration.rigs.mysql import had, own_mysql_database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import succeeded

pytestmark = pytest.mark.breadth


def test_three_databases_on_two_servers_feed_one_table(
    mysql_stack: LocalStack, spark: SparkSession, tmp_path: Path
) -> None:
    with ExitStack() as held:
        one, two, three = (
            held.enter_context(own_mysql_database(mysql_stack, had(mysql_stack, kind)))
            for kind in (MARIADB, MARIADB, MYSQL)
        )
        document = one.document(tmp_path)
        document["sources"][one.name]["databases"] = [one.name, two.name]
        document["sources"] |= three.document(tmp_path)["sources"]
        document["tables"] = {
            "sales.orders": {"from": [f"{one.name}:*.orders", f"{three.name}:*.orders"]}
        }
        services = Services(Config.model_validate(document), NullProgress(), spark=spark)
        held.callback(services.close)
        shops = (one, two, three)
        for count, database in enumerate(shops, 1):
            database.execute("CREATE TABLE orders (id int PRIMARY KEY, v int, t varchar(20))")
            rows = ", ".join(
                f"({id_}, 0, 'of {database.name}')" for id_ in range(1, 10 * count + 1)
            )
            database.execute(f"INSERT INTO orders VALUES {rows}")
            database.catch_up()
        tables = at_source(services, ["sales.orders"]).tables
        assert {(table.source, table.schema) for table in tables} == {
            (one.name, one.name),
            (one.name, two.name),
            (three.name, three.name),
        }
        succeeded(onboard(services, tables))
        for database in shops:
            database.execute(
                "UPDATE orders SET v = 1 WHERE id = 1",
                "DELETE FROM orders WHERE id = 2",
                "INSERT INTO orders VALUES (1000, 2, 'new')",
            )
        results = run_tables(services.run_context, services.store.tables())
        assert [result.error for result in results if result.error] == []
        for table in tables:
            found = verify_table(services, services.run_context, table)
            assert found.equal, found
            assert found.rows_compared > 0
        lake = spark.read.format("hudi").load(published_path(services, tables[0]))
        counts = {row["_shard"]: row["count"] for row in lake.groupBy("_shard").count().collect()}
        assert sorted(counts.values()) == [10, 20, 30]
        assert {name.split(".")[1] for name in counts} == {one.name, two.name, three.name}
