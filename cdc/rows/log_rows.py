"""Takes the inserted rows of an append table from the table's events, each row exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from cdc.errors import LostHistoryError
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
from cdc.rows.semantic_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from schemas.table import TableId

_TURN, _BACK = scratch("turn"), scratch("back")


def inserted(
    changes: DataFrame,
    *,
    after_offset: int | None = None,
    from_binlog: bool = False,
    beyond: ReachedPlace | None = None,
) -> DataFrame:
    """Return the rows that decoded changes insert into an append table, each with a record key.

    For PostgreSQL, the record key is the event's partition and offset in the topic. For changes
    from a binlog, the record key is the event's place in the binlog and the transaction's number.
    Offsets would not identify these rows: a connector that restarts within an XA transaction reads
    the transaction again, and sends the transaction's first rows twice. :func:`reached` proves that
    places in the binlog identify a transaction's rows.

    Args:
        changes: The batch in the normal form of `cdc.rows.decode`; records with a problem are left
            out.
        after_offset: Offset of a TRUNCATE. Changes up to this offset are left out.
        from_binlog: Whether the changes are from a binlog.
        beyond: The transaction and the place in the binlog that the earlier batches have reached.
            Events of this transaction up to this place are repetitions, and are left out.
    """
    rows = changes.filter(F.col(OP).isin("c", "r"))
    if after_offset is not None:
        rows = rows.filter(F.col(OFFSET) > after_offset)
    if from_binlog:
        return _without_repeated_rows(rows, beyond).drop(*DECODED_ONLY)
    # The number has as many digits as the largest offset, so that places sort as the offsets do.
    digits = F.lpad(F.col(OFFSET).cast("string"), 19, "0")
    place = F.concat_ws("-", F.col(PARTITION).cast("string"), digits)
    return rows.withColumn(ROW, place).drop(*DECODED_ONLY)


def absent(rows: DataFrame, lake: DataFrame) -> DataFrame:
    """Return the decoded rows to insert that an append table's lake table does not have yet.

    The lake can already have a row that a replay would insert: a killed replay has committed the
    row, or the connector has sent the row's insert twice. The lake's row then stays as it is, since
    the lake's row can have values that the source no longer has, for example of a dropped column.

    Args:
        rows: The rows to insert, with their record keys. The data frame is read twice.
        lake: The rows of the lake table.
    """
    wanted = F.broadcast(rows.select(ROW))
    there = lake.select(ROW).join(wanted, ROW, "leftsemi")
    return rows.join(F.broadcast(there), ROW, "leftanti").select(*map(quoted, rows.columns))


@dataclass(frozen=True)
class ReachedPlace:
    """The place in the binlog that the batches of an append table have reached.

    An event of ``transaction`` was sent before if its place is not after ``furthest``. An event
    also has a number: its rank among the table's events of the transaction. The number does not
    show whether the event was sent before, since an event can be sent again with another number:

    - A connector that restarts within an XA transaction reads the whole transaction again. After a
      lost connection, a connector with keep-alive can read any transaction again. In both cases,
      the places and the numbers of the transaction's events start again.
    - A connector that restarts within a transaction of another kind continues where it stopped.
      The places continue, but the numbers start again.

    Args:
        transaction: Number of the last event's transaction, from :func:`cdc.rows.decode.decode`.
        furthest: The furthest place of this transaction's events.
        last: The place of the event that was read last.
        order: The number of the event that was read last.
    """

    transaction: int
    furthest: str
    last: str
    order: int

    def __str__(self) -> str:
        return f"{self.furthest}@{self.last}@{self.order}@{self.transaction}"

    @classmethod
    def parse(cls, text: str) -> ReachedPlace:
        """Parse the string that ``str`` returns for a `ReachedPlace`."""
        furthest, last, order, transaction = text.split("@")
        return cls(int(transaction), furthest, last, int(order))


def reached(
    changes: DataFrame, before: ReachedPlace | None, table: TableId, *, again: bool = False
) -> ReachedPlace | None:
    """Return the place in the binlog that decoded changes of an append table have reached.

    This function runs up to three small queries over the batch, which the caller has persisted.

    Args:
        changes: The batch in the normal form of `cdc.rows.decode`.
        before: The place that the earlier batches have reached.
        table: The table, for the error.
        again: Whether earlier batches have already read events of this batch, as in a replay. The
            place of ``before`` may then be after the batch's first event.

    Raises:
        LostHistoryError: The places of a transaction's events are not in the order of the events'
            numbers, so places do not identify the transaction's rows.
    """
    events = changes.filter(F.col(PROBLEM).isNull() & F.col(POSITION).isNotNull())
    events = events.select(TRANSACTION, OFFSET, POSITION, ORDER)
    _prove_places(events, None if again else before, table)
    found = events.agg(F.max_by(F.struct(TRANSACTION, POSITION, ORDER), OFFSET)).first()
    if found is None or found[0] is None:
        return before
    transaction, last, order = found[0]
    of_it = events.filter(F.col(TRANSACTION) == transaction).agg(F.max(POSITION)).first()
    if of_it is None:
        raise AssertionError("a transaction has an event")
    furthest = str(of_it[0])
    if before is not None and before.transaction == transaction:
        furthest = max(furthest, before.furthest)
    return ReachedPlace(transaction, furthest, last, order)


def _prove_places(events: DataFrame, before: ReachedPlace | None, table: TableId) -> None:
    """Refuse decoded changes of an append table if the places of a transaction are out of order.

    The places are out of order if an event has a higher number than the transaction's previous
    event, but no later place in the binlog.
    """
    in_turn = Window.partitionBy(TRANSACTION).orderBy(OFFSET)
    former = {name: F.lag(name).over(in_turn) for name in (POSITION, ORDER)}
    if before is not None:
        known = F.col(TRANSACTION) == before.transaction
        first = {POSITION: before.last, ORDER: before.order}
        former = {
            name: F.coalesce(one, F.when(known, F.lit(first[name]))) for name, one in former.items()
        }
    back = (F.col(ORDER) > former[ORDER]) & (F.col(POSITION) <= former[POSITION])
    found = events.select("*", back.alias(_BACK)).filter(_BACK).orderBy(OFFSET).first()
    if found is None:
        return
    raise LostHistoryError(
        f"the transaction of table {table} at offset {found[OFFSET]} is compressed"
        " (binlog_transaction_compression) or larger than 4 GiB: its rows have no positions of"
        " their own in the binlog, and would be in the lake twice if the connector sent them again",
        remedy=f"Copy the table again: `tributary bootstrap {table}`. Keep"
        " binlog_transaction_compression OFF in all sessions, and transactions below 4 GiB.",
        table=table,
        offset=found[OFFSET],
    )


def _without_repeated_rows(rows: DataFrame, beyond: ReachedPlace | None) -> DataFrame:
    """Return the rows that a binlog's events insert into an append table, without repeated rows.

    Each row gets a record key: the row's place in the binlog and the transaction's number. Rows
    that earlier batches have inserted are left out.
    """
    if beyond is not None:
        again = (F.col(TRANSACTION) == beyond.transaction) & (F.col(POSITION) <= beyond.furthest)
        rows = rows.filter(~again)
    # Places begin again in the binlogs of another server.
    placed = rows.withColumn(ROW, F.concat_ws(":", POSITION, F.hex(TRANSACTION)))
    first = F.row_number().over(Window.partitionBy(ROW).orderBy(OFFSET))
    return placed.withColumn(_TURN, first).filter(F.col(_TURN) == 1).drop(_TURN)
