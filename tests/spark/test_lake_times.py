"""Times of all centuries: the snapshot and later changes store equal times in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.lake.write import LakeTable
from tests.spark.lake import ONE_COMMIT, accept, lake, record, schema

TIMES = schema("id", id="int", d="date", s="timestamp", n="timestamp_ntz", c="decimal(38,10)")
AGES = ("0001-01-01", "1500-02-28", "1582-10-10", "1890-06-01", "1969-12-31", "9999-12-31")


def of_age(spark: SparkSession, table: LakeTable, op: str, offset: int) -> DataFrame:
    values = " UNION ALL ".join(
        f"SELECT {number} AS id, date'{age}' AS d, timestamp'{age} 12:34:56.789012' AS s,"
        f" timestamp_ntz'{age} 12:34:56.789012' AS n,"
        f" CAST('-{number}.0123456789' AS decimal(38,10)) AS c"
        for number, age in enumerate(AGES)
    )
    columns = ", ".join(f"`{column.name}`" for column in TIMES.columns)
    return spark.sql(
        f"SELECT '{op}' AS _cdc_op, timestamp'2026-01-01' AS _cdc_source_ts, 'p' AS _cdc_position,"
        f" CAST({offset} AS bigint) AS _cdc_offset, 1 AS _cdc_schema_id,"
        f" timestamp'2026-01-01' AS _cdc_ingested_at, {columns} FROM ({values})"
    )


def shown(rows: DataFrame) -> list[tuple[str, ...]]:
    """The times as numbers, which do not depend on the calendar of a reader."""
    return sorted(
        tuple(str(value) for value in row)
        for row in rows.selectExpr(
            "id", "unix_date(d)", "unix_micros(s)", "unix_micros(to_utc_timestamp(n, 'UTC'))", "c"
        ).collect()
    )


@pytest.mark.parametrize("index", ["bucket", "bloom"])
def test_times_of_all_ages_survive_every_way_into_the_lake(
    spark: SparkSession, tmp_path: Path, index: str
) -> None:
    table = lake(spark, tmp_path / "orders", TIMES, index=index)
    wanted = shown(of_age(spark, table, "r", -1))
    table.bulk_insert(
        of_age(spark, table, "r", -1), record("chunk", chunk_ids=(0,)), accept, ONE_COMMIT
    )
    assert shown(table.read()) == wanted
    table.upsert(of_age(spark, table, "u", 1).where("id < 3"), record(offsets={0: 2}), accept)
    assert shown(table.read()) == wanted, "changed rows, and those that were written along"
    table.overwrite(of_age(spark, table, "c", 3), record(offsets={0: 4}), accept)
    assert shown(table.read()) == wanted
    # Without Hudi, as another engine reads the files.
    files = spark.read.parquet(f"{tmp_path}/orders")
    newest = files.selectExpr("max(_hoodie_commit_time)").first()
    assert newest is not None
    assert shown(files.where(f"_hoodie_commit_time = '{newest[0]}'")) == wanted
