"""Records that cannot be read, and values that the lake cannot hold: each is a problem."""

from __future__ import annotations

import io

import pytest
from pyspark.sql import SparkSession

from cdc.rows.columns import PROBLEM
from cdc.rows.decode import TAGGED, UNKNOWN_SCHEMA
from schemas.avro import END_MARK
from tests.spark.debezium import DATE, DECIMAL, MICROS, STRING, ZONED, Binlog, Topic
from tests.spark.decoding import TEXTS, rows, table, write_long


@pytest.mark.parametrize(
    ("kind", "lake", "value"),
    [
        (DECIMAL, "decimal(6,2)", "NaN"),
        (DECIMAL, "decimal(6,2)", "Infinity"),
        (DECIMAL, "decimal(6,2)", "12345.00"),
        (DECIMAL, "decimal(6,2)", "1.005"),
        (DECIMAL, "decimal(6,2)", "1.00\x02"),
        (ZONED, "timestamp", "2024-02-29T23:59:59\x02Z"),
        (ZONED, "timestamp", "infinity"),
        (MICROS, "timestamp", 2**63 - 1),
        (MICROS, "timestamp", -(2**63)),
        (DATE, "date", 2**31 - 1),
        ("long", "int", 2**31),
        (DECIMAL, "decimal(6,2)", "POSITIVE_INFINITY"),
        (ZONED, "timestamp", "+20000-12-31T00:00:00Z"),
        (ZONED, "timestamp", "-0043-03-15T01:02:03.000000Z"),
        (TEXTS, "array<decimal(6,2)>", ["1.00", "NaN"]),
        # Arrays of two dimensions, as the connector garbles them.
        (TEXTS, "array<string>", ["[Ljava.lang.String;@2e0796de", "[Ljava.lang.String;@6b"]),
        ({"type": "array", "items": ["null", "int"]}, "array<int>", [None, None]),
    ],
)
def test_a_value_the_lake_cannot_hold_is_a_problem_and_never_null(
    spark: SparkSession, kind: object, lake: str, value: object
) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "v": kind})
    topic.insert(id=1, v=value)
    topic.insert(id=2, v=None)
    bad, fine = rows(spark, topic, table(id="int", v=lake))
    assert bad[PROBLEM] == "no exact value for column v"
    assert fine[PROBLEM] is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "shorter than 5 bytes"),
        (b"\x00\x00\x00", "shorter than 5 bytes"),
        (b"\x01\x00\x00\x00\x01rest", "does not start with a zero byte"),
        (b"\x00\x00\x00\x00\x09rest", UNKNOWN_SCHEMA),
        (b"\x00\x7f\xff\xff\xff", UNKNOWN_SCHEMA),
        (b"\x00\x80\x00\x00\x00", "its schema id is larger than any registry's"),
        (b"\x00\xff\xff\xff\xff", "its schema id is larger than any registry's"),
        (b"\x00\x00\x00\x00\x01", "the body does not match its schema"),
        (b"\x00\x00\x00\x00\x01\x02\x02\x0e", "the body does not match its schema"),
        (b"\x00\x00\x00\x00\x01" + b"\xff" * 20, "the body does not match its schema"),
    ],
)
def test_a_record_that_cannot_be_read_says_why(
    spark: SparkSession, message: bytes, reason: str
) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "note": STRING})
    topic.raw(message)
    topic.insert(id=1, note="fine")
    bad, fine = rows(spark, topic, table(id="int", note="string"))
    assert bad[PROBLEM] == reason
    assert fine[PROBLEM] is None


def test_bytes_behind_the_body_are_a_problem(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "note": STRING})
    topic.insert(id=1, note="some text")
    whole = topic.records.pop()[1]
    assert whole is not None
    for tail in (b"\x00", b"\x00" * 8, b"more than the mark is long", END_MARK[:3]):
        topic.raw(whole + tail)
    found = rows(spark, topic, table(id="int", note="string"))
    assert {row[PROBLEM] for row in found} == {"the body is longer than its schema says"}
    assert {row["_cdc_op"] for row in found} == {None}, "it is never taken for a change"


def test_a_change_without_its_row_is_a_problem(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "note": STRING})
    for op in ("c", "r", "u"):
        topic.event(op, None, {"id": 1, "note": "before"})
    for op in ("d", "t"):
        topic.event(op, {"id": 1, "note": "after"})
    found = rows(spark, topic, table(id="int", note="string"))
    assert [row[PROBLEM] for row in found] == [
        *["the row after the change is missing"] * 3,
        *["there is a row after a delete or TRUNCATE"] * 2,
    ]


@pytest.mark.parametrize("ts_us", [-1, 2**63 - 1, -(2**63)])
def test_a_source_time_that_is_none_is_a_problem(spark: SparkSession, ts_us: int) -> None:
    topic = Topic()
    topic.register(1, {"id": "int"})
    topic.event("c", {"id": 1}, ts_us=ts_us)
    (row,) = rows(spark, topic, table(id="int"))
    assert row[PROBLEM] == "its source block has no time"


@pytest.mark.parametrize("sequence", ["[]", '["a","b"]', '["1","99999999999999999999"]'])
def test_a_position_that_is_none_is_a_problem(spark: SparkSession, sequence: str) -> None:
    topic = Topic()
    topic.register(1, {"id": "int"})
    topic.event("c", {"id": 1}, sequence=sequence)
    (row,) = rows(spark, topic, table(id="int"))
    assert row[PROBLEM] == "its source block has no position"


def test_a_transaction_with_a_tag_is_a_problem(spark: SparkSession) -> None:
    topic = Binlog()
    topic.register(1, {"id": "int"})
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    for number, gtid in enumerate((f"{server}:7", f"{server}:shop:7", "0-1-7", None)):
        topic.begin(gtid, 100 + number)
        topic.insert(id=number)
    found = [row[PROBLEM] for row in rows(spark, topic, table(id="int"))]
    assert found[1] == TAGGED
    assert [found[0], *found[2:]] == [None] * 3


def test_text_that_is_not_utf_8_is_a_problem(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "note": STRING, "tags": TEXTS})
    topic.insert(id=1, note="grüße \N{REPLACEMENT CHARACTER} 🙂", tags=["ß", None])
    topic.insert(id=2, note="grüße", tags=["a"])
    topic.insert(id=3, note="a", tags=["grüße"])
    for _ in range(2):
        offset, whole = topic.records.pop(1)
        assert whole is not None
        topic.records.append((offset, whole.replace("ß".encode(), b"\xc3x")))
    found = rows(spark, topic, table(id="int", note="string", tags="array<string>"))
    assert [row[PROBLEM] for row in found] == [
        None,
        "text that is not UTF-8 in column note",
        "text that is not UTF-8 in column tags",
    ]
    assert found[0]["note"] == "grüße \N{REPLACEMENT CHARACTER} 🙂"


def test_every_truncation_of_a_record_is_found(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "note": STRING})
    topic.insert(id=1, note="some text")
    whole = topic.records.pop()[1]
    assert whole is not None
    for length in range(len(whole)):
        topic.raw(whole[:length])
    found = rows(spark, topic, table(id="int", note="string"))
    assert all(row[PROBLEM] for row in found)


@pytest.mark.parametrize("length", [2**31 - 1, 2**31 - 20, 1_900_000_000, 300_000_000])
@pytest.mark.parametrize("kind", ["string", "bytes"])
def test_a_claimed_length_is_refused_and_not_allocated(
    spark: SparkSession, kind: str, length: int
) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "v": kind})
    out = io.BytesIO()
    write_long(out, length)
    topic.raw(b"\x00\x00\x00\x00\x01\x00\x02\x02\x02" + out.getvalue() + b"x")
    (row,) = rows(spark, topic, table(id="int", v="string" if kind == "string" else "binary"))
    assert row[PROBLEM] == "the body does not match its schema"


@pytest.mark.parametrize("items", [2_000_000_000, 11_000_000])
def test_a_claimed_number_of_items_is_refused_and_not_allocated(
    spark: SparkSession, items: int
) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "v": {"type": "array", "items": ["null", "int"]}})
    out = io.BytesIO()
    write_long(out, items)
    topic.raw(b"\x00\x00\x00\x00\x01\x00\x02\x02\x02" + out.getvalue() + b"x")
    (row,) = rows(spark, topic, table(id="int", v="array<int>"))
    assert row[PROBLEM] == "the body does not match its schema"


def test_a_delete_without_its_key_is_a_problem(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": "int"}, required=())
    topic.event("d", None, None)
    topic.event("d", None, {"id": None})
    topic.event("x", {"id": 1})
    found = rows(spark, topic, table(id="int"))
    assert [row[PROBLEM] for row in found] == [
        "the key is missing",
        "the key is missing",
        "unknown operation x",
    ]
