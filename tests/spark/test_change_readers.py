"""What Hudi's own readers of changes return for our tables, as docs/readers_python.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.lake import table_services
from cdc.lake.write import LakeTable
from tests.spark.lake import (
    CLUSTERED,
    ORDERS,
    SEVERAL_COMMITS,
    accept,
    change,
    insert,
    lake,
    record,
    rows,
    schema,
)

COPIED = [(key, "old") for key in range(10)]


@pytest.fixture(autouse=True)
def _upkeep_after_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    monkeypatch.setattr(table_services, "KEPT_COMMITS", 2)


def newest(table: LakeTable) -> str:
    found = table.timeline().newest_instant()
    assert found is not None
    return found


def since(spark: SparkSession, table: LakeTable, instant: str) -> dict[int, Any]:
    """What Hudi's incremental query returns for the commits after an instant, by key."""
    found = (
        spark.read.format("hudi")
        .option("hoodie.datasource.query.type", "incremental")
        .option("hoodie.datasource.read.begin.instanttime", instant)
        .load(table.path)
        .collect()
    )
    assert len({row.id for row in found}) == len(found)
    return {row.id: row.name for row in found}


def test_an_incremental_query_shows_updates_and_soft_deletes_but_no_hard_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    hard = lake(spark, tmp_path / "hard", ORDERS, index="bloom", hudi=CLUSTERED)
    soft = lake(spark, tmp_path / "soft", ORDERS, delete_mode="soft")
    for table in (hard, soft):
        insert(spark, table, *COPIED, size=SEVERAL_COMMITS)
        began = newest(table)
        change(spark, table, 3, ("u", 1, (1, "new")), ("d", 2, (2, None)))
        assert since(spark, table, began) == ({1: "new"} if table is hard else {1: "new", 2: None})
    began = newest(hard)
    hard.keep_up(lambda: None)
    assert newest(hard) > began, "clustered"
    assert since(spark, hard, began) == {}, "a clustering changes no row"
    change(spark, hard, 5, ("u", 4, (3, "later")))
    assert since(spark, hard, began) == {3: "later"}


@pytest.mark.breadth
def test_an_incremental_query_shows_added_columns_and_the_rows_after_a_truncate(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = lake(spark, tmp_path / "t", ORDERS)
    insert(spark, first, *COPIED)
    began = newest(first)
    wider = schema("id", id="bigint", name="string", more="int")
    table = LakeTable(spark, first.path, wider, TableSettings())
    change(spark, table, 2, ("u", 1, (1, "new", 7)))
    assert since(spark, table, began) == {1: "new"}
    began = newest(table)
    after = rows(spark, table, [("c", 3, (50, "after", 1))])
    table.overwrite(after, record(offsets={0: 4}), accept)
    assert since(spark, table, began) == {50: "after"}


@pytest.mark.breadth
def test_an_incremental_query_from_before_a_cleaning_still_shows_the_newest_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, readers_keep="1s", buckets=1)
    insert(spark, table, *COPIED)
    began = newest(table)
    for end in range(1, 8):
        change(spark, table, end, ("u", end, (end, f"new {end}")))
        table.keep_up(lambda: None)
    assert began not in table.timeline().completed_instants()
    found = since(spark, table, began)
    assert found == {key: f"new {key}" for key in range(1, 8)}


@pytest.mark.breadth
def test_a_stream_of_spark_goes_on_through_updates_clusterings_and_new_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom", hudi=CLUSTERED)
    insert(spark, table, *COPIED, size=SEVERAL_COMMITS)

    def streamed() -> list[tuple[Any, ...]]:
        seen: list[Any] = []
        stream = spark.readStream.format("hudi").load(table.path)
        query = (
            stream.writeStream.foreachBatch(lambda frame, _: seen.extend(frame.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return sorted((row.id, row.name) for row in seen)

    assert streamed() == COPIED
    change(spark, table, 3, ("u", 1, (1, "new")), ("d", 2, (2, None)))
    table.keep_up(lambda: None)
    assert streamed() == [(1, "new")], "a hard delete does not show"
    change(spark, table, 5, ("u", 4, (3, "later")))
    assert streamed() == [(3, "later")]
