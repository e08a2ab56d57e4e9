"""Old rows of PostgreSQL's log that lack the key of the table.

The log has the columns of the replica identity from an old row. For each other column the connector
sends a stand-in. While an index without the key is the identity (REPLICA IDENTITY USING INDEX), the
key itself is a stand-in: a delete of some row looks like one of the row whose key is 0.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from cdc.rows.semantic_types import literal, quoted

if TYPE_CHECKING:
    from schemas.avro import DebeziumField, DebeziumSchema

_ZERO_TEXT = "^(|0([.]0+)?|[{][}]|P0Y0M0DT0H0M0S|(1970-01-01T)?00:00:00([.]0+)?Z)$"
"""The texts that the connector sends for an empty text, and for zero of other types."""
_ZEROES = {
    "boolean": "= FALSE",
    "int": "= 0",
    "long": "= 0",
    "float": "= 0",
    "double": "= 0",
    "bytes": "= X''",
    "array": "= array()",
    "string": f"RLIKE {literal(_ZERO_TEXT)}",
}


def lacks_key(
    event: str, schema: DebeziumSchema, key: Collection[str], identity: Collection[str]
) -> str:
    """Return Spark SQL that is true if an event's old row lacks the key of the table.

    It does if each column of the key is a stand-in, and a column that is not of the replica
    identity has a value. A row whose key really is 0 has stand-ins in all other columns.

    Args:
        event: The decoded event.
        schema: The writers' schema.
        key: The columns of the table's key.
        identity: The columns that the log has of an old row.
    """
    tests = {
        one.column: _stand_in(f"{event}.before.{quoted(one.name)}", one) for one in schema.before
    }
    of_key = [tests.get(name) for name in key]
    others = [test for name, test in tests.items() if test and name not in {*key, *identity}]
    if not others or not of_key or None in of_key:
        return "FALSE"
    zero, empty = " AND ".join(filter(None, of_key)), " AND ".join(others)
    return f"({event}.before IS NOT NULL AND {zero} AND NOT ({empty}))"


def _stand_in(raw: str, field: DebeziumField) -> str | None:
    """Return Spark SQL that is true for a stand-in; None for a type whose stand-in is not known."""
    zero, default = _ZEROES.get(field.avro_type), field.default
    if zero is None or (field.connect_name or "").endswith("Decimal"):
        return None
    tests = [f"{raw} IS NULL", f"{raw} {zero}"]
    if default is not None:
        if field.avro_type == "string":
            tests.append(f"{raw} = {literal(str(default))}")
        elif field.avro_type in ("boolean", "int", "long"):
            tests.append(f"{raw} = {json.dumps(default)}")
        else:
            return None
    return f"({' OR '.join(tests)})"
