"""Recognizes stand-ins: PostgreSQL's connector sends a stand-in for a value that it does not have.

The connector sends a stand-in for a column that it regards as NOT NULL. The stand-in is the
column's default. For a column without a default, the stand-in is 0, FALSE, the start of 1970, an
empty string or an empty array.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cdc.rows.semantic_types import literal

if TYPE_CHECKING:
    from schemas.avro import DebeziumField

_ZERO_TEXT = "^(|0([.]0+)?|[{][}]|P0Y0M0DT0H0M0S|(1970-01-01T)?00:00:00([.]0+)?Z)$"
"""Pattern of the stand-ins that are sent as text: for texts, numbers, intervals and times."""
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


def stand_in_test(raw: str, field: DebeziumField) -> str | None:
    """Return Spark SQL that is true if an event's value equals the stand-in of its column.

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema.

    Returns:
        The expression, or None if the stand-in of the field's type is not known.
    """
    zero, default = _ZEROES.get(field.avro_type), field.default
    if zero is None or (field.connect_name or "").endswith("Decimal"):
        return None
    if default is None:
        return f"{raw} {zero}"
    if field.avro_type == "string":
        return f"({raw} {zero} OR {raw} = {literal(str(default))})"
    if field.avro_type in ("boolean", "int", "long"):
        return f"({raw} {zero} OR {raw} = {json.dumps(default)})"
    return None


def replaces_null_test(raw: str, field: DebeziumField) -> str:
    """Return Spark SQL that is true if an event's value could have been sent in place of a NULL.

    If the stand-in of the field's type is not known, the SQL is true for every value except NULL.

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema. It does not allow null.
    """
    return stand_in_test(raw, field) or f"{raw} IS NOT NULL"
