"""Splits an update of a lake table's key into a delete and an insert.

The split is needed only for a lake table whose key is not the connector's key. The connector itself
sends an update of its own key as a delete and an insert.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.rows.columns import OP, PROBLEM, UNAVAILABLE, UNCLEAR, scratch
from cdc.rows.semantic_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from schemas.table import TableSchema

FORMER, _GONE = scratch("former"), scratch("gone")


def changed_key(event: str, former: Mapping[str, str], values: Mapping[str, str]) -> str:
    """Return Spark SQL of a struct with the key before an update; NULL if the key has not changed.

    Args:
        event: Spark SQL of the decoded event.
        former: By key column, Spark SQL of the value before the change. The columns are in the
            order of the key.
        values: By column, Spark SQL of the value after the change.
    """
    differs = " OR ".join(f"{sql} <> {values[name]}" for name, sql in former.items())
    return (
        f"CASE WHEN {event}.op = 'u' AND ({differs}) THEN struct({', '.join(former.values())}) END"
    )


def key_type(table: TableSchema) -> str:
    """Return the Spark SQL type of an event's former key: a struct with the key's lake types."""
    parts = (f"k{n}: {table.column(name).lake_type}" for n, name in enumerate(table.key))
    return f"STRUCT<{', '.join(parts)}>" if table.key else "STRUCT<k: INT>"


def split(changes: DataFrame, table: TableSchema) -> DataFrame:
    """Return the changes; an update of the key becomes a delete of the former key and an insert."""
    moved = F.col(FORMER).isNotNull() & F.col(PROBLEM).isNull()
    halves = F.when(moved, F.array(F.lit(True), F.lit(False))).otherwise(F.array(F.lit(False)))
    gone = F.col(_GONE)
    keys = {name: F.when(gone, F.col(f"{FORMER}.k{n}")) for n, name in enumerate(table.key)}
    values = [column.name for column in table.columns if column.name not in keys]
    changed = {
        **{name: key.otherwise(F.col(quoted(name))) for name, key in keys.items()},
        **{name: F.when(~gone, F.col(quoted(name))) for name in (*values, UNAVAILABLE, UNCLEAR)},
        OP: F.when(gone, "d").when(moved, "c").otherwise(F.col(OP)),
    }
    return changes.select("*", F.explode(halves).alias(_GONE)).select(
        *(
            changed.get(name, F.col(quoted(name))).alias(name)
            for name in changes.columns
            if name != FORMER
        )
    )
