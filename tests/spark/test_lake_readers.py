"""How long readers keep what they have open, and how far back they can ask."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.lake import services
from tests.spark.lake import ORDERS, change, insert, lake

ROWS = 40


@pytest.mark.parametrize(
    "keep", ["1h", pytest.param("1s", marks=pytest.mark.breadth, id="1s: too short")]
)
def test_readers_keep_their_files_as_long_as_the_settings_say(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    """A scan that began before many commits and upkeeps ends after them; so do time travels."""
    monkeypatch.setattr(services, "UPKEEP_EVERY_COMMITS", 1)
    monkeypatch.setattr(services, "KEPT_COMMITS", 2)
    table = lake(spark, tmp_path / "t", ORDERS, readers_keep=keep, index="bucket", buckets=4)
    insert(spark, table, *[(key, "old") for key in range(ROWS)])
    first = table.timeline().newest_instant()
    assert first is not None
    scan = table.read().select("id", "name").toLocalIterator()
    seen = [tuple(next(scan))]

    for end in range(1, 7):
        change(spark, table, end, *[("u", end, (key, f"new {end}")) for key in range(ROWS)])
        table.keep_up(lambda: None)
        time.sleep(0.3)

    files = len(list((tmp_path / "t").glob("*.parquet")))
    if keep == "1s":
        assert files < 7 * 4, "nothing was cleaned, so this proves nothing"
        with pytest.raises(Exception, match=r"FileNotFound|does not exist"):
            list(scan)
        return
    seen += [tuple(row) for row in scan]
    assert sorted(seen) == [(key, "old") for key in range(ROWS)]
    reader = spark.read.format("hudi")
    then = reader.option("as.of.instant", first).load(table.path)
    assert {row.name for row in then.collect()} == {"old"}
    since = (
        reader.option("hoodie.datasource.query.type", "incremental")
        .option("hoodie.datasource.read.begin.instanttime", first)
        .load(table.path)
    )
    assert {row.name for row in since.collect()} == {"new 6"}
