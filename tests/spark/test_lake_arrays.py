"""Arrays keep their NULL elements through the copy and through changes."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.lake import change, content, insert, lake, schema


def test_arrays_with_null_elements_survive_copy_and_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", schema("id", id="bigint", tags="array<string>"))
    insert(spark, table, (0, ["a", None]), (1, []), (2, None))

    change(spark, table, 3, ("u", 1, (1, [None, "b"])), ("c", 2, (3, [None])))

    assert content(table) == [(0, ["a", None]), (1, [None, "b"]), (2, None), (3, [None])]
