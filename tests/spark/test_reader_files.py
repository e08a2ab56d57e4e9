"""The files and rows that the reader without Spark finds are those that Spark reads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.errors import FencedError
from cdc.lake import table_services
from cdc.lake.timeline import Timeline
from cdc.lake.write import LakeTable
from operate.lake_storage import SparkStorage
from tests.spark.lake import (
    CLUSTERED,
    ORDERS,
    SEVERAL_COMMITS,
    accept,
    change,
    clean_before_listing,
    content,
    insert_all,
    lake,
    record,
    rows,
    schema,
)
from tributary_reader import ReadError, open_table
from tributary_reader.snapshot import published_files, snapshot
from tributary_reader.storage import LocalStorage

PLACES = schema("id", id="bigint", place="string", v="int")


@pytest.fixture(autouse=True)
def _upkeep_after_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_services, "UPKEEP_EVERY_COMMITS", 1)
    monkeypatch.setattr(table_services, "KEPT_COMMITS", 2)


def assert_seen_as_by_spark(table: LakeTable) -> None:
    """Assert that the reader without Spark finds the same files and rows as Spark."""
    wanted = sorted(
        one.removeprefix("file:").replace("//", "") for one in table.read().inputFiles()
    )
    files = published_files(table.path)
    assert [one.path for one in files] == wanted
    assert [one.size for one in files] == [Path(one.path).stat().st_size for one in files]
    names = [column.name for column in table.layout.schema.columns]
    read = open_table(table.path)
    assert sum(one.rows or 0 for one in files) == read.dataset().count_rows()
    found = [tuple(row.values()) for row in read.read(names).to_pylist()]
    assert sorted(found, key=repr) == content(table)


def cleaned_and_archived(spark: SparkSession, table: LakeTable) -> None:
    insert_all(spark, table, *[(key, "old") for key in range(20)])
    for end in range(1, 8):
        change(spark, table, end, ("u", end, (end, f"new {end}")), ("d", end, (end + 10, None)))
        table.keep_up(lambda: None)
    kept = [file.name for file in Path(table.path.removeprefix("file://")).glob("*.parquet")]
    assert len({one.split("_")[0] for one in kept}) < len(kept), "older versions are there"
    first = open_table(table.path).timeline.instants[0]
    assert any(one.split("_")[2] < first for one in kept) or len(kept) < 16, "some are archived"


def clustered(spark: SparkSession, table: LakeTable) -> None:
    insert_all(spark, table, *[(key, "old") for key in range(20)], size=SEVERAL_COMMITS)
    for end in range(1, 4):
        change(spark, table, end, ("u", end, (end, f"new {end}")), ("c", end, (100 + end, "c")))
        table.keep_up(lambda: None)
        assert_seen_as_by_spark(table)


def moved(spark: SparkSession, table: LakeTable) -> None:
    insert_all(spark, table, (0, "a/ b", 0), (1, "a/ b", 1), (2, "c", 2), (3, None, 3))
    change(spark, table, 5, ("u", 1, (0, "c", 10)), ("d", 2, (1, None, None)))


def truncated(spark: SparkSession, table: LakeTable) -> None:
    insert_all(spark, table, *[(key, "old") for key in range(20)])
    change(spark, table, 1, ("u", 1, (1, "new")))
    table.overwrite(rows(spark, table, [("c", 2, (7, "after"))]), record(offsets={0: 2}), accept)
    assert_seen_as_by_spark(table)
    change(spark, table, 3, ("u", 3, (7, "later")))


def given_up(spark: SparkSession, table: LakeTable) -> None:
    """Make a commit that its guard refuses; its files belong to no commit, or are removed."""
    insert_all(spark, table, *[(key, "old") for key in range(20)])

    def refuse(_timeline: Timeline) -> None:
        assert_seen_as_by_spark(table)
        raise FencedError("refused", remedy="none")

    with pytest.raises(FencedError):
        table.upsert(rows(spark, table, [("u", 1, (1, "lost"))]), record(offsets={0: 2}), refuse)
    assert_seen_as_by_spark(table)
    change(spark, table, 3, ("u", 3, (2, "new")))


LIVES: dict[str, tuple[Any, dict[str, Any], Callable[[SparkSession, LakeTable], None]]] = {
    "cleaned": (ORDERS, {"readers_keep": "1s", "buckets": 2}, cleaned_and_archived),
    "clustered": (ORDERS, {"hudi": CLUSTERED, "index": "bloom"}, clustered),
    "moved": (PLACES, {"partition_by": ("place",)}, moved),
    "truncated": (ORDERS, {}, truncated),
    "given up": (ORDERS, {}, given_up),
}


@pytest.mark.parametrize(
    "life",
    [
        "clustered",
        *(
            pytest.param(one, marks=pytest.mark.breadth)
            for one in ("given up", "cleaned", "moved", "truncated")
        ),
    ],
)
def test_the_files_of_the_newest_commit_are_those_that_spark_reads(
    spark: SparkSession, tmp_path: Path, life: str
) -> None:
    columns, settings, live = LIVES[life]
    table = lake(spark, tmp_path / "t", columns, **settings)
    live(spark, table)
    assert_seen_as_by_spark(table)
    through_spark = published_files(table.path, SparkStorage(spark))
    here = published_files(table.path)
    assert [one.path.removeprefix("file://") for one in through_spark] == [one.path for one in here]
    assert [(one.size, one.partition) for one in through_spark] == [
        (one.size, one.partition) for one in here
    ]


def test_columns_that_were_added_or_widened_are_read_from_older_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = schema("id", id="int", n="int", f="float", d="decimal(5,2)", a="array<string>")
    first = lake(spark, tmp_path / "t", before, buckets=2)
    insert_all(spark, first, *[(key, key, 1.5, Decimal("1.25"), ["x", None]) for key in range(8)])
    after = schema(
        "id",
        id="bigint",
        n="bigint",
        f="double",
        d="decimal(12,2)",
        a="array<string>",
        new="timestamp_ntz",
        more="binary",
    )
    table = LakeTable(spark, first.path, after, TableSettings(buckets=2))
    names = [column.name for column in after.columns]
    moment = dt.datetime.fromisoformat("2020-01-01T00:00:00.000001")
    large: Any = (1, 2**40, 2.5, Decimal("1234567.25"), [], moment, bytearray(b"x"))
    change(spark, table, 2, ("u", 1, large))
    read = open_table(table.path)
    assert len({one.instant for one in read.files}) == 2, "one file is older than the columns"
    found = [tuple(row.values()) for row in read.read(names).to_pylist()]
    assert sorted(found, key=repr) == sorted(
        (tuple(row) for row in table.read().select(*names).collect()), key=repr
    )


def test_a_table_is_read_as_of_each_commit_until_its_files_are_cleaned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi cleans the files while a reader lists them."""
    table = lake(spark, tmp_path / "t", ORDERS, readers_keep="1s", buckets=2)
    insert_all(spark, table, *[(key, "old") for key in range(20)])
    states: dict[str, list[tuple[Any, ...]]] = {}
    for end in range(1, 7):
        newest = table.timeline().newest_instant()
        assert newest is not None
        states[newest] = content(table)
        change(spark, table, end, ("u", end, (end, f"new {end}")), ("d", end, (end + 10, None)))
    first = min(states)
    assert len(open_table(table.path, as_of=first).files) == 2
    clean_before_listing(monkeypatch, table)
    with pytest.raises(ReadError, match="no longer there"):
        snapshot(LocalStorage(), table.path.removeprefix("file://"), first)
    oldest = open_table(table.path).timeline.complete_from
    readable = {one for one in states if one >= oldest}
    assert readable
    assert readable != set(states)
    for instant, wanted in states.items():
        if instant in readable:
            found = open_table(table.path, as_of=instant).read(["id", "name"]).to_pylist()
            assert sorted((tuple(row.values()) for row in found), key=repr) == wanted
        else:
            with pytest.raises(ReadError, match="no longer there"):
                open_table(table.path, as_of=instant)
