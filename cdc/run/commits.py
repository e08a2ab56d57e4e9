"""The guard of a run's commits, and summaries of commits and runs for the state store."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING

from cdc.errors import FencedError, StateError
from cdc.lake.instants import clock_warnings
from cdc.lake.space import measure
from cdc.run import plan
from cdc.runtime.step_times import step
from cdc.store.history import RunEntry
from cdc.store.table_state import CommitSummary, CommitWrites, LastRecord
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.lake.commit import CommitRecord
    from cdc.lake.timeline import Committed, Timeline, Written
    from cdc.rows.fold import Summary
    from cdc.run.context import RunContext, RunResult
    from cdc.store.lease import Lease
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_log = logging.getLogger(__name__)

_LARGE_BYTES = 2**30
"""Smallest size of a table that counts as large, in bytes."""
_LARGE_EVERY = timedelta(hours=1)
"""Shortest time between two measurements of a large table's size."""


class RunGuard:
    """A run's guard: it refuses a commit if the lease is lost or another run has committed.

    Another run has committed if the lake's newest commit has another instant than ``newest``. A
    comparison of offsets would miss a commit that applies a schema change, since such a commit does
    not change the offsets.

    Args:
        table: The table.
        lease: The table's lease.
        newest: The commit that was the lake's newest one when the run began its own commit.
    """

    def __init__(self, table: TableId, lease: Lease, newest: Committed) -> None:
        self._table = table
        self._lease = lease
        self._newest = newest
        self._began = time.monotonic()
        self._written: Written | None = None

    def __call__(self, timeline: Timeline) -> None:
        """Check the commit right before it completes."""
        latest = timeline.latest_offsets()
        if latest is None or latest.instant != self._newest.instant:
            found = "no commit" if latest is None else f"commit {latest.instant}"
            raise FencedError(
                f"table {self._table} was at commit {self._newest.instant} when this run began and"
                f" is at {found} now: another run has committed",
                remedy="Nothing was committed. Run again; it starts from the newest commit.",
                table=self._table,
            )
        self._lease.check()
        self._written = timeline.writes

    def writes(self) -> CommitWrites | None:
        """Return what the commit wrote; None if this is not known.

        The result has the number of seconds from the start of the commit to this call. So the
        caller calls this method right after the commit.
        """
        if (found := self._written) is None:
            return None
        seconds = time.monotonic() - self._began
        return CommitWrites(seconds, found.bytes, found.inserts, found.updates, found.deletes)


def commit_warnings(record: TableRecord, newest: Committed) -> tuple[str, ...]:
    """Return warnings of a run: the newest commit is ahead of the clock, or a commit is lost."""
    return (*clock_warnings(record.table, newest.instant), *_behind_warnings(record, newest))


def _behind_warnings(record: TableRecord, newest: Committed) -> tuple[str, ...]:
    """Return a run's warning if the lake lacks the newest commit that the state store names."""
    known = record.last_commit
    if known is None or known.instant <= newest.instant:
        return ()
    return (
        f"the newest commit of table {record.table} in the lake is {newest.instant}, and the state"
        f" store knows {known.instant}: was the lake restored from a backup? The run reads the"
        " topic again from the lake's commit",
    )


def commit_summary(
    committed: Committed, known: CommitSummary | None = None, writes: CommitWrites | None = None
) -> CommitSummary:
    """Return a commit's summary for the state store.

    Args:
        committed: The commit.
        known: The summary in the state store. If it summarizes this commit and ``writes`` is None,
            the result has the ``writes`` of ``known``.
        writes: What the commit wrote; None if the caller has not made the commit.
    """
    record = committed.record
    if writes is None and known is not None and known.instant == committed.instant:
        writes = known.writes
    handoff = record.handoff
    return CommitSummary(
        offsets=dict(record.offsets),
        epochs=dict(record.epochs),
        last_records=dict(record.last_records),
        position=record.position,
        watermark=record.watermark,
        instant=committed.instant,
        committed_at=committed.at,
        writes=writes,
        columns=() if handoff is None else handoff.fields,
    )


def last_records(previous: CommitRecord, read: Summary) -> dict[int, LastRecord]:
    """Return, for each partition, the last record that runs have read up to the end of a batch.

    A partition keeps the record of the previous commit if the batch has no record of the partition,
    for example because the range has only the marker of a Kafka transaction.
    """
    found = {part: LastRecord(*last) for part, last in read.newest.items() if last[1] >= 0}
    return {**previous.last_records, **found}


def watermark(previous: CommitRecord, read: Summary, lateness_s: int) -> datetime | None:
    """Return the event time up to which a table is complete once a run has committed a batch."""
    now = datetime.now(timezone.utc)
    return plan.watermark(previous.watermark, read.source_ts, lateness_s, now=now)


def run_entry(run_id: str, record: TableRecord, result: RunResult) -> RunEntry:
    """Return the entry for one run of one table in the state store's history of runs."""
    return RunEntry(
        run_id=run_id,
        table=record.table,
        generation=record.generation,
        state=result.state,
        started_at=result.started_at or datetime.now(timezone.utc),
        seconds=result.seconds,
        commits=result.commits,
        events=result.events,
        counts=result.counts,
        offsets=result.offsets,
        watermark=result.watermark,
        error=result.error,
        steps=result.steps,
        instant=result.instant,
    )


def history_of_run(
    context: RunContext, record: TableRecord, result: RunResult
) -> partial[None] | None:
    """Return a function that adds a run to the history of runs; its argument is a transaction.

    The predictions learn from the run at once. The result is None if the run has made no commit and
    has not failed. It is also None if the state store fails, which is logged.

    Args:
        context: The runs' context.
        record: The table's record before the run.
        result: The result of the run.
    """
    if not result.commits and result.error is None:
        return None
    try:
        cost = context.predictions.learn(record, result, context.cpu.cores)
    except StateError as error:
        _log.warning("the run of table %s is not in the history: %s", record.table, error)
        return None
    entry = run_entry(context.run_id, record, result)
    return partial(context.store.add_run, entry=entry, cost=cost)


def record_apart(context: RunContext, record: TableRecord, result: RunResult) -> None:
    """Add a run to the history of runs, in a transaction of its own; a failure is only logged."""
    if (write := history_of_run(context, record, result)) is None:
        return
    try:
        with context.store.transaction() as connection:
            write(connection)
    except StateError as error:
        _log.warning("the run of table %s is not in the history: %s", record.table, error)


@step("upkeep")
def keep_size(spark: SparkSession, store: Store, record: TableRecord) -> TableRecord:
    """Measure a table's size in the lake after a run, and store the size in the table's record.

    The measurement lists all files of the table, so a large table is measured at most once an hour.
    A failure is only logged.

    Returns:
        The table's current record. The record of a shard has no size.
    """
    attempt = record.attempt
    if attempt is None or record.shard is not None:
        return record
    if (known := record.size) is not None and known.image_bytes >= _LARGE_BYTES:
        since = datetime.now(timezone.utc) - known.measured_at
        if timedelta() <= since < _LARGE_EVERY:
            return record
    try:
        size = measure(spark, record.base_path, str(attempt.id))
        newest = store.newest(record)
        if newest.attempt is None or newest.attempt.id != attempt.id:
            return record  # another process has copied the table again
        return store.put(replace(newest, size=size))
    except TributaryError as error:
        _log.warning("the size of table %s in the lake is not known: %s", record.table, error)
        return record
