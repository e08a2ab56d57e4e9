"""One pass over both sides: what differs is found by value and type, and nothing else."""

from __future__ import annotations

import math
from typing import Any

from pyspark.sql import SparkSession

from operate.verify.compare import as_table, compare, digests, source_rows, with_keys
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
