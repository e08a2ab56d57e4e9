"""What a connector's topic of definitions tells, read from the records as they are."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any, cast

import fastavro
import pytest

from cdc.debezium import CaptureNames, DefinitionChange, KnownColumn, definition_changes
from cdc.kafka import KafkaAdmin
from cdc.log.binlog_position import BinlogPosition
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
    "name": "Told",
    "fields": [
        {"name": "ddl", "type": "string"},
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


def told(file: str, *, gtid: str | None = None, at: int = 300) -> list[DefinitionChange]:
    """What is read of one RENAME TABLE of two tables, which begins at byte 300."""
    columns = [
        dict(zip(("name", "typeName", "length", "optional", "position"), one, strict=True))
        for one in (("v", "VARCHAR", 20, True, 2), ("id", "INT", None, False, 1))
    ]
    changes = [
        {"type": "ALTER", "id": f'"shop"."{name}"', "table": {"columns": columns}}
        for name in ("orders", "former")
    ]
    body, value = (
        io.BytesIO(),
        {
            "ddl": "RENAME TABLE orders TO former, swapped TO orders",
            "source": {"gtid": gtid, "snapshot": "false", "file": file, "pos": at},
            "tableChanges": changes,
        },
    )
    fastavro.schemaless_writer(body, fastavro.parse_schema(SCHEMA), value)
    record = SimpleNamespace(value=b"\0\0\0\0\1" + body.getvalue(), offset=7)

    class Kafka:
        def read(self, *_: Any) -> list[SimpleNamespace]:
            return [record]

    class Registry:
        def schema(self, _: int) -> str:
            return json.dumps(SCHEMA)

    capture = CaptureNames("shop", "default", "c", "c", "c", "shop", "mysql")
    kafka, registry = cast("KafkaAdmin", Kafka()), cast("SchemaRegistry", Registry())
    return list(definition_changes(kafka, registry, capture, 0, 8))


def test_a_statement_is_told_with_a_place_that_covers_its_first_byte() -> None:
    found = told("binlog.000003")
    assert [str(change.table) for change in found] == ["shop:shop.orders", "shop:shop.former"]
    for change in found:
        place = BinlogPosition.parse(change.place or "")
        assert not BinlogPosition("binlog.000003", 300).reaches(place)
        assert BinlogPosition("binlog.000003", 301).reaches(place)
        assert change.gtid is None
        assert [column.name for column in change.columns] == ["id", "v"]
        assert change.columns[1] == KnownColumn("v", "VARCHAR", 20, None, None, True)


@pytest.mark.parametrize(("file", "place"), [("", None), ("binlog.000003", "binlog.000003:301")])
def test_a_snapshot_of_definitions_may_name_no_file(file: str, place: str | None) -> None:
    assert {change.place for change in told(file, gtid="0-1-5")} == {place}
