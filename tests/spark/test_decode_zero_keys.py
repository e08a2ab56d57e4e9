"""Zero dates, which no calendar has, in keys: their stand-ins in events must not become rows."""

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
    "a value that may replace another one (a zero date, a character that the connector does not"
    " know, or an interval of 0 for an infinite one) in key column d",
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
    assert second[PROBLEM] == ZERO[1].replace("key column d", "key column k")


LACKING = (
    "the row before the change lacks the key: the replica identity was an index without the key"
)


def keyless(spark: SparkSession, topic: Topic, *key: str, **rules: Any) -> list[bool]:
    """For each delete in the topic, whether decoding reports that its key is missing."""
    columns = tuple(Column(name, "int", "int", False) for name in key)
    frame = decode(
        topic.frame(spark),
        topic.parsed(),
        TableSchema(TableId("shop", "public", "orders"), columns, key),
        EventRules(PLACEHOLDER, **rules),
        ingested_at=datetime.now(timezone.utc),
    )
    rows = frame.select(PROBLEM).orderBy("_cdc_offset").collect()
    assert {row[0] for row in rows} <= {None, LACKING}
    return [row[0] is not None for row in rows]


def test_a_key_of_zero_is_told_from_one_that_the_log_lacks(spark: SparkSession) -> None:
    """The values are those that the connector sends for columns outside the replica identity."""
    topic = Topic()
    empty = {
        "q": 0,
        "n": "0.00",
        "t": "",
        "at": "1970-01-01T00:00:00Z",
        "span": "P0Y0M0DT0H0M0S",
        "flag": False,
        "data": b"",
        "list": [],
        "with_default": 7,
        "null": None,
    }
    kinds = {"q": "int", "n": STRING, "t": STRING, "at": ZONED, "span": STRING, "flag": "boolean"}
    kinds |= {"data": "bytes", "list": {"type": "array", "items": "int"}, "null": "int"}
    kinds["with_default"] = "int"
    required = ("id", *(name for name in kinds if name != "null"))
    topic.register(7, {"id": "int", **kinds}, required=required)
    plain = '{"name": "with_default", "type": "int"'
    topic.schemas[7] = topic.schemas[7].replace(plain, f'{plain}, "default": 7')
    topic.event("d", None, {"id": 0, **empty})
    topic.event("d", None, {"id": 0, **empty, "q": 5})
    topic.event("d", None, {"id": 1, **empty, "q": 5})
    topic.event("c", {"id": 0, **empty, "q": 5})
    default = frozenset({"id"})
    assert keyless(spark, topic, "id", identity=default) == [False, True, False, False]
    assert keyless(spark, topic, "id") == [False] * 4, "whole rows"
    assert keyless(spark, topic, "id", identity=default | {"q"}) == [False] * 4
    assert keyless(spark, topic, "id", "q", identity=default | {"q"}) == [False] * 4
    topic.records.clear()
    values = {"t": "a", "at": "2020-01-01T00:00:00Z", "flag": True, "data": b"a", "list": [1]}
    for name, value in (values | {"null": 3, "with_default": 8}).items():
        topic.event("d", None, {"id": 0, **empty, name: value})
    assert keyless(spark, topic, "id", identity=default) == [True] * 7
