"""Selects the rows of a part of a table in Spark: ranges of its key, a time, or partitions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.rows.columns import scratch
from operate.verify.compare import column_digest, row_digest

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from cdc.sources.source_facts import KeyRange, TimeRange
    from operate.verify.scope import KeyOrder
    from schemas.table import TableSchema

MOST_PARTITIONS = 200
"""Number of differing partitions above which the rows of all partitions are compared."""

_COUNT = scratch("count")
_PLACE = scratch("partition")
_SIDES = (scratch("ours"), scratch("theirs"))
_SUMS = (scratch("sum_0"), scratch("sum_1"))
_FACTS = f"struct<{_COUNT}:bigint,{_SUMS[0]}:decimal(38,0),{_SUMS[1]}:decimal(38,0)>"


def of_ranges(ranges: Sequence[KeyRange], order: KeyOrder) -> SparkColumn:
    """Return a condition for ``verify``: a lake row's key is in one of several ranges."""
    return reduce(or_, (_of_one_range(one, order) for one in ranges))


def _of_one_range(one: KeyRange, order: KeyOrder) -> SparkColumn:
    """Return a condition for ``verify``: a lake row's key is in a range."""
    inside = [F.lit(True)]
    if one.lower is not None:
        inside.append(~_key_before(one.lower, order))
    if one.upper is not None:
        inside.append(_key_before(one.upper, order))
    return reduce(and_, inside)


def _key_before(bound: tuple[str, ...], order: KeyOrder) -> SparkColumn:
    """Return a condition for ``verify``: a row's key is smaller than a bound, lexicographically."""
    found = F.lit(False)
    for (name, lake_type), text in reversed(list(zip(order.types, bound, strict=True))):
        column, end = _compared_column(name), F.lit(text).cast(lake_type)
        found = (column < end) | ((column == end) & found)
    return found


def of_time(window: TimeRange, schema: TableSchema) -> SparkColumn:
    """Return a condition for ``verify``: a lake row lies in a window of time."""
    lake_type = schema.column(window.column).lake_type
    zone = "Z" if lake_type == "timestamp" else ""
    column = _compared_column(window.column)
    begin, end = (F.lit(f"{text}{zone}").cast(lake_type) for text in (window.begin, window.end))
    return (column >= begin) & (column < end)


def differing_partitions(
    source: DataFrame, lake: DataFrame, schema: TableSchema, by: Sequence[str]
) -> tuple[list[int], int, int]:
    """Compare source and lake, for ``verify``, by count and checksums of each partition.

    No row is shuffled. A partition has two checksums: sums of its rows' 64-bit digests, with two
    seeds.

    Returns:
        The digests of up to `MOST_PARTITIONS` + 1 differing partitions, for :func:`of_partitions`;
        the number of rows in partitions that are equal, and the number of all partitions.
    """
    ours, theirs = (
        side.select(column_digest(schema, by, _PLACE), *row_digest(schema, _SUMS))
        .groupBy(_PLACE)
        .agg(
            F.count(F.lit(1)).alias(_COUNT),
            *(F.sum(F.col(one).cast("decimal(38,0)")).alias(one) for one in _SUMS),
        )
        for side in (source, lake)
    )
    facts = F.struct(_COUNT, *_SUMS)
    none = F.lit(None).cast(_FACTS)
    sides = [
        side.select(
            _PLACE,
            *((facts if name == own else none).alias(name) for name in _SIDES),
        )
        for side, own in zip((ours, theirs), _SIDES, strict=True)
    ]
    both = (
        sides[0]
        .unionAll(sides[1])
        .groupBy(_PLACE)
        .agg(*(F.max(name).alias(name) for name in _SIDES))
        .collect()
    )
    one, two = _SIDES
    differing = [row for row in both if row[one] != row[two]]
    rows = sum(int(row[one][_COUNT]) for row in both if row[one] == row[two])
    named = [int(row[_PLACE]) for row in differing[: MOST_PARTITIONS + 1]]
    return named, rows, len(both)


def of_partitions(partitions: Sequence[int], schema: TableSchema, by: Sequence[str]) -> SparkColumn:
    """Return a condition for ``verify``: a row's partition has one of the given digests.

    The condition has digests and not the values that make a partition, since PySpark would convert
    times without a zone by the zone of this process. If two partitions have the same digest, both
    are selected.
    """
    return column_digest(schema, by, _PLACE).isin(*partitions)


def _compared_column(name: str) -> SparkColumn:
    """Return the Spark column with a compared column's name, which can have any characters."""
    return F.col("`" + name.replace("`", "``") + "`")
