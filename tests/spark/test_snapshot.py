"""Operations of a snapshot on Spark and the lake: cheap look-ups, and the count of written rows."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from bootstrap.snapshot import RowCounter
from cdc.lake.timeline import Timeline
from cdc.runtime.progress import NullTask

ROWS = 1234


class CountingTask(NullTask):
    def __init__(self) -> None:
        self.count = 0

    def advance(self, count: int = 1) -> None:
        self.count += count


def test_a_table_that_is_not_there_is_told_at_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "half" / ".hoodie").mkdir(parents=True)
    Timeline(spark, (tmp_path / "warm").as_uri())
    began = time.monotonic()
    assert not Timeline(spark, (tmp_path / "none").as_uri()).exists
    assert not Timeline(spark, (tmp_path / "half").as_uri()).exists
    assert time.monotonic() - began < 4, "Hudi's own five looks take five seconds each time"


def test_rows_of_the_own_jobs_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    path = (tmp_path / "rows").as_uri()
    spark.range(ROWS).write.parquet(path)
    task = CountingTask()
    counter = RowCounter(spark, "snapshot-test", task)
    spark.sparkContext.setJobGroup("somebody-else", "not ours")
    spark.read.parquet(path).write.format("noop").mode("overwrite").save()
    with counter.counting("ours"):
        spark.read.parquet(path).write.format("noop").mode("overwrite").save()
    spark.read.parquet(path).write.format("noop").mode("overwrite").save()
    counter.look()
    assert (counter.rows, task.count) == (ROWS, ROWS)


def test_fair_pools_are_as_many_as_the_threads_that_copy(spark: SparkSession) -> None:
    """Spark keeps each scheduler pool until Spark ends, and asks all pools for each free core."""

    def pool_of_copy(number: int) -> str | None:
        with RowCounter(spark, f"pools-{number}", CountingTask()).counting(f"copy t{number}"):
            return spark.sparkContext.getLocalProperty("spark.scheduler.pool")

    with ThreadPoolExecutor(3) as threads:
        pools = list(threads.map(pool_of_copy, range(12)))
    assert None not in pools
    assert len(set(pools)) <= 3
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None
