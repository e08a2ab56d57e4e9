"""Debezium change events as a converter writes them, made with fastavro for decoder tests."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import fastavro
from pyspark.sql import DataFrame, SparkSession

from schemas.avro import DebeziumSchema

PLACEHOLDER = "__tributary_unavailable_7c1f0f0e__"

STRING: Any = "string"
DECIMAL: Any = "string"
MICROS: Any = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
ZONED: Any = {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}
DATE: Any = {"type": "int", "connect.name": "io.debezium.time.Date"}

_SOURCE = [
    {"name": "version", "type": "string"},
    {"name": "connector", "type": "string"},
    {"name": "name", "type": "string"},
    {"name": "ts_ms", "type": "long"},
    {"name": "snapshot", "type": ["null", "string"], "default": None},
    {"name": "db", "type": "string"},
    {"name": "sequence", "type": ["null", "string"], "default": None},
    {"name": "ts_us", "type": ["null", "long"], "default": None},
    {"name": "schema", "type": "string"},
    {"name": "table", "type": "string"},
    {"name": "txId", "type": ["null", "long"], "default": None},
    {"name": "lsn", "type": ["null", "long"], "default": None},
]


def sent_at(offset: int) -> datetime:
    """The Kafka timestamp that a test record at an offset has."""
    return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=offset)


def envelope(
    fields: Mapping[str, Any],
    *,
    required: Sequence[str] = ("id",),
    defaults: Mapping[str, Any] | None = None,
) -> str:
    """The Avro schema of a change event with these columns."""
    defaults = defaults or {}
    columns = [
        {"name": name, "type": kind}
        if name in required
        else {"name": name, "type": [kind, "null"], "default": defaults[name]}
        if name in defaults
        else {"name": name, "type": ["null", kind], "default": None}
        for name, kind in fields.items()
    ]
    row = {"type": "record", "name": "Value", "fields": columns}
    source = {"type": "record", "name": "Source", "namespace": "s", "fields": _SOURCE}
    return json.dumps(
        {
            "type": "record",
            "name": "Envelope",
            "namespace": "shop.public.orders",
            "fields": [
                {"name": "before", "type": ["null", row], "default": None},
                {"name": "after", "type": ["null", "Value"], "default": None},
                {"name": "source", "type": source},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": ["null", "long"], "default": None},
            ],
        }
    )


@dataclass
class Topic:
    """Records of one partition, and the schemas they were written with."""

    schemas: dict[int, str] = field(default_factory=dict)
    records: list[tuple[int, bytes | None]] = field(default_factory=list)
    next_offset: int = 100
    lsn: int = 0x1000

    def register(self, schema_id: int, fields: Mapping[str, Any], **options: Any) -> None:
        self.schemas[schema_id] = envelope(fields, **options)

    def raw(self, value: bytes | None) -> int:
        self.records.append((self.next_offset, value))
        self.next_offset += 1
        return self.next_offset - 1

    def tombstone(self) -> int:
        return self.raw(None)

    def event(
        self,
        op: str,
        after: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        *,
        schema_id: int | None = None,
        sequence: str | None = None,
        ts_us: int | None = None,
    ) -> int:
        schema_id = schema_id if schema_id is not None else max(self.schemas)
        self.lsn += 16
        value = {
            "before": before,
            "after": after,
            "op": op,
            "ts_ms": 1,
            "source": {
                "version": "3.7.0.Final",
                "connector": "postgresql",
                "name": "shop",
                "ts_ms": (ts_us or self.next_offset * 1000) // 1000,
                "ts_us": ts_us or self.next_offset * 1000,
                "db": "shop",
                "schema": "public",
                "table": "orders",
                "sequence": sequence or f'["{self.lsn - 8}","{self.lsn}"]',
                "txId": self.lsn,
                "lsn": self.lsn,
            },
        }
        return self.raw(self.encode(schema_id, value))

    def encode(self, schema_id: int, value: Any) -> bytes:
        out = io.BytesIO()
        out.write(struct.pack(">bI", 0, schema_id))
        schema = fastavro.parse_schema(json.loads(self.schemas[schema_id]))
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    def insert(self, **row: Any) -> int:
        return self.event("c", row)

    def update(self, **row: Any) -> int:
        return self.event("u", row)

    def delete(self, **key: Any) -> int:
        """Add a delete under REPLICA IDENTITY DEFAULT: the row before it has only the key."""
        offset = self.event("d", None, key)
        self.tombstone()
        return offset

    def parsed(self) -> dict[int, DebeziumSchema]:
        return {number: DebeziumSchema.parse(text) for number, text in self.schemas.items()}

    def frame(self, spark: SparkSession, *, slices: int = 1) -> DataFrame:
        rows = [(0, offset, value, sent_at(offset)) for offset, value in self.records]
        schema = "`partition` int, `offset` bigint, value binary, `timestamp` timestamp"
        return spark.createDataFrame(rows, schema).repartition(slices)


@dataclass
class Binlog(Topic):
    """Records of one partition, as the connectors of MySQL and MariaDB write them.

    Args:
        gtid: The GTID of the transaction to which the next events belong.
        pos: The position of the next events' statement in the binlog.
        row: The number of the next event's row in its statement.
        order: The number of the last event within its transaction, all of whose events are of
            this table.
    """

    gtid: str | None = "0-1-1"
    pos: int = 4
    row: int = 0
    order: int = 0

    def register(self, schema_id: int, fields: Mapping[str, Any], **options: Any) -> None:
        super().register(schema_id, fields, **options)
        schema = json.loads(self.schemas[schema_id])
        (source,) = (one for one in schema["fields"] if one["name"] == "source")
        source["type"]["fields"] += [
            {"name": "file", "type": "string"},
            {"name": "pos", "type": "long"},
            {"name": "row", "type": "int"},
            {"name": "gtid", "type": ["null", "string"], "default": None},
        ]
        block = {
            "type": "record",
            "name": "block",
            "namespace": "event",
            "fields": [
                {"name": "id", "type": "string"},
                {"name": "total_order", "type": "long"},
                {"name": "data_collection_order", "type": "long"},
            ],
        }
        schema["fields"].append({"name": "transaction", "type": ["null", block], "default": None})
        self.schemas[schema_id] = json.dumps(schema)

    def encode(self, schema_id: int, value: Any) -> bytes:
        place = {"file": "binlog.000001", "pos": self.pos, "row": self.row, "gtid": self.gtid}
        self.row += 1
        self.order += 1
        block = {"id": self.gtid or "", "total_order": self.order}
        block["data_collection_order"] = self.order
        source = {**value["source"], **place}
        return super().encode(schema_id, {**value, "source": source, "transaction": block})

    def begin(self, gtid: str | None, pos: int) -> None:
        """Let the next events belong to this transaction, beginning at its first row."""
        self.gtid, self.pos, self.row, self.order = gtid, pos, 0, 0
