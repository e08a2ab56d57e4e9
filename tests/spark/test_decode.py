from __future__ import annotations

import io
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import Row, SparkSession

from cdc.errors import DecodeError, SchemaChangeError
from cdc.rows.columns import PROBLEM, UNAVAILABLE, UNCLEAR
from cdc.rows.decode import UNKNOWN_SCHEMA, decode
from cdc.rows.event_plan import EventRules
from schemas.avro import END_MARK
from schemas.table import Column, TableId, TableSchema
from tests.spark.debezium import DATE, DECIMAL, MICROS, PLACEHOLDER, STRING, ZONED, Binlog, Topic

TEXTS: object = {"type": "array", "items": ["null", "string"]}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
TABLE = TableId("shop", "public", "orders")


def at(*parts: int) -> datetime:
    """A time as Spark's collect gives it: without a zone, in that of the session."""
    return datetime(*parts)  # noqa: DTZ001 - the session's zone is UTC


def write_long(out: io.BytesIO, number: int) -> None:
    """Avro's variable-length zig-zag encoding of a positive number."""
    fastavro.schemaless_writer(out, "long", number)


def table(*key: str, **columns: str) -> TableSchema:
    return TableSchema(
        TABLE, tuple(Column(name, kind, kind) for name, kind in columns.items()), key or ("id",)
    )


def rows(spark: SparkSession, topic: Topic, schema: TableSchema, **options: Any) -> list[Row]:
    frame = decode(
        topic.frame(spark),
        topic.parsed(),
        schema,
        EventRules(PLACEHOLDER, **options),
        ingested_at=NOW,
    )
    return frame.orderBy("_cdc_offset").collect()


def test_every_operation_has_its_normal_form(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(7, {"id": "int", "note": STRING})
    topic.insert(id=1, note="a")
    topic.update(id=1, note="b")
    topic.delete(id=1)
    topic.event("t")
    topic.event("r", {"id": 2, "note": None})
    found = rows(spark, topic, table(id="int", note="string"))
    assert [row["_cdc_op"] for row in found] == ["c", "u", "d", "tombstone", "t", "r"]
    assert [row[PROBLEM] for row in found] == [None] * 6
    assert [(row["id"], row["note"]) for row in found] == [
        (1, "a"),
        (1, "b"),
        (1, None),
        (None, None),
        (None, None),
        (2, None),
    ]
    assert found[0]["_cdc_offset"] == 100
    assert found[0]["_cdc_schema_id"] == 7
    assert found[0]["_cdc_position"] == "0000000000001008:0000000000001010"
    assert found[0]["_cdc_source_ts"] == at(1970, 1, 1, 0, 0, 0, 100_000)
    assert found[0]["_cdc_ingested_at"] == at(2026, 1, 2, 3, 4, 5)


def test_position_sorts_a_missing_first_half_first(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": "int"})
    topic.event("c", {"id": 1}, sequence='[null,"255"]')
    assert rows(spark, topic, table(id="int"))[0]["_cdc_position"] == (
        "0000000000000000:00000000000000FF"
    )


def test_each_record_is_read_by_its_own_schema(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(3, {"id": "int", "qty": "int"})
    topic.register(4, {"id": "int", "qty": "long", "note": STRING})
    topic.event("c", {"id": 1, "qty": 5}, schema_id=3)
    topic.event("c", {"id": 2, "qty": 2**40, "note": "x"}, schema_id=4)
    topic.event("u", {"id": 1, "qty": 6}, schema_id=3)
    found = rows(spark, topic, table(id="int", qty="bigint", note="string"))
    assert [(row["id"], row["qty"], row["note"]) for row in found] == [
        (1, 5, None),
        (2, 2**40, "x"),
        (1, 6, None),
    ]
    assert [row["_cdc_schema_id"] for row in found] == [3, 4, 3]


def test_values_become_lake_types(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(
        1,
        {
            "id": "long",
            "price": DECIMAL,
            "at": ZONED,
            "wall": MICROS,
            "day": DATE,
            "data": "bytes",
            "tags": {"type": "array", "items": ["null", "string"]},
        },
    )
    topic.insert(
        id=1,
        price="-12.50",
        at="2024-02-29T23:59:59.123456Z",
        wall=1_709_251_199_123_456,
        day=19_782,
        data=b"\x00\xff",
        tags=["a", None],
    )
    (row,) = rows(
        spark,
        topic,
        table(
            id="bigint",
            price="decimal(10,2)",
            at="timestamp",
            wall="timestamp",
            day="date",
            data="binary",
            tags="array<string>",
        ),
    )
    assert row[PROBLEM] is None
    assert row["price"] == Decimal("-12.50")
    assert row["at"] == row["wall"] == at(2024, 2, 29, 23, 59, 59, 123_456)
    assert row["day"] == date(2024, 2, 29)
    assert bytes(row["data"]) == b"\x00\xff"
    assert row["tags"] == ["a", None]


def test_an_interval_has_the_microseconds_that_the_connector_cut(spark: SparkSession) -> None:
    sent = {
        "P10000Y0M7808DT0H0M1.785318999S": "P10000Y0M7808DT0H0M1.785319S",
        "P0Y0M0DT-1H-2M-3.000000999S": "P0Y0M0DT-1H-2M-3.000001S",
        "P0Y1M0DT0H0M9.999999999S": "P0Y1M0DT0H0M10S",
        "P0Y1M0DT0H0M0.100000001S": "P0Y1M0DT0H0M0.1S",
        **{
            one: one for one in ("P0Y0M0DT0H0M0S", "P-1Y-2M3DT-4H-5M-6.7S", "P0Y0M0DT0H0M5.123456S")
        },
    }
    topic = Topic()
    kind = {"type": "string", "connect.name": "io.debezium.time.Interval"}
    topic.register(1, {"id": "long", "span": kind})
    for number, text in enumerate(sent):
        topic.insert(id=number, span=text)
    found = rows(spark, topic, table(id="bigint", span="string"))
    assert [(row[PROBLEM], row["span"]) for row in found] == [(None, one) for one in sent.values()]


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
    assert found[1] == "its GTID has a tag, and the connector sends such transactions again"
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


def test_placeholders_are_named_and_never_a_value(spark: SparkSession) -> None:
    numbers = {"type": "array", "items": ["null", "int"]}
    topic = Topic()
    topic.register(
        1,
        {"id": "int", "note": STRING, "data": "bytes", "tags": TEXTS, "days": numbers, "n": "int"},
    )
    stand_in = PLACEHOLDER.encode()
    topic.update(
        id=1, note=PLACEHOLDER, data=stand_in, tags=[PLACEHOLDER], days=list(stand_in), n=1
    )
    topic.update(id=2, note=None, data=b"", tags=[], days=None, n=None)
    topic.update(id=3, note=PLACEHOLDER + "x", data=None, tags=[PLACEHOLDER, "x"], days=[1], n=2)
    schema = table(
        id="int", note="string", data="binary", tags="array<string>", days="array<int>", n="int"
    )
    first, second, third = rows(spark, topic, schema)
    assert first[UNAVAILABLE] == ["note", "data", "tags", "days"]
    assert first["note"] is first["data"] is first["tags"] is first["days"] is None
    assert first["n"] == 1
    assert second[UNAVAILABLE] is third[UNAVAILABLE] is None
    assert (second["tags"], bytes(second["data"])) == ([], b"")
    assert third["note"] == PLACEHOLDER + "x"


def test_a_default_that_may_stand_for_a_null_is_never_a_value(spark: SparkSession) -> None:
    given = {"n": 7, "t": "it's", "b": True, "y": "\u00ff", "f": 0.5}
    topic = Topic()
    kinds = {"id": "int", "n": "int", "t": STRING, "b": "boolean", "y": "bytes", "f": "double"}
    topic.register(1, kinds, defaults=given)
    topic.update(id=1, n=7, t="it's", b=True, y=b"\xff", f=0.5)
    topic.update(id=2, n=8, t=None, b=False, y=b"", f=None)
    schema = table(id="int", n="int", t="string", b="boolean", y="binary", f="double")
    first, second = rows(spark, topic, schema, nulls_are_kept=False)
    assert first[UNAVAILABLE] == ["n", "t", "b", "y", "f"]
    assert (first[UNCLEAR], second[UNCLEAR]) == (True, False)
    assert first["n"] is first["t"] is first["b"] is first["y"] is first["f"] is None
    assert (second["n"], second["b"], bytes(second["y"])) == (8, False, b"")
    assert second[UNAVAILABLE] is None
    kept = rows(spark, topic, schema, nulls_are_kept=True)[0]
    assert (kept["n"], kept["t"], kept[UNAVAILABLE], kept[UNCLEAR]) == (7, "it's", None, False)


def test_stand_ins_for_hstore_and_uuid_arrays(spark: SparkSession) -> None:
    topic = Topic()
    kind = {"type": "string", "connect.name": "io.debezium.data.Json"}
    topic.register(1, {"id": "int", "doc": kind, "ids": TEXTS})
    topic.update(
        id=1,
        doc=f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}',
        ids=["1d12d5e0-0fc6-3a54-abaf-421edb75a58c"],
    )
    topic.update(id=2, doc=PLACEHOLDER, ids=["1d12d5e0-0fc6-3a54-abaf-421edb75a58d"])
    first, second = rows(spark, topic, table(id="int", doc="string", ids="array<string>"))
    assert first[UNAVAILABLE] == ["doc", "ids"]
    assert second[UNAVAILABLE] == ["doc"]


def test_a_key_is_never_a_placeholder(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": STRING})
    topic.event("u", {"id": PLACEHOLDER}, {"id": "long key"})
    topic.event("u", {"id": PLACEHOLDER})
    first, second = rows(spark, topic, table(id="string"))
    assert (first["id"], first[PROBLEM]) == ("long key", None)
    assert (second["id"], second[PROBLEM]) == (None, "the key is missing")


def test_hostile_column_names(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "select": STRING, "group": "int"}, required=("id",))
    topic.insert(id=1, select=PLACEHOLDER, group=3)
    (row,) = rows(spark, topic, table(id="int", select="string", group="int"))
    assert (row["select"], row["group"], row[UNAVAILABLE]) == (None, 3, ["select"])


def test_a_field_that_is_no_column_is_ignored(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "secret": STRING})
    topic.insert(id=1, secret="hidden")
    (row,) = rows(spark, topic, table(id="int"))
    assert "secret" not in row.asDict()


def test_a_changed_type_stops_before_anything_is_read(spark: SparkSession) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "v": STRING})
    with pytest.raises(SchemaChangeError, match=r"column 'v' of table shop:public\.orders"):
        rows(spark, topic, table(id="int", v="bigint"))


def test_a_schema_that_is_no_change_event_is_refused(spark: SparkSession) -> None:
    topic = Topic()
    topic.schemas[1] = '{"type":"record","name":"Key","fields":[{"name":"id","type":"int"}]}'
    topic.raw(b"\x00\x00\x00\x00\x01\x02")
    with pytest.raises(DecodeError, match="schema id 1"):
        rows(spark, topic, table(id="int"))


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


def chosen(lake: str, *, secret: bool = False) -> TableSchema:
    value = Column("v", "numeric", lake, decimal=True, secret=secret)
    return TableSchema(TABLE, (Column("id", "int", "int"), value), ("id",))


@pytest.mark.parametrize(
    ("lake", "value", "expected"),
    [
        ("decimal(10,2)", "1.500", "1.50"),
        ("decimal(10,2)", "-12", "-12.00"),
        ("decimal(10,2)", "99999999.99000", "99999999.99"),
        ("decimal(10,2)", "0.000", "0.00"),
        ("decimal(10,2)", "100", "100.00"),
        ("decimal(10,0)", "100.000", "100"),
        ("decimal(2,2)", "0.99", "0.99"),
        ("decimal(38,0)", "9" * 38, "9" * 38),
        ("decimal(38,38)", "0." + "9" * 38 + "00", "0." + "9" * 38),
    ],
)
def test_a_number_becomes_the_decimal_of_the_settings(
    spark: SparkSession, lake: str, value: str, expected: str
) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "v": DECIMAL})
    topic.insert(id=1, v=value)
    topic.insert(id=2, v=None)
    topic.insert(id=3, v=PLACEHOLDER)
    found, null, unavailable = rows(spark, topic, chosen(lake))
    assert (found[PROBLEM], found["v"]) == (None, Decimal(expected))
    assert (null[PROBLEM], null["v"]) == (None, None)
    assert unavailable[UNAVAILABLE] == ["v"]


@pytest.mark.parametrize(
    "value",
    [
        "1.501",
        "0.001",
        "123456789",
        "99999999.995",
        "NAN",
        "POSITIVE_INFINITY",
        "1E-7",
        "1.5E-10",
        "1E3",
    ],
)
def test_a_number_that_it_does_not_hold_is_shown_unless_it_is_hidden(
    spark: SparkSession, value: str
) -> None:
    topic = Topic()
    topic.register(1, {"id": "int", "v": DECIMAL})
    topic.insert(id=1, v=value)
    for secret, shown in ((False, value), (True, "***")):
        (found,) = rows(spark, topic, chosen("decimal(10,2)", secret=secret))
        assert found[PROBLEM] == (
            f"column v holds {shown}, which decimal(10,2) of columns.as cannot hold: choose another"
            " decimal, or string"
        )


def test_a_column_is_found_under_a_name_of_before(spark: SparkSession) -> None:
    """Also a large value that did not change, in events of either name."""
    topic = Topic()
    topic.register(1, {"id": "int", "body": STRING})
    topic.insert(id=1, body="old")
    topic.update(id=2, body=PLACEHOLDER)
    topic.register(2, {"id": "int", "content": STRING})
    topic.insert(id=3, content="new")
    topic.update(id=4, content=PLACEHOLDER)
    schema = table(id="int", content="string")
    found = rows(spark, topic, schema, former={"content": ("text", "body")})
    assert [(row["content"], row[UNAVAILABLE]) for row in found] == [
        ("old", None),
        (None, ["content"]),
        ("new", None),
        (None, ["content"]),
    ]
    without = rows(spark, topic, schema)
    assert without[0]["content"] is None
