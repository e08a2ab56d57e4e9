"""Many source tables feed one lake table, each at its own speed, during writes to all of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.errors import ConfigError
from cdc.lake.pointer import local_folder
from cdc.lake.timeline import Timeline
from cdc.store.table_state import State
from operate.discover import at_source, selected
from operate.lifecycle import offboard, published_path
from operate.onboard import bootstrap
from operate.resync import resync
from operate.status import status
from stack.postgres import POSTGRES
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.kinds import KINDS, for_each_kind
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded

TABLES = {
    "sales.orders": {"from": ["*.orders_[0-9]+"], "shard": "{table}", "tier": "sharded"},
}


@pytest.fixture
def shop(database: OwnDatabase, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(database, spark, tmp_path, tables=TABLES)
    yield shop
    shop.services.close()


@contextmanager
def writers(shop: Shop, *shards: str) -> Iterator[list[list[int]]]:
    """Start one writer per shard; all writers change, delete and insert the same keys."""
    with ExitStack() as all_of_them:
        yield [
            all_of_them.enter_context(
                shop.writing(
                    f"UPDATE {shard} SET v = v + 1 WHERE id = {{turn}} % 200 + 1",
                    f"DELETE FROM {shard} WHERE id = {{turn}} * 7 % 200 + 1 AND id % 5 = 0",
                    f"INSERT INTO {shard} VALUES (100000 + {{turn}}, 1, '{shard}')",
                    pause_s=0.3,
                )
            )
            for shard in shards
        ]


def everything(shop: Shop) -> DataFrame:
    """All rows that readers of the shared lake table see."""
    path = published_path(shop.services, shop.table("orders_0"))
    assert shop.spark is not None
    return shop.spark.read.format("hudi").load(path)


def rows_by_shard(shop: Shop) -> dict[str, int]:
    return {
        row["_shard"]: row["count"] for row in everything(shop).groupBy("_shard").count().collect()
    }


def names(count: int) -> list[str]:
    return [f"orders_{n}" for n in range(count)]


@pytest.mark.parametrize(
    ("database", "count"),
    [(POSTGRES, 2), *(pytest.param(kind, 16, marks=pytest.mark.breadth) for kind in KINDS)],
    indirect=["database"],
)
def test_shards_merge_under_writers_and_one_more_is_added(shop: Shop, count: int) -> None:
    *shards, added = names(count + 1)
    for shard in shards:
        shop.create(shard, 200)
    shop.create("orders_other", 5)
    wanted = at_source(shop.services, ["sales.orders"]).tables
    assert sorted(table.name for table in wanted) == sorted(shards)
    with writers(shop, *shards) as done:
        succeeded(shop.onboard(*shards))
        run_without_error(shop)
        before = {shard: shop.record(shard) for shard in shards}
        shop.create(added, 200)
        with writers(shop, added) as last:
            wanted = at_source(shop.services, ["sales.orders"]).tables
            succeeded(shop.onboard(*(table.name for table in wanted)))
            run_without_error(shop)
            assert last[0][0] > 0
    assert min(turns for (turns,) in done) > 10
    everyone = [*shards, added]
    shop.assert_equal(*everyone)
    for shard in shards:
        # Adding one has not touched the others' attempt or handoff.
        now, was = shop.record(shard), before[shard]
        assert now.attempt is not None
        assert was.attempt is not None
        assert (now.attempt.id, now.attempt.start_offsets) == (
            was.attempt.id,
            was.attempt.start_offsets,
        )
    found = rows_by_shard(shop)
    assert found == {s: shop.scalar(f"SELECT count(*) FROM {s}") for s in everyone}
    shown = status(shop.services, [])
    (shared,) = shown.shared
    assert (shared.shards, shared.joining, shared.held_back) == (count + 1, (), {})
    marks = [table.watermark for table in shown.tables]
    assert shared.watermark is not None
    assert shared.watermark <= min(mark for mark in marks if mark is not None)
    path = published_path(shop.services, shop.table("orders_0"))
    latest = Timeline(shop.services.spark, path).latest()
    assert latest is not None
    assert set(latest.record.shards) == set(everyone)
    accounts = latest.record.shards.values()
    assert all(one.record.require_handoff().handoff_offsets for one in accounts)


@for_each_kind()
def test_a_shard_that_fails_is_named_and_holds_back_only_itself(shop: Shop) -> None:
    for shard in names(3):
        shop.create(shard, 20)
    succeeded(shop.onboard(*names(3)))
    change = shop.database.retype("orders_1", "v", "varchar(20)")
    shop.database.execute(
        change,
        *(f"UPDATE {shard} SET t = 'later' WHERE id = 1" for shard in names(3)),
    )
    for shard in names(3):
        shop.settle(shard)
    results = {result.table.name: result for result in shop.run()}
    assert results["orders_1"].state is State.NEEDS_BOOTSTRAP
    assert [name for name, one in results.items() if one.error] == ["orders_1"]
    (shared,) = status(shop.services, []).shared
    assert shared.held_back == {"orders_1": "needs_bootstrap"}
    shop.assert_equal("orders_0", "orders_2")
    # Its rows stay as they were; its new type does not go with the others'.
    assert rows_by_shard(shop) == dict.fromkeys(names(3), 20)
    (outcome,) = bootstrap(shop.services, [shop.table("orders_1")])
    assert "column 'v' is string in shard orders_1 and int in shard" in str(outcome.error)
    assert outcome.error is not None
    assert outcome.error.remedy.startswith("Give the column the same type in both shards")
    shop.database.execute(
        "ALTER TABLE orders_1 DROP COLUMN v", "ALTER TABLE orders_1 ADD COLUMN v int DEFAULT 4"
    )
    succeeded(bootstrap(shop.services, [shop.table("orders_1")]))
    shop.assert_equal("orders_1")


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_a_shard_does_not_begin_the_table_again_beside_a_lake_that_is_not_mounted(
    shop: Shop,
) -> None:
    for shard in names(2):
        shop.create(shard, 20)
    succeeded(shop.onboard("orders_0"))
    lake = local_folder(shop.services.config.lake.url)
    assert lake is not None
    away = lake.rename(lake.with_name("away"))
    lake.mkdir()  # the place of the mount
    (refused,) = shop.onboard("orders_1")
    assert refused.error is not None
    assert f"the folder of table {shop.table('orders_0')} is not there" in str(refused.error)
    assert not list(lake.rglob("_current.json"))

    shutil.rmtree(lake)
    away.rename(lake)
    # The copy is below the mount, so its handoff is gone.
    (gone,) = bootstrap(shop.services, [shop.table("orders_1")])
    assert gone.error is not None
    assert "tributary offboard" in gone.error.remedy
    offboard(shop.services, shop.table("orders_1"), delete_data=False)
    succeeded(shop.onboard("orders_1"))
    shop.assert_equal(*names(2))
    assert rows_by_shard(shop) == dict.fromkeys(names(2), 20)


@for_each_kind()
def test_a_shard_is_copied_anew_leaves_and_comes_back(shop: Shop) -> None:
    for shard in names(3):
        shop.create(shard, 20)
    succeeded(shop.onboard(*names(3)))
    # A followed shard is copied again beside its rows, and the copy replaces them.
    was = shop.record("orders_0").attempt
    succeeded(resync(shop.services, [shop.table("orders_0")]))
    now = shop.record("orders_0").attempt
    assert was is not None
    assert now is not None
    assert (now.path, now.shard, now.id == was.id) == (was.path, "orders_0", False)
    shop.database.execute("UPDATE orders_0 SET v = 77 WHERE id = 3")
    shop.assert_equal(*names(3))
    assert everything(shop).where("_shard = 'orders_0' AND v = 77").count() == 1
    # A shard that leaves takes its rows along; the others go on, and it may come back.
    offboard(shop.services, shop.table("orders_1"), delete_data=True)
    assert sorted(rows_by_shard(shop)) == ["orders_0", "orders_2"]
    shop.database.execute("DELETE FROM orders_1 WHERE id > 3")
    succeeded(shop.onboard("orders_1"))
    shop.assert_equal(*names(3))
    assert rows_by_shard(shop)["orders_1"] == 3
    # Settings that no longer fit the lake table keep no shard in it.
    edited = {**TABLES["sales.orders"], "partition_by": ["v"], "delete_mode": "soft"}
    shop.reconfigure(tables={"sales.orders": edited})
    for shard in names(3):
        offboard(shop.services, shop.table(shard), delete_data=True)
    assert not list((shop.folder / "lake").glob("**/*.parquet"))


@for_each_kind()
def test_a_shards_own_changes_of_schema_and_truncate_leave_the_others_alone(shop: Shop) -> None:
    for shard in names(2):
        shop.create(shard, 10)
    succeeded(shop.onboard(*names(2)))
    shop.database.execute(shop.database.retype("orders_0", "v", "bigint"))
    run_without_error(shop)
    shop.database.execute(
        "ALTER TABLE orders_0 ADD COLUMN extra int NOT NULL DEFAULT 7",
        "UPDATE orders_0 SET v = 5000000000 WHERE id = 1",
        "UPDATE orders_1 SET v = 5 WHERE id = 1",
    )
    run_without_error(shop)
    shop.assert_equal(*names(2))
    assert dict(everything(shop).select("v", "extra").dtypes) == {"v": "bigint", "extra": "int"}
    shop.database.execute("ALTER TABLE orders_1 ADD COLUMN extra int")
    run_without_error(shop)
    shop.database.execute(
        "UPDATE orders_1 SET extra = 3 WHERE id = 2",
        "TRUNCATE TABLE orders_0",
    )
    for shard in names(2):
        shop.settle(shard)
    run_without_error(shop)
    assert rows_by_shard(shop) == {"orders_1": 10}
    shop.database.execute("INSERT INTO orders_0 (id, v, t) VALUES (1, 1, 'again')")
    shop.assert_equal(*names(2))


@for_each_kind()
def test_settings_that_make_another_table_of_a_shard_are_refused(shop: Shop) -> None:
    for shard in names(2):
        shop.create(shard, 3)
    shop.database.execute(f"ALTER TABLE orders_1 ADD COLUMN {shop.database.quoted('_shard')} int")
    found = {one.table.name: one for one in shop.onboard(*names(2))}
    assert "the name of the shard column" in str(found["orders_1"].error)
    succeeded([found["orders_0"]])
    assert selected(shop.services, ["sales.orders"]) == [shop.table("orders_0")]
    # A shard that cannot be replicated is in the plan all the same: the lake table would lack it.
    shop.database.execute("CREATE TABLE orders_7 (v int)")
    wanted = {table.name: table for table in at_source(shop.services, ["sales.orders"]).tables}
    assert sorted(wanted) == ["orders_0", "orders_1", "orders_7"]
    (outcome,) = shop.onboard("orders_7")
    assert "has no key" in str(outcome.error)
    pointer = json.loads((shop.folder / "lake/sales/orders/_current.json").read_text())
    assert pointer["path"] == published_path(shop.services, shop.table("orders_0"))
    shop.reconfigure(tables={"sales.orders": {**TABLES["sales.orders"], "shard": "x{table}"}})
    (outcome,) = shop.onboard("orders_0")
    assert "onboarded as shard orders_0 of sales.orders" in str(outcome.error)
    shop.reconfigure(tables={"*.*": {"tier": "sharded"}})
    (outcome,) = shop.onboard("orders_0")
    assert "its settings now make it a table of its own" in str(outcome.error)
    two = {"a": {"from": ["*.orders_*"]}, "b": {"from": ["*.orders_0"]}}
    shop.reconfigure(tables=two)
    with pytest.raises(ConfigError, match="would feed more than one lake table: a, b"):
        shop.services.config.table_path(shop.table("orders_0"))
