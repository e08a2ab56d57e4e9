"""The partition columns of a lake table, and which source columns can give their values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cdc.rows.columns import is_reserved
from schemas.errors import SchemaError
from schemas.table import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.config.partitions import PartitionField
    from schemas.table import TableSchema

_BY_VALUE = re.compile(r"string|boolean|tinyint|smallint|int|bigint|date|decimal\(\d+,0\)")
"""The lake types that a partition column can have.

Hudi names a partition by Java's text of the value, which is not suitable for other types. The text
of a timestamp depends on the JVM's time zone, the texts of equal floats can differ, the text of
bytes differs each time, and the text of a decimal depends on its scale.
"""
_BY_HASH = re.compile(rf"{_BY_VALUE.pattern}|binary")
_TIMES = ("timestamp", "timestamp_ntz")


def partition_columns(schema: TableSchema, fields: Sequence[PartitionField]) -> tuple[Column, ...]:
    """Return a lake table's partition columns.

    Raises:
        SchemaError: A column is missing, or its type cannot be used for the partition. Or the
            lake's column for an expression has a reserved name, or the name of another column.
    """
    seen = {column.name.lower(): column.name for column in schema.columns}
    found = []
    for field in fields:
        column = partition_column(schema, field)
        found.append(column)
        if not field.derived:
            continue
        name = column.name
        problem = "its prefix is reserved in the lake" if is_reserved(name) else ""
        if name.lower() in seen:
            problem = f"the table has the column {seen[name.lower()]!r}"
        if problem:
            raise SchemaError(
                f"table {schema.table} cannot be partitioned by {field}, for which the lake gets"
                f" the column {name!r}: {problem}",
                remedy="Give the entry of partition_by another name, with its key name; or leave"
                " the table's column out with columns.exclude.",
                table=schema.table,
                field="partition_by",
            )
        seen[name.lower()] = name
    return tuple(found)


def partition_column(schema: TableSchema, field: PartitionField) -> Column:
    """Return the lake's column for one partition of a table.

    Raises:
        SchemaError: The column is missing, or its type cannot be used for this partition.
    """
    column = schema.column(field.column)
    kind, table = column.lake_type, schema.table
    if field.of_time:
        if kind not in _TIMES and (kind != "date" or field.by == "hour"):
            what = "a time" if field.by == "hour" else "a time or a date"
            raise SchemaError(
                f"table {table} cannot be partitioned by {field}: column {column.name!r} has the"
                f" type {kind} in the lake, which is not {what}",
                remedy="In partition_by, take hours of times only, and days, months and years of"
                " times or dates.",
                table=table,
                field="partition_by",
            )
    elif not (_BY_HASH if field.derived else _BY_VALUE).fullmatch(kind):
        shown = f"{field}: its column" if field.derived else "column"
        raise SchemaError(
            f"table {table} cannot be partitioned by {shown} {column.name!r}, which has"
            f" the type {kind} in the lake: Hudi names the folders of such values in"
            " more than one way, so a run would not find the rows of a copy",
            remedy="In partition_by, name columns with texts, booleans, integers or dates; of a"
            " time, take the hour, day, month or year.",
            table=table,
            field="partition_by",
        )
    if not field.derived:
        return column
    return Column(field.lake_name, str(field), field.lake_type, nullable=column.nullable)
