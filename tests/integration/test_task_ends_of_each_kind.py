"""The connector's task ends between two events of one statement, on a source of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.debezium.task_ends import takes_key
from stack.mysql_software import MARIADB, MYSQL
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind, kinds
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop
from tests.integration.rigs.tasks import LARGE, Tasks


@pytest.fixture
def tasks(database: OwnDatabase, spark: SparkSession, tmp_path: Path) -> Iterator[Tasks]:
    shop = Shop(database, spark, tmp_path)
    shop.create("t", 10)
    with closing(shop.services):
        yield Tasks(shop)


@for_each_kind()
def test_a_row_with_a_changed_key_that_the_connector_leaves_out_is_found(tasks: Tasks) -> None:
    """Ten rows get new keys, and the third row cannot be sent; a binlog has all in one event."""
    tasks.begin()
    large = f"CASE WHEN id = 3 THEN repeat('x', {LARGE}) ELSE t END"
    tasks.fail_within(f"UPDATE t SET t = {large}, id = id + 1000")
    tasks.go_on()
    moved = [one for one in tasks.sent("t") if one.value is not None and takes_key(one)]
    assert len(moved) == 9, "the connector leaves it out"
    tasks.assert_lost("left out the row with the changed key")


@pytest.mark.parametrize("database", kinds(of=(MARIADB, MYSQL)), indirect=True)
def test_an_end_within_an_event_of_the_binlog_loses_nothing(tasks: Tasks) -> None:
    tasks.begin()
    rows = ", ".join(f"({n}, 0, 'row')" for n in (101, 102))
    large = f"(103, 0, repeat('x', {LARGE}))"
    tasks.fail_within(f"INSERT INTO t VALUES {rows}, {large}, (104, 0, 'row'), (105, 0, 'row')")
    assert tasks.offset()["row"] == 2
    tasks.go_on()
    applied = tasks.run()
    assert applied is not None
    assert (applied.error, applied.warnings) == (None, ())
    tasks.shop.assert_equal("t")
