"""Which data files of a table are merged or split, and which files are left unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc.lake import file_sizes, index, table_services
from cdc.lake.write import LakeTable
from tests.spark.lake import (
    ORDERS,
    SEVERAL_COMMITS,
    accept,
    change,
    content,
    insert,
    lake,
    record,
    rows,
)


@pytest.fixture(autouse=True)
def _clustering_after_few_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    monkeypatch.setattr(table_services, "CLUSTER_EVERY_COMMITS", 6)


def files(table: LakeTable) -> dict[str, int]:
    """The number of rows of each file that a reader opens, by the file's id."""
    found = table.read().groupBy(F.col("_hoodie_file_name").alias("file")).count().collect()
    return {str(row["file"]).split("_")[0]: int(row["count"]) for row in found}


def copied(spark: SparkSession, path: Path, ids: tuple[int, ...]) -> LakeTable:
    """Create a table with one data file of two rows for each of the ids."""
    table = lake(spark, path, ORDERS)
    for at in ids:
        one_file = rows(spark, table, [("r", -1, (at, "a")), ("r", -1, (at + 1, "b"))]).coalesce(1)
        table.bulk_insert(one_file, record("chunk", chunk_ids=(at,)), accept, SEVERAL_COMMITS)
    return table


def test_a_table_that_is_updated_keeps_the_files_that_updates_touch(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = copied(spark, tmp_path / "t", (0, 10, 20))
    before = files(table)

    for at in range(3):
        change(spark, table, at + 1, ("u", at, (at * 10, "new")))
    assert table.keep_up(lambda: None)

    assert files(table) == before
    assert table.timeline().pending_instants() == []
    assert [name for _, name in content(table)] == ["new", "b"] * 3


@pytest.mark.breadth
def test_files_that_no_update_touches_are_merged_beside_those_that_are_touched(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = copied(spark, tmp_path / "t", (0, 10, 20, 30))
    before = files(table)
    for at in range(2):
        change(spark, table, at + 1, ("u", at, (at * 10, "new")))
    touched = {
        str(row[0]).split("_")[0]
        for row in table.read().where("name = 'new'").select("_hoodie_file_name").collect()
    }

    assert table.keep_up(lambda: None)

    after = files(table)
    assert touched < after.keys()
    assert sorted(after.values()) == [2, 2, 4]
    assert after.keys() - before.keys(), "two files became one"
    change(spark, table, 3, ("d", 2, (20, None)), ("u", 2, (31, "new")))
    assert len(content(table)) == 7


def test_small_files_of_a_table_that_only_gets_new_rows_are_merged(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = copied(spark, tmp_path / "t", (0, 10, 20))
    for at in range(3):
        change(spark, table, at + 1, ("c", at, (100 + at, "new")))

    assert table.keep_up(lambda: None)

    assert list(files(table).values()) == [9]


def test_a_large_file_that_updates_touch_is_split(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version merged files of updated tables into one."""
    monkeypatch.setattr(table_services, "CLUSTER_EVERY_COMMITS", 7)
    for name in ("FILL_BELOW_BYTES", "UPDATED_FILE_BYTES"):
        monkeypatch.setattr(file_sizes, name, 250_000)
    table = lake(spark, tmp_path / "t", ORDERS)
    insert(spark, table, (0, "a"), size=SEVERAL_COMMITS)
    first = rows(spark, table, [("r", -1, (0, "a"))]).limit(1)
    many = first.drop("id", "name").crossJoin(
        spark.range(1, 30_001).select("id", F.sha2(F.col("id").cast("string"), 256).alias("name"))
    )
    table.bulk_insert(many.coalesce(1), record("chunk", chunk_ids=(1,)), accept, SEVERAL_COMMITS)
    expected = content(table)
    assert max(files(table).values()) == 30_000

    for at in range(5):
        change(spark, table, at + 1, ("u", at, (15_000 + at, "new")))
    assert table.keep_up(lambda: None)
    change(spark, table, 6, ("u", 6, (1, "new")))

    after = files(table)
    assert len(after) > 3
    assert max(after.values()) < 15_000
    new = {1, *range(15_000, 15_005)}
    assert content(table) == sorted(
        ((at, "new" if at in new else name) for at, name in expected), key=repr
    )


@pytest.mark.breadth
def test_a_bucket_table_that_grows_goes_on_with_bloom_filters_early(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "GROWING_BUCKET_BYTES", 10)
    still, growing = (lake(spark, tmp_path / name, ORDERS) for name in ("still", "growing"))
    for table, op, first in ((still, "u", 0), (growing, "c", 100)):
        insert(spark, table, *[(i, "old") for i in range(20)])
        for at in range(10):
            change(spark, table, at + 1, (op, at, (first + at, "new")))

    def kinds(table: LakeTable) -> list[str]:
        return [one.index.kind for one in table.timeline().commits() if one.index]

    assert kinds(still) == ["bucket"] * 11
    assert kinds(growing) == ["bucket"] * 10 + ["bloom"], "it is judged before each fifth commit"
    assert len(content(growing)) == 30
