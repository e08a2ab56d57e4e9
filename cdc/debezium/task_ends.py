"""Finds the offsets in a topic at which one task of the connector ended and the next one began.

Each event names its task in a header. A task gets a new name at each start, even if Debezium itself
restarts the task after a broken connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc.debezium.event_reader import EventReader
    from cdc.kafka import KafkaRecord, RecordReader

_TASK = "__debezium.context.runId"
_NEW_KEY = "__debezium.newkey"
_OLD_KEY = "__debezium.oldkey"
_FEW = 256
"""Number of offsets up to which a range is read record by record, without a binary search."""
_BEFORE = 16
"""Number of offsets that are read before the first offset of a search. The records there suffice
to judge most ends of tasks.
"""
_LARGEST_GROUP = 1_200
"""The most rows that a page of PostgreSQL can have, at the largest page size."""
_STEPS = 8
"""Maximum number of records that one call of `TaskEnds.before` examines."""


@dataclass(frozen=True)
class TaskEnd:
    """The end of a task, between two records of a topic.

    Args:
        last: The last record of the ended task.
        following: The first record of the next task; None if the topic has no such record.
    """

    last: KafkaRecord
    following: KafkaRecord | None


@dataclass(frozen=True)
class SentChange:
    """One change event that Debezium has sent.

    Args:
        op: Debezium's code for the kind of change, for example ``c`` for an insert.
        position: Position of the log record that contains the change, as a string. For a binlog,
            the row's number in the log record is appended.
        transaction: The transaction's id; None for a binlog, or if the event has none.
        key: A mapping from each key column's Avro name to the value; empty without a key.
        after: The row after the change, as in the event.
        order: The sort key for the order in which the connector sends changes; None if the event
            has none. On PostgreSQL, the first number of this key is 0 in the first transaction of a
            task that started without a stored position.
        number: The change's number in its transaction, from 1; None if the connector does not
            number changes.
        gtid: The GTID of the transaction; None for PostgreSQL, and if the server has no GTIDs.
        decoded_at: When the connector decoded the change, by the clock of its worker; None if
            the event has no such time.
    """

    op: str
    position: str
    transaction: int | None
    key: Mapping[str, Any]
    after: Any
    order: tuple[int, ...] | None = None
    number: int | None = None
    gtid: str | None = None
    decoded_at: datetime | None = None


def task_of(record: KafkaRecord) -> str | None:
    """Return the name of the Debezium task that sent a record; None if the record names none."""
    name = dict(record.headers).get(_TASK)
    return None if name is None else name.decode()


def moves_key(record: KafkaRecord) -> bool:
    """Return whether a Debezium record is in the first part of an UPDATE of a key.

    An UPDATE of a key is sent in two parts: a delete of the former key with its tombstone, then an
    insert.
    """
    return _NEW_KEY in dict(record.headers)


def takes_key(record: KafkaRecord) -> bool:
    """Return whether Debezium sent a record as the insert for an UPDATE of a key."""
    return _OLD_KEY in dict(record.headers)


class TaskEnds:
    """Finds the offsets at which tasks ended in a topic, and reads the events around them.

    Each topic has a single partition.

    Args:
        reader: Reads the topics.
        events: Decodes events.
        starts: For each topic, the first offset that the topic still has.
    """

    def __init__(
        self, reader: RecordReader, events: EventReader, starts: Mapping[str, int]
    ) -> None:
        self._reader = reader
        self._events = events
        self._starts = starts

    def read_ahead(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Prefetch the records that searches of several topics need, at most 256 per topic.

        Args:
            ranges: For each topic, the first offset to search and the offset after the last one.

        Raises:
            KafkaError: The topics cannot be read in time.
        """
        self._reader.read_ahead(
            {
                topic: (max(self._start(topic), min(first, end) - _BEFORE, end - _FEW), end)
                for topic, (first, end) in ranges.items()
            }
        )

    def between(self, topic: str, first: int, end: int, task: str) -> Iterator[TaskEnd]:
        """Yield the ends of tasks in a range of a topic's offsets, in order.

        The range also includes the last record before ``first``, because a task can have ended
        right after this record.

        Args:
            topic: The topic.
            first: The first offset to search.
            end: The offset after the last one to search.
            task: The connector's present task. If the last record of the range is from another
                task, that task has ended with this record.

        Raises:
            KafkaError: The topic cannot be read in time.
        """
        start, high = self._start(topic), self.last(topic, end)
        if high is None:
            return
        first = min(max(first, start), end)
        low = self._reader.last(topic, start, first) or self._next(topic, first, end) or high
        yield from self._within(low, high)
        if task_of(high) != task:
            yield TaskEnd(high, None)

    def first_change(self, topic: str, first: int, end: int) -> SentChange | None:
        """Return the first change in a range of a topic's offsets; None if there is none.

        Raises:
            DecodeError: The first record with a value is not a change event.
            KafkaError: The topic cannot be read in time.
        """
        found = (one for one in self._read(topic, max(first, self._start(topic)), end) if one.value)
        record = next(found, None)
        return None if record is None else self.change(record)

    def last(self, topic: str, end: int) -> KafkaRecord | None:
        """Return the last record before an offset; None if there is none.

        Raises:
            KafkaError: The topic cannot be read in time.
        """
        return self._reader.last(topic, self._start(topic), end)

    def change(self, record: KafkaRecord) -> SentChange:
        """Decode the change event in a record.

        Raises:
            DecodeError: The record is not a change event.
        """
        what = "an event of the connector"
        key = {} if record.key is None else self._key(record)
        return self._events.read(record, what, lambda event: _sent_change(event, key))

    def before(self, record: KafkaRecord) -> KafkaRecord | None:
        """Return the nearest record before ``record`` that has a value and is from the same task.

        The result is None if a record of another task, or the topic's beginning, comes first. It is
        also None if none of the few nearest records has a value.
        """
        start, before = self._start(record.topic), record
        for _ in range(_STEPS):
            earlier = self._reader.last(record.topic, start, before.offset)
            if earlier is None or task_of(earlier) != task_of(record):
                return None
            if earlier.value is not None:
                return earlier
            before = earlier
        return None

    def sends_later(
        self, record: KafkaRecord, key: tuple[str, ...], end: int, *, offsets: int
    ) -> bool | None:
        """Return whether the transaction of ``record`` later inserts or updates the row of ``key``.

        Args:
            record: A record of the transaction. The search begins after it.
            key: The values of the key columns, as strings.
            end: The offset after the last one to search.
            offsets: The number of offsets to search at most.

        Returns:
            The answer; None if the search stopped before ``end`` and within the transaction.
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

    def changes_later(self, record: KafkaRecord, end: int, *, offsets: int) -> bool | None:
        """Return whether a later record of the topic can change the row that ``record`` changes.

        Such a later record has the same key as ``record``, or has no key because it is a TRUNCATE.

        Args:
            record: A record with a key. The search begins after it.
            end: The offset after the last one to search.
            offsets: The number of offsets to search at most.

        Returns:
            The answer; None if the search found no such record and stopped before ``end``.
        """
        key, last = self._key(record), min(record.offset + 1 + offsets, end)
        for one in self._read(record.topic, record.offset + 1, last):
            if one.key is None or self._key(one) == key:
                return True
        return False if last == end else None

    def first_in_transaction(self, record: KafkaRecord, change: SentChange) -> bool:
        """Return whether a change is a second or later row in its transaction's first log record.

        An example is the second row of a COPY that inserted several rows by one log record. The
        result is also True if the connector does not number the changes of a transaction.

        Args:
            record: The record of the change.
            change: The change.
        """
        if change.number is None or not 1 < change.number <= _LARGEST_GROUP:
            return change.number is None
        # Each event can be in a Kafka transaction of its own, whose end takes an offset.
        first = max(self._start(record.topic), record.offset - 2 * change.number)
        earlier = self._read(record.topic, first, record.offset)
        events = [self.change(one) for one in earlier if one.value is not None]
        return 1 + sum(one.position == change.position for one in events) == change.number

    def sends_again(
        self, last: KafkaRecord, change: SentChange, after: SentChange, *, offsets: int
    ) -> bool | None:
        """Return whether the next task's first change repeats a change that the topic already has.

        This is so if the next task of PostgreSQL's connector started at a position before the
        ended task's last event.

        Args:
            last: The ended task's last record with a value.
            change: The change in ``last``.
            after: The next task's first change in the topic.
            offsets: Number of offsets to read at most; the last of them is the offset of ``last``.

        Returns:
            The answer; None if a record before the offsets that were read could have the repeated
            change.
        """
        if (known := repeats(change, after)) is not None:
            return known
        start = self._start(last.topic)
        first = max(start, last.offset + 1 - offsets)
        events = self._read(last.topic, first, last.offset + 1)
        earlier = [self.change(one) for one in events if one.value is not None]
        if any((one.transaction, one.position) == _place_in_log(after) for one in earlier):
            return True
        complete = first == start or any(_is_after_commit(one, after) for one in earlier)
        return False if complete else None

    def _within(self, low: KafkaRecord, high: KafkaRecord) -> Iterator[TaskEnd]:
        """Yield the ends of tasks between two records.

        The search assumes that no task has the name of an earlier task.
        """
        if task_of(low) == task_of(high):
            return
        if high.offset - low.offset <= _FEW:
            before = low
            for one in [*self._read(low.topic, low.offset + 1, high.offset + 1)]:
                if task_of(one) != task_of(before):
                    yield TaskEnd(before, one)
                before = one
            return
        half = (low.offset + high.offset) // 2
        middle = self._reader.last(low.topic, low.offset + 1, half + 1)
        middle = middle or self._next(low.topic, half + 1, high.offset)
        if middle is None:
            yield TaskEnd(low, high)
            return
        yield from self._within(low, middle)
        yield from self._within(middle, high)

    def _next(self, topic: str, first: int, end: int) -> KafkaRecord | None:
        return next(self._read(topic, first, end), None)

    def _read(self, topic: str, first: int, end: int) -> Iterator[KafkaRecord]:
        return self._reader.read(topic, first, end)

    def _start(self, topic: str) -> int:
        return self._starts.get(topic, 0)

    def _key(self, record: KafkaRecord) -> Mapping[str, Any]:
        """Return a record's key, as a mapping from each key column's Avro name to the value."""
        return self._events.read(replace(record, value=record.key), "an event's key", dict)


def repeats(change: SentChange, after: SentChange) -> bool | None:
    """Return whether ``after`` is ``change``, or a change that Debezium sends before ``change``.

    Rows that COPY inserted by one log record have the same position. So their numbers in the
    transaction are compared. A task that continues from a stored position continues these numbers.

    Args:
        change: The last change of the ended task.
        after: The next task's first change in the topic.

    Returns:
        The answer; None if the two changes do not show the answer. In this case, the next task
        started without a stored position, and ``after`` is in the first transaction of this task.
    """
    if change.order is None or after.order is None:
        return False
    if after.transaction == change.transaction:
        if after.order[1] != change.order[1] or change.number is None or after.number is None:
            return after.order[1] < change.order[1]
        return after.number <= change.number
    if after.order[0] == 0:
        return False if _is_after_commit(change, after) else None
    return after.order < change.order


def _is_after_commit(change: SentChange, after: SentChange) -> bool:
    """Return whether ``after`` has a higher LSN than the last commit before Debezium's ``change``.

    If so, ``after`` is in no transaction that was sent earlier than the transaction of ``change``.
    """
    if change.order is None or after.order is None:
        return False
    return 0 < change.order[0] < after.order[1]


def _place_in_log(change: SentChange) -> tuple[int | None, str]:
    """Return a Debezium change's transaction and position, which identify the log record."""
    return change.transaction, change.position


def _sent_change(event: Any, key: Mapping[str, Any]) -> SentChange:
    """Convert an event of Debezium to a `SentChange`."""
    source, numbered, ms = event["source"], event.get("transaction"), event.get("ts_ms")
    if "pos" in source:
        file, row = str(source["file"]), (int(source["pos"]), int(source["row"]))
        position, order = f"{file}:{row[0]}:{row[1]}", _order_in_binlog(file, row)
    else:
        position, order = str(source["lsn"]), _order_in_wal(source["sequence"])
    return SentChange(
        op=str(event["op"]),
        position=position,
        transaction=source.get("txId"),
        key=key,
        after=event["after"],
        order=order,
        number=None if numbered is None else int(numbered["total_order"]),
        gtid=source.get("gtid"),
        decoded_at=None if ms is None else datetime.fromtimestamp(ms / 1000, timezone.utc),
    )


def _order_in_binlog(file: str, row: tuple[int, int]) -> tuple[int, ...] | None:
    """Return a key that sorts Debezium's rows in the order of the binlog.

    The result is None if the file's name has no number.

    Args:
        file: The name of the binlog file.
        row: The offset of the row's log record in the file, and the row's number in this record.
    """
    number = file.rpartition(".")[2]
    return (int(number), *row) if number.isdecimal() else None


def _order_in_wal(sequence: str | None) -> tuple[int, ...] | None:
    """Return a key that sorts changes as Debezium's connector of PostgreSQL sends them.

    The key consists of the LSN of the last commit before the change and the LSN of the change. The
    LSN of the change is not enough: the connector sends transactions in the order of their commits,
    so a change can have a lower LSN than a change that was sent before it.
    """
    if sequence is None:
        return None
    commit, change = json.loads(sequence)
    return int(commit or 0), int(change)
