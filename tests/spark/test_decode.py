"""Records in normal form: operations, values, types, keys and late columns."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from cdc.errors import DecodeError, SchemaChangeError
from cdc.rows.columns import PROBLEM, UNAVAILABLE, UNCLEAR
from schemas.table import Column, TableSchema
from tests.spark.debezium import DATE, DECIMAL, MICROS, PLACEHOLDER, STRING, ZONED, Topic
from tests.spark.decoding import TABLE, TEXTS, at, rows, table


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
    assert (first[UNCLEAR], second[UNCLEAR]) == (first[UNAVAILABLE], None)
    assert first["n"] is first["t"] is first["b"] is first["y"] is first["f"] is None
    assert (second["n"], second["b"], bytes(second["y"])) == (8, False, b"")
    assert second[UNAVAILABLE] is None
    kept = rows(spark, topic, schema, nulls_are_kept=True)[0]
    assert (kept["n"], kept["t"], kept[UNAVAILABLE], kept[UNCLEAR]) == (7, "it's", None, None)


def test_a_value_that_the_connector_may_send_for_a_null_is_never_one(spark: SparkSession) -> None:
    """The connector believes that no column allows NULL; on the source, all but one allow it."""
    kinds = {"id": "int", "n": "int", "d": DATE, "t": STRING, "f": "double", "kept": "int"}
    topic = Topic()
    topic.register(1, kinds, required=tuple(kinds))
    plain = '{"name": "n", "type": "int"'
    topic.schemas[1] = topic.schemas[1].replace(plain, f'{plain}, "default": 7')
    topic.update(id=0, n=7, d=0, t="", f=0.0, kept=0)
    topic.update(id=1, n=0, d=1, t="0", f=0.5, kept=0)
    topic.update(id=2, n=8, d=1, t="a", f=0.5, kept=0)
    topic.event("d", None, {"id": 3, "n": 7, "d": 0, "t": "", "f": 0.0, "kept": 0})
    topic.register(2, kinds)
    topic.event("u", {"id": 4, "n": 0, "d": 0, "t": "", "f": 0.0, "kept": 0}, schema_id=2)
    schema = table(id="int", n="int", d="date", t="string", f="double", kept="int")
    allowed = frozenset(("n", "d", "t", "f"))
    found = rows(spark, topic, schema, nullable=allowed)
    assert [row[UNAVAILABLE] for row in found] == [
        ["n", "d", "t", "f"],
        ["n", "t"],
        None,
        None,
        None,
    ]
    assert [row[UNCLEAR] for row in found] == [row[UNAVAILABLE] for row in found]
    assert (found[0]["n"], found[0]["t"], found[0]["kept"], found[4]["n"]) == (None, None, 0, 0)
    assert {row[UNAVAILABLE] for row in rows(spark, topic, schema)} == {None}


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
    """This holds for an unchanged large value, too, in events with the old and the new name."""
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


def test_columns_may_have_the_names_that_decoding_had_for_its_own(spark: SparkSession) -> None:
    names = ("_op", "_schema", "_frame", "_whole", "_has_row", "_garbled", "_former", "_gone")
    topic = Topic()
    topic.register(7, {"id": "int", **dict.fromkeys(names, STRING)})
    topic.insert(id=1, **{name: f"value of {name}" for name in names})
    (row,) = rows(spark, topic, table(id="int", **dict.fromkeys(names, "string")))
    assert row[PROBLEM] is None
    assert {name: row[name] for name in names} == {name: f"value of {name}" for name in names}
