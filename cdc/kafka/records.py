"""Reads a few records without Spark: a short range, or the newest record of a topic."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import confluent_kafka as ck

from cdc.errors import KafkaError
from cdc.kafka.client import TRANSIENT, KafkaClient
from cdc.kafka.topic_values import ReachedOffset

TAIL = 32
"""Number of offsets that are read first in a search for the last record of a range."""

AT_END: dict[str, Any] = {"fetch.wait.max.ms": 10}
"""Settings of a consumer that reads at the end of partitions, where a broker waits for records.

The broker waits for at most 10 ms. A broker older than 3.8 also gives up a read of tiered storage
after 10 ms.
"""


@dataclass(frozen=True)
class KafkaRecord:
    """One record of Kafka, with its key and value as bytes."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read(
    client: KafkaClient,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    deadline: float,
) -> Iterator[KafkaRecord]:
    """Yield the committed records of a short range of offsets in order.

    A new leader can report for a moment that the partition ends before ``end``. So the call waits
    until the partition can be read up to ``end``.

    Args:
        client: The cluster.
        topic: The topic.
        partition: The partition's number.
        start: The first offset to read.
        end: The offset after the last one to read.
        deadline: When to give up, as a time of ``time.monotonic()``.

    Raises:
        KafkaError: The range cannot be read before the deadline.
    """
    if start < end:
        first = ck.TopicPartition(topic, partition, start)
        yield from _read_by_new_consumer(client, {}, first, end, deadline=deadline)


def _read_by_new_consumer(
    client: KafkaClient,
    settings: Mapping[str, Any],
    first: ck.TopicPartition,
    end: int,
    *,
    deadline: float,
) -> Iterator[KafkaRecord]:
    """Yield the records as `read` does, with further settings of the consumer."""
    consumer = ck.Consumer({**consumer_settings(client), **settings})
    try:
        yield from read_with(consumer, client, first, end, deadline=deadline)
    finally:
        consumer.close()


def read_with(
    consumer: ck.Consumer,
    client: KafkaClient,
    first: ck.TopicPartition,
    end: int,
    *,
    deadline: float,
) -> Iterator[KafkaRecord]:
    """Yield the records as `read` does, but with an existing consumer, which is not closed.

    Args:
        consumer: The consumer. It may have read other records before.
        client: The cluster.
        first: The topic, the partition, and the first offset to read.
        end: The offset after the last one to read.
        deadline: When to give up, as a time of ``time.monotonic()``.
    """
    topic, partition = first.topic, first.partition
    consumer.assign([first])
    while True:
        message = consumer.poll(min(1.0, max(0.0, deadline - time.monotonic())))
        if message is None:
            if time.monotonic() >= deadline:
                raise timed_out(client, topic, partition, first.offset, end)
            continue
        error = message.error()
        if error is not None:
            if error.code() == ck.KafkaError._PARTITION_EOF:
                # A leader of another moment can show an earlier end than the caller has seen.
                if (message.offset() or 0) >= end:
                    return
            elif error.code() not in TRANSIENT:
                raise client.refused(f"read topic {topic}", error, topic=topic)
            continue
        offset = message.offset()
        if offset is None or offset >= end:
            return
        yield record_of(topic, partition, offset, message)
        if offset == end - 1:
            return


def newest(
    client: KafkaClient,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    deadline: float,
) -> KafkaRecord | None:
    """Return the newest committed record of a topic; None if the topic has no record.

    Args:
        client: The cluster.
        topic: The topic.
        starts: For each partition, the first offset that the partition still has.
        ends: For each partition, the last stable offset.
        deadline: When to give up, as a time of ``time.monotonic()``.

    Raises:
        KafkaError: The search did not end before the deadline.
    """
    found = newest_few(client, topic, starts, ends, deadline)
    return found[-1] if found else None


def newest_few(
    client: KafkaClient,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    deadline: float,
) -> list[KafkaRecord]:
    """Return the newest committed records of a topic, the oldest first.

    For each partition, these are the records of the last 32 offsets. Markers of Kafka transactions
    also take offsets, so there can be fewer records. If the last 32 offsets have no record, the
    last records before these offsets are returned. The result is empty if the topic has no record.

    Args:
        client: The cluster.
        topic: The topic.
        starts: For each partition, the first offset that the partition still has.
        ends: For each partition, the last stable offset.
        deadline: When to give up, as a time of ``time.monotonic()``.

    Raises:
        KafkaError: The search did not end before the deadline.
    """
    found: list[KafkaRecord] = []
    for partition, end in ends.items():

        def records(
            first: int, end: int = end, partition: int = partition
        ) -> Iterator[KafkaRecord]:
            place = ck.TopicPartition(topic, partition, first)
            return _read_by_new_consumer(client, AT_END, place, end, deadline=deadline)

        found += last_few_of(records, starts[partition], end, most=TAIL)
    return sorted(found, key=_record_age_key)


def last_of(
    records: Callable[[int], Iterable[KafkaRecord]], start: int, end: int
) -> KafkaRecord | None:
    """Return the last Kafka record of a range of offsets; None if there is none.

    Args:
        records: Takes an offset; returns the records from there to the end of the range.
        start: The first offset of the range.
        end: The offset after the range.
    """
    found = last_few_of(records, start, end, most=1)
    return found[-1] if found else None


def last_few_of(
    records: Callable[[int], Iterable[KafkaRecord]], start: int, end: int, *, most: int
) -> list[KafkaRecord]:
    """Return the last Kafka records of a range of offsets; empty if there are none.

    Args:
        records: Takes an offset; returns the records from there to the end of the range.
        start: The first offset of the range.
        end: The offset after the range.
        most: Maximum number of records to return.
    """
    window, first = TAIL, end
    while first > start:
        first = max(start, end - window)
        if found := deque(records(first), maxlen=most):
            return [*found]
        window *= 8
    return []


def truncated(
    client: KafkaClient, logs: Iterable[ReachedOffset], *, deadline: float
) -> dict[ReachedOffset, str | KafkaError | None]:
    """Find partitions that were truncated below an offset that they had reached.

    Each of ``logs`` names an offset, and the leader's epoch when the partition reached this offset.
    The present leader is asked for the end offset of this epoch (OffsetForLeaderEpoch). If the
    partition was truncated below the named offset, the epoch ends below that offset, even if the
    partition has got other records since then.

    Args:
        client: The cluster.
        logs: For each partition, an offset that it had reached.
        deadline: When to give up, as a time of ``time.monotonic()``.

    Returns:
        For each of ``logs``, a description of the truncation; None if the partition was not
        truncated; an error if the partition's leader does not answer.
    """
    asked: dict[tuple[str | None, int | None], ReachedOffset] = {
        (one.topic, one.partition): one for one in logs
    }
    found: dict[ReachedOffset, str | KafkaError | None] = {}
    if not asked:
        return found
    consumer = ck.Consumer({**consumer_settings(client), **AT_END})
    try:
        consumer.assign(
            [
                ck.TopicPartition(one.topic, one.partition, one.offset, leader_epoch=one.epoch)
                for one in asked.values()
            ]
        )
        while len(found) < len(asked) and time.monotonic() < deadline:
            message = consumer.poll(min(1.0, max(0.0, deadline - time.monotonic())))
            one = None if message is None else asked.get((message.topic(), message.partition()))
            if message is None or one is None or one in found:
                continue
            error = message.error()
            if error is None or error.code() == ck.KafkaError._PARTITION_EOF:
                found[one] = None
            elif error.code() == ck.KafkaError._AUTO_OFFSET_RESET:
                found[one] = error.str()
            elif error.code() not in TRANSIENT:
                found[one] = client.refused(f"read topic {one.topic}", error, topic=one.topic)
    finally:
        consumer.close()
    late = {
        one: timed_out(client, one.topic, one.partition, one.offset, one.offset)
        for one in asked.values()
        if one not in found
    }
    return found | late


def consumer_settings(client: KafkaClient) -> dict[str, Any]:
    """Return the settings of a consumer that has its own group and reads only committed records."""
    return {
        **client.settings,
        "group.id": f"tributary-{uuid.uuid4()}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }


def timed_out(client: KafkaClient, topic: str, partition: int, start: int, end: int) -> KafkaError:
    """Return the error for a range of offsets that could not be read in time."""
    return KafkaError(
        f"offsets {start} to {end} of topic {topic} partition {partition} could not be read in"
        f" time{': ' + client.last_error if client.last_error else ''}",
        remedy="Check that the partition has a leader and no transaction hangs on it.",
        topic=topic,
        partition=partition,
        offset=start,
    )


def record_of(topic: str, partition: int, offset: int, message: ck.Message) -> KafkaRecord:
    """Convert a message of the client library to a record."""
    kind, millis = message.timestamp()
    known = kind != ck.TIMESTAMP_NOT_AVAILABLE
    return KafkaRecord(
        topic=topic,
        partition=partition,
        offset=offset,
        key=_record_bytes(message.key()),
        value=_record_bytes(message.value()),
        timestamp=datetime.fromtimestamp(millis / 1000, tz=timezone.utc) if known else None,
        headers=tuple(
            (str(header[0]), _record_bytes(header[1])) for header in message.headers() or ()
        ),
    )


def _record_bytes(value: str | bytes | None) -> bytes | None:
    """Return a key, a value or a header's value of a Kafka message as bytes."""
    return value.encode() if isinstance(value, str) else value


def _record_age_key(record: KafkaRecord) -> float:
    """Return a sort key by which newer Kafka records come after older ones."""
    return record.timestamp.timestamp() if record.timestamp is not None else 0.0
