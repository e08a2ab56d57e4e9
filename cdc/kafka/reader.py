"""Reads records of many topics with one consumer, and prefetches records of many topics at once.

A new consumer costs a login and a few round trips, which take longer than a read of a few records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType

import confluent_kafka as ck

from cdc.kafka.client import TRANSIENT, KafkaClient
from cdc.kafka.records import (
    AT_END,
    KafkaRecord,
    consumer_settings,
    last_of,
    read_with,
    record_of,
    timed_out,
)

_LIMIT = 64 * 1024 * 1024
"""Limit for the size of records that are read ahead, in bytes."""


@dataclass
class _Ahead:
    """A range of a topic's offsets, and the prefetched records in this range."""

    start: int
    end: int
    records: list[KafkaRecord] = field(default_factory=list)


class RecordReader:
    """Reads committed records of partition 0 of topics. Not safe to share among threads.

    All reads use the same consumer. So the iterator of a read is unusable after a later read has
    begun.

    Args:
        client: The cluster.
        timeout_s: Limit for one read, in seconds.
    """

    def __init__(self, client: KafkaClient, *, timeout_s: float = 60.0) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._consumer: ck.Consumer | None = None
        self._ahead: dict[str, _Ahead] = {}

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def read_ahead(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Prefetch a range of each topic. Later reads within these ranges need no request.

        The records of an earlier prefetch are discarded. If the records reach a limit of bytes, the
        prefetch ends, and only the topics whose ranges are complete are prefetched.

        Args:
            ranges: For each topic, the first offset to read, and the offset after the last one.

        Raises:
            KafkaError: A range cannot be read in time.
        """
        self._ahead = {topic: _Ahead(*one) for topic, one in ranges.items() if one[0] < one[1]}
        waited, size = set(self._ahead), 0
        if not waited:
            return
        consumer, deadline = self._open(), time.monotonic() + self._timeout_s
        places = [ck.TopicPartition(topic, 0, one.start) for topic, one in self._ahead.items()]
        consumer.assign(places)
        while waited and size < _LIMIT:
            message = consumer.poll(min(1.0, max(0.0, deadline - time.monotonic())))
            topic = None if message is None else message.topic()
            if message is None or topic not in waited:
                if time.monotonic() >= deadline:
                    late = self._ahead[min(waited)]
                    raise timed_out(self._client, min(waited), 0, late.start, late.end)
                continue
            one, error, offset = self._ahead[topic], message.error(), message.offset() or 0
            if error is not None and error.code() != ck.KafkaError._PARTITION_EOF:
                if error.code() not in TRANSIENT:
                    raise self._client.refused(f"read topic {topic}", error, topic=topic)
                continue
            if error is None and offset < one.end:
                one.records.append(record_of(topic, 0, offset, message))
                size += len(one.records[-1].value or b"")
            if offset >= one.end - (error is None):
                waited.discard(topic)
                consumer.incremental_unassign([ck.TopicPartition(topic, 0)])
        self._ahead = {topic: one for topic, one in self._ahead.items() if topic not in waited}

    def read(self, topic: str, start: int, end: int) -> Iterator[KafkaRecord]:
        """Yield the committed records of a short range, from offset ``start`` to before ``end``.

        Raises:
            KafkaError: The range cannot be read in time.
        """
        ahead = self._ahead.get(topic)
        if ahead is not None and ahead.start <= start and end <= ahead.end:
            yield from (one for one in ahead.records if start <= one.offset < end)
        elif start < end:
            yield from self._read(topic, start, end)

    def last(self, topic: str, start: int, end: int) -> KafkaRecord | None:
        """Return the last committed record from ``start`` to before ``end``; None if there is none.

        Raises:
            KafkaError: The range cannot be read in time.
        """
        ahead = self._ahead.get(topic)
        if ahead is not None and ahead.start < end <= ahead.end:
            found = [one for one in ahead.records if start <= one.offset < end]
            if found:
                return found[-1]
            end = ahead.start
        return last_of(lambda first: self._read(topic, first, end), start, end)

    def _read(self, topic: str, start: int, end: int) -> Iterator[KafkaRecord]:
        deadline = time.monotonic() + self._timeout_s
        first = ck.TopicPartition(topic, 0, start)
        return read_with(self._open(), self._client, first, end, deadline=deadline)

    def _open(self) -> ck.Consumer:
        """Return the consumer that all reads share. The first call creates it."""
        if self._consumer is None:
            self._consumer = ck.Consumer({**consumer_settings(self._client), **AT_END})
        return self._consumer
