"""Finds the events of transactions that were not visible when PostgreSQL's catalog was read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.rows.columns import TRANSACTION
from cdc.rows.decode import constant

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

_LOWER_BITS, _SIGN = (1 << 32) - 1, 1 << 31


@dataclass(frozen=True)
class Reading:
    """The transactions that were visible when PostgreSQL's catalog was read.

    Args:
        snapshot: The ``pg_snapshot`` of the query that read the catalog, as a string. If the string
            is empty, all transactions count as visible. It is empty, for example, for a source
            whose log has all DDL statements.
        still_open: The lower 32 bits of the ids of the transactions that were open at a moment
            between the batch's last event and the reading of the catalog; None if these ids are not
            known.
    """

    snapshot: str = ""
    still_open: Collection[int] | None = None


def is_not_visible(reading: Reading) -> SparkColumn:
    """Return a Spark condition: the event's transaction was not visible when the catalog was read.

    An event has the lower 32 bits of its transaction's id. The server orders these numbers in a
    circle, so a transaction whose id is more than 2^31 ids old looks like a transaction that began
    after the catalog was read. Only ``still_open`` distinguishes the two.
    """
    if not reading.snapshot:
        return F.lit(False)
    if reading.still_open is not None:
        return F.col(TRANSACTION).isin(*reading.still_open)
    _, end, running = reading.snapshot.split(":")
    ids = [int(xid) & _LOWER_BITS for xid in (end, *filter(None, running.split(",")))]
    open_then = F.array(*map(F.lit, ids)).cast("array<bigint>")
    began_later = (F.col(TRANSACTION) - constant(F.lit(ids[0]).cast("bigint"))).bitwiseAND(_SIGN)
    return (began_later == 0) | F.array_contains(open_then, F.col(TRANSACTION))
