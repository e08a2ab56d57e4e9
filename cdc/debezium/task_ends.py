"""Finds the places in a topic at which one task of the connector ended and the next one began.

Each event names its task in a header. A task gets a new name with each start, also if Debezium
restarts it by itself after a broken connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cdc.debezium.event_reader import EventReader

if TYPE_CHECKING:
    from cdc.kafka import KafkaAdmin, KafkaRecord
    from schemas.registry import SchemaRegistry

_TASK = "__debezium.context.runId"
_NEW_KEY = "__debezium.newkey"
_FEW = 256
"""Number of offsets that are read one after the other."""
_READ_S = 60.0


@dataclass(frozen=True)
class TaskEnd:
    """A place in a topic at which a Debezium task ended.

    Args:
        last: The last record of the task.
        following: The first record of the next task; None if the topic has none.
    """

    last: KafkaRecord
    following: KafkaRecord | None


@dataclass(frozen=True)
class SentChange:
    """One change event that Debezium has sent.

    Args:
        op: The kind of change.
        position: The position of its record in the log.
        transaction: The transaction's id; None if the event has none.
        key: The values of the key columns, by their names in Avro; empty without a key.
        after: The row after the change.
    """

    op: str
    position: str
    transaction: int | None
    key: Mapping[str, Any]
    after: Any


def task_of(record: KafkaRecord) -> str | None:
    """Return the name of the task that sent a Debezium record, or None."""
    name = dict(record.headers).get(_TASK)
    return None if name is None else name.decode()


def moves_key(record: KafkaRecord) -> bool:
    """Return whether a Debezium record deletes a row that got another key, or its tombstone."""
    return _NEW_KEY in dict(record.headers)


class TaskEnds:
    """Finds ends of Debezium's tasks in topics of one partition, and reads the events there.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
    """

    def __init__(self, kafka: KafkaAdmin, registry: SchemaRegistry) -> None:
        self._kafka = kafka
        self._events = EventReader(registry)

    def between(self, topic: str, first: int, end: int, task: str) -> Iterator[TaskEnd]:
        """Yield the ends of tasks from the newest record before an offset to another offset.

        Args:
            topic: The topic.
            first: The first offset that was not searched yet. Records before it may have expired.
            end: Offset to stop before.
            task: The task that sends now. If it has sent nothing to the topic, the last record is
                the end of its task.

        Raises:
            KafkaError: The topic cannot be read in time.
        """
        start = self._kafka.start_offsets(topic)[0]
        high = self.last(topic, end)
        if high is None:
            return
        first = min(max(first, start), end)
        low = self._kafka.last_record(topic, start, first) or self._next(topic, first, end) or high
        yield from self._within(low, high)
        if task_of(high) != task:
            yield TaskEnd(high, None)

    def last(self, topic: str, end: int) -> KafkaRecord | None:
        """Return Debezium's last record before an offset; None if there is none.

        Raises:
            KafkaError: The topic cannot be read in time.
        """
        return self._kafka.last_record(topic, self._kafka.start_offsets(topic)[0], end)

    def change(self, record: KafkaRecord) -> SentChange:
        """Decode Debezium's event in a record.

        Raises:
            DecodeError: The record is not an event of the connector.
        """
        what = "an event of the connector"
        key = {} if record.key is None else self._key(record)
        return self._events.read(record, what, lambda event: _change(event, key))

    def before(self, record: KafkaRecord) -> KafkaRecord | None:
        """Return Debezium's newest record with a value before a record, of the same task."""
        first = max(record.offset - _FEW, self._kafka.start_offsets(record.topic)[0])
        earlier = [*self._read(record.topic, first, record.offset)]
        for one in reversed(earlier):
            if task_of(one) != task_of(record):
                return None
            if one.value is not None:
                return one
        return None

    def sends_later(
        self, record: KafkaRecord, key: tuple[str, ...], end: int, *, offsets: int
    ) -> bool | None:
        """Return whether the transaction of a Debezium record inserts or updates a row later.

        Args:
            record: A record of the transaction.
            key: The row's key as text.
            end: Offset to stop before.
            offsets: Number of offsets to read.

        Returns:
            None if the transaction has more records than were read.
        """
        transaction, last = self.change(record).transaction, min(record.offset + 1 + offsets, end)
        for one in self._read(record.topic, record.offset + 1, last):
            if one.value is None:
                continue
            change = self.change(one)
            if change.transaction != transaction:
                return False
            if change.op in "cu" and tuple(map(str, change.key.values())) == key:
                return True
        return False if last == end else None

    def _within(self, low: KafkaRecord, high: KafkaRecord) -> Iterator[TaskEnd]:
        """Yield the ends of tasks between two records. No task has the name of an earlier one."""
        if task_of(low) == task_of(high):
            return
        if high.offset - low.offset <= _FEW:
            before = low
            for one in self._read(low.topic, low.offset + 1, high.offset + 1):
                if task_of(one) != task_of(before):
                    yield TaskEnd(before, one)
                before = one
            return
        half = (low.offset + high.offset) // 2
        middle = self._kafka.last_record(low.topic, low.offset + 1, half + 1) or self._next(
            low.topic, half + 1, high.offset
        )
        if middle is None:
            yield TaskEnd(low, high)
            return
        yield from self._within(low, middle)
        yield from self._within(middle, high)

    def _next(self, topic: str, first: int, end: int) -> KafkaRecord | None:
        return next(self._read(topic, first, end), None)

    def _read(self, topic: str, first: int, end: int) -> Iterator[KafkaRecord]:
        return self._kafka.read(topic, 0, first, end, timeout_s=_READ_S)

    def _key(self, record: KafkaRecord) -> Mapping[str, Any]:
        """Return the columns of a Debezium record's key."""
        return self._events.read(replace(record, value=record.key), "an event's key", dict)


def _change(event: Any, key: Mapping[str, Any]) -> SentChange:
    """Return the change of a decoded Debezium event."""
    source = event["source"]
    return SentChange(
        op=str(event["op"]),
        position=str(source["lsn"]),
        transaction=source["txId"],
        key=key,
        after=event["after"],
    )
