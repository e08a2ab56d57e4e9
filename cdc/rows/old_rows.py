"""Finds events of PostgreSQL whose old row lacks the key of the table.

From a row before a change, the WAL has only the columns of the replica identity. For each other
column, the connector sends a stand-in. The identity can be an index without the key (REPLICA
IDENTITY USING INDEX). Then the key in the event is a stand-in, and the delete of any row looks like
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
    """Return Spark SQL that is true if an event's old row lacks the key of the table.

    Stand-ins in all key columns are no proof, since a real key can have the same values, such as 0.
    But if an old row has the key, each column outside of the key and of the replica identity has a
    stand-in. So an old row lacks the key if each key column has a stand-in, and if a column
    outside of the key and of the replica identity has a value other than its stand-in.

    Args:
        event: Spark SQL of the decoded event, a struct.
        schema: The schema with which the event was written.
        key: Names of the columns of the table's key.
        identity: Names of the columns of the replica identity, which the WAL has of an old row.
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
    """Return Spark SQL that is true if an old value is NULL or a stand-in.

    Args:
        raw: Spark SQL of the decoded old value.
        field: The value's field in the writer's schema.

    Returns:
        The expression, or None if the stand-in of the value's type is not known.
    """
    test = stand_in_test(raw, field)
    return None if test is None else f"({raw} IS NULL OR {test})"
