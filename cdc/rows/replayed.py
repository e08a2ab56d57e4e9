"""Selects the changes of a batch that a replay of quarantined records applies."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.rows.columns import OFFSET, OP, PARTITION
from cdc.rows.semantic_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from schemas.table import TableSchema


def replayed(
    changes: DataFrame, places: Collection[tuple[int, int]], table: TableSchema
) -> DataFrame:
    """Return the decoded changes whose keys are also keys of the quarantined records.

    A replay must not apply the changes of other keys again. The lake already has these changes, and
    can have values that the events of these changes lack: values of dropped columns, and values
    that a run once read from the source, where the row is now deleted.

    Args:
        changes: The batch in the normal form of `cdc.rows.decode`.
        places: Partition and offset of each quarantined record that is applied.
        table: The table, which has a key.
    """
    rows = changes.filter(F.col(OP).isin("c", "r", "u", "d"))
    keys = at_places(rows, places).select(*(quoted(name) for name in table.key)).distinct()
    found = rows.join(F.broadcast(keys), list(table.key), "leftsemi")
    return found.select(*(quoted(name) for name in changes.columns))


def at_places(changes: DataFrame, places: Collection[tuple[int, int]]) -> DataFrame:
    """Return the decoded changes of a batch whose partition and offset are among ``places``.

    Args:
        changes: The batch in the normal form of `cdc.rows.decode`.
        places: Partition and offset of each change.
    """
    by_partition: dict[int, list[int]] = {}
    for partition, offset in places:
        by_partition.setdefault(partition, []).append(offset)
    tests = (
        (F.col(PARTITION) == partition) & F.col(OFFSET).isin(offsets)
        for partition, offsets in by_partition.items()
    )
    return changes.filter(reduce(or_, tests, F.lit(False)))
