"""Ten thousand damaged messages: each is decoded as Avro specifies, or it is a problem."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import time
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import Row, SparkSession

from cdc.rows.columns import PROBLEM, UNAVAILABLE
from cdc.rows.decode import decode
from cdc.rows.event_plan import EventRules
from cdc.rows.fold import FEW, fold, problems, summarize
from schemas.table import Column, TableId, TableSchema
from tests.spark.debezium import DATE, DECIMAL, MICROS, PLACEHOLDER, STRING, ZONED, Topic

MESSAGES, BOUND_S = 10_000, 120.0
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - collected times have no zone; the session's is UTC
TEXTS = {"type": "array", "items": ["null", "string"]}
NUMBERS = {"type": "array", "items": ["null", "int"]}
FIELDS: dict[str, Any] = {
    "id": "int",
    "big": "long",
    "note": STRING,
    "price": DECIMAL,
    "flag": "boolean",
    "ratio": "double",
    "day": DATE,
    "at": ZONED,
    "wall": MICROS,
    "data": "bytes",
    "tags": TEXTS,
    "days": NUMBERS,
}
TABLE = TableSchema(
    TableId("shop", "public", "orders"),
    tuple(
        Column(name, kind, kind)
        for name, kind in {
            "id": "int",
            "big": "bigint",
            "note": "string",
            "price": "decimal(12,2)",
            "flag": "boolean",
            "ratio": "double",
            "day": "date",
            "at": "timestamp",
            "wall": "timestamp",
            "data": "binary",
            "tags": "array<string>",
            "days": "array<int>",
        }.items()
    ),
    ("id",),
)


def sound(rng: random.Random) -> Topic:
    """Events of every kind, written with two versions of the schema."""
    topic = Topic()
    topic.register(3, {name: kind for name, kind in FIELDS.items() if name != "days"})
    topic.register(4, FIELDS)
    for number in range(40):
        row = {
            "id": rng.randrange(-5, 2**31),
            "big": rng.randrange(-(2**63), 2**63),
            "note": rng.choice(["", "plain", "grüße 🙂", PLACEHOLDER, "x" * 300]),
            "price": rng.choice(["12.50", "-0.01", "9999999999.99"]),
            "flag": rng.choice([True, False]),
            "ratio": rng.choice([0.0, -1.5, float("inf"), 1e300]),
            "day": rng.randrange(-100_000, 100_000),
            "at": "2024-02-29T23:59:59.123456Z",
            "wall": rng.randrange(-(2**50), 2**50),
            "data": rng.randbytes(rng.choice([0, 3, 64])),
            "tags": rng.choice([[], ["a", None, "ß"], ["x"] * 70]),
            "days": rng.choice([[], [1, None, -1], [7] * 70]),
        }
        kept = {name: None if rng.random() < 0.15 else value for name, value in row.items()}
        kept["id"] = row["id"]
        op = ("c", "u", "d", "r", "t")[number % 5]
        before = kept if op in ("u", "d") and rng.random() < 0.5 else {"id": row["id"]}
        topic.event(
            op,
            None if op in ("d", "t") else kept,
            before if op in ("u", "d") else None,
            schema_id=rng.choice([3, 4]),
            ts_us=rng.randrange(2**50),
        )
    return topic


Mutation = Callable[[random.Random, bytes, bytes], bytes]


def _at(rng: random.Random, message: bytes) -> int:
    """A random index in the message; in half of the cases, within the first 40 bytes."""
    return rng.randrange(len(message) if rng.random() < 0.5 else min(len(message), 40))


def _varint(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


def flip(rng: random.Random, message: bytes, _other: bytes) -> bytes:
    at = _at(rng, message)
    return message[:at] + bytes([message[at] ^ (1 << rng.randrange(8))]) + message[at + 1 :]


def overwrite(rng: random.Random, message: bytes, _other: bytes) -> bytes:
    at, count = _at(rng, message), rng.randrange(1, 12)
    filler = rng.choice([b"\x00", b"\xff", b"\x80", b"\x01", b"\x02"]) * count
    return message[:at] + filler + message[at + count :]


def randomize(rng: random.Random, message: bytes, _other: bytes) -> bytes:
    at, count = _at(rng, message), rng.randrange(1, 12)
    return message[:at] + rng.randbytes(count) + message[at + count :]


def truncate(rng: random.Random, message: bytes, _other: bytes) -> bytes:
    return message[: rng.randrange(len(message))]


def append(rng: random.Random, message: bytes, other: bytes) -> bytes:
    return message + rng.choice([rng.randbytes(rng.randrange(1, 20)), b"\x00", other])


def remove(rng: random.Random, message: bytes, _other: bytes) -> bytes:
    at = _at(rng, message)
    return message[:at] + message[at + rng.randrange(1, 8) :]


def insert(rng: random.Random, message: bytes, _other: bytes) -> bytes:
    at = _at(rng, message)
    return message[:at] + rng.randbytes(rng.randrange(1, 8)) + message[at:]


def splice(rng: random.Random, message: bytes, other: bytes) -> bytes:
    return message[: _at(rng, message)] + other[_at(rng, other) :]


def huge_length(rng: random.Random, message: bytes, _other: bytes) -> bytes:
    at = _at(rng, message)
    claimed = _varint(rng.choice([-(2**63), -1, -2, 2**24, 2**31 - 1, 2**31, 2**40, 2**63 - 1]))
    return message[:at] + claimed + message[at + rng.randrange(2) :]


def other_schema(_rng: random.Random, message: bytes, _other: bytes) -> bytes:
    return message[:4] + bytes([7 - message[4]]) + message[5:]


def other_header(rng: random.Random, message: bytes, _other: bytes) -> bytes:
    return rng.randbytes(5) + message[5:]


def noise(rng: random.Random, message: bytes, _other: bytes) -> bytes:
    return message[:5] + rng.randbytes(rng.randrange(200))


def untouched(_rng: random.Random, message: bytes, _other: bytes) -> bytes:
    return message


MUTATIONS: tuple[Mutation, ...] = (
    flip,
    overwrite,
    randomize,
    truncate,
    append,
    remove,
    insert,
    splice,
    huge_length,
    other_schema,
    other_header,
    noise,
    untouched,
)


class PermanentError(Exception):
    """A message is not exactly one complete event of its schema."""


class Reader:
    """Decodes messages by Avro's specification, without any code of the product."""

    def __init__(self, topic: Topic) -> None:
        self._writers = {
            number: fastavro.parse_schema(json.loads(text))
            for number, text in topic.schemas.items()
        }

    def event(self, message: bytes) -> dict[str, Any]:
        if len(message) < 5 or message[0] != 0:
            raise PermanentError("no header")
        writer = self._writers.get(int.from_bytes(message[1:5], "big"))
        if writer is None:
            raise PermanentError("no schema")
        body = io.BytesIO(message[5:])
        try:
            # Text of fields that rows are not made of may be anything.
            event: Any = fastavro.schemaless_reader(body, writer, handle_unicode_errors="replace")
        except Exception as error:  # it raises whatever its C code ran into
            raise PermanentError(repr(error)) from error
        if body.tell() != len(message) - 5:
            raise PermanentError("bytes are left")
        assert isinstance(event, dict)
        return event

    def row(self, message: bytes) -> tuple[str, dict[str, Any]]:
        """The operation of a message, and the row that the lake should get."""
        event = self.event(message)
        after = event["after"] or {}
        row = {name: after.get(name) for name in FIELDS}
        if row["id"] is None:
            row["id"] = (event["before"] or {}).get("id")
        return str(event["op"]), {name: lake(name, value) for name, value in row.items()}


def lake(name: str, value: Any) -> Any:
    """The lake's value for a value in a message."""
    if value is None or value in (PLACEHOLDER, PLACEHOLDER.encode(), [PLACEHOLDER]):
        return None
    if name == "price":
        return Decimal(value)
    if name == "day":
        return date(1970, 1, 1) + timedelta(days=value)
    if name == "wall":
        return EPOCH + timedelta(microseconds=value)
    if name == "at":
        numbers = [int(part) for part in re.findall(r"[0-9]+", value[:19])]
        micros = (value[20:].rstrip("Z") or "0").ljust(6, "0")[:6]
        return datetime(*numbers, int(micros))  # type: ignore[misc,arg-type]  # noqa: DTZ001
    return struct.pack("d", value) if name == "ratio" else value


def shown(row: Row) -> dict[str, Any]:
    values = {name: row[name] for name in FIELDS}
    if values["ratio"] is not None:
        values["ratio"] = struct.pack("d", values["ratio"])
    if values["data"] is not None:
        values["data"] = bytes(values["data"])
    return values


def lenience_of_java(expected: Any, row: dict[str, Any]) -> bool:
    """Whether a difference comes from the lenience of Avro's Java decoder.

    In bytes that no encoder writes, this decoder differs in three ways. It cuts a number of more
    than 32 bits where the schema says int. It takes every byte except 1 for false. If a field is
    not read and has a negative length, it steps backwards.
    """
    if isinstance(expected, str):
        return "Expected -" in expected or "list index out of range" in expected
    _, values = expected
    differing = {name for name in FIELDS if row[name] != values[name]}
    if differing == {"days"}:
        return bool(row["days"] == [None if day is None else cut(day) for day in values["days"]])
    return differing == {"flag"} or (differing == {"id"} and row["id"] == cut(values["id"]))


def cut(number: int) -> int:
    """A number after its zig-zag form is cut to 32 bits."""
    zigzag = ((number << 1) ^ (number >> 63)) & 0xFFFFFFFF
    return (zigzag >> 1) ^ -(zigzag & 1)


@pytest.mark.parametrize("seed", [20_261])
def test_no_damaged_message_is_misread_or_passed_over(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    topic = sound(rng)
    originals = [value for _, value in topic.records if value is not None]
    topic.records, made = [], {}
    for number in range(MESSAGES):
        mutation = MUTATIONS[number % len(MUTATIONS)]
        message = mutation(rng, rng.choice(originals), rng.choice(originals))
        made[topic.raw(message)] = (mutation.__name__, message)

    began = time.monotonic()
    changes = decode(
        topic.frame(spark, slices=2),
        topic.parsed(),
        TABLE,
        EventRules(PLACEHOLDER),
        ingested_at=EPOCH.replace(tzinfo=timezone.utc),
    ).persist()
    found = {row["_cdc_offset"]: row for row in changes.collect()}
    summary = summarize(changes)
    took = time.monotonic() - began
    assert took < BOUND_S
    assert summarize(changes, most=FEW) == summary

    reader, outcomes, wrong = Reader(topic), Counter[tuple[str, bool]](), []
    for offset, (mutation, message) in made.items():
        row = found.pop(offset)
        outcomes[mutation, row[PROBLEM] is None] += 1
        if row[PROBLEM] is not None:
            assert row["_cdc_op"] is None
            continue
        try:
            expected = reader.row(message)
        except (PermanentError, ValueError, ArithmeticError) as error:
            wrong.append((mutation, message.hex(), repr(error), shown(row)))
            continue
        if (row["_cdc_op"], shown(row)) != expected:
            wrong.append((mutation, message.hex(), expected, shown(row)))
    misread = [one for one in wrong if not lenience_of_java(one[2], one[3])]
    assert not misread, f"{len(misread)} misread, as {misread[0]}"
    assert len(wrong) <= MESSAGES // 500
    assert not found
    readable = sum(count for (_, fine), count in outcomes.items() if fine)
    assert outcomes["untouched", False] == 0
    assert {name for name, fine in outcomes if not fine} == {m.__name__ for m in MUTATIONS} - {
        "untouched"
    }
    # Nothing is dropped between decoding and folding: each record is counted on one side.
    assert sum(summary.counts.values()) == readable
    assert summary.problems == MESSAGES - readable
    assert len(problems(changes, MESSAGES)) == summary.problems
    rows = fold(changes, TABLE, unavailable=summary.unavailable)
    keys = {shown(row)["id"] for row in changes.filter("_cdc_op IN ('c', 'r', 'u', 'd')").collect()}
    assert rows.count() == len(keys)
    assert UNAVAILABLE in changes.columns
    changes.unpersist()
