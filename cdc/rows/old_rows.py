"""Finds events of PostgreSQL whose row before the change lacks the table's key.

The WAL has only the replica identity's columns of a row before a change. For each other column, the
connector sends a stand-in. The replica identity can be an index without the key (REPLICA IDENTITY
USING INDEX). Then the event has stand-ins in place of the key, and the delete of any row looks like
the delete of the row whose key is 0.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from cdc.rows.semantic_types import quoted
from cdc.rows.stand_ins import stand_in_test

if TYPE_CHECKING:
    from schemas.avro import DebeziumField, DebeziumSchema


def lacks_key(
    event: str, schema: DebeziumSchema, key: Collection[str], identity: Collection[str]
) -> str:
    """Return Spark SQL that is true if an event's row before the change lacks the table's key.

    Stand-ins in all key columns are no proof, since a real key can have the same values, such as 0.
    But if a row before the change has the key, each column that is neither in the key nor in the
    replica identity has a stand-in. So the row lacks the key if two conditions are true: each key
    column has a stand-in, and a column that is neither in the key nor in the replica identity has
    another value than its stand-in.

    Args:
        event: Spark SQL of the decoded event, a struct.
        schema: The schema with which the event was written.
        key: Names of the columns of the table's key.
        identity: Names of the columns of the replica identity.
    """
    tests = {
        one.column: _stand_in_or_null_test(f"{event}.before.{quoted(one.name)}", one)
        for one in schema.before
    }
    of_key = [tests.get(name) for name in key]
    others = [test for name, test in tests.items() if test and name not in {*key, *identity}]
    if not others or not of_key or None in of_key:
        return "FALSE"
    zero, empty = " AND ".join(filter(None, of_key)), " AND ".join(others)
    return f"({event}.before IS NOT NULL AND {zero} AND NOT ({empty}))"


def _stand_in_or_null_test(raw: str, field: DebeziumField) -> str | None:
    """Return Spark SQL that is true if an event's old value is NULL or a stand-in.

    Args:
        raw: Spark SQL of the decoded old value.
        field: The value's field in the writer's schema.

    Returns:
        The expression, or None if the stand-in of the value's type is not known.
    """
    test = stand_in_test(raw, field)
    return None if test is None else f"({raw} IS NULL OR {test})"
