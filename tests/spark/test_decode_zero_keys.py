"""Dates that no calendar has in a key: what stands for them in events must not become a row."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.rows.columns import PROBLEM, UNAVAILABLE
from cdc.rows.decode import decode
from cdc.rows.event_plan import EventRules
from schemas.table import Column, TableId, TableSchema
from tests.spark.debezium import DATE, MICROS, PLACEHOLDER, STRING, ZONED, Binlog, Topic


def problems(spark: SparkSession, topic: Topic, kind: str, *, own_key: bool = False) -> list[Any]:
    columns = (Column("id", "int", "int", False), Column("d", "date", kind, False))
    frame = decode(
        topic.frame(spark),
        topic.parsed(),
        TableSchema(TableId("shop", "public", "orders"), columns, ("id", "d")),
        EventRules(PLACEHOLDER, own_key=own_key),
        ingested_at=datetime.now(timezone.utc),
    )
    shown = frame.select("_cdc_op", PROBLEM).orderBy("_cdc_offset").collect()
    return [tuple(row) for row in shown]


ZERO = (
    None,
    "a value that may replace another one (a zero date, or a character that the connector does"
    " not know) in key column d",
)


@pytest.mark.parametrize(
    ("written", "kind", "stand_in", "real"),
    [
        (DATE, "date", 0, 19_000),
        (MICROS, "timestamp_ntz", 0, 1),
        (ZONED, "timestamp", "1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z"),
        # MariaDB writes as many digits as the column has, and takes the rest of that second.
        (ZONED, "timestamp", "1970-01-01T00:00:00.0Z", "1970-01-01T00:00:00.1Z"),
        (ZONED, "timestamp", "1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000001Z"),
    ],
)
def test_a_zero_date_in_a_key_is_a_problem_of_every_kind_of_event(
    spark: SparkSession, written: Any, kind: str, stand_in: Any, real: Any
) -> None:
    topic = Binlog()
    topic.register(7, {"id": "int", "d": written}, required=("id", "d"))
    zero, good = {"id": 1, "d": stand_in}, {"id": 1, "d": real}
    topic.insert(**good)
    topic.insert(**zero)
    topic.event("d", None, zero)
    topic.event("d", None, good)
    topic.event("t")
    assert problems(spark, topic, kind) == [("c", None), ZERO, ZERO, ("d", None), ("t", None)]


def test_a_key_of_the_settings_that_was_a_zero_date_is_one_too(spark: SparkSession) -> None:
    topic = Binlog()
    topic.register(7, {"id": "int", "d": DATE}, required=("id", "d"))
    topic.event("u", {"id": 1, "d": 5}, {"id": 1, "d": 0})
    assert problems(spark, topic, "date", own_key=True) == [ZERO]


def test_the_start_of_1970_is_a_date_of_postgres(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(7, {"id": "int", "d": DATE}, required=("id", "d"))
    topic.insert(id=1, d=0)
    assert problems(spark, topic, "date") == [("c", None)]


def test_a_character_that_may_stand_for_others_is_a_problem_in_a_key_only(
    spark: SparkSession,
) -> None:
    topic = Binlog()
    topic.register(7, {"k": STRING, "v": STRING}, required=("k",))
    topic.insert(k="plain", v="\ufffd")
    topic.insert(k="\u00c3\ufffd", v="plain")
    columns = tuple(Column(name, "text", "string", doubtful="\ufffd") for name in ("k", "v"))
    frame = decode(
        topic.frame(spark),
        topic.parsed(),
        TableSchema(TableId("shop", "public", "orders"), columns, ("k",)),
        EventRules(PLACEHOLDER),
        ingested_at=datetime.now(timezone.utc),
    )
    first, second = frame.select("v", UNAVAILABLE, PROBLEM).orderBy("_cdc_offset").collect()
    assert tuple(first) == (None, ["v"], None)
    assert second[PROBLEM] == ZERO[1].replace("column d", "column k")
