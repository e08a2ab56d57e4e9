"""The connector's task ends between two events of one record of the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop
from tests.integration.rigs.tasks import LARGE, Tasks


@pytest.fixture
def tasks(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Tasks]:
    shop = Shop(database, spark, tmp_path)
    shop.create("t", 10)
    with closing(shop.services):
        yield Tasks(shop)


def test_the_rest_of_a_copy_that_the_connector_leaves_out_is_found(tasks: Tasks) -> None:
    tasks.begin()
    # The keys are in the topic from an earlier life, which says nothing about the rows of the COPY.
    tasks.shop.database.execute(
        "INSERT INTO t SELECT n, 0, 'earlier' FROM generate_series(101, 105) n",
        "DELETE FROM t WHERE id > 100",
    )
    tasks.copy(range(101, 106), large=102)
    tasks.wait_failed()
    assert (tasks.offset()["messageType"], tasks.offset()["lsn_events_processed"]) == ("INSERT", 1)
    tasks.go_on()
    tasks.shop.database.execute("UPDATE t SET v = 1 WHERE id = 1")
    tasks.shop.settle("t")
    tasks.assert_lost("left out rows that COPY inserted", "key 102")


@pytest.mark.breadth
def test_a_task_that_ended_elsewhere_in_a_copy_loses_nothing(tasks: Tasks) -> None:
    tasks.begin()
    tasks.copy(range(101, 106), large=103)
    tasks.wait_failed()
    assert (tasks.offset()["messageType"], tasks.offset()["lsn_events_processed"]) == ("INSERT", 2)
    tasks.go_on()
    applied = tasks.run()
    assert applied is not None
    assert applied.error is None
    tasks.shop.assert_equal("t")


@pytest.mark.breadth
def test_an_end_that_cannot_be_judged_is_shown_until_the_table_is_verified(tasks: Tasks) -> None:
    tasks.begin()
    tasks.fail_within(
        "INSERT INTO t VALUES (101, 0, 'small')",
        f"INSERT INTO t VALUES (102, 0, repeat('x', {LARGE}))",
    )
    tasks.go_on()
    tasks.shop.database.execute("UPDATE t SET v = 1 WHERE id = 101")
    tasks.shop.settle("t")
    for _ in range(2):
        done = tasks.run()
        assert done is not None
        assert done.error is None
        assert [one for one in done.warnings if "perhaps within the rows of a COPY" in one]
        assert any("tributary verify" in note for note in tasks.notes)
        tasks.shop.database.execute("UPDATE t SET v = v + 1 WHERE id = 1")
        tasks.shop.settle("t")
    tasks.shop.assert_equal("t")
    assert not any("tributary verify" in note for note in tasks.notes)


@pytest.mark.breadth
def test_a_row_that_is_sent_again_to_an_append_table_is_found(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    database.let_pause()
    shop = Shop(database, spark, tmp_path, tables={"public.t": {"mode": "append"}})
    shop.create("t", 10)
    with closing(shop.services):
        tasks = Tasks(shop)
        tasks.begin()
        tasks.copy(range(101, 106), large=103)
        tasks.wait_failed()
        tasks.go_on()
        tasks.assert_lost("sent that row again")


@pytest.mark.breadth
def test_rows_of_an_append_table_that_come_again_without_a_stored_position_are_found(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    database.let_pause()
    shop = Shop(database, spark, tmp_path, tables={"public.t": {"mode": "append"}})
    shop.create("t", 10)
    with closing(shop.services):
        tasks = Tasks(shop)
        tasks.begin()
        tasks.fail_within(
            "INSERT INTO t VALUES (101, 0, 'first'), (102, 0, 'second'),"
            f" (103, 0, repeat('x', {LARGE}))"
        )
        tasks.run()
        tasks.forget()
        tasks.go_on()
        tasks.assert_lost("and sent rows again, from offset")
