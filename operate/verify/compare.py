"""Compares the rows of source and lake in Spark by their digests, in one pass over both sides.

The same type rules convert both sides to lake types. So equal digests mean equal values of equal
types. NaN equals NaN, 0.0 differs from -0.0, and NULL equals only NULL.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from cdc.rows.columns import DELETED, scratch
from cdc.runtime.local_frame import local_frame
from operate.verify.suspects import Key, RowDigest
from schemas.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

_SEEDS = (20_011, 90_001)
"""Seeds of two independent 64-bit hashes, which together are a digest of 128 bits."""

_DIGEST = (scratch("digest_0"), scratch("digest_1"))
_SOURCE, _LAKE, _SURPLUS = scratch("source"), scratch("lake"), scratch("surplus")
_SAME, _DIFFERS, _ROW = scratch("same"), scratch("differs"), scratch("compared_row")


@dataclass(frozen=True)
class ComparedRows:
    """The result of ``verify`` for one pass over source and lake.

    Args:
        source_rows: Number of rows read from the source.
        lake_rows: Number of rows read from the lake.
        keys: Number of distinct keys on both sides together.
        differing: Number of keys whose rows differ, including keys that have several rows in the
            lake.
        suspects: The differing keys, up to the ``limit`` of :func:`compare`.
    """

    source_rows: int
    lake_rows: int
    keys: int
    differing: int
    suspects: tuple[Key, ...]


@dataclass(frozen=True)
class BagComparison:
    """The result of ``verify`` for one pass over source and lake of an append table.

    Args:
        source_rows: Number of rows read from the source.
        lake_rows: Number of rows read from the lake.
        rows: Number of distinct rows on both sides together.
        differing: Number of rows without a counterpart on the other side. Each distinct row adds
            the difference between its count in the source and its count in the lake.
        surplus: The distinct rows whose counts differ, up to the ``limit`` of :func:`compare_bags`.
            Each row comes with its count in the source minus its count in the lake.
    """

    source_rows: int
    lake_rows: int
    rows: int
    differing: int
    surplus: tuple[tuple[int, Mapping[str, object]], ...]


def source_rows(
    spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: TableSchema
) -> DataFrame:
    """Return source rows for ``verify`` as a data frame; no value is hashed or masked yet."""
    shown = schema.shown().columns
    ddl = ", ".join(f"{_quoted_column(column.name)} {column.lake_type}" for column in shown)
    names = [column.name for column in schema.columns]
    values = [tuple(row[name] for name in names) for row in rows]
    return local_frame(spark, values, ddl)


def as_table(lake: DataFrame, schema: TableSchema, *, also: Sequence[str] = ()) -> DataFrame:
    """Return the lake's rows for ``verify``, with the schema's columns and the columns ``also``.

    Rows that are marked as deleted are left out. A column that the lake lacks is NULL.
    """
    if DELETED in lake.columns:
        lake = lake.where(~F.coalesce(F.col(DELETED), F.lit(False)))
    present = {name.lower() for name in lake.columns}
    return lake.select(
        *(
            (F.col(_quoted_column(column.name)) if column.name.lower() in present else F.lit(None))
            .cast(column.lake_type)
            .alias(column.name)
            for column in schema.columns
        ),
        *also,
    )


def compare(source: DataFrame, lake: DataFrame, schema: TableSchema, *, limit: int) -> ComparedRows:
    """Compare all rows of source and lake by key, for ``verify``, in one pass with one shuffle.

    Args:
        source: The source's rows, with the columns in lake types.
        lake: The lake's rows, with the same columns (see :func:`as_table`).
        schema: The table's schema in the lake.
        limit: Maximum number of differing keys to return.
    """
    key = [F.col(_quoted_column(name)) for name in schema.key]
    one, none = F.lit(1).cast("bigint"), F.lit(0).cast("bigint")
    ours = source.select(*key, *row_digest(schema), one.alias(_SOURCE), none.alias(_LAKE))
    theirs = lake.select(*key, *row_digest(schema), none.alias(_SOURCE), one.alias(_LAKE))
    grouped = (
        ours.unionAll(theirs)
        .groupBy(*key)
        .agg(
            F.sum(_SOURCE).alias(_SOURCE),
            F.sum(_LAKE).alias(_LAKE),
            reduce(and_, (F.min(part) == F.max(part) for part in _DIGEST)).alias(_SAME),
        )
        .withColumn(_DIFFERS, (F.col(_SOURCE) != 1) | (F.col(_LAKE) != 1) | ~F.col(_SAME))
    )
    # The result is kept on disk, since it is read twice and is smaller than the shuffle's files.
    kept = grouped.select(*key, _SOURCE, _LAKE, _DIFFERS).persist(StorageLevel.DISK_ONLY)
    try:
        totals = kept.agg(
            F.count(F.lit(1)).alias("keys"),
            F.coalesce(F.sum(_SOURCE), none).alias("source"),
            F.coalesce(F.sum(_LAKE), none).alias("lake"),
            F.count(F.when(F.col(_DIFFERS), one)).alias("differing"),
        ).first()
        if totals is None:
            raise AssertionError("an aggregate without groups has one row")
        suspects = kept.where(_DIFFERS).select(*key).limit(limit).collect()
    finally:
        kept.unpersist()
    return ComparedRows(
        source_rows=totals["source"],
        lake_rows=totals["lake"],
        keys=totals["keys"],
        differing=totals["differing"],
        suspects=tuple(_key_of_compared_row(row, schema) for row in suspects),
    )


def compare_bags(
    source: DataFrame, lake: DataFrame, schema: TableSchema, *, limit: int
) -> BagComparison:
    """Compare the rows of an append table in source and lake by how often each row occurs.

    Args:
        source: The source's rows, with the columns in lake types.
        lake: The lake's rows, with the same columns (see :func:`as_table`).
        schema: The table's schema in the lake.
        limit: Maximum number of differing rows to return. If rows differ, both sides are read a
            second time, to return the differing rows.
    """
    one, none = F.lit(1).cast("bigint"), F.lit(0).cast("bigint")
    ours = source.select(*row_digest(schema), one.alias(_SOURCE), none.alias(_LAKE))
    theirs = lake.select(*row_digest(schema), none.alias(_SOURCE), one.alias(_LAKE))
    grouped = ours.unionAll(theirs).groupBy(*_DIGEST).agg(F.sum(_SOURCE), F.sum(_LAKE))
    kept = grouped.toDF(*_DIGEST, _SOURCE, _LAKE).persist(StorageLevel.DISK_ONLY)
    surplus = F.col(_SOURCE) - F.col(_LAKE)
    try:
        totals = kept.agg(
            F.count(F.lit(1)).alias("rows"),
            F.coalesce(F.sum(_SOURCE), none).alias("source"),
            F.coalesce(F.sum(_LAKE), none).alias("lake"),
            F.coalesce(F.sum(F.abs(surplus)), none).alias("differing"),
        ).first()
        if totals is None:
            raise AssertionError("an aggregate without groups has one row")
        shown: list[tuple[int, dict[str, object]]] = []
        if totals["differing"]:
            wanted = kept.where(surplus != 0).limit(limit).select(*_DIGEST, surplus.alias(_SURPLUS))
            shown = _differing_rows(source.unionByName(lake), wanted, schema)
    finally:
        kept.unpersist()
    return BagComparison(
        source_rows=totals["source"],
        lake_rows=totals["lake"],
        rows=totals["rows"],
        differing=totals["differing"],
        surplus=tuple(shown),
    )


def _differing_rows(
    rows: DataFrame, wanted: DataFrame, schema: TableSchema
) -> list[tuple[int, dict[str, object]]]:
    """Return, for each wanted digest of a compared row, the row's surplus and the row.

    The surplus is the row's count in the source minus its count in the lake.
    """
    columns = [F.col(_quoted_column(column.name)) for column in schema.columns]
    found = (
        rows.select(F.struct(*columns).alias(_ROW), *row_digest(schema))
        .join(F.broadcast(wanted), on=[*_DIGEST])
        .groupBy(*_DIGEST)
        .agg(F.first(_SURPLUS).alias(_SURPLUS), F.first(_ROW).alias(_ROW))
        .collect()
    )
    return [(row[_SURPLUS], row[_ROW].asDict()) for row in found]


def digests(rows: DataFrame, schema: TableSchema) -> list[tuple[Key, RowDigest]]:
    """Return each compared row's key and its columns' digests; all must fit in driver memory."""
    key = [F.col(_quoted_column(name)) for name in schema.key]
    columns = [
        F.concat(
            *(
                _hex_digits(F.xxhash64(F.lit(seed), *_hash_inputs(column.name, column.lake_type)))
                for seed in _SEEDS
            )
        )
        for column in schema.columns
    ]
    found = rows.select(F.struct(*key).alias("key"), F.array(*columns).alias("digest")).collect()
    return [(_key_of_compared_row(row["key"], schema), tuple(row["digest"])) for row in found]


def with_keys(
    spark: SparkSession, lake: DataFrame, schema: TableSchema, keys: Iterable[Key]
) -> DataFrame:
    """Return the lake's rows with the given keys, for ``verify``. Each executor gets all keys."""
    ddl = ", ".join(
        f"{_quoted_column(name)} {schema.column(name).lake_type}" for name in schema.key
    )
    wanted = local_frame(spark, keys, ddl)
    return lake.join(F.broadcast(wanted), on=list(schema.key), how="left_semi")


def row_digest(schema: TableSchema, names: Sequence[str] = _DIGEST) -> list[SparkColumn]:
    """Return the Spark expressions whose results together are a compared row's digest.

    Args:
        schema: The table's schema in the lake.
        names: The names of the two results.
    """
    facts = [
        fact for column in schema.columns for fact in _hash_inputs(column.name, column.lake_type)
    ]
    return [
        F.xxhash64(F.lit(seed), *facts).alias(name)
        for name, seed in zip(names, _SEEDS, strict=True)
    ]


def column_digest(schema: TableSchema, columns: Sequence[str], name: str) -> SparkColumn:
    """Return the digest of a compared row's values in some columns, as an expression ``name``.

    Args:
        schema: The table's schema in the lake.
        columns: The columns.
        name: The name of the result.
    """
    kinds = ((column, schema.column(column).lake_type) for column in columns)
    facts = [fact for column, kind in kinds for fact in _hash_inputs(column, kind)]
    return F.xxhash64(F.lit(_SEEDS[0]), *facts).alias(name)


def _hash_inputs(name: str, lake_type: str) -> tuple[SparkColumn, SparkColumn]:
    """Return a compared column's two inputs for the hash: whether the value is NULL, and the value.

    The first input is needed, since the hash skips a NULL.

    Args:
        name: The column's name.
        lake_type: The column's Spark SQL type.
    """
    value = F.col(_quoted_column(name))
    folded = lake_type.lower()
    if folded in ("float", "double"):
        value = value.cast("string")  # the hash takes -0.0 for 0.0, and NaN has many bit patterns
    elif folded.startswith(("array", "struct", "map")):
        value = F.to_json(F.struct(value), {"ignoreNullFields": "false"})
    return F.isnull(F.col(_quoted_column(name))), value


def _hex_digits(number: SparkColumn) -> SparkColumn:
    """Return the 64-bit number of a compared row's digest as 16 hexadecimal digits."""
    return F.lpad(F.hex(number), 16, "0")


def _key_of_compared_row(row: Any, schema: TableSchema) -> Key:
    """Return the key of a compared row whose first columns are the key columns."""
    types = (schema.column(name).lake_type for name in schema.key)
    return tuple(_python_key_value(value, kind) for value, kind in zip(row, types, strict=True))


def _python_key_value(value: Any, lake_type: str) -> object:
    """Convert a key's value from Spark to the value that `cdc.sources` returns for the same key."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, float) and math.isnan(value):
        return math.nan  # one object, so that keys with it are equal
    if isinstance(value, datetime) and lake_type == "timestamp":
        return value.astimezone(timezone.utc)  # Spark gives instants in this process's zone
    return value


def _quoted_column(name: str) -> str:
    """Return the name of a compared column in backquotes, for Spark."""
    return "`" + name.replace("`", "``") + "`"
