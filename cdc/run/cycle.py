"""Runs many tables: selects the tables with work, runs several at a time, and repeats."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from cdc.run import plan
from cdc.run.catalog_name import follow_name, name_idle
from cdc.run.comparison import settings_digest
from cdc.run.context import RunResult, Turn, Unchecked
from cdc.run.ddl_events import since
from cdc.run.former_generations import remove_former
from cdc.run.schedule import TURN_S
from cdc.run.table import run_table
from cdc.runtime import task_watch
from cdc.runtime.spark import has_ended
from cdc.store.table_state import State, TableRecord
from schemas.errors import TributaryError
from schemas.fingerprint import READ_AT

if TYPE_CHECKING:
    from cdc.capture.position_check import TopicFacts
    from cdc.run.context import RunContext
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_IDLE_LOOK_S = 60.0
"""Seconds between checks of the tables without new offsets."""
_CUT_OFF = frozenset({State.REGISTERED, State.NEEDS_BOOTSTRAP, State.RETIRED})
"""States in which a past loss of the table's capture does not matter to the table."""


def run_tables(
    context: RunContext,
    records: Collection[TableRecord],
    parallel: int | None = None,
    *,
    look_at_idle: bool = True,
    spaced: bool = False,
) -> list[RunResult]:
    """Run all tables that have work, several at a time.

    A table without new offsets costs one entry in each of four calls to Kafka, and a check of its
    slot and its catalog. The check is needed because neither a lost slot nor a rewrite of the table
    sends an event. The failure of one table does not stop the others. `cdc.capture.watch` reports a
    connector that stops.

    Args:
        context: The runs' context.
        records: The tables. Tables whose state does not allow a run are skipped.
        parallel: Number of tables at a time; None takes ``spark.parallel_tables``.
        look_at_idle: Whether to do the work that needs no new offsets, too: check catalogs, topic
            settings, and captures (also of tables whose state does not allow a run); remove former
            generations whose retention time is over; set missing names in the catalog.
        spaced: Whether this is one of many runs. If True, a table that is not late waits for its
            ``min_commit_interval``, and a table with a backlog leaves the rest to the next run
            after `TURN_S`. If False, each table is run to the end that its topic has now.

    Returns:
        One result per table that had work, in the order given.

    Raises:
        KafkaError: The offsets cannot be read from the cluster.
    """
    now = datetime.now(timezone.utc)
    wanted = [record for record in records if plan.runnable(record, now)]
    captures = Captures(context)
    results = (
        _run_all(context, captures, wanted, parallel, look_at_idle=look_at_idle, spaced=spaced)
        if wanted
        else []
    )
    if look_at_idle:
        _look_at_captures(captures, records)
        remove_former(context, wanted)
        ran = {result.table for result in results}
        idle = (record for record in wanted if record.table not in ran)
        # A changed partition_by is that of a copy to come, not of the published table.
        name_idle(context, [record for record in idle if not _edited(context, record)])
    return results


def _look_at_captures(captures: Captures, records: Iterable[TableRecord]) -> None:
    """Gather the evidence of all captures, so that a loss is counted for each of their tables.

    A loss can begin and end while all tables of a capture are being copied, PAUSED or FAILED.
    Without this look, such a loss would leave no trace.
    """
    dependent = (record for record in records if record.state not in _CUT_OFF)
    for (source, tier), record in {(one.table.source, one.tier): one for one in dependent}.items():
        try:
            captures.evidence(record)
        except TributaryError as error:
            _log.warning("the capture of %s, tier %s, was not checked: %s", source, tier, error)


def _run_all(
    context: RunContext,
    captures: Captures,
    wanted: Sequence[TableRecord],
    parallel: int | None,
    *,
    look_at_idle: bool,
    spaced: bool,
) -> list[RunResult]:
    """Run the tables that have work, each to its end or for its turn; return their results."""
    now = datetime.now(timezone.utc)
    topics = topic_facts(context, [record.topic for record in wanted])
    if look_at_idle:
        topics = with_settings(context, topics)
    working = {
        record.table
        for record in plan.due(wanted, topics, now)
        if not (spaced and _waits(context, record, topics[record.topic], now))
    }
    if look_at_idle:
        idle = [record for record in wanted if record.table not in working]
        working |= _changed_unseen(context, captures, idle)
        working |= context.served.differing_from_lake(lambda: context.spark, idle)
        working |= cut_off(context, idle, topics)
    due = [record for record in wanted if record.table in working]
    if not due:
        return []
    if not look_at_idle:
        topics = with_settings(context, {record.topic: topics[record.topic] for record in due})
    turn = Turn(TURN_S if spaced else None)
    workers = max(1, min(len(due), parallel or context.config.spark.parallel_tables))
    with ThreadPoolExecutor(workers, thread_name_prefix="run") as pool:
        futures = [
            pool.submit(_run_due, context, record, topics[record.topic], captures, turn)
            for record in due
        ]
        return [future.result() for future in futures]


def _waits(
    context: RunContext, record: TableRecord, topic: TopicFacts | KafkaError, now: datetime
) -> bool:
    """Whether the table waits for a later run.

    A table waits if it has committed recently, is not late, and has less than a full batch.
    """
    if isinstance(topic, KafkaError):
        return False
    try:
        settings = context.config.settings_on_plan(record.table, record.tier)
    except TributaryError:
        return False  # the table's run reports what is wrong with them
    done = record.last_commit.offsets if record.last_commit is not None else {}
    behind = sum(end - done.get(partition, 0) for partition, end in topic.stable.items())
    return 0 <= behind < settings.max_events_per_run and plan.waits_for_later_run(
        record, settings, now
    )


def _changed_unseen(
    context: RunContext, captures: Captures, idle: Iterable[TableRecord]
) -> set[TableId]:
    """Return the idle tables whose capture, catalog or settings have changed.

    Such a change sends no event. The lake already has all events of idle tables. So an unreachable
    source does not stop these tables. `RunContext.unchecked` names those that were not checked.
    """
    groups: dict[tuple[str, str], list[TableRecord]] = {}
    for record in idle:
        groups.setdefault((record.table.source, record.tier), []).append(record)
    context.unchecked.clear()
    found: set[TableId] = set()
    for (source, tier), records in groups.items():
        failures: list[TributaryError] = []
        # The result of one look is kept even if another look is not possible.
        for look in (_capture_broken, _differs_in_catalog, _has_statements):
            try:
                found |= look(context, captures, records)
            except UnreachableError as error:
                failures.append(error)
                break
            except TributaryError as error:
                failures.append(error)
        found |= {record.table for record in records if _edited(context, record)}
        left = tuple(one.table for one in records if one.table not in found)
        if failures and left:
            unchecked = Unchecked(source, tier, left, str(failures[0]), failures[0].remedy)
            context.unchecked.append(unchecked)
            _log.warning("%s", unchecked.message)
    return found


def _differs_in_catalog(
    context: RunContext, _: Captures, records: Sequence[TableRecord]
) -> set[TableId]:
    """Return the tables of one capture whose catalog differs from the one that the lake follows.

    These include tables that are gone or that change all the time. Their own runs report it.
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


def _has_statements(
    context: RunContext, captures: Captures, records: Sequence[TableRecord]
) -> set[TableId]:
    """Return the tables with DDL statements since the catalog that the lake follows."""
    found: set[TableId] = set()
    for record in records:
        compared = record.attempt.fingerprint if record.attempt is not None else None
        read_at = None if compared is None else compared.facts.get(READ_AT)
        source = context.sources[record.table.source]
        if read_at and any(since(source, str(read_at), captures.statements(record))):
            found.add(record.table)
    return found


def _edited(context: RunContext, record: TableRecord) -> bool:
    """Whether the settings differ from those that produced the lake's rows, or are invalid."""
    known = record.attempt.settings_digest if record.attempt is not None else None
    try:
        settings = context.config.settings_on_plan(record.table, record.tier)
        return known not in (None, settings_digest(settings, context.config.lake))
    except SecretError as error:
        _log.warning("the settings of idle table %s were not checked: %s", record.table, error)
        return False
    except TributaryError:
        return True  # the table's run reports what is wrong with them


def _capture_broken(
    context: RunContext, captures: Captures, records: Sequence[TableRecord]
) -> set[TableId]:
    """Return the tables whose changes are no longer captured, or of which a loss is on record."""
    found: set[TableId] = set()
    for record in records:
        evidence, source = captures.evidence(record), context.sources[record.table.source]
        rests = position_check.Rests.of(record)
        try:
            position_check.check_stream(record.table, rests, evidence, source)
            findings = [*of_capture(evidence), *of_table(evidence, record.table)]
            position_check.check_capture(record.table, stopping(findings))
            check_losses(captures.losses(record), evidence.names, record)
        except (LostHistoryError, CaptureError, PositionError):
            found.add(record.table)  # the table's run reports it
    return found


def _run_due(
    context: RunContext,
    record: TableRecord,
    topic: TopicFacts | KafkaError,
    captures: Captures,
    turn: Turn,
) -> RunResult:
    """Run one table in this thread, then update its name in the catalog; return the result."""
    # Tables share the cores fairly, each in its own pool; the property applies to this thread.
    context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", str(record.table))
    result = run_table(context, record, captures=captures, topic=topic, turn=turn)
    if not result.commits:
        return result
    try:
        # Columns and partitions can be new: update the metastore.
        follow_name(context, record)
    except TributaryError as error:
        _log.warning("%s", error)
        return replace(result, warnings=(*result.warnings, error.message))
    return result


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

    A run in progress is finished. If Kafka or the state store is unreachable, no run can begin, and
    the loop tries again. The loop also ends in two other cases:

    - After a run, Spark tasks hang and keep their cores (`cdc.runtime.task_watch.held_cores`). Only
      a new process gets these cores back. Each new try of the hanging table would take one more
      core from the other tables.
    - Spark itself has ended. A session cannot start Spark again.

    Args:
        context: The runs' context.
        records: Called before each run; returns the tables' current records.
        stop: The loop ends when this event is set.
        min_interval_s: Minimum time between the starts of two runs, in seconds.
        report: Called with the results of each run that had work.
        watch: Called after a run, about once a minute.
    """
    looked = float("-inf")
    while not (stop.is_set() or task_watch.held_cores() or has_ended()):
        started = time.monotonic()
        look = started - looked >= _IDLE_LOOK_S
        try:
            results = run_tables(context, records(), look_at_idle=look, spaced=True)
        except TributaryError as error:
            # Kafka or the state store is unreachable: no run began, and the next one tries again.
            _log.warning("no run was possible: %s", error)
        else:
            looked = started if look else looked
            if results and report is not None:
                report(results)
            if look and watch is not None:
                watch()
        stop.wait(max(0.0, started + min_interval_s - time.monotonic()))
