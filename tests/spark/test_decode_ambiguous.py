"""Values that the PostgreSQL connector sends in place of others, and truncated arrays in copies."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.rows.columns import PROBLEM, UNAVAILABLE, UNCLEAR
from schemas.table import Column, TableSchema
from schemas.types_postgres import PostgresType
from tests.spark.debezium import Topic
from tests.spark.decoding import TABLE, rows

INTERVAL: Any = {"type": "string", "connect.name": "io.debezium.time.Interval"}
ZERO, DAY = "P0Y0M0DT0H0M0S", "P0Y0M1DT0H0M0S"


def spans(*key: str, infinite: bool) -> TableSchema:
    rule = PostgresType("interval", infinite=infinite).rule(table=TABLE, column="span")
    span = Column("span", "interval", rule.lake_type, doubtful=rule.doubtful)
    return TableSchema(TABLE, (Column("id", "int", "int"), span), key)


def sent(*values: str) -> Topic:
    topic = Topic()
    topic.register(1, {"id": "int", "span": INTERVAL}, required=("id", "span"))
    for number, value in enumerate(values):
        topic.insert(id=number, span=value)
    return topic


def test_an_interval_of_0_is_read_by_key_where_it_may_be_infinite(spark: SparkSession) -> None:
    events = sent(ZERO, DAY)
    zero, day = rows(spark, events, spans("id", infinite=True))
    assert (zero["span"], zero[UNAVAILABLE], zero[UNCLEAR]) == (None, ["span"], ["span"])
    assert (day["span"], day[UNAVAILABLE], day[PROBLEM]) == (DAY, None, None)
    found = rows(spark, events, spans("id", infinite=False))
    assert [(row["span"], row[UNAVAILABLE]) for row in found] == [(ZERO, None), (DAY, None)]


@pytest.mark.parametrize("key", [("id", "span"), ()])
def test_an_interval_of_0_that_may_be_infinite_stops_a_table_that_has_it_in_its_key_or_no_key(
    spark: SparkSession, key: tuple[str, ...]
) -> None:
    zero, day = rows(spark, sent(ZERO, DAY), spans(*key, infinite=True))
    assert "span" in zero[PROBLEM]
    assert "infinite" in zero[PROBLEM]
    assert day[PROBLEM] is None
    assert [row[PROBLEM] for row in rows(spark, sent(ZERO), spans(*key, infinite=False))] == [None]


def test_an_array_of_the_copy_is_whole_or_an_error(spark: SparkSession) -> None:
    element = PostgresType("text")
    rule = PostgresType("_text", element=element).rule(table=TABLE, column="c")
    large = spark.range(1).selectExpr("concat('[\"', repeat('a', 20000001), '\", null]') AS c")
    (row,) = (
        large.selectExpr(f"{rule.from_jdbc('c')} AS c")
        .selectExpr("size(c) AS size", "length(c[0]) AS length", "c[1] AS last")
        .collect()
    )
    assert tuple(row) == (2, 20_000_001, None)
    for text in ("null", "'[]'"):
        (row,) = spark.sql(f"SELECT {rule.from_jdbc(f'CAST({text} AS STRING)')} AS c").collect()
        assert row["c"] == (None if text == "null" else [])
    cut = spark.range(1).selectExpr("concat('[', id) AS c")
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        cut.selectExpr(f"{rule.from_jdbc('c')} AS c").collect()
