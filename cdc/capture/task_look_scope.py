"""Decides what a look at a connector's tasks must search, and what it leaves to the next look.

A look finds out whether changes were lost when one task ended and another one replaced it
(`cdc.capture.task_looks`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cdc.store.kept_task_looks import Doubt, TaskLook, first_offset

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord

_RENEWED_AFTER = timedelta(minutes=5)
"""Age from which on a stored look is replaced even if only the topics' ends differ. An old
look gives the same result as a new look, but the search after an old look reads more offsets.
"""


def to_search(
    known: TaskLook, now: TaskLook, sent: Mapping[str, datetime], unread: Collection[str]
) -> tuple[list[str], dict[str, datetime]]:
    """Return the topics that a new look at tasks must search, and the topics for a later look.

    Args:
        known: The previous look.
        now: The new look.
        sent: The time of the newest record of each topic that can be read.
        unread: The topics that cannot be read now.

    Returns:
        The topics that the new look must search; and the topics that a later look must search, in
        the form of `TaskLook.behind`.
    """
    changed = known.task != now.task
    behind = {topic: known.behind.get(topic, known.beat_at) for topic in unread if changed}
    behind |= {topic: at for topic, at in known.behind.items() if topic in unread}
    since = {**(dict.fromkeys(sent, known.beat_at) if changed else {}), **known.behind}
    # If the connector has sent a heartbeat later than a record, it does not skip after it. The
    # heartbeat is a row that the source has logged in a transaction of its own. So it never comes
    # between two rows of one record of the log, as the heartbeats of Debezium itself can.
    return [topic for topic, at in sent.items() if topic in since and at >= since[topic]], behind


def to_await(
    known: TaskLook, now: TaskLook, searched: Collection[str], unread: Collection[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return a capture's awaited topics in two groups: those that have grown, and the others.

    A topic is awaited until the present task sends its first change to the topic. If the task is
    new since the previous look, all readable topics that are not searched are awaited from now on.

    Args:
        known: The previous look.
        now: The new look.
        searched: The topics in which the new look searches for ends of tasks.
        unread: The topics that cannot be read now.

    Returns:
        Two mappings in the form of `TaskLook.awaited`, without the topics in ``searched``.
    """
    others = [topic for topic in now.ends if topic not in searched]
    if known.task != now.task:
        return {}, {topic: now.ends[topic] for topic in others if topic not in unread}
    left = {topic: known.awaited[topic] for topic in others if topic in known.awaited}
    grown = {topic: at for topic, at in left.items() if now.ends[topic] > at}
    return grown, {topic: at for topic, at in left.items() if topic not in grown}


def with_certain_ends(
    look: TaskLook, sent: Mapping[str, datetime], earlier: Mapping[str, int]
) -> TaskLook:
    """Return a look whose end offsets are before all records that a later task may have sent.

    A later task is one that started after the task of the look's heartbeat. If a topic's newest
    record is newer than this heartbeat, a later task may have sent the record. For such a topic,
    the result has the end offset of the previous look. So the next look searches the record again.

    Args:
        look: The look.
        sent: The time of each topic's newest record, read after the look.
        earlier: The end offsets of the topics in the previous look.
    """
    kept = {topic: end for topic, end in earlier.items() if topic in look.ends}
    certain = {
        topic: end
        for topic, end in look.ends.items()
        if topic not in sent or sent[topic] <= look.beat_at
    }
    return replace(look, ends={**kept, **certain})


def postponed(known: TaskLook, topics: Iterable[str], beat_at: datetime) -> TaskLook:
    """Return the previous look at a capture's tasks, plus topics that are not judged yet.

    Args:
        known: The previous look.
        topics: The topics that a new look could not judge.
        beat_at: The time of the new look's heartbeat.
    """
    return replace(known, postponed={one: known.postponed.get(one, beat_at) for one in topics})


def is_worth_keeping(look: TaskLook, earlier: TaskLook) -> bool:
    """Return whether a new look at a capture's tasks must replace the look in the state store.

    The result is True if the looks differ in ``task``, ``doubts``, ``behind``, ``awaited`` or
    ``postponed``, or if a topic has grown and the new look is at least five minutes newer.

    Args:
        look: The new look.
        earlier: The previous look.
    """
    if earlier.task != look.task or earlier.doubts != look.doubts:
        return True
    if (earlier.behind, earlier.awaited) != (look.behind, look.awaited):
        return True
    if earlier.postponed != look.postponed:
        return True
    return earlier.ends != look.ends and look.beat_at - earlier.beat_at >= _RENEWED_AFTER


def of_same_topics(known: TaskLook, begun: Mapping[str, TableRecord]) -> TaskLook:
    """Return the previous look at a capture's tasks, without topics that were later recreated.

    Such topics are left out of ``ends``, ``behind`` and ``awaited``.
    """
    same = {topic for topic, record in begun.items() if known.is_of(record)}
    ends = {topic: end for topic, end in known.ends.items() if topic in same}
    behind = {topic: at for topic, at in known.behind.items() if topic in same}
    awaited = {topic: end for topic, end in known.awaited.items() if topic in same}
    return replace(known, ends=ends, behind=behind, awaited=awaited)


def remaining(known: TaskLook, records: Iterable[TableRecord]) -> dict[str, Doubt]:
    """Return the previous look's doubts (possible losses) about tables not copied after it."""
    tables = [str(one.table) for one in records if known.doubt(one) is not None]
    return {table: known.doubts[table] for table in tables}


def search_range(record: TableRecord, known: TaskLook, now: TaskLook) -> tuple[int, int]:
    """Return the first and the end offset of the range that a look must search in a table's topic.

    O is the offset from which on the table's stream is applied. The first offset is the greater of
    O and the previous look's end offset.
    """
    searched, end = known.ends.get(record.topic, 0), now.ends.get(record.topic, 0)
    # Without its UUID, a topic that has begun again shows by its end.
    return max(first_offset(record) or 0, searched if searched <= end else 0), end
