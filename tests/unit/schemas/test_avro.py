from __future__ import annotations

import io
import json
import string
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro import (
    WIRE_HEADER_BYTES,
    DebeziumSchema,
    envelope_name,
    field_name,
    split_wire,
)
from schemas.errors import AvroSchemaError, WireFormatError


def column(name: str, kind: Any, pg_type: str, *, null: bool = True, **more: Any) -> dict[str, Any]:
    """The Avro field of a column, as Debezium 3.7 and the Apicurio converter write it."""
    told = {"type": pg_type, "length": "10", "scale": "0", "name": name}
    parameters = {f"__debezium.source.column.{key}": value for key, value in told.items()}
    typed = {**(kind if isinstance(kind, dict) else {"type": kind})}
    typed["connect.parameters"] = {**parameters, **typed.get("connect.parameters", {})}
    if null:
        return {"name": field_name(name), "type": ["null", typed], "default": None, **more}
    return {"name": field_name(name), "type": typed, **more}


def envelope(*columns: dict[str, Any]) -> str:
    value = {
        "type": "record",
        "name": "Value",
        "fields": list(columns),
        "connect.name": "shop.public.note.Value",
    }
    source = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": [{"name": "lsn", "type": ["null", "long"], "default": None}],
    }
    return json.dumps(
        {
            "type": "record",
            "name": "Envelope",
            "namespace": "shop.public.note",
            "fields": [
                {"name": "before", "type": ["null", value], "default": None},
                {"name": "after", "type": ["null", "Value"], "default": None},
                {"name": "source", "type": source},
                {"name": "op", "type": "string"},
            ],
            "connect.version": 2,
        }
    )


POINT = column(
    "größe",
    {
        "type": "record",
        "name": "Point",
        "namespace": "io.debezium.data.geometry",
        "fields": [{"name": "x", "type": "double"}, {"name": "wkb", "type": ["null", "bytes"]}],
        "connect.name": "io.debezium.data.geometry.Point",
    },
    "POINT",
)
NOTE = envelope(
    column("id", "int", "INT4", null=False),
    column("big_text", "string", "TEXT"),
    column("tags", {"type": "array", "items": ["null", "string"]}, "_TEXT"),
    column(
        "at",
        {
            "type": "string",
            "connect.version": 1,
            "connect.name": "io.debezium.time.ZonedTimestamp",
            "connect.default": "2020-01-01T00:00:00.000000Z",
        },
        "TIMESTAMPTZ",
        null=False,
        default="2020-01-01T00:00:00.000000Z",
    ),
    column(
        "mood",
        {
            "type": "string",
            "connect.name": "io.debezium.data.Enum",
            "connect.parameters": {"allowed": "sad,ok"},
        },
        "MOOD",
    ),
    POINT,
)


def test_envelope_gives_both_images_and_the_order_of_columns() -> None:
    schema = DebeziumSchema.parse(NOTE)
    assert schema.is_envelope
    assert schema.name == "shop.public.note.Envelope"
    assert schema.envelope == ("before", "after", "source", "op")
    assert [item.column for item in schema.after] == [
        "id",
        "big_text",
        "tags",
        "at",
        "mood",
        "größe",
    ]
    assert schema.before == schema.after == schema.row
    assert schema.key == ()
    assert schema.avro_json == NOTE


def test_a_second_geometry_is_found_though_it_does_not_tell_its_name() -> None:
    other = {
        "name": field_name("from_home"),
        "type": ["null", "io.debezium.data.geometry.Point"],
        "default": None,
    }
    schema = DebeziumSchema.parse(envelope(POINT, other))
    (first, second) = schema.after
    assert (schema.field("größe"), schema.field("from_home")) == (first, second)
    assert second.fields == first.fields
    assert schema.field("from_u005fhome") == second
    assert schema.field(field_name("größe")) is None


def test_columns_keep_what_the_writer_said_of_them() -> None:
    schema = DebeziumSchema.parse(NOTE)
    key, text, tags, at, mood, point = schema.after
    assert (key.avro_type, key.nullable, key.has_default) == ("int", False, False)
    assert (text.name, text.column, text.source_type) == ("big_u005ftext", "big_text", "TEXT")
    assert (text.nullable, text.has_default, text.default) == (True, True, None)
    assert tags.avro_type == "array"
    assert tags.element is not None
    assert (tags.element.avro_type, tags.element.nullable) == ("string", True)
    assert at.connect_name == "io.debezium.time.ZonedTimestamp"
    assert (at.nullable, at.default) == (False, "2020-01-01T00:00:00.000000Z")
    assert mood.parameters["allowed"] == "sad,ok"
    assert (point.avro_type, point.connect_name) == ("record", "io.debezium.data.geometry.Point")
    assert [(item.name, item.avro_type, item.nullable) for item in point.fields] == [
        ("x", "double", False),
        ("wkb", "bytes", True),
    ]


def test_columns_are_found_by_the_name_in_the_catalog() -> None:
    schema = DebeziumSchema.parse(NOTE)
    assert schema.field("big_text") is schema.after[1]
    assert schema.field("größe") is schema.after[5]
    assert schema.field("big_u005ftext") is None
    assert schema.field("gone") is None


def test_a_key_is_found_by_name_although_it_does_not_carry_it() -> None:
    schema = DebeziumSchema.parse(
        json.dumps(
            {
                "type": "record",
                "name": "Key",
                "namespace": "shop.public.note",
                "fields": [
                    {"name": "my_u0020id", "type": "int"},
                    {"name": "_u00c4", "type": {"type": "string", "connect.name": "x.Uuid"}},
                ],
            }
        )
    )
    assert not schema.is_envelope
    assert schema.row == schema.key
    found = schema.field("my id")
    assert found is not None
    assert found.avro_type == "int"
    assert schema.field("Ä") is schema.key[1]
    assert schema.field("other") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ('"string"', "of type string"),
        ('{"type":"record","name":"K","fields":[{"name":"a","type":["int","string"]}]}', "union"),
        ('{"type":"record","name":"K","fields":[{"name":"a","type":"Gone"}]}', "'Gone'"),
        ('{"type":"record","name":"K","fields":[{"name":"a","type":{}}]}', "no Avro type"),
        ("[]", "union"),
        ("3", "no Avro type"),
    ],
)
def test_other_schemas_are_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(AvroSchemaError) as caught:
        DebeziumSchema.parse(text)
    assert says in str(caught.value)
    assert caught.value.remedy


def test_wire_format() -> None:
    assert split_wire(b"\x00\x00\x00\x01\x02body") == (258, b"body")
    assert split_wire(b"\x00\xff\xff\xff\xff") == (2**32 - 1, b"")
    assert WIRE_HEADER_BYTES == 5


@pytest.mark.parametrize("message", [b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01x", b"{}   "])
def test_other_bytes_are_not_taken_for_a_message(message: bytes) -> None:
    with pytest.raises(WireFormatError) as caught:
        split_wire(message)
    assert "Confluent" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "adjusted"),
    [
        # Each was seen in a topic that Debezium 3.7.0 wrote.
        ("id", "id"),
        ("UP", "UP"),
        ("select", "select"),
        ("system_identifier", "system_u005fidentifier"),
        ("a b", "a_u0020b"),
        ("a-b", "a_u002db"),
        ("ü", "_u00fc"),
        ("größe", "gr_u00f6_u00dfe"),
        ("1st", "_u0031st"),
        ("$x", "_u0024x"),
        ('q"t', "q_u0022t"),
        ("d.ot", "d_u002eot"),
        ("`", "_u0060"),
        ("Ā0", "_u1000"),
    ],
)
def test_field_names_follow_debezium(name: str, adjusted: str) -> None:
    assert field_name(name) == adjusted


@given(st.text(min_size=1))
def test_field_names_are_names_that_avro_carries(name: str) -> None:
    adjusted = field_name(name)
    assert set(adjusted) <= set(string.ascii_letters + string.digits + "_")
    assert not adjusted[0].isdigit()


@given(st.lists(st.text(st.characters(max_codepoint=0xFF), min_size=1), min_size=2, unique=True))
def test_no_two_latin_names_become_one(names: list[str]) -> None:
    fields = {field_name(name) for name in names if min(map(ord, name)) >= 0x10}
    assert len(fields) == len([name for name in names if min(map(ord, name)) >= 0x10])


def test_a_reader_steps_over_what_rows_are_not_made_of() -> None:
    schema = json.loads(
        envelope(column("id", "int", "INT4", null=False), column("note", "string", "TEXT"))
    )
    source = next(entry for entry in schema["fields"] if entry["name"] == "source")
    source["type"]["fields"] += [
        {"name": "connector", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "sequence", "type": ["null", "string"], "default": None},
        {"name": "txId", "type": ["null", "long"], "default": None},
    ]
    schema["fields"].append({"name": "ts_ms", "type": ["null", "long"], "default": None})
    writer = json.dumps(schema)
    reader = json.loads(DebeziumSchema.parse(writer).reader_json)
    event = {
        "before": None,
        "after": {"id": 7, "note": "text"},
        "source": {"lsn": 1, "connector": "postgresql", "ts_ms": 5, "sequence": "[]", "txId": 7},
        "op": "c",
        "ts_ms": 9,
    }
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), event)
    body.seek(0)
    read = fastavro.schemaless_reader(body, json.loads(writer), reader)
    assert read["source"] == {"ts_ms": 5, "sequence": "[]", "txId": 7}
    assert (read["op"], read["after"]) == ("c", {"id": 7, "note": "text"})
    assert set(read) == {"before", "after", "source", "op"}


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("shop.public.orders", "shop.public.orders.Envelope"),
        ("shop_hot.public.2024", "shop_u005fhot.public.2024.Envelope"),
        ("a-b.public._x", "a_u002db.public._u005fx.Envelope"),
    ],
)
def test_the_schema_of_a_topics_events_has_its_name(topic: str, name: str) -> None:
    assert envelope_name(topic) == name


def with_source(*fields: dict[str, Any]) -> DebeziumSchema:
    schema = json.loads(envelope(column("id", "int", "INT4", null=False)))
    source = next(entry for entry in schema["fields"] if entry["name"] == "source")
    source["type"]["fields"] = list(fields)
    return DebeziumSchema.parse(json.dumps(schema))


TIME = {"name": "ts_ms", "type": "long"}
PLACE = {"name": "sequence", "type": ["null", "string"], "default": None}
BY = {"name": "txId", "type": ["null", "long"], "default": None}


@pytest.mark.parametrize(
    ("schema", "topic", "says"),
    [
        (with_source(TIME, PLACE, BY), "shop.public.note", None),
        (
            with_source(TIME, PLACE, BY),
            "shop.public.notes",
            "shop.public.note.Envelope is the schema",
        ),
        (with_source(TIME, BY), "shop.public.note", "no usable sequence"),
        (with_source(PLACE, BY), "shop.public.note", "no usable ts_ms"),
        (with_source(TIME, PLACE), "shop.public.note", "no usable txId"),
        (
            with_source({"name": "ts_ms", "type": "string"}, PLACE, BY),
            "shop.public.note",
            "no usable ts_ms",
        ),
        (
            DebeziumSchema.parse('{"type":"record","name":"Key","fields":[]}'),
            "shop.public.note",
            "Key is not a change event",
        ),
    ],
)
def test_a_schema_that_a_topic_cannot_have_says_why(
    schema: DebeziumSchema, topic: str, says: str | None
) -> None:
    found = schema.mismatch(topic)
    assert found == says if says is None else says in (found or "")
