"""A topic of DDL statements as a connector of a binlog writes it, for tests without servers."""

from __future__ import annotations

import io
import json
from datetime import datetime, timedelta, timezone
from typing import cast

import fastavro

from cdc.debezium import CaptureNames
from cdc.kafka import KafkaRecord
from schemas.registry import SchemaRegistry

_TEXT = ["null", "string"]
_NUMBER = ["null", "int"]
TABLE = {
    "type": "record",
    "name": "Table",
    "fields": [
        {
            "name": "columns",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Column",
                    "fields": [
                        {"name": "name", "type": "string"},
                        {"name": "typeName", "type": "string"},
                        {"name": "length", "type": _NUMBER},
                        {"name": "scale", "type": _NUMBER},
                        {"name": "charsetName", "type": _TEXT},
                        {"name": "optional", "type": ["null", "boolean"]},
                        {"name": "position", "type": "int"},
                        {"name": "enumValues", "type": ["null", {"type": "array", "items": _TEXT}]},
                    ],
                },
            },
        },
    ],
}


SCHEMA = {
    "type": "record",
    "name": "Reported",
    "fields": [
        {"name": "ddl", "type": "string"},
        {"name": "databaseName", "type": _TEXT},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "gtid", "type": _TEXT},
                    {"name": "snapshot", "type": _TEXT},
                    {"name": "file", "type": "string"},
                    {"name": "pos", "type": "long"},
                ],
            },
        },
        {
            "name": "tableChanges",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Change",
                    "fields": [
                        {"name": "type", "type": "string"},
                        {"name": "id", "type": "string"},
                        {"name": "table", "type": ["null", TABLE]},
                    ],
                },
            },
        },
    ],
}


def second(number: int) -> datetime:
    return datetime(2026, 1, 2, tzinfo=timezone.utc) + timedelta(seconds=number)


class Kafka:
    """A topic with these records, from offset 7 on, one each second."""

    def __init__(self, values: list[bytes]) -> None:
        self.values, self.id, self.asked = values, "first", list[tuple[int, int]]()
        self.hidden = self.ends_with = 0
        self.first, self.sent = 7, dict[int, datetime]()

    def topic_id(self, _: str) -> str:
        return self.id

    def start_offsets(self, _: str) -> dict[int, int]:
        return {0: self.first}

    def high_watermarks(self, _: str) -> dict[int, int]:
        return {0: 7 + len(self.values)}

    def stable_offsets(self, _: str) -> dict[int, int]:
        """The end of the readable records: now ``hidden`` are hidden, later ``ends_with``."""
        hidden, self.hidden = self.hidden, self.ends_with
        return {0: 7 + len(self.values) - hidden}

    def read(self, _: str, __: int, start: int, end: int) -> list[KafkaRecord]:
        self.asked.append((start, end))
        found = [
            KafkaRecord("shop", 0, at, None, one, self.sent.get(at, second(at)))
            for at, one in enumerate(self.values, 7)
        ]
        return [record for record in found if start <= record.offset < end]


class Registry:
    def schema(self, _: int) -> str:
        return json.dumps(SCHEMA)


CAPTURE = CaptureNames("shop", "default", None, None, "c", "shop", "mysql")


REGISTRY = cast("SchemaRegistry", Registry())


def written(ddl: str, *tables: str, database: str | None = "shop", **source: object) -> bytes:
    """The record of one statement, which changes these tables of ``shop``."""
    columns = [
        dict(zip(("name", "typeName", "length", "optional", "position"), one, strict=True))
        for one in (("v", "VARCHAR", 20, True, 2), ("id", "INT", None, False, 1))
    ]
    changes = [
        {"type": "ALTER", "id": f'"shop"."{name}"', "table": {"columns": columns}}
        for name in tables
    ]
    event = {
        "ddl": ddl,
        "databaseName": database,
        "source": {"gtid": None, "snapshot": "false", "file": "", "pos": 4, **source},
        "tableChanges": changes,
    }
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(SCHEMA), event)
    return b"\0\0\0\0\1" + body.getvalue()


def value(ddl: str) -> bytes:
    """A record with one statement, which names no table."""
    return written(ddl, database=None)
