"""What Debezium sends for each PostgreSQL type; the type map and the decoder rely on it."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cdc.debezium.connector import silence_remedy
from cdc.errors import ConnectError
from stack.local import LocalStack
from tests.integration.rigs.captured import Captured, capturing, wait_until
from tests.integration.rigs.postgres import Database, own_database

TIME = "io.debezium.time."
DATA = "io.debezium.data."
DATE, MICROS, ZONED = TIME + "Date", TIME + "MicroTimestamp", TIME + "ZonedTimestamp"


@pytest.fixture(scope="module")
def captured(stack: LocalStack) -> Iterator[Captured]:
    with own_database(stack) as database, capturing(database) as started:
        stack.psql(
            "CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree",
            database=database.name,
        )
        database.execute(
            "CREATE TYPE mood AS ENUM ('sad', 'ok')",
            "CREATE DOMAIN amount AS numeric(10,2)",
            "CREATE DOMAIN email AS text",
            "CREATE TYPE pair AS (a int, b text)",
        )
        yield started


@dataclass(frozen=True)
class Fact:
    """One source value and how it arrives; ``avro`` is None for types that never arrive."""

    type: str
    sql: str
    avro: str | None
    name: str | None = None
    value: Any = None


FACTS = (
    Fact("boolean", "true", "boolean", None, True),
    Fact("smallint", "-7", "int", None, -7),
    Fact("integer", "-2147483648", "int", None, -(2**31)),
    Fact("bigint", "9007199254740993", "long", None, 9007199254740993),
    Fact("oid", "4294967295", "long", None, 4294967295),
    Fact("real", "1e-45", "float", None, 1.401298464324817e-45),
    Fact("double precision", "0.1", "double", None, 0.1),
    Fact("double precision", "'-Infinity'", "double", None, -math.inf),
    # Numbers keep every digit and their scale; what is no number has a word.
    Fact("numeric(10,2)", "12.3", "string", None, "12.30"),
    Fact("numeric(38,0)", "'9'", "string", None, "9"),
    Fact("numeric", "'1e30'", "string", None, "1" + "0" * 30),
    Fact("numeric", "'1e-30'", "string", None, "0." + "0" * 29 + "1"),
    Fact("numeric(10,2)", "'NaN'", "string", None, "NAN"),
    Fact("numeric", "'Infinity'", "string", None, "POSITIVE_INFINITY"),
    Fact("numeric", "'-Infinity'", "string", None, "NEGATIVE_INFINITY"),
    Fact("money", "'-1234.5'", "string", None, "-1234.50"),
    Fact("amount", "1.5", "string", None, "1.50"),
    Fact("text", "E'a\\tü\\n\"'", "string", None, 'a\tü\n"'),
    Fact("text", "U&'\\+01F600'", "string", None, "😀"),
    Fact("varchar(3)", "''", "string", None, ""),
    Fact("char(5)", "'ab'", "string", None, "ab   "),
    Fact('"char"', "'x'", "string", None, "x"),
    Fact("citext", "'Ci'", "string", None, "Ci"),
    Fact("email", "'a@b'", "string", None, "a@b"),
    Fact("ltree", "'a.b'", "string", DATA + "Ltree", "a.b"),
    Fact("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "string", DATA + "Uuid",
         "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    Fact("json", "' {\"b\":1,\"b\":2}'", "string", DATA + "Json", ' {"b":1,"b":2}'),
    Fact("jsonb", "'{\"b\":1,\"a\":2}'", "string", DATA + "Json", '{"a": 2, "b": 1}'),
    Fact("xml", "'<a>x</a>'", "string", DATA + "Xml", "<a>x</a>"),
    Fact("hstore", "'a=>1,b=>NULL'", "string", DATA + "Json", '{"a":"1","b":null}'),
    Fact("mood", "'sad'", "string", DATA + "Enum", "sad"),
    Fact("bytea", "'\\x00ff'", "bytes", None, b"\x00\xff"),
    # Days and microseconds of the proleptic Gregorian calendar; infinity is outside its range.
    Fact("date", "'2024-02-29'", "int", DATE, 19782),
    Fact("date", "'1000-01-01'", "int", DATE, -354285),
    Fact("date", "'0044-03-15 BC'", "int", DATE, -735160),
    Fact("date", "'infinity'", "int", DATE, 2146033979),
    Fact("date", "'-infinity'", "int", DATE, -2147472691),
    Fact("timestamp", "'2024-02-29 12:34:56.123456'", "long", MICROS, 1709210096123456),
    Fact("timestamp(0)", "'2024-02-29 12:34:56'", "long", MICROS, 1709210096000000),
    Fact("timestamp(3)", "'2024-02-29 12:34:56.123'", "long", MICROS, 1709210096123000),
    Fact("timestamp", "'1000-01-01'", "long", MICROS, -30610224000000000),
    Fact("timestamp", "'infinity'", "long", MICROS, 2**63 - 1),
    Fact("timestamp", "'-infinity'", "long", MICROS, -(2**63)),
    Fact("timestamptz", "'2024-02-29 12:34:56.123456+02'", "string", ZONED,
         "2024-02-29T10:34:56.123456Z"),
    Fact("timestamptz(0)", "'2024-02-29 12:34:56+02'", "string", ZONED, "2024-02-29T10:34:56Z"),
    Fact("timestamptz", "'1582-10-10 00:00+00'", "string", ZONED, "1582-10-10T00:00:00.000000Z"),
    Fact("timestamptz", "'0044-03-15 00:00+00 BC'", "string", ZONED,
         "-0043-03-15T00:00:00.000000Z"),
    Fact("timestamptz", "'infinity'", "string", ZONED, "infinity"),
    Fact("timestamptz", "'-infinity'", "string", ZONED, "-infinity"),
    Fact("time", "'12:34:56.123456'", "long", TIME + "MicroTime", 45296123456),
    Fact("time(0)", "'24:00'", "long", TIME + "MicroTime", 86400000000),
    Fact("timetz", "'12:34:56.5+02'", "string", TIME + "ZonedTime", "10:34:56.5Z"),
    Fact("interval", "'-1 year -2 mons +3 days -04:05:06.7'", "string", TIME + "Interval",
         "P-1Y-2M3DT-4H-5M-6.7S"),
    Fact("interval", "'0'", "string", TIME + "Interval", "P0Y0M0DT0H0M0S"),
    Fact("inet", "'192.168.0.1/32'", "string", None, "192.168.0.1"),
    Fact("inet", "'192.168.0.1/24'", "string", None, "192.168.0.1/24"),
    Fact("cidr", "'10.0.0.0/8'", "string", None, "10.0.0.0/8"),
    Fact("macaddr", "'08-00-2b-01-02-03'", "string", None, "08:00:2b:01:02:03"),
    Fact("tsvector", "'b:2 a:1A'", "string", DATA + "Tsvector", "'a':1A 'b':2"),
    Fact("int4range", "'(0,5]'", "string", None, "[1,6)"),
    Fact("numrange", "'empty'", "string", None, "empty"),
    Fact("daterange", "'[2024-01-01,2024-01-02)'", "string", None, "[2024-01-01,2024-01-02)"),
    Fact("bit(1)", "B'1'", "boolean", None, True),
    Fact("bit(9)", "B'100000000'", "bytes", DATA + "Bits", b"\x00\x01"),
    Fact("int[]", "'{1,NULL,3}'", "array<int>", None, [1, None, 3]),
    Fact("bigint[]", "'{}'", "array<long>", None, []),
    Fact("text[]", "'{a,NULL,\"b,c\"}'", "array<string>", None, ["a", None, "b,c"]),
    Fact("uuid[]", "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", "array<string>", DATA + "Uuid",
         ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    Fact("date[]", "'{1000-01-01}'", "array<int>", DATE, [-354285]),
    Fact("bytea[]", "array['\\x00ff'::bytea]", "array<bytes>", None, [b"\x00\xff"]),
    Fact("jsonb[]", "array['{\"a\":1}'::jsonb]", "array<string>", DATA + "Json", ['{"a": 1}']),
    Fact("numeric(10,2)[]", "'{1.5}'", "array<string>", None, ["1.50"]),
    Fact("timestamptz[]", "'{2024-02-29 12:00+02}'", "array<string>", ZONED,
         ["2024-02-29T10:00:00.000000Z"]),
    # Wrong without any error, so these must be refused before they are captured.
    Fact("name", "'n'", "string", None, None),
    Fact("timestamp[]", "'{1000-01-01}'", "array<long>", MICROS, [-30609792000000000]),
    Fact("int[]", "'{{1,2},{3,4}}'", "array<int>", None, [None, None]),
    # Not sent at all.
    *(
        Fact(kind, value, None)
        for kind, value in (
            ("tsquery", "'a'"),
            ("int4multirange", "'{[1,3)}'"),
            ("pair", "row(1, 'x')"),
            ("pg_lsn", "'0/1'"),
            ("jsonpath", "'$.a'"),
            ("interval[]", "'{1 day}'"),
            ("money[]", "'{1}'"),
            ("amount[]", "'{1}'"),
            ("point[]", "array['(1,2)'::point]"),
        )
    ),
)  # fmt: skip


def test_what_arrives_for_each_type(captured: Captured) -> None:
    columns = ", ".join(f"c{at} {fact.type}" for at, fact in enumerate(FACTS))
    captured.database.execute(f"CREATE TABLE facts (id int PRIMARY KEY, {columns})")
    topic = captured.add("facts")
    values = ", ".join(fact.sql for fact in FACTS)
    captured.database.execute(f"INSERT INTO facts VALUES (1, {values})")
    (event,) = captured.events(topic, 1)
    assert event.schema is not None
    assert event.after is not None
    wrong = []
    for at, fact in enumerate(FACTS):
        field = event.schema.field(f"c{at}")
        if field is None or fact.avro is None:
            if field is not None or fact.avro is not None:
                wrong.append(f"{fact}: field {field}")
            continue
        element = field.element
        kind = field.avro_type if element is None else f"array<{element.avro_type}>"
        seen = (kind, (element or field).connect_name, event.after[f"c{at}"])
        if seen != (fact.avro, fact.name, fact.value):
            wrong.append(f"{fact}: {seen}")
    assert wrong == []


LONG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"


def array(item: str) -> str:
    return f"(SELECT array_agg({item}) FROM generate_series(1, 6000) i)"


def stand_ins(shown: str) -> tuple[tuple[str, str, object], ...]:
    """For each type: SQL for a value that is stored out of line, and the event's placeholder."""
    md5 = hashlib.md5(shown.encode(), usedforsecurity=False).digest()
    return (
        ("text", LONG, shown),
        ("varchar", LONG, shown),
        ("citext", LONG, shown),
        ("email", LONG, shown),
        ("json", f"to_json({LONG})", shown),
        ("jsonb", f"to_jsonb({LONG})", shown),
        ("xml", f"('<a>' || {LONG} || '</a>')::xml", shown),
        ("bytea", f"{LONG}::bytea", shown.encode()),
        ("hstore", f"hstore('a', {LONG})", f'{{"{shown}":"{shown}"}}'),
        ("tsvector", f"to_tsvector('simple', regexp_replace({LONG}, '(.{{9}})', '\\1 ', 'g'))",
         shown),
        ("numeric", "(SELECT string_agg((1 + abs(hashint4(i)) % 9)::text, '')::numeric"
         " FROM generate_series(1, 20000) i)", shown),
        ("text[]", array("md5(i::text)"), [shown]),
        ("varchar(40)[]", array("md5(i::text)::varchar(40)"), [shown]),
        ("json[]", array("to_json(i)"), [shown]),
        ("jsonb[]", array("to_jsonb(i)"), [shown]),
        ("bytea[]", array("md5(i::text)::bytea"), [shown.encode()]),
        ("uuid[]", array("md5(i::text)::uuid"), [str(uuid.UUID(bytes=md5, version=3))]),
        ("int[]", array("i"), list(shown.encode())),
        ("bigint[]", array("i::bigint"), list(shown.encode())),
        ("date[]", array("date '2000-01-01' + i % 999"), list(shown.encode())),
    )  # fmt: skip


def test_what_stands_for_an_unchanged_large_value(captured: Captured) -> None:
    large = stand_ins(captured.names.placeholder)
    columns = ", ".join(f"c{at} {kind}" for at, (kind, _, _) in enumerate(large))
    external = ", ".join(f"ALTER c{at} SET STORAGE EXTERNAL" for at in range(len(large)))
    captured.database.execute(
        f"CREATE TABLE large (id int PRIMARY KEY, n int, {columns})",
        f"ALTER TABLE large {external}",
    )
    topic = captured.add("large")
    values = ", ".join(value for _, value, _ in large)
    captured.database.execute(
        f"INSERT INTO large VALUES (1, 1, {values})",
        "UPDATE large SET n = 2",
        "ALTER TABLE large REPLICA IDENTITY FULL",
        "UPDATE large SET n = 3",
    )
    inserted, updated, full = (event.after for event in captured.events(topic, 3))
    assert inserted is not None
    assert updated is not None
    assert full is not None
    assert (updated["n"], full["n"]) == (2, 3)
    wrong = [
        (kind, updated[f"c{at}"])
        for at, (kind, _, placeholder) in enumerate(large)
        if updated[f"c{at}"] != placeholder or inserted[f"c{at}"] == placeholder
    ]
    assert wrong == []
    kept = [kind for at, (kind, _, _) in enumerate(large) if full[f"c{at}"] == inserted[f"c{at}"]]
    assert len(kept) == len(large), "a full replica identity brings every value"


VECTOR = """
CREATE TYPE vector;
CREATE FUNCTION vector_in(cstring) RETURNS vector AS 'textin' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION vector_out(vector) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE vector (INPUT = vector_in, OUTPUT = vector_out, LIKE = text);
"""
"""SQL for a type that the connector mistakes for pgvector's, because of its name and its text."""


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("mood[]", "'{sad,NULL}'"),
        ("numeric[]", "'{NaN}'"),
        ("inet[]", "(SELECT array_agg('10.0.0.0'::inet + i) FROM generate_series(1, 6000) i)"),
        pytest.param("timetz", "'10:00+05:30:15'", marks=pytest.mark.breadth),
        pytest.param(
            "vector",
            "('[' || (SELECT string_agg(i::text, ',') FROM generate_series(1, 4000) i) || ']')"
            "::vector",
            marks=pytest.mark.breadth,
        ),
    ],
)
def test_a_value_that_cannot_be_sent_stops_the_connector_and_is_named(
    database: Database, kind: str, value: str
) -> None:
    """By default, Debezium would send NULL instead, with a warning in the worker's log."""
    if kind == "vector":
        database.stack.psql(VECTOR, database=database.name)
    with capturing(database) as captured:
        database.execute(
            *(["CREATE TYPE mood AS ENUM ('sad', 'ok')"] if kind == "mood[]" else []),
            f"CREATE TABLE t (id int PRIMARY KEY, n int, bad {kind})",
            *([] if kind == "timetz" else ["ALTER TABLE t ALTER bad SET STORAGE EXTERNAL"]),
        )
        captured.add("t")
        database.execute(f"INSERT INTO t VALUES (1, 1, {value})", "UPDATE t SET n = 2")
        name = captured.names.connector

        def failed() -> bool:
            status = captured.connect.status(name)
            return status is not None and status.failure is not None

        wait_until(failed, "the connector to stop")
        with pytest.raises(ConnectError) as caught:
            captured.connect.wait_running(name)
        assert "public.t.bad" in str(caught.value)
        assert "REPLICA IDENTITY FULL" in caught.value.remedy


@pytest.mark.breadth
def test_an_interval_of_too_many_hours_holds_back_all_that_follows(database: Database) -> None:
    """The driver's error looks like a lost connection, so the connector retries forever."""
    with capturing(database) as captured:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, long interval)")
        topic = captured.add("t")
        database.execute("INSERT INTO t VALUES (1, '2147483647:00:00')")
        (event,) = captured.events(topic, 1)
        assert event.after == {"id": 1, "long": "P0Y0M0DT2147483647H0M0S"}
        database.execute(
            "INSERT INTO t VALUES (2, '2147483648:00:00')", "INSERT INTO t VALUES (3, '1 day')"
        )
        with pytest.raises(AssertionError, match="not seen within 30 s"):
            captured.events(topic, 2, timeout_s=30)
        status = captured.connect.status(captured.names.connector)
        assert status is not None
        assert status.failure is None
        assert "`Conversion of interval failed`" in silence_remedy(captured.names)
