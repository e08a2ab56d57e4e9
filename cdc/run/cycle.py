"""Runs many tables: selects the tables with work, runs several at a time, and repeats."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from cdc.errors import KafkaError
from cdc.lake.shards import TRY_S
from cdc.run import plan
from cdc.run.context import RunResult
from cdc.run.former_generations import remove_former
from cdc.run.idle_tables import has_edited_settings
from cdc.run.metastore_name import follow_name, name_idle
from cdc.run.schedule import TURN_S, Rules
from cdc.run.stopping import unexpected
from cdc.run.table import run_table
from cdc.run.work_finder import WorkFinder
from cdc.run.workers import Work, Workers
from cdc.runtime import task_watch
from cdc.runtime.clock_watch import ClockWatch
from cdc.runtime.daemon_threads import fulfil
from cdc.runtime.spark import has_ended
from cdc.store.error_record import ErrorRecord
from cdc.store.table_state import TableRecord
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.run.context import RunContext
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_IDLE_LOOK_S = 60.0
"""Seconds between checks of the tables without new offsets."""
_END_S = 20.0
"""Longest wait, in seconds, for a check of captures or idle tables when continuous runs end."""
_TIDY_S = 20.0
"""Limit, in seconds, of each step of `_tidy_after_round` in continuous runs; other checks wait."""
_REPORT_S = 0.2
"""Seconds between reports of tables that have run."""


def run_tables(
    context: RunContext,
    records: Collection[TableRecord],
    parallel: int | None = None,
    *,
    look_at_idle: bool = True,
    spaced: bool = False,
) -> list[RunResult]:
    """Run all tables that have work, several at a time.

    The failure of one table does not stop the others. `cdc.capture.watch` reports a connector that
    stops.

    A table without new offsets adds one entry to each of five calls to Kafka. Once per process, it
    adds one entry to a sixth call. The table's slot and catalog are checked, too, since neither a
    lost slot nor a rewrite of the table sends an event.

    Args:
        context: The runs' context.
        records: The tables. Tables whose state does not allow a run are skipped.
        parallel: Number of tables that run at a time; ``spark.parallel_tables`` if None.
        look_at_idle: Whether to do the work that needs no new offsets, too: check catalogs and
            topic settings; check captures, also those of tables whose state does not allow a run;
            remove former generations whose retention time is over; update names in the catalog of
            names.
        spaced: Whether this call is one of many rounds. If True, a table that is not late waits for
            its ``min_commit_interval``, and a table with a backlog stops after `TURN_S` seconds and
            leaves the rest to its next run. If False, each table runs up to the end that its topic
            has at the start of this call.

    Returns:
        One result per table that had work, in the order of ``records``.

    Raises:
        KafkaError: The offsets cannot be read from the cluster.
    """
    ends = not spaced
    config = context.config
    rules = Rules(parallel or config.spark.parallel_tables, config.pool_shares, ends, TURN_S)
    with Workers(rules, lambda work, number: _run_due(context, work, number)) as workers:
        workers.begin_round()
        finder = _find_work(context, records, look_at_idle=look_at_idle, spaced=spaced)
        if look_at_idle:
            # Short runs do not wait until the sources have answered about all other tables. A long
            # run does, since it could keep a worker from the tables that this look finds.
            workers.offer(one for one in finder.work() if not one.entry.long)
            finder.look_at_idle()
        workers.offer(finder.work())
        if look_at_idle:
            finder.captures.look_at_all(records)
        results: dict[TableId, RunResult] = {}
        for result in workers.finish():
            results[result.table] = result.after(results.get(result.table))
    if look_at_idle:
        _tidy_after_round(context, records, {*results})
    return [results[record.table] for record in records if record.table in results]


def _find_work(
    context: RunContext, records: Iterable[TableRecord], *, look_at_idle: bool, spaced: bool
) -> WorkFinder:
    """Find the tables for which the topics show work.

    Args:
        context: The runs' context.
        records: The tables that no worker runs at the moment.
        look_at_idle: As in `run_tables`.
        spaced: As in `run_tables`.
    """
    wanted = _runnable_tables(context, records)
    return WorkFinder(context, wanted, look_at_idle=look_at_idle, spaced=spaced)


def _runnable_tables(context: RunContext, records: Iterable[TableRecord]) -> list[TableRecord]:
    """Return the tables that a run may work on now, by their state and their settings."""
    now, made = context.store.now(), context.published_settings
    return [one for one in records if plan.runnable(one, now) and made.refusal(one) is None]


def _tidy_after_round(
    context: RunContext,
    records: Iterable[TableRecord],
    ran: Collection[TableId] = (),
    *,
    limit_s: float = math.inf,
) -> None:
    """Remove former generations of tables, and update names in the catalog of names.

    Only the names of tables that did not run are updated. Each of the two steps takes the lease of
    the table that the step changes.

    Args:
        context: The runs' context.
        records: The tables.
        ran: The tables that have run in this round.
        limit_s: Seconds after which each of the steps leaves the rest to the next round. An edited
            setting can change the names of thousands of tables.
    """
    wanted = _runnable_tables(context, records)
    remove_former(context, wanted, limit_s=limit_s)
    idle = (record for record in wanted if record.table not in ran)
    # A changed partition_by is that of a copy to come, not of the published table.
    unedited = [record for record in idle if not has_edited_settings(context, record)]
    name_idle(context, unedited, limit_s=limit_s)


def _run_due(context: RunContext, work: Work, worker: int) -> RunResult:
    """Run one table in this thread, and return the result.

    If Spark has ended, the result has the error, and this function raises none.
    """
    try:
        return _run_and_name(context, work, worker)
    except Exception as error:  # py4j and sockets raise many kinds once Spark has ended
        if not _spark_is_gone(context):
            raise
        _log.info("the run of table %s ended with Spark: %s", work.table, error)
        gone = ErrorRecord.of(unexpected(work.record, error))
        return RunResult(work.table, work.record.state, error=gone)


def _spark_is_gone(context: RunContext) -> bool:
    """Whether runs fail because Spark has ended, or because this command is ending."""
    return context.ending or has_ended()


def _run_and_name(context: RunContext, work: Work, worker: int) -> RunResult:
    """Run one table in this thread, and then update the table's name in the catalog of names."""
    # Workers share the cores fairly, each in its own pool; the property applies to this thread.
    context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"worker {worker}")
    record = work.record
    if (held := _held_by_other(context, work)) is not None:
        return RunResult(record.table, record.state, skipped=True, deferred=True, warnings=(held,))
    result = run_table(context, record, captures=work.captures, topic=work.topic, turn=work.turn)
    if not result.commits:
        return result
    covered = not isinstance(work.topic, KafkaError) and work.topic.is_covered(result.offsets)
    if covered and work.seen_at <= time.time():  # else the clock was set back meanwhile
        context.predictions.note_whole(record.table, work.seen_at)
    try:
        # Columns and partitions can be new: update the metastore.
        follow_name(context, record, wait_s=TRY_S)
    except TributaryError as error:
        _log.warning("%s", error)
        return replace(result, warnings=(*result.warnings, error.message))
    return result


def _held_by_other(context: RunContext, work: Work) -> str | None:
    """Return a message that says why a deferred shard cannot run now; None if the shard can run.

    While another process holds the shared lake table's lease, a run of the shard would decode a
    batch that it cannot commit. The message names this other process. If the state store fails, the
    message is the store's error.
    """
    if not work.deferred or work.entry.lake is None:
        return None
    try:
        held = context.shared(work.entry.lake).held_by_other()
    except TributaryError as error:
        return error.message
    return None if held is None else held.message


def run_continuously(
    context: RunContext,
    records: Callable[[], Sequence[TableRecord]],
    stop: threading.Event,
    *,
    min_interval_s: float = 5.0,
    report: Callable[[list[RunResult]], None] | None = None,
    watch: Callable[[], object] | None = None,
) -> None:
    """Run the tables again and again until ``stop`` is set.

    Each round looks for tables that have work, also while workers run other tables. So no table
    waits for another table's run if a worker is free. If Kafka or the state store is unreachable, a
    round finds nothing, and the next round tries again. About once a minute, the idle tables and
    their captures are checked in another thread, because the check can wait for servers that do not
    answer. When the loop ends, it waits for the runs in progress. For a check in progress, it waits
    for up to 20 s.

    The loop also ends if only a new process can continue: Spark has ended, its tasks hang and keep
    their cores (`cdc.runtime.task_watch.held_cores`), or a file with secrets has changed.

    Args:
        context: The runs' context.
        records: Called in each round; returns the tables' current records.
        stop: The loop ends when this event is set.
        min_interval_s: Minimum number of seconds between the starts of two rounds. After a turn
            that left work, the next round starts earlier.
        report: Called with the results of the tables that have run since the last call.
        watch: Called about once a minute in another thread, also if no round was possible.
    """
    clock = ClockWatch()

    def report_results() -> None:
        if (results := workers.results()) and report is not None:
            report(results)

    rules = Rules(context.config.spark.parallel_tables, context.config.pool_shares, turn_s=TURN_S)
    run = partial(_run_due, context)
    # The workers end first. No table starts after a request to stop: 20 s later, the JVM is killed.
    with _Background() as background, Workers(rules, run, stop.is_set) as workers:
        while not _must_end(context, stop):
            started = time.monotonic()
            if clock.look():
                context.predictions.forget_whole()
            if done := _try_round(context, workers, background, records):
                report_results()
            if watch is not None and background.is_due("watch"):
                background.begin("watch", watch)
            took = time.monotonic() - started
            if done:
                context.rounds.note(took)
            while not _must_end(context, stop):
                report_results()
                passed = time.monotonic() - started
                if passed >= (workers.interval(min_interval_s, took) if done else min_interval_s):
                    break
                stop.wait(min(_REPORT_S, max(0.01, min_interval_s)))
        background.end()
    report_results()


class _Background:
    """Jobs that take place about once a minute, one after the other, in a thread of their own.

    A job can wait for a server that does not answer. So the process can end before a job has ended:
    every job can be cut off at any moment, as by a crash.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[float, Future[object]]] = {}
        self._begun: SimpleQueue[tuple[Future[object], Callable[[], object]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="background", daemon=True)
        self._ends_at = math.inf

    def __enter__(self) -> _Background:
        """Start the thread, and return this object."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the job in progress, for up to 20 seconds from `end` on."""
        self.end()
        self._thread.join(max(0.0, self._ends_at - time.monotonic()))
        if self._thread.is_alive():
            _log.warning("a check of captures or idle tables has not ended, and is cut off")

    def end(self) -> None:
        """Drop the jobs that have not begun. From now on, the job in progress has a bound."""
        if self._ends_at < math.inf:
            return
        self._ends_at = time.monotonic() + _END_S
        for _began, done in self._jobs.values():
            done.cancel()
        self._begun.put(None)

    def is_due(self, job: str) -> bool:
        """Whether a job can begin: it is not in progress, and last began at least a minute ago.

        Raises:
            Exception: The job has ended by this error.
        """
        if job not in self._jobs:
            return True
        began, done = self._jobs[job]
        if not done.done():
            return False
        done.result()
        return time.monotonic() - began >= _IDLE_LOOK_S

    def begin(self, job: str, work: Callable[[], object]) -> None:
        """Begin a job, once the other jobs that have begun are done."""
        done: Future[object] = Future()
        self._jobs[job] = (time.monotonic(), done)
        self._begun.put((done, work))

    def _work(self) -> None:
        """Do the jobs in the order in which they began, until the ``with`` block ends."""
        while (job := self._begun.get()) is not None:
            done, work = job
            if done.set_running_or_notify_cancel():
                fulfil(done, work)  # the loop of rounds raises an error


def _try_round(
    context: RunContext,
    workers: Workers,
    background: _Background,
    records: Callable[[], Sequence[TableRecord]],
) -> bool:
    """Find the tables that have work, and offer them to the workers; return False on an error.

    The next round then tries again, unless Spark has ended.
    """
    with _failures_are_logged(context, "no round was possible"):
        look = background.is_due("look")
        busy = workers.begin_round(looks=look)
        idle = [record for record in records() if record.table not in busy]
        finder = _find_work(context, idle, look_at_idle=look, spaced=True)
        workers.offer(finder.work())
        if look:
            background.begin("look", partial(_look_at_idle, context, workers, finder, idle))
        return True
    return False


def _look_at_idle(
    context: RunContext, workers: Workers, finder: WorkFinder, records: Sequence[TableRecord]
) -> None:
    """Check the tables that do not run now, and their captures; offer the workers the changed ones.

    Args:
        context: The runs' context.
        workers: The workers.
        finder: The facts of the round that begins the check.
        records: The round's tables.
    """
    with _failures_are_logged(context, "no check of idle tables was possible"):
        finder.look_at_idle()
        workers.offer_found(finder.found())
        finder.captures.look_at_all(records)
        _tidy_after_round(context, workers.untouched(records), limit_s=_TIDY_S)


@contextmanager
def _failures_are_logged(context: RunContext, what: str) -> Iterator[None]:
    """Log errors of Kafka, of the state store and of Spark's end instead of raising them."""
    try:
        yield
    except TributaryError as error:
        # Kafka or the state store is unreachable.
        _log.warning("%s: %s", what, error)
        context.secret_files.look()
    except Exception as error:  # py4j and sockets raise many kinds once Spark has ended
        if not _spark_is_gone(context):
            raise
        _log.info("%s: Spark has ended: %s", what, error)


def _must_end(context: RunContext, stop: threading.Event) -> bool:
    """Whether continuous runs must end: by ``stop``, hung tasks, Spark's end or new secrets."""
    needs_restart = task_watch.held_cores() or context.secret_files.changed
    return stop.is_set() or bool(needs_restart) or has_ended()
