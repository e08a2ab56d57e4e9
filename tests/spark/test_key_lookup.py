"""The rows of a few keys come from the files that have them; other files' values are not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.lake import key_lookup
from cdc.lake.key_lookup import is_large, rows_with_keys
from cdc.runtime.local_frame import local_frame
from cdc.store.table_state import LakeSize
from tests.spark.lake import SEVERAL_COMMITS, accept, lake, record, rows, schema

FILES, ROWS = 24, 50
KEY = ("region", "id")
NOTES = schema(",".join(KEY), region="string", id="bigint", note="string")


@pytest.fixture(scope="module")
def notes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """A table of 24 files of 50 rows: file ``n`` has the ids from ``50 * n`` on."""
    table = lake(spark, tmp_path_factory.mktemp("lake") / "notes", NOTES)
    for file in range(FILES):
        numbers = range(file * ROWS, (file + 1) * ROWS)
        events = [("r", -1, ("eu", number, f"note {number}")) for number in numbers]
        one_file = rows(spark, table, events).coalesce(1)
        table.bulk_insert(one_file, record("chunk", chunk_ids=(file,)), accept, SEVERAL_COMMITS)
    return table.read()


def keys(spark: SparkSession, ids: Sequence[int]) -> DataFrame:
    return local_frame(spark, [("eu", one) for one in ids], "region STRING, id BIGINT")


def scanned(frame: DataFrame) -> int:
    """The number of rows that the scan of the lake returned, in an action that has ended."""
    plan = frame._jdf.queryExecution().executedPlan()
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.executedPlan()
    leaves = plan.collectLeaves()
    scans = [leaves.apply(n) for n in range(leaves.size())]
    (scan,) = (one for one in scans if one.nodeName().startswith("Scan"))
    return int(scan.metrics().apply("numOutputRows").value())


@pytest.mark.parametrize(
    ("ids", "files"),
    [([3], 1), ([0, 60, 1199], 3), ([*range(0, 1200, 60)], 20)],
    ids=["one file", "three files", "most files"],
)
def test_only_files_with_wanted_keys_are_read(
    spark: SparkSession, notes: DataFrame, ids: Sequence[int], files: int
) -> None:
    found = rows_with_keys(notes, keys(spark, ids), KEY, ["note"], files_first=True)
    assert sorted(map(tuple, found.collect())) == [("eu", one, f"note {one}") for one in ids]
    assert scanned(found) == files * ROWS


def test_keys_that_the_lake_lacks_have_no_row(spark: SparkSession, notes: DataFrame) -> None:
    found = rows_with_keys(notes, keys(spark, [1200]), KEY, ["note"], files_first=True)
    assert found.collect() == []


def test_from_some_number_of_files_on_all_are_read(
    spark: SparkSession, notes: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_lookup, "_MOST_FILES", 2)
    found = rows_with_keys(notes, keys(spark, [0, 60, 1199]), KEY, ["note"], files_first=True)
    assert len(found.collect()) == 3
    assert scanned(found) == FILES * ROWS


def test_a_table_is_large_from_64_mib_on_and_if_its_size_is_not_known() -> None:
    size = LakeSize(2**26, 0, 0, datetime.now(timezone.utc))
    assert is_large(size)
    assert not is_large(replace(size, image_bytes=2**26 - 1, kept_bytes=2**40))
    assert is_large(None)


def test_a_small_table_is_read_at_once(spark: SparkSession, notes: DataFrame) -> None:
    found = rows_with_keys(notes, keys(spark, [3]), KEY, ["note"], files_first=False)
    assert found.collect() == [("eu", 3, "note 3")]
    assert scanned(found) == FILES * ROWS


def test_a_key_of_text_is_found(spark: SparkSession, notes: DataFrame) -> None:
    wanted = local_frame(spark, [("note 7",), ("note 9",)], "note STRING")
    found = rows_with_keys(notes, wanted, ["note"], ["id"], files_first=True)
    assert sorted(row["id"] for row in found.collect()) == [7, 9]
    assert scanned(found) == ROWS
