"""The figures of a commit's writes that a run's guard gets, taken from Hudi's own statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from cdc.lake.timeline import Timeline, Written
from cdc.lake.write import LakeTable
from tests.spark.lake import ONE_COMMIT, ORDERS, Event, insert_all, lake, record, rows


class Seen:
    """A guard that remembers the figures of each commit."""

    def __init__(self) -> None:
        self.writes: list[Written] = []

    def __call__(self, timeline: Timeline) -> None:
        assert timeline.writes is not None
        self.writes.append(timeline.writes)


def changed(spark: SparkSession, table: LakeTable, end: int, *events: Event) -> Written:
    seen = Seen()
    table.upsert(rows(spark, table, events), record(offsets={0: end}), seen)
    (found,) = seen.writes
    assert table.timeline().writes is None, "only the guard of a commit knows them"
    return found


def sizes(path: Path) -> dict[str, int]:
    return {str(file): file.stat().st_size for file in path.rglob("*.parquet")}


@pytest.mark.parametrize("index", ["bucket", "bloom"])
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_commit_counts_its_bytes_and_each_changed_row_once(
    spark: SparkSession,
    tmp_path: Path,
    index: str,
    mode: Literal["hard", "soft"],
) -> None:
    settings: dict[str, Any] = {"delete_mode": mode}
    table = lake(spark, tmp_path, ORDERS, **settings)
    values = [(number, f"name {number}") for number in range(20)]
    size = ONE_COMMIT if index == "bucket" else ONE_COMMIT.__class__(10, 1000, 3)
    insert_all(spark, table, *values, size=size)
    before = sizes(tmp_path)
    events: tuple[Event, ...] = (
        ("u", 1, (3, "new")),
        ("u", 2, (4, "new")),
        ("d", 3, (5, "name 5")),
        ("c", 4, (100, "new")),
    )
    found = changed(spark, table, 5, *events)
    deletes = 0 if mode == "soft" else 1
    assert (found.inserts, found.updates, found.deletes) == (1, 3 - deletes, deletes)
    new = {file: at for file, at in sizes(tmp_path).items() if file not in before}
    assert found.bytes == sum(new.values()) > 0
    seen = Seen()
    table.empty_commit(record(offsets={0: 6}), seen)
    assert seen.writes == [Written(0, 0, 0, 0)]
