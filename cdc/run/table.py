"""One table's incremental run: checks, then one commit after the other up to an end."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cdc import plan, position_check
from cdc.errors import (
    FencedError,
    LakeError,
    LeaseHeldError,
    LostHistoryError,
    MissingTableError,
    PausedByPolicyError,
    SchemaChangeError,
    StateError,
)
from cdc.failpoints import crash
from cdc.history import RunEntry
from cdc.lake.timeline import Committed, Timeline
from cdc.position_check import TopicFacts
from cdc.run.batch import Applied, BatchWriter
from cdc.run.checks import CaptureChecks
from cdc.run.context import RunResult
from cdc.run.shape import LakeShape, lake_shape
from cdc.sources.values import Fingerprint
from cdc.state import CommitSummary, State, TableRecord, transition, with_commit
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.lease import Lease
    from cdc.run.context import RunContext

_log = logging.getLogger(__name__)

_RUN_STATES = frozenset({State.CATCHING_UP, State.INCREMENTAL})
_STORE_TRIES = 5


def run_table(
    context: RunContext,
    record: TableRecord,
    until: Mapping[int, int] | None = None,
    *,
    checks: CaptureChecks | None = None,
    topic: TopicFacts | None = None,
) -> RunResult:
    """Apply what is in a table's topic to its lake table.

    Never raises for what goes wrong with the table: the table moves to the state that the error
    asks for, and the result carries it.

    Args:
        context: What runs work with.
        record: The table, CATCHING_UP, INCREMENTAL, or FAILED from one of these.
        until: Offset to stop before per partition; None takes the topic's last stable offsets.
        checks: Facts shared with the other tables of the run.
        topic: The topic as it is now; asked for when None.
    """
    started, clock = datetime.now(timezone.utc), time.monotonic()
    try:
        with context.leases.hold(record.table) as lease:
            run = _TableRun(context, record, lease, checks or CaptureChecks(context), topic)
            run.work(until)
            result = run.result
    except LeaseHeldError as held:
        _log.info("%s", held)
        result = RunResult(record.table, record.state, skipped=True, warnings=(held.message,))
    except StateError as error:
        _log.warning("%s", error)
        result = RunResult(record.table, record.state, error=error.to_dict())
    result = replace(result, started_at=started, seconds=time.monotonic() - clock)
    if result.commits or result.error is not None:
        try:
            context.store.record_run(_entry(context, record, result))
        except StateError as error:
            _log.warning("the run of table %s is not in the history: %s", record.table, error)
    return result


def topic_facts(context: RunContext, topics: Iterable[str]) -> dict[str, TopicFacts]:
    """Topics as they are now, in three calls however many they are.

    Raises:
        KafkaError: The cluster cannot be asked.
    """
    names = list(dict.fromkeys(topics))
    described = context.kafka.topics(names)
    stable = context.kafka.stable_offsets_many(names)
    earliest = context.kafka.start_offsets_many(names)
    return {
        name: TopicFacts(
            id=described[name].id if name in described else None,
            earliest=earliest.get(name, {}),
            stable=stable.get(name, {}),
        )
        for name in names
    }


class _TableRun:
    def __init__(
        self,
        context: RunContext,
        record: TableRecord,
        lease: Lease,
        checks: CaptureChecks,
        topic: TopicFacts | None,
    ) -> None:
        self._context = context
        self._topic = topic
        self._table = record.table
        self._lease = lease
        self._checks = checks
        # The record may be older than the lease.
        self._record = context.store.get(record.table, shard=record.shard) or record
        self._settings = context.config.table_settings(record.table)
        self._counts: Counter[str] = Counter()
        self.result = RunResult(record.table, self._record.state)

    def work(self, until: Mapping[int, int] | None) -> None:
        """Run, and put what stopped the run into the table's state and the result."""
        if self._state not in _RUN_STATES:
            self.result = replace(
                self.result,
                skipped=True,
                warnings=(f"table {self._table} is {self._record.state.name} now",),
            )
            return
        try:
            self._apply_all(until)
        except FencedError as error:
            # Whoever took the table over keeps its state.
            _log.warning("%s", error)
            self.result = replace(self.result, error=error.to_dict())
        except TributaryError as error:
            self._stop(error)
        except Exception as error:  # noqa: BLE001 - one table's failure never stops another's
            _log.exception("the run of table %s failed", self._table)
            self._stop(_unexpected(self._record, error))

    @property
    def _state(self) -> State | None:
        """Where the table is, or was before it failed."""
        return self._record.resume_to if self._record.state is State.FAILED else self._record.state

    def _apply_all(self, until: Mapping[int, int] | None) -> None:
        attempt = self._record.attempt
        if attempt is None:
            raise _no_offsets(self._record, "it has no attempt")
        timeline = Timeline(self._context.spark, attempt.path)
        latest = timeline.latest_offsets()
        if latest is None:
            raise _no_offsets(self._record, f"no commit under {attempt.path} carries offsets")
        if latest.record.attempt != str(attempt.id):
            raise _no_offsets(
                self._record, f"the newest commit is of attempt {latest.record.attempt}"
            )
        at = dict(latest.record.offsets)
        facts = self._topic or topic_facts(self._context, [self._record.topic])[self._record.topic]
        position_check.check_topic(
            self._table,
            self._record.topic,
            topic_id=latest.record.topic_id or attempt.topic_id,
            start=at,
            now=facts,
        )
        end = dict(facts.stable) if until is None else dict(until)
        handoff = latest.record.handoff
        if handoff is None:
            raise _no_offsets(self._record, "the newest commit carries no handoff")
        shape = self._shape(attempt.path, handoff)
        self._remember(latest)
        crash("run.after_plan")
        if any(at[partition] < end.get(partition, 0) for partition in at):
            self._apply_range(shape, latest, end)

    def _apply_range(self, shape: LakeShape, latest: Committed, end: Mapping[int, int]) -> None:
        writer = BatchWriter(
            self._context,
            source_table=shape.source_table,
            source_schema=shape.source_schema,
            lake=shape.lake,
            lake_columns=shape.lake_columns,
            settings=self._settings,
            topic=self._record.topic,
        )
        previous, at = latest.record, dict(latest.record.offsets)
        end = {partition: max(offset, end.get(partition, 0)) for partition, offset in at.items()}
        total = sum(end[partition] - offset for partition, offset in at.items())
        task = self._context.progress.start(f"run {self._table}", total, "offsets")
        try:
            while at != end:
                piece = next(plan.ranges(at, end, self._settings.max_events_per_run))
                applied = writer.apply(piece, previous, self._guard(at))
                crash("run.after_commit")
                previous = applied.record
                task.advance(sum(previous.offsets[p] - offset for p, offset in at.items()))
                at = dict(previous.offsets)
                self._count(applied)
                crash("run.before_state")
                self._remember(Committed(applied.instant, "commit", previous))
                if self._state not in _RUN_STATES:
                    return  # someone paused or retired the table: what is committed is recorded
                self._lease.check()
        finally:
            task.done()

    def _guard(self, start: Mapping[int, int]) -> Callable[[Timeline], None]:
        """Refuses the commit unless the table is still ours and where it was when we read."""

        def guard(timeline: Timeline) -> None:
            latest = timeline.latest_offsets()
            found = dict(latest.record.offsets) if latest is not None else None
            if found != start:
                raise FencedError(
                    f"table {self._table} was at offsets {dict(start)} when this run began and is"
                    f" at {found} now: another run has committed",
                    remedy="Nothing was committed. Run again; it starts from the newest commit.",
                    table=self._table,
                )
            self._lease.check()

        return guard

    def _shape(self, path: str, handoff: Mapping[str, Any]) -> LakeShape:
        """Check source, capture and catalog; the columns that the lake carries from now on."""
        facts = self._checks.facts(self._record)
        position_check.check_server(self._table, known=handoff, now=facts.server)
        position_check.check_slot(self._table, facts.names.slot, facts.slot, stored=facts.stored)
        source = self._context.sources[self._table.source]
        now = source.fingerprint(self._table, self._record.publication, on_replica=False)
        source_table = source.table(self._table)
        position_check.check_capture(
            self._table,
            [*source.audit_publication(facts.names.publication, source_table), *facts.problems],
        )
        shape = lake_shape(
            self._context.spark,
            source_table,
            source.schema(source_table, self._settings),
            self._settings,
            path=path,
            handoff=handoff,
        )
        attempt = self._record.attempt
        known = attempt.fingerprint if attempt is not None else None
        warnings = position_check.check_catalog(
            source_table,
            known=Fingerprint(known) if known else None,
            now=now,
            lake_columns=shape.lake_columns,
            widened=shape.widened,
        )
        for warning in warnings:
            _log.warning("%s", warning)
        self.result = replace(self.result, warnings=(*self.result.warnings, *warnings))
        if attempt is not None and attempt.fingerprint_digest != now.digest:
            # Stored before the lake follows, so that a column that is in the lake and new in the
            # catalog is always one that was dropped and added again.
            accepted = replace(attempt, fingerprint=dict(now.facts), fingerprint_digest=now.digest)
            self._save(lambda record: replace(record, attempt=accepted, updated_at=_now()))
        return shape

    def _count(self, applied: Applied) -> None:
        self._counts.update(applied.record.counts)
        self.result = replace(
            self.result,
            commits=self.result.commits + 1,
            events=self.result.events + applied.events,
            counts=dict(self._counts),
        )

    def _remember(self, committed: Committed) -> None:
        """Cache in the store what the lake's newest commit says."""
        record = committed.record
        self.result = replace(self.result, offsets=dict(record.offsets), watermark=record.watermark)
        known = self._record.last_commit
        if (
            known is not None
            and known.instant == committed.instant
            and self._record.state in _RUN_STATES
            and not self._record.failures
        ):
            return
        summary = CommitSummary(
            offsets=dict(record.offsets),
            position=record.position,
            watermark=record.watermark,
            instant=committed.instant,
            committed_at=_instant_time(committed.instant),
        )

        def remembered(record: TableRecord) -> TableRecord:
            if record.state is State.FAILED and record.resume_to in _RUN_STATES:
                record = transition(record, record.resume_to, at=_now())
            return with_commit(record, summary, at=_now())

        self._save(remembered)
        self.result = replace(self.result, state=self._record.state)

    def _stop(self, error: TributaryError) -> None:
        """Move the table to the state that the error asks for."""
        _log.warning("the run of table %s stopped: %s", self._table, error)

        def stopped(record: TableRecord) -> TableRecord:
            if record.state is State.FAILED and record.resume_to in _RUN_STATES:
                record = transition(record, record.resume_to, at=_now())
            if record.state not in _RUN_STATES:
                return record
            if isinstance(error, (LostHistoryError, SchemaChangeError, MissingTableError)):
                return _transition(record, State.NEEDS_BOOTSTRAP, error)
            if isinstance(error, PausedByPolicyError):
                return _transition(record, State.PAUSED, error)
            again = plan.retry_at(record.failures + 1, _now())
            return transition(record, State.FAILED, at=_now(), error=error, retry_at=again)

        self._save(stopped)
        self.result = replace(self.result, state=self._record.state, error=error.to_dict())

    def _save(self, change: Callable[[TableRecord], TableRecord]) -> None:
        """Store a change of the record, also when someone else changed the record meanwhile."""
        for tried in range(_STORE_TRIES):
            changed = change(self._record)
            if changed == self._record:
                return
            try:
                self._record = self._context.store.put(changed)
            except StateError:
                newer = self._context.store.get(self._table, shard=self._record.shard)
                if newer is None or newer.version == self._record.version:
                    raise
                if tried == _STORE_TRIES - 1:
                    raise
                self._record = newer
            else:
                return


def _transition(record: TableRecord, to: State, error: TributaryError) -> TableRecord:
    return transition(record, to, at=_now(), reason=error.message, remedy=error.remedy)


def _unexpected(record: TableRecord, error: Exception) -> TributaryError:
    first = next(iter(str(error).splitlines()), "")
    return LakeError(
        f"the run of table {record.table} failed: {type(error).__name__}: {first}",
        remedy="The log has the whole error. Nothing of the batch was committed; the next run"
        f" takes it again, or `tributary retry {record.table}` does so now.",
        table=record.table,
        topic=record.topic,
    )


def _no_offsets(record: TableRecord, reason: str) -> LostHistoryError:
    return LostHistoryError(
        f"the lake does not say up to where table {record.table} was read: {reason}",
        remedy=f"Copy the table again: `tributary bootstrap {record.table}`.",
        table=record.table,
        topic=record.topic,
    )


def _entry(context: RunContext, record: TableRecord, result: RunResult) -> RunEntry:
    return RunEntry(
        run_id=context.run_id,
        table=record.table,
        generation=record.generation,
        state=result.state,
        started_at=result.started_at or _now(),
        seconds=result.seconds,
        commits=result.commits,
        events=result.events,
        counts=result.counts,
        offsets=result.offsets,
        watermark=result.watermark,
        error=result.error,
    )


def _instant_time(instant: str) -> datetime:
    """The time in a Hudi instant, ``yyyyMMddHHmmssSSS`` in UTC."""
    return datetime.strptime(f"{instant[:17]}000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)


def _now() -> datetime:
    return datetime.now(timezone.utc)
