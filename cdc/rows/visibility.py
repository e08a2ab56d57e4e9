"""Finds the events whose transactions are not visible in a snapshot of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.rows.columns import TRANSACTION
from cdc.rows.decode import constant

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

_LOWER_BITS, _SIGN = (1 << 32) - 1, 1 << 31


def unseen(snapshot: str) -> SparkColumn:
    """Return whether an event's transaction is not visible in a snapshot.

    Events have the lower 32 bits of a transaction's id, which the server orders in a circle.

    Args:
        snapshot: The text of a ``pg_snapshot``; empty for a source that has none.
    """
    if not snapshot:
        return F.lit(False)
    _, end, running = snapshot.split(":")
    ids = [int(xid) & _LOWER_BITS for xid in (end, *filter(None, running.split(",")))]
    open_then = F.array(*map(F.lit, ids)).cast("array<bigint>")
    began_later = (F.col(TRANSACTION) - constant(F.lit(ids[0]).cast("bigint"))).bitwiseAND(_SIGN)
    return (began_later == 0) | F.array_contains(open_then, F.col(TRANSACTION))
