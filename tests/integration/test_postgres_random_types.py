"""Random cells of every type: the snapshot, the stream and the server's own text must agree.

By default, the test draws 2,000 cells. The environment variable ``TRIBUTARY_TYPE_CELLS`` sets
another number.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from typing import Any
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg import sql
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import (
    capture_of,
    local_spark,
    on_replica,
    open_source,
    read,
    table_id,
)
from tests.integration.rigs.typed import Stream, collected, comparable

CELLS = int(os.environ.get("TRIBUTARY_TYPE_CELLS", "2000"))


@dataclass(frozen=True)
class Kind:
    """A type, its random values, and the lake's value for each of them.

    Args:
        name: The name of the type.
        values: Generates values, which are sent to the server with a cast to the type.
        expected: Converts the server's text of a value to the lake's value.
    """

    name: str
    values: st.SearchStrategy[Any]
    expected: Callable[[str], Any] = str


# PostgreSQL's text holds no zero byte, and no half of a surrogate pair is a character.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
MICROS_OF_A_DAY = 24 * 3600 * 1_000_000


def whole(bits: int) -> st.SearchStrategy[str]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str)


def decimals(digits: int, scale: int) -> st.SearchStrategy[str]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda n: format(Decimal(n).scaleb(-scale, _WIDE), "f"))


def ranges(bounds: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    def text(pair: tuple[Any, Any], brackets: tuple[str, str]) -> str:
        low, high = sorted(pair)
        return f'{brackets[0]}"{low}","{high}"{brackets[1]}'

    ends = st.tuples(st.sampled_from("[("), st.sampled_from("])"))
    bounded = st.builds(text, st.tuples(bounds, bounds), ends)
    return st.one_of(bounded, st.sampled_from(["empty", "(,)"]), bounds.map(lambda b: f'["{b}",)'))


def arrays(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Random lists of items, but no non-empty list with NULLs only.

    The connector sends arrays of two dimensions as lists of NULLs, so such lists stop a table.
    """
    return st.lists(st.none() | items, max_size=5).filter(
        lambda drawn_: not drawn_ or any(item is not None for item in drawn_)
    )


def elements(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """A function that parses ``array_to_json(c::text[])`` and converts each item."""
    return lambda text: [None if item is None else convert(item) for item in json.loads(text)]


def single(text: str) -> Any:
    return comparable(struct.unpack("f", struct.pack("f", float(text)))[0])


def double(text: str) -> Any:
    return comparable(float(text))


def numeric_words(text: str) -> str:
    words = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
    return words.get(text, text)


def micros_of(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000_000 + int(Decimal(seconds) * 1_000_000)


def utc_time(text: str) -> str:
    """A time with a zone as the connector sends it: at UTC, without trailing zeros."""
    found = re.fullmatch(r"(.*)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?", text)
    assert found is not None, text
    offset = timedelta(
        hours=int(found[3]), minutes=int(found[4] or 0), seconds=int(found[5] or 0)
    ) // timedelta(microseconds=1)
    at = (micros_of(found[1]) - (offset if found[2] == "+" else -offset)) % MICROS_OF_A_DAY
    seconds, fraction = divmod(at, 1_000_000)
    shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return shown + (f".{fraction:06}".rstrip("0") if fraction else "") + "Z"


def moment(text: str) -> datetime:
    whole_seconds, _, fraction = text.partition(".")
    read_ = datetime.strptime(whole_seconds, "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007 - has no zone
    return read_.replace(microsecond=int(fraction.ljust(6, "0") or 0))


def instant(text: str) -> str:
    assert text.endswith("+00"), text
    return moment(text.removesuffix("+00")).isoformat(" ", "microseconds")


def iso_interval(text: str) -> str:
    """The form ``PnYnMnDTnHnMnS`` of an interval that the server printed in style iso_8601."""
    parts = dict.fromkeys(("Y", "M", "D", "H", "m", "S"), "0")
    days, _, clock = text.removeprefix("P").partition("T")
    for place, piece in ((days, "YMD"), (clock, "HmS")):
        for number, unit in re.findall(r"(-?[\d.]+)([A-Z])", place):
            parts["m" if unit == "M" and piece == "HmS" else unit] = number
    return "P{Y}Y{M}M{D}DT{H}H{m}M{S}S".format(**parts)


def dollars(text: str) -> str:
    return text.replace("$", "").replace(",", "")


def address(version: int) -> st.SearchStrategy[str]:
    return st.ip_addresses(v=version).map(str)


def network(host: ipaddress.IPv4Address, bits: int) -> str:
    return str(ipaddress.ip_network((host, bits), strict=False))


_WIDE = Context(prec=2000)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
INTERVALS = st.builds(
    "{} mons {} days {} microseconds".format,
    st.integers(-120_000, 120_000),
    st.integers(-100_000, 100_000),
    st.integers(-(10**15), 10**15),
)
FLOATS = st.floats().map(repr)
DECLARATIONS = (
    "",
    '<?xml version="1.0"?>',
    '<?xml version="1.0" encoding="UTF-8"?>\n',
    '<?xml version="1.0" standalone="yes"?>',
)
LABELS = ("ok", "it's", "é😀", " ", "a,b")

KINDS = (
    Kind("bool", st.booleans(), lambda text: text == "t"),
    Kind("int2", whole(16), int),
    Kind("int4", whole(32), int),
    Kind("int8", whole(64), int),
    Kind("oid", st.integers(0, 2**32 - 1).map(str), int),
    Kind("float4", st.floats(width=32).map(repr), single),
    Kind("float8", FLOATS, double),
    Kind(
        "numeric",
        st.one_of(
            decimals(30, 12), decimals(900, 400), st.sampled_from(["NaN", "Infinity", "-Infinity"])
        ),
        numeric_words,
    ),
    Kind("numeric(10,2)", decimals(10, 2), Decimal),
    Kind("numeric(38,20)", decimals(38, 20), Decimal),
    Kind("numeric(50,5)", decimals(50, 5), numeric_words),
    Kind("money", decimals(18, 2), dollars),
    Kind("char(8)", TEXT.filter(lambda text: len(text) <= 8)),
    Kind("varchar(60)", TEXT),
    Kind("text", TEXT),
    Kind("citext", TEXT),
    Kind("ltree", st.from_regex(r"[A-Za-z0-9_]{1,9}(\.[A-Za-z0-9_]{1,9}){0,4}", fullmatch=True)),
    Kind("mood", st.sampled_from(LABELS)),
    Kind("uuid", st.uuids().map(str)),
    Kind("json", JSON.map(json.dumps)),
    Kind("jsonb", JSON.map(json.dumps).filter(lambda text: "\\u0000" not in text)),
    Kind(
        "xml",
        st.builds(
            lambda head, text: f"{head}<a>{escape(text)}</a>",
            st.sampled_from(DECLARATIONS),
            st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), max_size=20),
        ),
    ),
    Kind("inet", address(4) | address(6)),
    Kind("cidr", st.builds(network, st.ip_addresses(v=4), st.integers(0, 32))),
    Kind("macaddr", st.binary(min_size=6, max_size=6).map(lambda b: b.hex(":"))),
    Kind("bytea", st.binary(max_size=40), lambda text: bytes.fromhex(text.removeprefix("\\x"))),
    Kind("date", st.dates().map(date.isoformat), date.fromisoformat),
    Kind("time", st.times().map(time.isoformat), micros_of),
    Kind("timetz", st.times(timezones=ZONES).map(time.isoformat), utc_time),
    Kind("timestamp", st.datetimes().map(datetime.isoformat), moment),
    Kind(
        "timestamptz",
        st.datetimes(
            datetime(1, 1, 2),  # noqa: DTZ001 - the strategy adds the zone
            datetime(9999, 12, 30),  # noqa: DTZ001
            timezones=ZONES,
        ).map(datetime.isoformat),
        instant,
    ),
    Kind("interval", INTERVALS, iso_interval),
    Kind("bit(1)", st.sampled_from("01"), lambda text: text == "1"),
    Kind("int4range", ranges(st.integers(-(2**31), 2**31 - 2))),
    Kind("numrange", ranges(decimals(12, 4).map(Decimal))),
    Kind("daterange", ranges(st.dates(date(1, 1, 1), date(9999, 1, 1)))),
    Kind("int4[]", arrays(whole(32)), elements(int)),
    Kind("int8[]", arrays(whole(64)), elements(int)),
    Kind("text[]", arrays(TEXT), elements(str)),
    Kind("bool[]", arrays(st.booleans()), elements(lambda text: text == "true")),
    Kind("float8[]", arrays(FLOATS), elements(double)),
    Kind("numeric(12,3)[]", arrays(decimals(12, 3)), elements(Decimal)),
    Kind("uuid[]", arrays(st.uuids().map(str)), elements(str)),
    Kind(
        "bytea[]",
        arrays(st.binary(max_size=10)),
        elements(lambda text: bytes.fromhex(text.removeprefix("\\x"))),
    ),
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


def drawn(kind: Kind, count: int) -> list[Any]:
    """``count`` values of a type that Hypothesis draws, including NULL."""
    found: list[Any] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.none() | kind.values)
    def draw(value: Any) -> None:
        found.append(value)

    while len(found) < count:
        draw()
    return found[:count]


def insert(database: Database, columns: list[list[Any]]) -> None:
    """Insert a row for each position in the lists of values; its number, from 0, is the key."""
    cast = sql.SQL(", ").join(sql.SQL("%s::" + kind.name) for kind in KINDS)
    statement = sql.SQL("INSERT INTO t VALUES (%s, {})").format(cast)
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany(
            statement, [(at, *values) for at, values in enumerate(zip(*columns, strict=True))]
        )


def texts(database: Database) -> dict[int, tuple[str | None, ...]]:
    """The text of every cell as the type's output function prints it, by row."""
    shown = sql.SQL(", ").join(
        sql.SQL(
            "array_to_json({0}::text[])::text"
            if kind.name.endswith("[]")
            else "CASE WHEN {0} IS NOT NULL THEN format('%%s', {0}) END"
        ).format(sql.Identifier(f"c{number}"))
        for number, kind in enumerate(KINDS)
    )
    with database.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.execute("SET intervalstyle = 'iso_8601'")
        connection.execute("SET lc_monetary = 'C'")
        found = connection.execute(sql.SQL("SELECT id, {} FROM t").format(shown), ()).fetchall()
    return {row[0]: row[1:] for row in found}


def test_random_cells_are_the_same_in_snapshot_stream_and_source(
    database: Database, spark: SparkSession
) -> None:
    source = open_source(database)
    capture_of(source, "pub_test").prepare()
    for extension in ("citext", "ltree"):
        database.stack.psql(f"CREATE EXTENSION {extension}", database=database.name)
    quoted = ", ".join("'" + label.replace("'", "''") + "'" for label in LABELS)
    columns = ", ".join(f"c{number} {kind.name}" for number, kind in enumerate(KINDS))
    database.execute(
        f"CREATE TYPE mood AS ENUM ({quoted})", f"CREATE TABLE t (id int PRIMARY KEY, {columns})"
    )
    table = source.table(table_id(database, "t"))
    schema = source.schema(table, TableSettings())
    count = -(-CELLS // len(KINDS))
    with closing(Stream(database, source, spark)) as stream:
        stream.capture(table)
        insert(database, [drawn(kind, count) for kind in KINDS])
        events = collected(stream.inserts(table, schema, count), schema)
    on_replica(source)
    snapshot = collected(read(spark, source, table, schema), schema)
    truth = texts(database)
    assert len(snapshot) == len(events) == len(truth) == count
    compared, different = 0, []
    for copied, streamed in zip(snapshot, events, strict=True):
        assert copied["id"] == streamed["id"]
        for number, kind in enumerate(KINDS):
            name, text = f"c{number}", truth[copied["id"]][number]
            wanted = None if text is None else kind.expected(text)
            compared += 1
            if not copied[name] == streamed[name] == wanted:
                different.append((kind.name, text, wanted, copied[name], streamed[name]))
    assert compared >= CELLS
    assert different == [], f"{len(different)} cells differ: {different[:10]}"
