"""The Arrow type of each Avro type that Hudi writes for a lake type."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tributary_reader import ReadError
from tributary_reader.arrow_schema import HUDI_COLUMNS, arrow_schema

DECIMAL = {"type": "fixed", "name": "f", "size": 5, "logicalType": "decimal"}
TYPES: list[tuple[Any, pa.DataType]] = [
    ("string", pa.string()),
    ("bytes", pa.binary()),
    ("boolean", pa.bool_()),
    ("int", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", tz="UTC")),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    ({**DECIMAL, "precision": 10, "scale": 2}, pa.decimal128(10, 2)),
    ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.field("element", pa.int32()))),
]


def avro(kind: Any) -> str:
    return json.dumps({"type": "record", "fields": [{"name": "c", "type": ["null", kind]}]})


@pytest.mark.parametrize(("kind", "wanted"), TYPES, ids=str)
def test_each_type_of_a_lake_column(kind: Any, wanted: pa.DataType) -> None:
    assert arrow_schema(avro(kind), meta=False) == pa.schema([pa.field("c", wanted)])


def test_hudis_own_columns_come_first() -> None:
    assert arrow_schema(avro("int"), meta=True).names == [*HUDI_COLUMNS, "c"]


def test_a_type_that_no_lake_table_has_is_named() -> None:
    with pytest.raises(ReadError, match="has no Arrow type for the Avro type"):
        arrow_schema(avro({"type": "map", "values": "int"}), meta=False)
