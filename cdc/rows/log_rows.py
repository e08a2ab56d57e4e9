"""Rows of a table without a key, from its events: each inserted row once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from cdc.rows.columns import (
    DECODED_ONLY,
    OFFSET,
    OP,
    ORDER,
    PARTITION,
    POSITION,
    PROBLEM,
    ROW,
    TRANSACTION,
    scratch,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TURN = scratch("turn")


def inserted(
    changes: DataFrame,
    *,
    after_offset: int | None = None,
    from_binlog: bool = False,
    beyond: Reached | None = None,
) -> DataFrame:
    """Return the rows that a batch of a log inserts, each with a place that identifies it.

    The place is a partition and an offset of the topic. For a binlog it is the place in the binlog:
    a connector that lost its connection in the middle of a transaction reads that transaction
    again, and sends its first rows twice.

    Args:
        changes: The batch in normal form; records with a problem are left out.
        after_offset: Leave out changes up to this offset, which are those before a TRUNCATE.
        from_binlog: Whether the changes are from a binlog.
        beyond: How far the earlier batches reached.
    """
    rows = changes.filter(F.col(OP).isin("c", "r"))
    if after_offset is not None:
        rows = rows.filter(F.col(OFFSET) > after_offset)
    if from_binlog:
        return _once(rows, beyond).drop(*DECODED_ONLY)
    # As many digits as any offset has, so that places sort as the offsets do.
    digits = F.lpad(F.col(OFFSET).cast("string"), 19, "0")
    place = F.concat_ws("-", F.col(PARTITION).cast("string"), digits)
    return rows.withColumn(ROW, place).drop(*DECODED_ONLY)


@dataclass(frozen=True)
class Reached:
    """How far a log was read in a binlog; it identifies an event that is sent again.

    - A connector that lost its connection in the middle of a transaction reads that transaction
      again. Its events have the same places and the same numbers as before.
    - A connector that was restarted continues in the middle of the transaction. Its places go on,
      and its numbers start from 1 again.
    - In a transaction of more than 4 GiB, the places start again, and the numbers go on.

    So an event was there before if neither its place nor its number is beyond the reached ones.

    Args:
        transaction: The last transaction, as :func:`cdc.rows.decode.decode` numbers transactions.
        place: The furthest place of its events.
        order: The greatest number of its events.
    """

    transaction: int
    place: str
    order: int

    def __str__(self) -> str:
        return f"{self.place}@{self.order}@{self.transaction}"

    @classmethod
    def parse(cls, text: str) -> Reached:
        """Parse the text that ``str`` returns."""
        place, order, transaction = text.split("@")
        return cls(int(transaction), place, int(order))


def reached(changes: DataFrame, before: Reached | None) -> Reached | None:
    """Return how far a batch of a log reaches in the binlog.

    It runs two small jobs over the batch, which the caller has persisted.

    Args:
        changes: The batch in normal form.
        before: How far the earlier batches reached.
    """
    events = changes.filter(F.col(PROBLEM).isNull() & F.col(POSITION).isNotNull())
    last = events.agg(F.max_by(TRANSACTION, OFFSET)).first()
    if last is None or last[0] is None:
        return before
    of_it = events.filter(F.col(TRANSACTION) == last[0])
    furthest = of_it.agg(F.max(POSITION), F.max(ORDER)).first()
    if furthest is None:
        raise AssertionError("a transaction has an event")
    place, order = furthest
    if before is not None and before.transaction == last[0]:
        place, order = max(place, before.place), max(order, before.order)
    return Reached(last[0], place, order)


def _once(rows: DataFrame, beyond: Reached | None) -> DataFrame:
    if beyond is not None:
        again = (
            (F.col(TRANSACTION) == beyond.transaction)
            & (F.col(POSITION) <= beyond.place)
            & (F.col(ORDER) <= beyond.order)
        )
        rows = rows.filter(~again)
    # Events of a compressed transaction share one place: order and transaction distinguish them.
    told = (F.lpad(F.col(ORDER).cast("string"), 10, "0"), F.hex(TRANSACTION))
    placed = rows.withColumn(ROW, F.concat_ws(":", POSITION, *told))
    first = F.row_number().over(Window.partitionBy(ROW).orderBy(OFFSET))
    return placed.withColumn(_TURN, first).filter(F.col(_TURN) == 1).drop(_TURN)
