"""Runs many tables: selects the tables with work, runs several at a time, and repeats."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture import position_check
from cdc.capture.gathering import Captures
from cdc.capture.judgement import of_capture, of_table, stopping
from cdc.capture.remembered_losses import check_losses
from cdc.capture.topic_facts import cut_off, topic_facts, with_settings
from cdc.errors import (
    CaptureError,
    KafkaError,
    LostHistoryError,
    PositionError,
    SecretError,
    UnreachableError,
)
from cdc.lake.shards import TRY_S
from cdc.run import plan
from cdc.run.catalog_name import follow_name, name_idle
from cdc.run.comparison import settings_digest
from cdc.run.context import RunResult, Turn, Unchecked
from cdc.run.ddl_events import statements_since
from cdc.run.former_generations import remove_former
from cdc.run.schedule import TURN_S, Rules
from cdc.run.stopping import unexpected
from cdc.run.table import run_table
from cdc.run.workers import Work, Workers
from cdc.runtime import task_watch
from cdc.runtime.clock_watch import ClockWatch
from cdc.runtime.spark import has_ended
from cdc.store.error_record import ErrorRecord
from cdc.store.table_state import TableRecord
from schemas.errors import TributaryError
from schemas.fingerprint import READ_AT

if TYPE_CHECKING:
    from cdc.capture.position_check import TopicFacts
    from cdc.config import TableSettings
    from cdc.run.context import RunContext
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_IDLE_LOOK_S = 60.0
"""Seconds between checks of the tables without new offsets."""
_REPORT_S = 0.2
"""Seconds between reports of tables that have run."""
_SMALLEST_COMMIT = 50_000
"""Number of events that one commit may always have, even if they take longer than a turn."""


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
        parallel: Number of tables that run at a time; None takes ``spark.parallel_tables``.
        look_at_idle: Whether to do the work that needs no new offsets, too: check catalogs, topic
            settings and captures, also of tables whose state does not allow a run; remove former
            generations whose retention time is over; update names in the catalog of names.
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
        _offer_work(context, workers, records, look_at_idle=look_at_idle, spaced=spaced)
        results: dict[TableId, RunResult] = {}
        for result in workers.finish():
            results[result.table] = result.after(results.get(result.table))
    if look_at_idle:
        _tidy_after_round(context, records, {*results})
    return [results[record.table] for record in records if record.table in results]


def _offer_work(
    context: RunContext,
    workers: Workers,
    records: Collection[TableRecord],
    *,
    look_at_idle: bool,
    spaced: bool,
) -> None:
    """Find tables that have work, and offer them to the workers.

    Args:
        context: The runs' context.
        workers: The workers. Their `begin_round` was called before the records were read.
        records: The tables that no worker runs at the moment.
        look_at_idle: As in `run_tables`.
        spaced: As in `run_tables`.
    """
    wanted = _runnable_tables(context, records)
    captures = Captures(context)
    work = _find_work(context, captures, wanted, look_at_idle=look_at_idle, spaced=spaced)
    workers.offer(work if wanted else (), looked=look_at_idle)
    if look_at_idle:
        captures.look_at_all(records)


def _runnable_tables(context: RunContext, records: Iterable[TableRecord]) -> list[TableRecord]:
    """Return the tables that a run may work on now, by their state and their settings."""
    now, made = context.store.now(), context.published_settings
    return [one for one in records if plan.runnable(one, now) and made.refusal(one) is None]


def _tidy_after_round(
    context: RunContext, records: Iterable[TableRecord], ran: Collection[TableId] = ()
) -> None:
    """Remove former generations of tables, and update names in the catalog of names.

    Only the names of tables that did not run are updated. Each of the two steps takes the lease of
    the table that the step changes.
    """
    wanted = _runnable_tables(context, records)
    remove_former(context, wanted)
    idle = (record for record in wanted if record.table not in ran)
    # A changed partition_by is that of a copy to come, not of the published table.
    name_idle(context, [record for record in idle if not _has_edited_settings(context, record)])


def _find_work(
    context: RunContext,
    captures: Captures,
    wanted: Sequence[TableRecord],
    *,
    look_at_idle: bool,
    spaced: bool,
) -> list[Work]:
    """Return the work of a round: tables with new events, and tables that changed without events.

    Tables that changed without events are looked for only if ``look_at_idle`` is true.
    """
    if not wanted:
        return []
    now = datetime.now(timezone.utc)
    topics = topic_facts(context, [record.topic for record in wanted])
    if look_at_idle:
        topics = with_settings(context, topics)
    behind = {record.table for record in plan.due(wanted, topics)}
    settings = {
        one.table: _settings_if_valid(context, one) for one in wanted if one.table in behind
    }
    working = {
        record.table
        for record in wanted
        if record.table in behind
        and not (
            spaced
            and _waits_for_later_run(settings[record.table], record, topics[record.topic], now)
        )
    }
    for record in wanted:
        if record.table not in behind and plan.is_whole(record, topics[record.topic]):
            context.predictions.note_whole(record.table, now.timestamp())
    found: set[TableId] = set()
    if look_at_idle:
        idle = [record for record in wanted if record.table not in working]
        found |= _idle_tables_that_changed(context, captures, idle)
        found |= context.served.differing_from_lake(context, idle)
        found |= cut_off(context, idle, topics)
    due = [record for record in wanted if record.table in working | found]
    if due and not look_at_idle:
        topics = with_settings(context, {record.topic: topics[record.topic] for record in due})
    turn_s = TURN_S if spaced else math.inf
    work = []
    for record in due:
        known = settings.get(record.table) or _settings_if_valid(context, record)
        topic = topics[record.topic]
        entry = context.predictions.entry(record, known, topic, turn_s)
        turn = Turn(TURN_S if spaced else None, _events_of_turn(context, record, turn_s))
        facts = (record, topic, captures, entry, turn, now.timestamp())
        work.append(Work(*facts, found=record.table in found))
    return work


def _events_of_turn(context: RunContext, record: TableRecord, turn_s: float) -> int | None:
    """Return how many events in one commit fit into a turn; None if runs have no turns."""
    if math.isinf(turn_s):
        return None
    known = context.predictions.estimate(record.table)
    return max(_SMALLEST_COMMIT, known.events_within(turn_s))


def _settings_if_valid(context: RunContext, record: TableRecord) -> TableSettings | None:
    """Return a table's settings; None if they are invalid, which the table's run reports."""
    try:
        return context.config.settings_on_plan(record.table, record.tier)
    except TributaryError:
        return None


def _waits_for_later_run(
    settings: TableSettings | None,
    record: TableRecord,
    topic: TopicFacts | KafkaError,
    now: datetime,
) -> bool:
    """Whether the table waits for a later run.

    A table waits if it has committed recently, is not late, and has less than a full batch.
    """
    if isinstance(topic, KafkaError) or settings is None:
        return False
    done = record.applied_offsets or {}
    behind = sum(end - done.get(partition, 0) for partition, end in topic.stable.items())
    return 0 <= behind < settings.max_events_per_run and plan.waits_for_later_run(
        record, settings, now
    )


def _idle_tables_that_changed(
    context: RunContext, captures: Captures, idle: Iterable[TableRecord]
) -> set[TableId]:
    """Return the idle tables whose capture, catalog or settings have changed.

    Such a change sends no event. An unreachable source does not stop an idle table, since the lake
    already has all readable events of the table. `RunContext.unchecked` lists the tables that could
    not be checked.
    """
    groups: dict[tuple[str, str], list[TableRecord]] = {}
    for record in idle:
        groups.setdefault((record.table.source, record.tier), []).append(record)
    context.unchecked.clear()
    found: set[TableId] = set()
    for (source, tier), records in groups.items():
        failures: list[TributaryError] = []
        # The result of one look is kept even if another look is not possible.
        for look in (
            _tables_with_broken_capture,
            _tables_changed_in_catalog,
            _tables_with_statements,
        ):
            try:
                found |= look(context, captures, records)
            except UnreachableError as error:
                failures.append(error)
                break
            except TributaryError as error:
                failures.append(error)
        found |= {record.table for record in records if _has_edited_settings(context, record)}
        left = tuple(one.table for one in records if one.table not in found)
        if failures and left:
            unchecked = Unchecked(source, tier, left, str(failures[0]), failures[0].remedy)
            context.unchecked.append(unchecked)
            _log.warning("%s", unchecked.message)
    return found


def _tables_changed_in_catalog(
    context: RunContext, _: Captures, records: Sequence[TableRecord]
) -> set[TableId]:
    """Return a capture's idle tables whose fingerprint differs from their record's fingerprint.

    A table whose fingerprint cannot be read is also returned: the table does not exist, or it
    changed at each try to read the fingerprint. The table's run reports which of the two is true.
    """
    source = context.sources[records[0].table.source]
    capture = source.capture(context.capture(records[0]))
    now = capture.fingerprints([record.table for record in records])
    found: set[TableId] = set()
    for record in records:
        known = record.attempt.fingerprint if record.attempt is not None else None
        seen = now.get(record.table)
        if seen is None or (known is not None and known.digest != seen.digest):
            found.add(record.table)
    return found


def _tables_with_statements(
    context: RunContext, captures: Captures, records: Sequence[TableRecord]
) -> set[TableId]:
    """Return the idle tables with a DDL statement since the catalog was read for their record."""
    found: set[TableId] = set()
    for record in records:
        compared = record.attempt.fingerprint if record.attempt is not None else None
        read_at = None if compared is None else compared.facts.get(READ_AT)
        source = context.sources[record.table.source]
        if read_at and any(statements_since(source, str(read_at), captures.statements(record))):
            found.add(record.table)
    return found


def _has_edited_settings(context: RunContext, record: TableRecord) -> bool:
    """Whether an idle table's settings are invalid, or not those that made the lake's rows."""
    known = record.attempt.settings_digest if record.attempt is not None else None
    try:
        settings = context.settings_of_idle(record)
        return known not in (None, settings_digest(settings, context.config.lake))
    except SecretError as error:
        _log.warning("the settings of idle table %s were not checked: %s", record.table, error)
        return False
    except TributaryError:
        return True  # the table's run reports what is wrong with them


def _tables_with_broken_capture(
    context: RunContext, captures: Captures, records: Sequence[TableRecord]
) -> set[TableId]:
    """Return the idle tables whose changes are not captured, or for which a loss is recorded."""
    found: set[TableId] = set()
    for record in records:
        evidence, source = captures.evidence(record), context.sources[record.table.source]
        rests = position_check.Rests.of(record)
        try:
            position_check.check_stream(record.table, rests, evidence, source)
            findings = [*of_capture(evidence), *of_table(evidence, record.table, (), record)]
            position_check.check_capture(record.table, stopping(findings))
            check_losses(captures.losses(record), evidence.names, record)
        except (LostHistoryError, CaptureError, PositionError):
            found.add(record.table)  # the table's run reports it
    return found


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
    if not isinstance(work.topic, KafkaError) and work.topic.is_covered(result.offsets):
        context.predictions.note_whole(record.table, work.seen_at)
    try:
        # Columns and partitions can be new: update the metastore.
        follow_name(context, record, wait_s=TRY_S)
    except TributaryError as error:
        _log.warning("%s", error)
        return replace(result, warnings=(*result.warnings, error.message))
    return result


def _held_by_other(context: RunContext, work: Work) -> str | None:
    """Return why a deferred shard does not run now, as a message; None if the shard runs.

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
    round finds nothing, and the next round tries again. When the loop ends, it waits for the runs
    in progress.

    The loop also ends if only a new process can continue: Spark has ended, its tasks hang and keep
    their cores (`cdc.runtime.task_watch.held_cores`), or a file with secrets has changed.

    Args:
        context: The runs' context.
        records: Called in each round; returns the tables' current records.
        stop: The loop ends when this event is set.
        min_interval_s: Minimum number of seconds between the starts of two rounds. After a turn
            that left work, the next round starts earlier.
        report: Called with the results of the tables that have run since the last call.
        watch: Called about once a minute, also if no round was possible.
    """
    looked = watched = float("-inf")
    clock = ClockWatch()

    def told() -> None:
        if (results := workers.results()) and report is not None:
            report(results)

    rules = Rules(context.config.spark.parallel_tables, context.config.pool_shares, turn_s=TURN_S)
    # No table starts after a request to stop: 20 s later, the JVM is killed.
    ends = stop.is_set
    with Workers(rules, lambda work, number: _run_due(context, work, number), ends) as workers:
        while not _must_end(context, stop):
            started = time.monotonic()
            clock.look()
            look = started - looked >= _IDLE_LOOK_S
            if done := _try_round(context, workers, records, look=look):
                looked = started if look else looked
                told()
            if watch is not None and started - watched >= _IDLE_LOOK_S:
                watched = started
                watch()
            took = time.monotonic() - started
            if done:
                context.rounds.note(took)
            while not _must_end(context, stop):
                told()
                passed = time.monotonic() - started
                if passed >= (workers.interval(min_interval_s, took) if done else min_interval_s):
                    break
                stop.wait(min(_REPORT_S, max(0.01, min_interval_s)))
    told()


def _try_round(
    context: RunContext,
    workers: Workers,
    records: Callable[[], Sequence[TableRecord]],
    *,
    look: bool,
) -> bool:
    """Find the tables that have work, and offer them to the workers; return False on an error.

    The next round then tries again, unless Spark has ended.
    """
    try:
        busy = workers.begin_round()
        idle = [record for record in records() if record.table not in busy]
        _offer_work(context, workers, idle, look_at_idle=look, spaced=True)
        if look:
            _tidy_after_round(context, workers.untouched(idle))
    except TributaryError as error:
        # Kafka or the state store is unreachable.
        _log.warning("no round was possible: %s", error)
        context.secret_files.look()
        return False
    except Exception as error:  # py4j and sockets raise many kinds once Spark has ended
        if not _spark_is_gone(context):
            raise
        _log.info("the round ended with Spark: %s", error)
        return False
    return True


def _must_end(context: RunContext, stop: threading.Event) -> bool:
    """Whether continuous runs must end: by ``stop``, hung tasks, Spark's end or new secrets."""
    needs_restart = task_watch.held_cores() or context.secret_files.changed
    return stop.is_set() or bool(needs_restart) or has_ended()
