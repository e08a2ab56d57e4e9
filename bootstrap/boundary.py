"""Finds the boundary between a copy and its stream: R and, for append tables, O.

R is a position of the source's log. Everything in the copy is at or before this position. An append
table also needs O to be the offset of the first event that the copy lacks. The copy of an append
table is read in a view at a known position S.

That view contains exactly the transactions whose commits end at or before S. A topic's events are
in the order of commits. So one offset separates the events whose changes the copy contains from the
events whose changes it lacks. Once this offset is known, S is no longer needed.
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
    """The end offsets of two topics, read before a copy's view is opened.

    The first topic is the table's. The second is Debezium's transactions topic, which has the
    start and the end of each source transaction.

    Args:
        rows: End offsets of the table's topic (O).
        epochs: Epoch of each partition's leader in the table's topic, read together with O. Empty
            for an append table of PostgreSQL, whose O is later replaced by :func:`find_boundary`.
        transactions: For an append table of PostgreSQL, the end offsets of the transactions' topic,
            read before O; None for other tables. If an event is at or after O in the table's topic,
            the end of its transaction is at or after these offsets in the transactions' topic.
        transactions_id: UUID of the transactions' topic; None if ``transactions`` is None.
    """

    rows: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)
    transactions: Mapping[int, int] | None = None
    transactions_id: str | None = None

    @classmethod
    def now(cls, capture: Capture) -> Origin:
        """Return the current end offsets of the topics; call this method before the view is opened.

        For append tables of PostgreSQL, O is the high watermark of the table's topic. This method
        reads the last stable offset of the transactions' topic first, and O after it. So if a
        source transaction's end is below that last stable offset, the transaction's events are
        below O.

        The last stable offset of the table's topic could be too low to be O. Kafka commits one
        Kafka transaction first in one topic and then in another. So the record of a source
        transaction's end can be readable before the transaction's events are.
        """
        kafka, topic = capture.kafka, capture.names.transaction_topic
        if not capture.names.append or capture.names.reports_definitions:
            ends = kafka.ends_many([capture.topic])[capture.topic]
            offsets = {partition: end.offset for partition, end in ends.items()}
            return cls(offsets, leader_epochs(ends))
        identity, transactions = kafka.topic_id(topic), kafka.stable_offsets(topic)
        rows = kafka.high_watermarks(capture.topic)
        return cls(rows, transactions=transactions, transactions_id=identity)


def recorded(attempt: Attempt, capture: Capture) -> Attempt:
    """Return a copy's attempt with O, and with the UUIDs and end offsets of the needed topics.

    Every attempt needs the table's topic. An attempt of an append table of PostgreSQL also needs
    Debezium's transactions topic. An attempt of a table of MySQL or MariaDB also needs Debezium's
    topic of DDL statements.
    """
    names, statements_upto, statements_topic_id = capture.names, None, None
    if names.reports_definitions:
        statements_topic_id = capture.kafka.topic_id(names.schema_change_topic)
        statements_upto = capture.kafka.stable_offsets(names.schema_change_topic)[0]
    origin = Origin.now(capture)
    return replace(
        attempt,
        topic_id=capture.kafka.topic_id(capture.topic),
        start_offsets=origin.rows,
        start_epochs=origin.epochs,
        nulls_are_kept=capture.keeps_nulls(),
        transaction_offsets=origin.transactions,
        transaction_topic_id=origin.transactions_id,
        statements_upto=statements_upto,
        statements_topic_id=statements_topic_id,
    )


def boundary_of(
    attempt: Attempt, capture: Capture, registry: SchemaRegistry, *, timeout_s: float
) -> dict[int, int]:
    """Return, per partition, the first offset in the table's topic that an attempt's copy lacks."""
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
    """Return, per partition, the first offset in the table's topic that a copy lacks.

    At this offset is the first event whose transaction ends after S, the log position of the copy's
    view. On MySQL and MariaDB, S is a GTID set, and each event has its transaction's GTID. The
    caller must first wait until the connector has captured everything up to S, and one later
    transaction.

    Args:
        capture: The publication, slot, connector and topic of the table's changes.
        registry: The writers' schemas.
        origin: Offsets from before the view was opened.
        split: S, the view's position.
        timeout_s: Maximum wait for open Kafka transactions, in seconds.

    Raises:
        AttemptSpoiledError: The transactions' topic was recreated, or records that this search
            needs have expired from it.
        HandoffTimeoutError: A Kafka transaction stays open.
        DecodeError: A record is not what the connector writes.
        KafkaError: A topic cannot be read in time.
    """
    kafka, reader = capture.kafka, TransactionReader(capture.kafka, registry)
    if not capture.names.reports_definitions:
        ended = _transactions_in_copy(capture, reader, origin, split, timeout_s)
        copied = lambda record: reader.of(record) in ended  # noqa: E731
    else:
        upto = kafka.high_watermarks(capture.topic)
        capture.wait_until_readable(upto, timeout_s=timeout_s)
        position = capture.source.position
        copied = lambda record: split.reaches(position(reader.gtid(record)))  # noqa: E731
    stable = kafka.stable_offsets(capture.topic)
    return {
        partition: first_beyond(
            start, stable[partition], partial(_first_event, capture, partition), copied
        )
        for partition, start in origin.rows.items()
    }


def _transactions_in_copy(
    capture: Capture,
    reader: TransactionReader,
    origin: Origin,
    split: LogPosition,
    timeout_s: float,
) -> frozenset[int]:
    """Return the ids of the transactions that ended at or before S, the position of the view."""
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
    """Return the offset of the first record that the copy lacks; ``end`` if the copy has all.

    Args:
        start: First offset of the search.
        end: The offset after the last one to search.
        first: Returns the first record at or after the first argument and before the second
            argument; None if this range has no record. Some offsets have no record, since Kafka
            uses these offsets for the control records of its transactions.
        copied: Returns whether the copy contains a record. The copy contains all records before
            some offset, and no record at or after that offset.
    """
    found, low, high = end, start, end
    while low < high:
        middle = (low + high) // 2
        record = first(middle, high)
        if record is not None and copied(record):
            low = record.offset + 1
        else:
            # No copied record is between the middle and this record.
            found = found if record is None else record.offset
            high = middle
    return found


def _first_event(capture: Capture, partition: int, low: int, high: int) -> KafkaRecord | None:
    """Return the first event in a range of the topic, for a copy's boundary; skip tombstones."""
    # A tombstone follows a delete and names no transaction.
    records = capture.kafka.read(capture.topic, partition, low, high, timeout_s=_READ_S)
    return next((record for record in records if record.value is not None), None)


def joined_bounds(source: SourceLog, record: TableRecord, marker: Marker) -> LogPosition:
    """Return R, the lowest log position that includes `Attempt.reads_upto` and the marker row.

    Raises:
        AttemptSpoiledError: One of these two positions has GTIDs and the other one has none, since
            GTIDs were turned on or off during the copy.
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
