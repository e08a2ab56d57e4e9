"""Hudi's own readers of changes return for the product's tables what the docs say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cdc.config import TableSettings
from cdc.errors import LakeError
from cdc.lake import options, table_services
from cdc.lake.write import LakeTable
from tests.spark.lake import (
    CLUSTERED,
    ORDERS,
    SEVERAL_COMMITS,
    accept,
    change,
    content,
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
    """The names that Hudi's incremental query returns for the commits after an instant, by key."""
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


def streamed(
    spark: SparkSession, table: LakeTable, checkpoint: Path, frame: DataFrame | None = None
) -> list[tuple[Any, ...]]:
    """The rows that a stream returns since its checkpoint, with the source's columns, sorted.

    Args:
        spark: The session.
        table: The table.
        checkpoint: Folder of the stream's checkpoint.
        frame: A streaming frame that exists already; None creates one now.
    """
    stream = frame if frame is not None else spark.readStream.format("hudi").load(table.path)
    names = [name for name in stream.columns if not name.startswith("_")]
    seen: list[tuple[Any, ...]] = []
    query = (
        stream.writeStream.foreachBatch(
            lambda batch, _: seen.extend(tuple(row) for row in batch.select(*names).collect())
        )
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return sorted(seen)


@pytest.mark.breadth
def test_a_stream_of_spark_goes_on_through_updates_and_clusterings(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, index="bloom", hudi=CLUSTERED)
    insert(spark, table, *COPIED, size=SEVERAL_COMMITS)
    kept = tmp_path / "checkpoint"
    assert streamed(spark, table, kept) == COPIED
    change(spark, table, 3, ("u", 1, (1, "new")), ("d", 2, (2, None)))
    table.keep_up(lambda: None)
    assert streamed(spark, table, kept) == [(1, "new")], "a hard delete does not show"
    change(spark, table, 5, ("u", 4, (3, "later")))
    assert streamed(spark, table, kept) == [(3, "later")]


@pytest.mark.breadth
def test_a_stream_shows_soft_deletes_and_of_a_truncate_only_the_rows_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, delete_mode="soft")
    insert(spark, table, *COPIED)
    kept = tmp_path / "checkpoint"
    assert streamed(spark, table, kept) == COPIED
    change(spark, table, 3, ("u", 1, (1, "new")), ("d", 2, (2, None)))
    assert streamed(spark, table, kept) == [(1, "new"), (2, None)]
    after = rows(spark, table, [("c", 3, (50, "after"))])
    table.overwrite(after, record(offsets={0: 4}), accept)
    assert streamed(spark, table, kept) == [(50, "after")]
    table.overwrite(rows(spark, table, []), record(offsets={0: 5}), accept)
    assert streamed(spark, table, kept) == []
    assert content(table) == []


@pytest.mark.breadth
def test_a_stream_ends_at_an_added_column_and_shows_it_after_a_new_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = lake(spark, tmp_path / "t", ORDERS)
    insert(spark, first, *COPIED)
    kept = tmp_path / "checkpoint"
    assert streamed(spark, first, kept) == COPIED
    planned = spark.readStream.format("hudi").load(first.path)
    wider = schema("id", id="bigint", name="string", more="int")
    table = LakeTable(spark, first.path, wider, TableSettings())
    change(spark, table, 2, ("u", 1, (1, "new", 7)))
    with pytest.raises(StreamingQueryException, match="Invalid batch"):
        streamed(spark, table, kept, planned)
    assert streamed(spark, table, kept) == [(1, "new", 7)]


@pytest.mark.breadth
def test_a_stream_whose_checkpoint_is_archived_fails_and_begins_with_a_new_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, readers_keep="1s", buckets=1)
    insert(spark, table, *COPIED)
    assert streamed(spark, table, tmp_path / "checkpoint") == COPIED
    began = newest(table)
    for end in range(1, 8):
        change(spark, table, end, ("u", end, (end, f"new {end}")))
        table.keep_up(lambda: None)
    assert began not in table.timeline().completed_instants()
    with pytest.raises(StreamingQueryException, match="Unable to find completion time"):
        streamed(spark, table, tmp_path / "checkpoint")
    assert streamed(spark, table, tmp_path / "another") == content(table)


@pytest.mark.breadth
def test_what_was_read_of_a_former_generation_is_no_place_in_the_next_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    former = lake(spark, tmp_path / "attempt=1", ORDERS)
    insert(spark, former, *COPIED)
    kept = tmp_path / "checkpoint"
    assert streamed(spark, former, kept) == COPIED
    before_the_copy = newest(former)
    successor = lake(spark, tmp_path / "attempt=2", ORDERS)
    # The copy has a change that the former generation does not get any more.
    insert(spark, successor, *[(key, "new" if key == 1 else name) for key, name in COPIED])
    change(spark, former, 3, ("u", 2, (2, "changed")))
    assert streamed(spark, former, kept) == [(2, "changed")]
    after_the_copy = newest(former)
    change(spark, successor, 4, ("u", 2, (2, "changed")), ("u", 3, (3, "later")))

    whole = dict(content(successor))
    assert len(whole) == len(COPIED)
    assert since(spark, successor, before_the_copy) == whole, "each row, as all are new"
    assert since(spark, successor, after_the_copy) == {2: "changed", 3: "later"}, "not row 1"
    with pytest.raises(StreamingQueryException, match="Unable to find completion time"):
        streamed(spark, successor, kept)
    assert streamed(spark, successor, tmp_path / "another") == content(successor)


@pytest.mark.breadth
@pytest.mark.parametrize("handle", [None, "org.apache.hudi.io.HoodieWriteMergeHandle"])
def test_hudis_cdc_mode_is_right_but_not_with_the_merge_handle_of_our_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handle: str | None
) -> None:
    key = "hoodie.write.merge.handle.class"
    ours = options._FIXED[key]
    fixed = {**options._FIXED, "hoodie.table.cdc.enabled": "true"}
    if handle is None:
        del fixed[key]
    monkeypatch.setattr(options, "_FIXED", fixed)
    table = lake(spark, tmp_path / "t", ORDERS)
    insert(spark, table, *COPIED)
    began = newest(table)
    events = (("u", 1, (1, "new")), ("d", 2, (2, None)), ("c", 3, (20, "more")))
    if handle is not None:
        assert handle == ours
        with pytest.raises(LakeError, match="ClassCastException"):
            change(spark, table, 4, *events)
        return
    change(spark, table, 4, *events)
    found = (
        spark.read.format("hudi")
        .option("hoodie.datasource.query.type", "incremental")
        .option("hoodie.datasource.query.incremental.format", "cdc")
        .option("hoodie.datasource.read.begin.instanttime", began)
        .load(table.path)
        .collect()
    )
    images = {(row.op, named(row.before), named(row.after)) for row in found}
    assert images == {("u", "old", "new"), ("d", "old", None), ("i", None, "more")}


def named(image: str | None) -> str | None:
    """The value of ``name`` in a row's JSON image; None without an image."""
    row = None if image is None else json.loads(image)
    return None if row is None else str(row["name"])
