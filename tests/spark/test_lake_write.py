from __future__ import annotations

import datetime as dt
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc.config import TableSettings
from cdc.errors import ConfigError, LakeError
from cdc.lake import index
from cdc.lake.index import SnapshotSize
from cdc.lake.write import LakeTable
from tests.spark.lake import (
    ONE_COMMIT,
    ORDERS,
    SEVERAL_COMMITS,
    Event,
    accept,
    change,
    content,
    insert,
    lake,
    offsets,
    record,
    rows,
    schema,
)

SIZES = pytest.mark.parametrize("size", [ONE_COMMIT, SEVERAL_COMMITS], ids=["bucket", "bloom"])


@SIZES
def test_changes_of_one_commit_insert_update_and_delete(
    spark: SparkSession, tmp_path: Path, size: SnapshotSize
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS)
    insert(spark, table, (0, "a"), (1, "b"), (2, "c"), size=size)

    change(
        spark,
        table,
        14,
        ("u", 10, (0, "new a")),
        ("d", 11, (1, None)),
        ("d", 12, (99, None)),
        ("c", 13, (7, None)),
    )

    assert content(table) == [(0, "new a"), (2, "c"), (7, None)]
    latest = table.timeline().latest_offsets()
    assert latest is not None
    assert latest.record.offsets == {0: 14}
    assert table.timeline().chunks("a") == {0}
    assert table.timeline().chunks("another attempt") == frozenset()


def test_columns_have_letters_of_any_alphabet(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "bigint", "größe": "string", "名前": "string", "Имя_2": "string"}
    table = lake(spark, tmp_path / "t", schema("id", **columns))
    insert(spark, table, (0, "a", "b", "c"), (1, "d", "e", "f"))

    change(spark, table, 2, ("u", 1, (1, "new d", "new e", "new f")))

    found = table.read().select(*(f"`{name}`" for name in columns)).collect()
    assert sorted(map(tuple, found)) == [(0, "a", "b", "c"), (1, "new d", "new e", "new f")]


def test_soft_deleted_rows_stay_and_say_so(spark: SparkSession, tmp_path: Path) -> None:
    table = lake(spark, tmp_path / "t", ORDERS, delete_mode="soft")
    insert(spark, table, (0, "a"), (1, "b"))

    change(spark, table, 2, ("d", 1, (1, "b")))

    found = table.read().select("id", "name", "_cdc_deleted").collect()
    assert sorted(map(tuple, found)) == [(0, "a", False), (1, "b", True)]
    hard = lake(spark, tmp_path / "t", ORDERS)
    with pytest.raises(ConfigError, match="delete_mode"):
        change(spark, hard, 3, ("d", 2, (0, None)))


@pytest.mark.parametrize("operation", ["empty_commit", "overwrite", "upsert"])
def test_a_commit_without_rows_still_records_offsets(
    spark: SparkSession, tmp_path: Path, operation: str
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS)
    nothing = rows(spark, table, [])
    write: dict[str, Callable[[int], str]] = {
        "empty_commit": lambda end: table.empty_commit(record(offsets={0: end}), accept),
        "overwrite": lambda end: table.overwrite(nothing, record(offsets={0: end}), accept),
        "upsert": lambda end: table.upsert(nothing, record(offsets={0: end}), accept),
    }

    write[operation](8)
    write[operation](9)

    assert offsets(table) == [{0: 8}, {0: 9}]
    assert table.read().count() == 0


@SIZES
def test_an_overwrite_replaces_all_rows_and_later_changes_apply(
    spark: SparkSession, tmp_path: Path, size: SnapshotSize
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS)
    insert(spark, table, (1, "a"), (2, "b"), size=size)

    left = rows(spark, table, [("c", 4, (3, "c")), ("d", 5, (2, None))])
    table.overwrite(left, record(offsets={0: 6}), accept)
    assert content(table) == [(3, "c")]

    change(spark, table, 9, ("u", 7, (3, "cc")), ("c", 8, (1, "back")))
    assert content(table) == [(1, "back"), (3, "cc")]
    assert offsets(table) == [{0: 6}, {0: 9}]


def _local(text: str) -> dt.datetime:
    """A date and time without a zone, as Spark returns it in a UTC session."""
    return dt.datetime.fromisoformat(text)


KEYS: dict[str, tuple[Any, Any]] = {
    "timestamp_ntz": (_local("2020-01-01T01:02:03.000004"), _local("1960-01-01")),
    "timestamp": (_local("2020-01-01"), _local("2021-01-01")),
    "date": (dt.date(2020, 1, 1), dt.date(1969, 1, 1)),
    "decimal(10,2)": (Decimal("1.50"), Decimal("2.00")),
    "binary": (bytearray(b"\x00,"), bytearray(b"")),
    "boolean": (True, False),
    "string": ("", "__empty__"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_are_found_again(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    kept, deleted = KEYS[kind]
    table = lake(spark, tmp_path / "t", schema("k", k=kind, v="int"))
    insert(spark, table, (kept, 1), (deleted, 2))

    change(spark, table, 3, ("u", 1, (kept, 10)), ("d", 2, (deleted, None)))

    assert content(table) == [(kept, 10)]


def test_rows_move_between_partitions_and_leave_them(spark: SparkSession, tmp_path: Path) -> None:
    orders = schema("id", id="bigint", place="string", v="int")
    table = lake(spark, tmp_path / "t", orders, partition_by=("place",))
    insert(spark, table, (0, "a/ b", 0), (1, "a/ b", 1), (2, "c", 2))

    change(
        spark,
        table,
        5,
        ("u", 1, (0, "c", 10)),
        ("d", 2, (1, None, None)),
        ("c", 3, (3, None, 3)),
        ("u", 4, (2, "c", 20)),
    )

    assert content(table) == [(0, "c", 10), (2, "c", 20), (3, None, 3)]
    assert table.read().filter("place = 'c'").count() == 2


@pytest.mark.parametrize("text", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_for_which_readers_would_see_null_stops_its_commit(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    orders = schema("id", id="bigint", place="string", v="int")
    table = lake(spark, tmp_path / "t", orders, partition_by=("place",))
    insert(spark, table, (0, "a", 0), (1, None, 1))
    with pytest.raises(LakeError, match="has a text that a lake partition cannot hold"):
        change(spark, table, 5, ("c", 3, (3, text, 3)))
    assert content(table) == [(0, "a", 0), (1, None, 1)]


def test_partitions_by_a_date_of_the_key(spark: SparkSession, tmp_path: Path) -> None:
    orders = schema("id,day", id="bigint", day="date", v="int")
    table = lake(spark, tmp_path / "t", orders, partition_by=("day",))
    new, old = dt.date(2020, 1, 1), dt.date(1969, 1, 1)
    insert(spark, table, (1, new, 1), (1, old, 2), (2, old, 3))

    change(spark, table, 3, ("u", 1, (1, new, 10)), ("d", 2, (2, old, None)))

    assert content(table) == [(1, old, 2), (1, new, 10)]


def test_columns_are_added_widened_and_left_out_in_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = schema("id", id="int", n="int", f="float", d="decimal(5,2)", gone="string")
    first = lake(spark, tmp_path / "t", before)
    insert(spark, first, (0, 0, 1.5, Decimal("1.25"), "g"), (1, 1, 1.5, Decimal("1.25"), "g"))
    after = schema(
        "id", id="bigint", n="bigint", f="double", d="decimal(12,2)", new="timestamp_ntz"
    )
    table = LakeTable(spark, first.path, after, TableSettings())
    large = (1, 2**40, 2.5, Decimal("1234567.25"), _local("2020-01-01T00:00:00.000001"))

    change(spark, table, 2, ("u", 1, large))

    assert content(table) == [(0, 0, 1.5, Decimal("1.25"), None), large]
    assert [row.gone for row in table.read().orderBy("id").collect()] == ["g", None]


def test_a_table_that_outgrows_its_buckets_goes_on_with_bloom_filters(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS)
    insert(spark, table, *[(i, "old") for i in range(20)])
    monkeypatch.setattr(index, "OUTGROWN_BUCKET_BYTES", 10)

    change(spark, table, 3, ("u", 1, (1, "new")), ("d", 2, (2, None)), ("c", 3, (100, "c")))
    change(spark, table, 6, ("u", 4, (1, "newer")), ("d", 5, (100, None)))

    kinds = [one.index.kind for one in table.timeline().commits() if one.index]
    assert kinds == ["bucket", "bloom", "bloom"]
    assert content(table) == sorted(
        [(1, "newer"), *((i, "old") for i in range(20) if i not in (1, 2))], key=repr
    )


def test_a_second_bulk_insert_into_buckets_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = lake(spark, tmp_path / "t", ORDERS)
    insert(spark, table, (1, "a"))

    with pytest.raises(LakeError, match="bucket index") as refused:
        insert(spark, table, (2, "b"))

    assert content(table) == [(1, "a")]
    assert refused.value.remedy.startswith("Set index: bloom for this table")
    again = lake(spark, tmp_path / "again", ORDERS, index="bloom")
    insert(spark, again, (1, "a"))
    insert(spark, again, (2, "b"))
    assert content(again) == [(1, "a"), (2, "b")]


def test_a_value_that_cannot_be_written_fails_the_commit_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", schema("id", id="bigint", d="decimal(5,2)"))
    insert(spark, table, (1, Decimal(1)))
    wide = lake(spark, tmp_path / "t", schema("id", id="bigint", d="decimal(12,2)"))
    too_large = rows(spark, wide, [("u", 1, (1, Decimal("1234567"))), ("c", 2, (2, Decimal(2)))])

    with pytest.raises(LakeError, match=r"1234567\.00"):
        table.upsert(too_large, record(offsets={0: 3}), accept)

    assert content(table) == [(1, Decimal("1.00"))]
    assert offsets(table) == []


@SIZES
def test_the_batch_is_evaluated_once(
    spark: SparkSession, tmp_path: Path, size: SnapshotSize
) -> None:
    """A second evaluation of the batch would read from replica or Kafka and decode again."""
    table = lake(spark, tmp_path / "t", ORDERS)
    seen = spark.sparkContext.accumulator(0)

    def counted(events: list[Event]) -> DataFrame:
        def count(row: Any) -> Any:
            seen.add(1)
            return row

        batch = rows(spark, table, events)
        return spark.createDataFrame(batch.rdd.map(count), batch.schema)

    snapshot = counted([("r", -1, (i, "old")) for i in range(10)])
    table.bulk_insert(snapshot, record("chunk", chunk_ids=(0,)), accept, size)
    assert seen.value == 10

    changes = counted([("u", i, (i, "new")) for i in range(10)])
    table.upsert(changes, record(offsets={0: 10}), accept)
    assert seen.value == 20


def test_the_table_is_of_a_version_that_all_engines_read_and_holds_no_secret(
    spark: SparkSession, tmp_path: Path
) -> None:
    canary = "canary-7f31"
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set("fs.s3a.secret.key", canary)
    try:
        folder = tmp_path / "100%25 a~2eb" / "attempt=1"
        table = LakeTable(spark, f"file://{folder}", ORDERS, TableSettings())
        insert(spark, table, (1, "a"))
        change(spark, table, 2, ("u", 1, (1, "b")))
    finally:
        configuration.unset("fs.s3a.secret.key")

    assert content(table) == [(1, "b")]
    properties = (folder / ".hoodie" / "hoodie.properties").read_text().splitlines()
    assert "hoodie.table.version=6" in properties
    assert "hoodie.table.timeline.timezone=UTC" in properties
    assert not [
        path
        for path in folder.rglob("*")
        if path.is_file() and canary.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize(
    ("hudi", "size"),
    [
        ({"hoodie.parquet.block.size": "4096"}, SEVERAL_COMMITS),
        pytest.param({}, SEVERAL_COMMITS, marks=pytest.mark.breadth),
        pytest.param({}, ONE_COMMIT, marks=pytest.mark.breadth),
        pytest.param(
            {"hoodie.datasource.write.row.writer.enable": "false"},
            SEVERAL_COMMITS,
            marks=pytest.mark.breadth,
        ),
    ],
    ids=["while rows are written", "as the file is closed", "bucket index", "without row writer"],
)
def test_a_copy_whose_rows_cannot_all_be_written_fails_as_a_whole(
    spark: SparkSession, tmp_path: Path, hudi: dict[str, str], size: SnapshotSize
) -> None:
    """No guard counts a copy's rows, so Hudi's writer must fail at the first unwritten row."""
    # The codec's native library is a large file, which the JVM unpacks with the first use.
    insert(spark, lake(spark, tmp_path / "other", ORDERS), (1, "a"))
    table = lake(spark, tmp_path / "t", ORDERS, hudi=hudi)
    few = rows(spark, table, [("r", -1, (key, "few")) for key in range(3)])
    names = {name: F.col(name) for name, _ in table.layout.input_columns}
    names |= {"id": F.col("n").cast("bigint"), "name": F.sha2(F.col("n").cast("string"), 512)}
    many = (
        few.limit(1)
        .crossJoin(spark.range(3, 5000).withColumnRenamed("id", "n"))
        .select(*(value.alias(name) for name, value in names.items()))
    )
    chunk = record("chunk", chunk_ids=(0,))

    with small_files_only(spark, 100_000), pytest.raises(LakeError, match=r"the commit .* failed"):
        table.bulk_insert(few.unionByName(many), chunk, accept, size)
    assert table.timeline().chunks("a") == frozenset()

    table.bulk_insert(few.unionByName(many), chunk, accept, size)
    assert table.read().select("id").distinct().count() == table.read().count() == 5000


@contextmanager
def small_files_only(spark: SparkSession, size: int) -> Iterator[None]:
    """Let the JVM write no file beyond a size in bytes, as on a disk that is full."""
    gateway: Any = spark.sparkContext._gateway
    pid = int(gateway.proc.pid)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
