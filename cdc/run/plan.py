"""Plans an incremental run, without side effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cdc.capture.position_check import TopicFacts
from cdc.rows.kafka_records import Range
from cdc.store.table_state import State, TableRecord

if TYPE_CHECKING:
    from cdc.config import TableSettings

FIRST_RETRY = timedelta(seconds=30)
LAST_RETRY = timedelta(hours=1)
EVENTS_PER_TASK = 50_000
"""Events that one Spark task reads and decodes; fewer are not worth another task."""


def runnable(record: TableRecord, now: datetime) -> bool:
    """Whether a run may work on the table: it is kept up to date, or its next try is due."""
    if record.state is State.INCREMENTAL:
        return True
    return (
        record.state is State.FAILED
        and record.resume_to is State.INCREMENTAL
        and record.retry_at is not None
        and record.retry_at <= now
    )


def due(
    records: Iterable[TableRecord], topics: Mapping[str, TopicFacts], now: datetime
) -> list[TableRecord]:
    """The tables with work, in the order given.

    A table whose topic ends at the offsets of its last commit has no work. Any difference is work:
    also an earlier end, another number of partitions, or a topic that is gone, compacted or
    recreated. The run itself finds out what the difference means. A new leader of a partition is
    not work: the check of idle tables queries it.

    Args:
        records: The tables.
        topics: Their topics as they are now.
        now: The time.
    """
    found = []
    for record in records:
        if not runnable(record, now):
            continue
        topic = topics[record.topic]
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


def waits(record: TableRecord, settings: TableSettings, now: datetime) -> bool:
    """Whether to leave a table with work for a later run, so that it commits less often.

    A late table is never left: one behind its freshness target, or one without a watermark in its
    last commit.
    """
    last = record.last_commit
    if record.state is not State.INCREMENTAL or last is None or last.watermark is None:
        return False
    if now - last.watermark >= timedelta(seconds=settings.freshness_target_s):
        return False
    since = now - last.committed_at
    return timedelta() <= since < timedelta(seconds=settings.min_commit_interval_s)


def ranges(start: Mapping[int, int], until: Mapping[int, int], max_events: int) -> Iterator[Range]:
    """Cut the offsets to read into pieces of at most ``max_events``.

    Args:
        start: First offset per partition.
        until: Offset to stop before, per partition; the same partitions, none below ``start``.
        max_events: Bound of one piece, which has at least one offset of each unfinished partition.
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
    """The number of Spark tasks that read a batch."""
    return max(1, min(parallelism, -(-events // EVENTS_PER_TASK)))


def watermark(
    previous: datetime | None, source_ts: Mapping[int, datetime], lateness_s: int
) -> datetime | None:
    """Event time up to which the table is complete; it never goes back.

    Args:
        previous: Watermark of the last commit.
        source_ts: Latest source time per partition that had events. A partition without events was
            read to its end and does not limit the watermark.
        lateness_s: Seconds to take off.
    """
    if not source_ts:
        return previous
    reached = min(source_ts.values()) - timedelta(seconds=lateness_s)
    return reached if previous is None else max(previous, reached)


def retry_at(failures: int, now: datetime) -> datetime:
    """When a table is tried again after that many failures in a row."""
    wait = FIRST_RETRY * 2 ** min(failures - 1, 16) if failures > 0 else FIRST_RETRY
    return now + min(wait, LAST_RETRY)
