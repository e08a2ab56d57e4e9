"""How long readers keep what they have open, and how far back they can ask."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.lake import services
from cdc.lake.generations import generations, superfluous
from cdc.lake.publish import (
    attempt_folders,
    attempt_path,
    delete_path,
    read_pointer,
    write_pointer,
)
from cdc.lake.write import LakeTable
from tests.spark.lake import ORDERS, change, insert

ROWS = 40


@pytest.mark.parametrize(
    ("keep", "commits"),
    [
        ("1h", 6),
        pytest.param("1h", 300, marks=pytest.mark.breadth),
        pytest.param("1s", 6, marks=pytest.mark.breadth, id="too short"),
    ],
)
def test_readers_keep_their_files_as_long_as_the_settings_say(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, commits: int
) -> None:
    """A scan that began before many commits and a new generation ends after them."""
    if commits < 10:
        monkeypatch.setattr(services, "UPKEEP_EVERY_COMMITS", 1)
    monkeypatch.setattr(services, "KEPT_COMMITS", 2)
    base = f"file://{tmp_path}/t"
    settings = TableSettings(readers_keep=keep, retain_generations=0, index="bucket", buckets=4)
    table = LakeTable(spark, f"{base}/attempt=1", ORDERS, settings)
    insert(spark, table, *[(key, "old") for key in range(ROWS)])
    write_pointer(spark, base, path=table.path, generation=1, attempt="1")
    first = table.timeline().newest_instant()
    assert first is not None
    scan = table.read().select("id", "name").toLocalIterator()
    seen = [tuple(next(scan))]

    for end in range(1, commits + 1):
        change(spark, table, end, *[("u", end, (key, f"new {end}")) for key in range(ROWS)])
        table.keep_up(lambda: None)
        if keep == "1s":
            time.sleep(0.3)
    files = len(list((tmp_path / "t" / "attempt=1").glob("*.parquet")))
    assert (files < 4 * (commits + 1)) == (keep == "1s"), "of each commit all files stay, or not"
    publish_another(spark, base, settings)

    if keep == "1s":
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
    assert {row.name for row in since.collect()} == {f"new {commits}"}


def publish_another(spark: SparkSession, base: str, settings: TableSettings) -> None:
    """Show another generation, as a resync does, and remove what nobody needs."""
    write_pointer(spark, base, path=f"{base}/attempt=2", generation=2, attempt="2")
    (Path(base.removeprefix("file://")) / "attempt=2").mkdir()
    time.sleep(1.1)
    found = generations(attempt_folders(spark, base), read_pointer(spark, base), [])
    keep, now = timedelta(seconds=settings.readers_keep_s), datetime.now(timezone.utc)
    for one in superfluous(found, settings.retain_generations, keep=keep, now=now):
        delete_path(spark, attempt_path(base, one.attempt))
