"""Converts the Avro schema in a table's commits to an Arrow schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tributary_reader.errors import ReadError
from tributary_reader.storage import pyarrow_module

if TYPE_CHECKING:
    import pyarrow as pa

HUDI_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
"""The columns that Hudi adds to each row.

All of them are strings.
"""


def arrow_schema(avro: str, *, meta: bool) -> pa.Schema:
    """Return the Arrow schema that corresponds to a table's Avro schema.

    Args:
        avro: The Avro schema as JSON.
        meta: Whether to include Hudi's own columns, which then come first.

    Raises:
        ReadError: A column has a type that no lake table has.
    """
    pa = pyarrow_module()
    own = [pa.field(name, pa.string()) for name in HUDI_COLUMNS] if meta else []
    fields = json.loads(avro)["fields"]
    return pa.schema([*own, *(pa.field(one["name"], _type(one["type"])) for one in fields)])


def _type(avro: Any) -> pa.DataType:
    """Return the Arrow type of an Avro type (parsed JSON), or of its union with null."""
    pa = pyarrow_module()
    if isinstance(avro, list):
        (avro,) = (one for one in avro if one != "null")
    if isinstance(avro, str):
        avro = {"type": avro}
    kind, logical = avro["type"], avro.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(avro["precision"], avro["scale"])
    if kind == "array":
        return pa.list_(pa.field("element", _type(avro["items"])))
    simple: Mapping[tuple[str, str | None], Any] = {
        ("string", None): pa.string(),
        ("bytes", None): pa.binary(),
        ("boolean", None): pa.bool_(),
        ("int", None): pa.int32(),
        ("long", None): pa.int64(),
        ("float", None): pa.float32(),
        ("double", None): pa.float64(),
        ("int", "date"): pa.date32(),
        ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
        ("long", "local-timestamp-micros"): pa.timestamp("us"),
    }
    found = simple.get((kind, logical))
    if found is None:
        raise ReadError(
            f"the reader has no Arrow type for the Avro type {json.dumps(avro)}",
            remedy="Another program changed the table's columns. Read it with Spark.",
        )
    return found
