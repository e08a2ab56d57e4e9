"""One pass over source and lake finds exactly the rows whose values or types differ."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.sources.source_facts import KeyRange, TimeRange
from operate.verify.compare import as_table, compare, digests, source_rows, with_keys
from operate.verify.scope import KeyOrder
from operate.verify.selection import differing_partitions, of_partitions, of_ranges, of_time
from schemas.table import Column, TableId, TableSchema

TYPES = {
    "id": "bigint",
    "name": "string",
    "price": "double",
    "tags": "array<string>",
    "blob": "binary",
    "amount": "decimal(10,2)",
}
SCHEMA = TableSchema(
    TableId("shop", "public", "things"),
    tuple(Column(name, kind, kind) for name, kind in TYPES.items()),
    ("id",),
)


def frame(spark: SparkSession, *rows: tuple[Any, ...]):
    filled = [dict(zip(TYPES, (*row, *[None] * len(TYPES)), strict=False)) for row in rows]
    return source_rows(spark, filled, SCHEMA)


def differing(spark: SparkSession, ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]):
    found = compare(frame(spark, *ours), frame(spark, *theirs), SCHEMA, limit=100)
    assert found.differing == len(found.suspects)
    assert (found.source_rows, found.lake_rows) == (len(ours), len(theirs))
    return sorted(key[0] for key in found.suspects)


def test_equal_sides(spark: SparkSession) -> None:
    rows = [(n, f"n{n}", n / 7, ["a", None], b"\x00\xff") for n in range(1000)]
    found = compare(frame(spark, *rows), frame(spark, *rows[::-1]), SCHEMA, limit=10)
    assert (found.keys, found.differing, found.suspects) == (1000, 0, ())


def test_both_sides_empty(spark: SparkSession) -> None:
    assert compare(frame(spark), frame(spark), SCHEMA, limit=10).keys == 0


def test_missing_extra_different_and_double(spark: SparkSession) -> None:
    ours = [(1, "a"), (2, "b"), (3, "c"), (5, "e")]
    theirs = [(2, "b"), (3, "x"), (4, "d"), (5, "e"), (5, "e")]
    assert differing(spark, ours, theirs) == [1, 3, 4, 5]


def test_values_that_hashes_like_to_take_for_equal(spark: SparkSession) -> None:
    ours = [
        (1, None, 1.0),
        (2, "1.0", None),
        (3, "", 0.0),
        (4, "a", None, ["x", None]),
        (5, "a", None, []),
        (6, "a", None, None, b""),
        (7, "ab", None, ["c"]),
    ]
    theirs = [
        (1, "1.0", None),
        (2, None, 1.0),
        (3, "", -0.0),
        (4, "a", None, [None, "x"]),
        (5, "a", None, None),
        (6, "a", None, None, None),
        (7, "a", None, ["bc"]),
    ]
    assert differing(spark, ours, theirs) == [1, 2, 3, 4, 5, 6, 7]


def test_nan_equals_nan(spark: SparkSession) -> None:
    assert differing(spark, [(1, "a", math.nan)], [(1, "a", -math.nan)]) == []


def test_no_more_keys_than_asked_for(spark: SparkSession) -> None:
    ours = frame(spark, *[(n, "a") for n in range(500)])
    found = compare(ours, frame(spark), SCHEMA, limit=7)
    assert (found.keys, found.differing, len(found.suspects)) == (500, 500, 7)


def test_a_column_that_the_lake_has_not_yet_is_null(spark: SparkSession) -> None:
    lake = spark.createDataFrame([(1, "a"), (2, "b")], "id bigint, name string")
    shaped = as_table(lake, SCHEMA)
    ours = frame(spark, (1, "a"), (2, "b", 1.5))
    found = compare(ours, shaped, SCHEMA, limit=10)
    assert found.suspects == ((2,),)


def test_softly_deleted_rows_are_not_there(spark: SparkSession) -> None:
    lake = spark.createDataFrame(
        [(1, "a", True), (2, "b", False), (3, "c", None)],
        "id bigint, name string, _cdc_deleted boolean",
    )
    assert sorted(row["id"] for row in as_table(lake, SCHEMA).collect()) == [2, 3]


def test_digests_of_chosen_keys_name_the_column(spark: SparkSession) -> None:
    ours, theirs = frame(spark, (1, "a", 1.0), (2, "b", 2.0)), frame(spark, (1, "a", 9.0))
    chosen = digests(with_keys(spark, ours, SCHEMA, [(1,)]), SCHEMA)
    assert [key for key, _ in chosen] == [(1,)]
    ((_, left),), ((_, right),) = chosen, digests(theirs, SCHEMA)
    names = list(TYPES)
    assert [n for n, a, b in zip(names, left, right, strict=True) if a != b] == ["price"]


def test_key_columns_may_have_the_names_that_the_comparison_had_for_its_own(
    spark: SparkSession,
) -> None:
    names = ("_s", "_l", "_d0", "_d1", "_same", "_differs")
    columns = tuple(Column(name, "bigint", "bigint") for name in (*names, "v"))
    schema = TableSchema(SCHEMA.table, columns, names)
    keys = [tuple(range(n, n + len(names))) for n in range(3)]
    ours, theirs = (
        source_rows(
            spark, [dict(zip((*names, "v"), (*key, v), strict=True)) for key in keys], schema
        )
        for v in (1, 2)
    )
    assert compare(ours, ours, schema, limit=10).differing == 0
    assert sorted(compare(ours, theirs, schema, limit=10).suspects) == keys


KEYED = TableSchema(
    TableId("shop", "public", "sales"),
    tuple(
        Column(name, kind, kind)
        for name, kind in (
            ("a", "int"),
            ("b", "decimal(4,1)"),
            ("day", "date"),
            ("at", "timestamp"),
        )
    ),
    ("a", "b"),
)


def sales(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    columns = [column.name for column in KEYED.columns]
    return source_rows(spark, [dict(zip(columns, row, strict=True)) for row in rows], KEYED)


def test_rows_of_ranges_are_found_as_the_source_finds_them(spark: SparkSession) -> None:
    order = KeyOrder(KEYED, uuids_sort_as_text=True)
    every = [(a, Decimal(b), None, None) for a in (-9, 2, 10) for b in ("-1.5", "2", "10")]
    rows = sales(spark, *every)

    def found(*ranges: KeyRange) -> list[tuple[int, Decimal]]:
        kept = rows.where(of_ranges(ranges, order)).collect()
        return sorted((row["a"], row["b"]) for row in kept)

    keys = sorted((a, b) for a, b, *_ in every)
    assert found(KeyRange()) == keys
    middle = KeyRange(("2", "2"), ("10", "2"))
    assert found(middle) == [key for key in keys if (2, 2) <= key < (10, 2)]
    ends = (KeyRange(None, ("2", "2")), KeyRange(("10", "2"), None))
    assert found(*ends) == [key for key in keys if key not in found(middle)]


def test_rows_of_a_time_are_found(spark: SparkSession) -> None:
    def at(day: int, hour: int) -> datetime:
        return datetime(2026, 3, day, hour, tzinfo=timezone.utc)

    rows = sales(
        spark,
        *((n, Decimal(0), at(n, 0).date(), at(n, 23)) for n in range(1, 5)),
        (9, Decimal(0), None, None),
    )

    def found(column: str, begin: str, end: str) -> list[int]:
        window = TimeRange(column, begin, end)
        return sorted(row["a"] for row in rows.where(of_time(window, KEYED)).collect())

    assert found("at", "2026-03-02 00:00:00", "2026-03-03 23:00:00") == [2]
    assert found("at", "2026-03-01 23:00:00", "2026-03-03 23:00:01") == [1, 2, 3]
    assert found("day", "2026-03-02 00:00:00", "2026-03-04 00:00:00") == [2, 3]


def test_partitions_differ_by_their_counts_or_their_checksums(spark: SparkSession) -> None:
    first, second, third = (date(2026, 3, day) for day in (1, 2, 3))
    ours = [
        *((n, Decimal(0), first, None) for n in range(5)),
        *((n, Decimal(1), second, None) for n in range(5)),
        *((n, Decimal(2), None, None) for n in range(3)),
        (1, Decimal(3), third, None),
    ]
    theirs = [row for row in ours if row[:2] != (2, Decimal(2)) and row[2] != third]
    theirs[6] = (1, Decimal(1), second, datetime(2026, 1, 1, tzinfo=timezone.utc))
    partitions, alike, number = differing_partitions(
        sales(spark, *ours), sales(spark, *theirs), KEYED, ["day"]
    )
    assert (len(partitions), alike, number) == (3, 5, 4)
    kept = sales(spark, *ours).where(of_partitions(partitions, KEYED, ["day"]))
    assert kept.count() == 9
    assert {row["day"] for row in kept.collect()} == {second, None, third}
    assert differing_partitions(sales(spark, *ours), sales(spark, *ours), KEYED, ["day"]) == (
        *([], 14, 4),
    )
    assert differing_partitions(sales(spark), sales(spark), KEYED, ["day"]) == ([], 0, 0)


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give this process a time zone in which one hour of each year occurs twice."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_rows_of_differing_partitions_are_found_in_any_time_zone(spark: SparkSession) -> None:
    """Partitions are by a time without a zone, by an instant in the repeated hour, and by zero."""
    local = datetime(2026, 11, 1, 1, 30)  # noqa: DTZ001  # has no zone
    once, again = (datetime(2026, 11, 1, hour, 30, tzinfo=timezone.utc) for hour in (5, 6))
    types = {"id": "bigint", "local": "timestamp_ntz", "at": "timestamp", "ratio": "double"}
    columns = tuple(Column(name, kind, kind) for name, kind in types.items())
    schema = TableSchema(TableId("shop", "public", "times"), columns, ("id",))

    def times(*rows: tuple[Any, ...]) -> DataFrame:
        filled = [dict(zip(types, row, strict=True)) for row in rows]
        return source_rows(spark, filled, schema)

    ours = [(1, local, once, 0.0), (2, local, again, -0.0), (3, None, None, math.nan)]
    for by in types:
        for changed in ours:
            theirs = [row for row in ours if row != changed]
            found, _, _ = differing_partitions(times(*ours), times(*theirs), schema, [by])
            assert len(found) == 1
            kept = times(*ours).where(of_partitions(found, schema, [by])).collect()
            assert changed[0] in {row["id"] for row in kept}, by
            if by == "at":
                assert len(kept) == 1
