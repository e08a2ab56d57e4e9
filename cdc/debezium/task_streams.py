"""Finds out from one topic which part of PostgreSQL's log each task of a connector has sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.debezium.task_ends import task_of

if TYPE_CHECKING:
    from cdc.debezium.task_ends import TaskEnds
    from cdc.kafka import KafkaRecord

_TASKS = 100
"""Maximum number of tasks that are examined in a topic; the newest tasks are examined."""


@dataclass(frozen=True)
class TaskStream:
    """What one task of PostgreSQL's connector has sent to one topic.

    Each event has two LSNs (`SentChange.order`): its commit LSN, which is the LSN of the last
    commit before the event, and the event's own LSN. Until the task has read a commit, the commit
    LSN is the position that Connect had stored when the task began.

    Args:
        first: The commit LSN of the task's first event.
        later: The task's greatest commit LSN at or before the position that `task_streams` was
            given.
        last: The greater of the two LSNs of the task's last event.
    """

    first: int
    later: int
    last: int


def task_streams(ends: TaskEnds, topic: str, end: int, position: int) -> Iterator[TaskStream]:
    """Yield, for one topic, the `TaskStream` of each Debezium task that began before a position.

    Only the newest tasks of the topic are examined, at most `_TASKS`.

    Args:
        ends: Reads the topic.
        topic: The topic.
        end: The offset after the last one to search.
        position: The position, as an LSN. A task began before the position if `TaskStream.first`
            is less than the position.

    Raises:
        DecodeError: A record is not a change event.
        KafkaError: The topic cannot be read in time.
    """
    begin, ranges = 0, []
    for one in [*ends.between(topic, 0, end, "")]:
        ranges.append((begin, one.last))
        begin = one.last.offset + 1
    for begin, last in ranges[-_TASKS:]:
        change = ends.first_change(topic, begin, last.offset + 1)
        order = _order_of_event(ends, last)
        if change is None or change.order is None or order is None:
            continue
        first = change.order[0]
        if first < position:
            yield TaskStream(
                first, _later_commit_lsn(ends, (begin, last), first, position), max(order)
            )


def _later_commit_lsn(
    ends: TaskEnds, sent: tuple[int, KafkaRecord], first: int, position: int
) -> int:
    """Return a task's greatest commit LSN up to a position (`TaskStream.later`).

    A task sends its events in the order of their commit LSNs, so a binary search finds the result.

    Args:
        ends: Reads the topic.
        sent: The first offset of the task's events, and the task's last record.
        first: The commit LSN of the task's first event, which is before the position.
        position: The position.
    """
    (low, last), found = sent, first
    high = last.offset + 1
    while high - low > 1:
        middle = (low + high) // 2
        record = ends.last(last.topic, middle + 1)
        is_sent = record is not None and record.offset > low and task_of(record) == task_of(last)
        order = _order_of_event(ends, record) if record is not None and is_sent else None
        if record is None or order is None:
            low = middle
        elif order[0] <= position:
            low, found = middle, order[0]
        else:
            high = record.offset
    return found


def _order_of_event(ends: TaskEnds, record: KafkaRecord) -> tuple[int, ...] | None:
    """Return the sort key of the event in a record of Debezium (`SentChange.order`).

    For a tombstone, this is the sort key of the same task's change before the tombstone. The result
    is None if there is no such change, or if the change has no sort key.
    """
    change = ends.before(record) if record.value is None else record
    return None if change is None else ends.change(change).order
