"""The point where copy and stream meet: R, and for a log the first event that its copy lacks.

A view of a known position S contains a transaction if, and only if, its commit ends at or before S.
Events of a topic are in the order of commits, so one offset separates the two sets. Once it is
found, S is not needed any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from bootstrap.errors import AttemptSpoiledError
from cdc.debezium import TransactionReader
from cdc.errors import PositionError
from cdc.kafka import leader_epochs
from cdc.log.position import LogPosition, Lsn

if TYPE_CHECKING:
    from bootstrap.capture_proof import Capture
    from cdc.kafka import KafkaRecord
    from cdc.sources.base import Marker, SourceLog
    from cdc.store.attempt import Attempt
    from cdc.store.table_state import TableRecord
    from schemas.registry import SchemaRegistry

_READ_S = 300.0


@dataclass(frozen=True)
class Origin:
    """The ends of a table's topic and its transactions' topic before the view was opened.

    Args:
        rows: Offsets of the table's topic (O).
        epochs: Epochs of its leaders at that time. Empty for append tables of PostgreSQL: their O
            is moved to the copy's boundary later, and the epochs would not belong to it.
        transactions: Offsets of the transactions' topic, recorded before O. So each row from O on
            belongs to a transaction that ends at or after them. For append tables of PostgreSQL.
        transactions_id: UUID of that topic.
    """

    rows: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)
    transactions: Mapping[int, int] | None = None
    transactions_id: str | None = None

    @classmethod
    def now(cls, capture: Capture) -> Origin:
        """Read the current ends of the topics.

        Kafka ends a transaction of its own in one topic after the other, so the end of a source
        transaction may be stable before its rows are. The last stable offset of the rows may
        therefore be too low. The high watermark, read after the transactions' topic, is not: the
        rows of every stable end are below it.
        """
        kafka, topic = capture.kafka, capture.names.transaction_topic
        if not capture.names.append or capture.names.tells_definitions:
            ends = kafka.ends_many([capture.topic])[capture.topic]
            offsets = {partition: end.offset for partition, end in ends.items()}
            return cls(offsets, leader_epochs(ends))
        identity, transactions = kafka.topic_id(topic), kafka.stable_offsets(topic)
        rows = kafka.high_watermarks(capture.topic)
        return cls(rows, transactions=transactions, transactions_id=identity)


def recorded(attempt: Attempt, capture: Capture) -> Attempt:
    """The attempt, with the current ends of its topics (O)."""
    names, statements_upto = capture.names, None
    if names.tells_definitions:
        statements_upto = capture.kafka.stable_offsets(names.schema_change_topic)[0]
    origin = Origin.now(capture)
    return replace(
        attempt,
        topic_id=capture.kafka.topic_id(capture.topic),
        start_offsets=origin.rows,
        start_epochs=origin.epochs,
        transaction_offsets=origin.transactions,
        transaction_topic_id=origin.transactions_id,
        statements_upto=statements_upto,
    )


def boundary_of(
    attempt: Attempt, capture: Capture, registry: SchemaRegistry, *, timeout_s: float
) -> dict[int, int]:
    """The boundary of an attempt's copy; see `find_boundary`."""
    origin = Origin(
        attempt.start_offsets or {},
        transactions=attempt.transaction_offsets,
        transactions_id=attempt.transaction_topic_id,
    )
    known = attempt.view.split if attempt.view is not None else None
    split = capture.source.position(known or "")
    return find_boundary(capture, registry, origin, split, timeout_s=timeout_s)


def find_boundary(
    capture: Capture,
    registry: SchemaRegistry,
    origin: Origin,
    split: LogPosition,
    *,
    timeout_s: float,
) -> dict[int, int]:
    """Find, per partition, the first offset whose transaction ends beyond a view's position.

    Everything up to that position must have been captured, and one transaction beyond it. An event
    of a binlog names its transaction, and there S is a set of transactions.

    Args:
        capture: The publication, slot, connector and topic of the table's changes.
        registry: The writers' schemas.
        origin: Offsets from before the view was opened.
        split: S, the view's position.
        timeout_s: Bound of the wait for hanging Kafka transactions, in seconds.

    Raises:
        AttemptSpoiledError: The transactions' topic no longer has all the records needed.
        HandoffTimeoutError: A Kafka transaction hangs.
        DecodeError: A record is not what the connector writes.
        KafkaError: A topic cannot be read in time.
    """
    kafka, reader = capture.kafka, TransactionReader(capture.kafka, registry)
    if not capture.names.tells_definitions:
        ended = _ended(capture, reader, origin, split, timeout_s)
        copied = lambda record: reader.of(record) in ended  # noqa: E731
    else:
        upto = kafka.high_watermarks(capture.topic)
        capture.wait_until_readable(upto, timeout_s=timeout_s)
        position = capture.source.position
        copied = lambda record: split.reaches(position(reader.gtid(record)))  # noqa: E731
    stable = kafka.stable_offsets(capture.topic)
    return {
        partition: first_beyond(
            start, stable[partition], partial(_first, capture, partition), copied
        )
        for partition, start in origin.rows.items()
    }


def _ended(
    capture: Capture,
    reader: TransactionReader,
    origin: Origin,
    split: LogPosition,
    timeout_s: float,
) -> frozenset[int]:
    """The transactions that ended at or before S, by the records of the connector for logs."""
    if not isinstance(split, Lsn):
        raise TypeError(f"transactions end at log sequence numbers, not at {split!r}")
    kafka, names = capture.kafka, capture.names
    began = origin.transactions or {}
    capture.require_start(origin.transactions_id, began, topic=names.transaction_topic)
    for topic in (names.transaction_topic, capture.topic):
        upto = kafka.high_watermarks(topic)
        capture.wait_until_readable(upto, timeout_s=timeout_s, topic=topic)
    ends = kafka.stable_offsets(names.transaction_topic)
    return reader.ended_by(names.transaction_topic, split, began, ends, timeout_s=_READ_S)


def first_beyond(
    start: int,
    end: int,
    first: Callable[[int, int], KafkaRecord | None],
    copied: Callable[[KafkaRecord], bool],
) -> int:
    """Find the first offset that the copy does not contain, or return the end.

    Args:
        start: First offset of the search.
        end: End of the search.
        first: Returns the first record between two offsets, or None; the markers of Kafka's own
            transactions also take offsets.
        copied: Whether the copy contains a record; true up to some record, and false from then on.
    """
    found, low, high = end, start, end
    while low < high:
        middle = (low + high) // 2
        record = first(middle, high)
        if record is not None and copied(record):
            low = record.offset + 1
        else:
            # The nearest record from here on is this one, or there is none.
            found = found if record is None else record.offset
            high = middle
    return found


def _first(capture: Capture, partition: int, low: int, high: int) -> KafkaRecord | None:
    # A tombstone follows a delete and names no transaction.
    records = capture.kafka.read(capture.topic, partition, low, high, timeout_s=_READ_S)
    return next((record for record in records if record.value is not None), None)


def joined_bounds(source: SourceLog, record: TableRecord, marker: Marker) -> LogPosition:
    """Return R: the least position at or after both the attempt's reads and a marker.

    Raises:
        AttemptSpoiledError: The positions are of two kinds, since the source turned GTIDs on or off
            meanwhile.
    """
    read = record.attempt.reads_upto if record.attempt is not None else None
    try:
        return source.position(read or "").joined(marker.position)
    except PositionError as error:
        raise AttemptSpoiledError(
            f"source {record.table.source} has another kind of log position than when table"
            f" {record.table} was copied: {error.message}",
            remedy="Nothing to do: the copy begins again.",
            table=record.table,
        ) from error
