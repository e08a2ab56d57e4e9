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
    """Return a batch's changes that can have changed the same rows as the quarantined records.

    These are all changes of each key that a quarantined record has changed.

    A replay must not apply the other changes again. The lake already has these changes, and can
    have values that the events lack: values that a run has read from a row that the source no
    longer has, and values of dropped columns.

    Args:
        changes: The batch in the normal form of `cdc.rows.decode`.
        places: Partition and offset of each quarantined record that is applied.
        table: The table, which has a key.
    """
    rows = changes.filter(F.col(OP).isin("c", "r", "u", "d"))
    by_partition: dict[int, list[int]] = {}
    for partition, offset in places:
        by_partition.setdefault(partition, []).append(offset)
    tests = (
        (F.col(PARTITION) == partition) & F.col(OFFSET).isin(offsets)
        for partition, offsets in by_partition.items()
    )
    applied = rows.filter(reduce(or_, tests, F.lit(False)))
    keys = applied.select(*(quoted(name) for name in table.key)).distinct()
    found = rows.join(F.broadcast(keys), list(table.key), "leftsemi")
    return found.select(*(quoted(name) for name in changes.columns))
