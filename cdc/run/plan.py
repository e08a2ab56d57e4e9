"""Plans an incremental run, without side effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cdc.capture.position_check import TopicFacts
from cdc.errors import KafkaError
from cdc.rows.kafka_records import Range
from cdc.store.table_state import State, TableRecord

if TYPE_CHECKING:
    from cdc.config import TableSettings

FIRST_RETRY = timedelta(seconds=30)
"""Wait before the first retry of a FAILED table. Each later wait is twice as long."""
LAST_RETRY = timedelta(hours=1)
"""Longest wait between two tries of a FAILED table."""
_CLOCKS_DIFFER = timedelta(minutes=1)
"""How far a watermark can be ahead of this machine's clock, since the clocks of servers differ."""
EVENTS_PER_TASK = 50_000
"""Number of events that one Spark task reads and decodes."""


def runnable(record: TableRecord, now: datetime) -> bool:
    """Whether a run may work on the table now.

    True for a table that is INCREMENTAL, and for a FAILED table that was INCREMENTAL before and
    whose retry is due.

    Args:
        record: The table.
        now: The time by the state store's clock.
    """
    if record.state is State.INCREMENTAL:
        return True
    return (
        record.state is State.FAILED
        and record.resume_to is State.INCREMENTAL
        and record.retry_at is not None
        and record.retry_at <= now
    )


def due(
    records: Iterable[TableRecord], topics: Mapping[str, TopicFacts | KafkaError]
) -> list[TableRecord]:
    """Return the tables that have work, in the given order.

    A table has no work if its topic ends at the offsets of the table's last commit. Any difference
    is work: also an earlier end, another number of partitions, or a topic that is deleted,
    compacted, recreated or unreadable. The run itself determines what the difference means. A
    FAILED table whose retry is due has work, too. A new leader of a partition is not work; the
    check of idle tables handles it.

    Args:
        records: The tables, each of them `runnable`.
        topics: By topic name, the topic's current `TopicFacts`, or the error of reading them.
    """
    found = []
    for record in records:
        topic = topics[record.topic]
        if isinstance(topic, KafkaError):
            found.append(record)
            continue
        done = record.last_commit.offsets if record.last_commit is not None else None
        known_id = record.attempt.topic_id if record.attempt is not None else None
        idle = (
            record.state is State.INCREMENTAL
            and done == dict(topic.stable)
            and topic.id is not None
            and not topic.compacted
            and known_id in (None, topic.id)
        )
        if not idle:
            found.append(record)
    return found


def is_whole(record: TableRecord, topic: TopicFacts | KafkaError) -> bool:
    """Whether runs have committed every event that a table's topic had when the topic was read.

    An idle table can lack events: those of an open Kafka transaction, and all later ones.
    """
    if isinstance(topic, KafkaError) or record.last_commit is None:
        return False
    return topic.is_covered(record.last_commit.offsets)


def waits_for_later_run(record: TableRecord, settings: TableSettings, now: datetime) -> bool:
    """Whether a table with work waits for a later run, so that the table has fewer commits.

    A late table never waits. A table is late if its watermark is older than the sum of
    ``freshness_target_s`` and ``allowed_lateness_s``, or if its last commit has no watermark.
    """
    last = record.last_commit
    if record.state is not State.INCREMENTAL or last is None or last.watermark is None:
        return False
    most = settings.freshness_target_s + settings.allowed_lateness_s
    if now - last.watermark >= timedelta(seconds=most):
        return False
    since = now - last.committed_at
    return timedelta() <= since < timedelta(seconds=settings.min_commit_interval_s)


def ranges(start: Mapping[int, int], until: Mapping[int, int], max_events: int) -> Iterator[Range]:
    """Yield consecutive ranges of the offsets to read, each of them a batch of a run.

    Args:
        start: First offset per partition.
        until: First offset not to read, per partition. The partitions are the same as in ``start``.
            Each offset is at least the partition's offset in ``start``.
        max_events: Maximum number of offsets in one range. A range can have more offsets than this,
            since each unfinished partition gets at least one.
    """
    at = dict(start)
    while any(at[partition] < until[partition] for partition in at):
        budget, end = max_events, dict(at)
        waiting = sorted(partition for partition in at if at[partition] < until[partition])
        for place, partition in enumerate(waiting):
            share = max(1, budget // (len(waiting) - place))
            end[partition] = min(until[partition], at[partition] + share)
            budget = max(0, budget - (end[partition] - at[partition]))
        yield Range(at, end)
        at = end


def tasks(events: int, parallelism: int) -> int:
    """Return the number of Spark tasks that read a batch of this many events."""
    return max(1, min(parallelism, -(-events // EVENTS_PER_TASK)))


def watermark(
    previous: datetime | None, source_ts: Mapping[int, datetime], lateness_s: int, *, now: datetime
) -> datetime | None:
    """Return the event time up to which a table is complete once a run has committed a batch.

    The result is never earlier than ``previous``, with one exception: if ``previous`` is far ahead
    of the clock, it does not count. An event's time can be in the future, for example by ``SET
    timestamp`` of MariaDB. If such a time counted, the table would not be late before this time,
    however old the lake's rows are. So the result is at most `_CLOCKS_DIFFER` ahead of the clock.

    Args:
        previous: Watermark of the last commit.
        source_ts: Latest source time of each partition with events. A partition without events was
            read to its end and does not limit the watermark.
        lateness_s: Seconds to subtract from the source time, for events that can arrive late.
        now: The time by this machine's clock.
    """
    latest = now + _CLOCKS_DIFFER
    known = previous is not None and previous <= latest
    if not source_ts:
        return previous if known or previous is None else latest
    reached = min(min(source_ts.values()) - timedelta(seconds=lateness_s), latest)
    return max(previous, reached) if known and previous is not None else reached


def retry_at(failures: int, now: datetime) -> datetime:
    """Return the time at which runs retry a table after a number of failures in a row."""
    wait = FIRST_RETRY * 2 ** min(failures - 1, 16) if failures > 0 else FIRST_RETRY
    return now + min(wait, LAST_RETRY)
