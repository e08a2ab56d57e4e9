"""Runs over many tables: which have work, several at a time, again and again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc import plan
from cdc.run.checks import CaptureChecks
from cdc.run.context import RunResult
from cdc.run.table import run_table, topic_facts
from cdc.state import TableRecord

if TYPE_CHECKING:
    from cdc.position_check import TopicFacts
    from cdc.run.context import RunContext

_log = logging.getLogger(__name__)


def run_tables(
    context: RunContext, records: Iterable[TableRecord], parallel: int | None = None
) -> list[RunResult]:
    """One incremental run of all tables that have work, several at a time.

    Tables without new offsets cost one place in three calls to Kafka. One table's failure never
    stops another's.

    Args:
        context: What runs work with.
        records: The tables; those that a run may not work on are passed over.
        parallel: How many at a time; None takes ``spark.parallel_tables``.

    Returns:
        One result per table that had work, in the order given.

    Raises:
        KafkaError: The cluster cannot be asked for offsets.
    """
    now = datetime.now(timezone.utc)
    wanted = [record for record in records if plan.runnable(record, now)]
    if not wanted:
        return []
    topics = topic_facts(context, [record.topic for record in wanted])
    due = plan.due(wanted, topics, now)
    if not due:
        return []
    checks = CaptureChecks(context)
    workers = max(1, min(len(due), parallel or context.config.spark.parallel_tables))
    with ThreadPoolExecutor(workers, thread_name_prefix="run") as pool:
        futures = [
            pool.submit(_run_due, context, record, topics[record.topic], checks) for record in due
        ]
        return [future.result() for future in futures]


def _run_due(
    context: RunContext, record: TableRecord, topic: TopicFacts, checks: CaptureChecks
) -> RunResult:
    # Tables share the cores fairly, each in a pool of its own; the property is the thread's.
    context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", str(record.table))
    return run_table(context, record, checks=checks, topic=topic)


def run_continuously(
    context: RunContext,
    records: Callable[[], Sequence[TableRecord]],
    stop: threading.Event,
    *,
    min_interval_s: float = 5.0,
    parallel: int | None = None,
    report: Callable[[list[RunResult]], None] | None = None,
) -> None:
    """Run after run until told to stop; the run that is under way is finished.

    Args:
        context: What runs work with.
        records: The tables as they are now; asked before each run.
        stop: Set it to stop.
        min_interval_s: From the start of a run to the start of the next, at least, in seconds.
        parallel: How many tables at a time.
        report: Called with the results of each run that had work.
    """
    while not stop.is_set():
        started = time.monotonic()
        results = run_tables(context, records(), parallel)
        if results and report is not None:
            report(results)
        stop.wait(max(0.0, started + min_interval_s - time.monotonic()))
