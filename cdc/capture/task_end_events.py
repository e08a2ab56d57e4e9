"""Pure functions that judge the end of a connector's task by the events before and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.debezium.task_ends import task_of

if TYPE_CHECKING:
    from cdc.debezium.task_ends import SentChange, TaskEnd, TaskEnds
    from cdc.store.kept_task_looks import TaskLook


def has_later_task(ends: TaskEnds, topic: str, now: TaskLook) -> bool:
    """Return whether a topic's last record is from a later task than the newest heartbeat is.

    If so, the end of the task before the later task cannot be judged yet: the later task may still
    be within its first transaction. A heartbeat from the later task shows that this transaction is
    complete.
    """
    last = ends.last(topic, now.ends.get(topic, 0))
    if last is None or last.timestamp is None or task_of(last) == now.task:
        return False
    return last.timestamp > now.beat_at


def begins_group(change: SentChange, before: SentChange | None, after: SentChange | None) -> bool:
    """Return whether a task can have ended after it sent only the first row of a log record.

    That is possible if the task's last change is an insert, and the changes before and after this
    insert are from other log records.

    Args:
        change: The last change of the task.
        before: The change that the task sent to the topic before ``change``; None if there is none.
        after: The next task's first change in the topic; None if there is none.
    """
    around = {one.position for one in (before, after) if one is not None}
    return change.op == "c" and change.position not in around


def is_doubled(change: SentChange, after: SentChange | None) -> bool:
    """Return whether a capture's next task has sent the last change of the ended task again.

    Args:
        change: The last change of the ended task.
        after: The next task's first change in the topic; None if there is none.
    """
    return after is not None and (after.position, after.after) == (change.position, change.after)


def place_of(ended: TaskEnd) -> str:
    """Describe where a task ended in a captured topic, as offset and topic, for a message."""
    return f"offset {ended.last.offset} of topic {ended.last.topic}"
