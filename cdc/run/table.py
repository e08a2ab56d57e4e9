"""One table's incremental run: it checks the table, then commits batches up to its end offsets."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from cdc.capture import position_check
from cdc.capture.gathering import Captures
from cdc.capture.judgement import of_capture, of_table, stopping
from cdc.capture.remembered_losses import check_losses, scopes_if_configured, table_scope
from cdc.capture.topic_facts import one_topic, still_in_topic
from cdc.errors import (
    FencedError,
    KafkaError,
    LeaseHeldError,
    LostHistoryError,
    LostLogError,
    PausedByPolicyError,
    SchemaChangeError,
    StateError,
    UnseenError,
)
from cdc.lake.timeline import Committed
from cdc.run import commits, plan
from cdc.run.batch import Applied, BatchWriter
from cdc.run.comparison import Comparison, SettingsDigests, compare
from cdc.run.context import RunResult, Turn
from cdc.run.ddl_events import statement_effects
from cdc.run.follow import LakeShape, follow, seen_at
from cdc.run.late_rows import note_late
from cdc.run.published_generation import check_serving, no_offsets, require_files, require_folder
from cdc.run.quarantining import HeldQuarantine, require_listed
from cdc.run.source_lookup import VISIBLE_S
from cdc.run.stopping import RUN_STATES, counts_as_loss, stopped, unexpected
from cdc.run.truncates import Truncates
from cdc.runtime.failpoints import crash
from cdc.runtime.step_times import begin_steps, step
from cdc.sources.selection import not_there
from cdc.sources.source_facts import Look
from cdc.store.error_record import ErrorRecord
from cdc.store.history import SchemaEntry
from cdc.store.loss_counts import Losses, newest_losses
from cdc.store.run_facts import RunFacts
from cdc.store.table_state import State, TableRecord, transition, with_commit
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.position_check import TopicFacts
    from cdc.config import TableSettings
    from cdc.lake.commit import CommitRecord
    from cdc.lake.handoff import Handoff
    from cdc.run.context import RunContext
    from cdc.store.lease import Lease
    from cdc.store.table_state import CommitWrites

_log = logging.getLogger(__name__)
_STORE_TRIES = 5


def run_table(
    context: RunContext,
    record: TableRecord,
    until: Mapping[int, int] | None = None,
    *,
    captures: Captures | None = None,
    topic: TopicFacts | KafkaError | None = None,
    turn: Turn | None = None,
) -> RunResult:
    """Apply the new records of a table's topic to its lake table, and return the run's result.

    This function raises no error if the table's run fails. The table moves to the state that the
    error requires, and the result has the error.

    Args:
        context: The configuration and the clients that all runs share.
        record: The table's record. Its state is CATCHING_UP or INCREMENTAL, or was one of these two
            states before the table FAILED.
        until: By partition, the first offset that is not applied; if None, the topic's last stable
            offsets.
        captures: The evidence of captures, which the runs of a round share; if None, gathered now.
        topic: The current facts of the topic, or the error of reading them; if None, read now.
        turn: The table's turn, which can end the run before its end offsets; no limit if None.
    """
    started, at, steps = datetime.now(timezone.utc), time.monotonic(), begin_steps()
    begun = context.cpu.begin()

    def timed(result: RunResult) -> RunResult:
        took, used = time.monotonic() - at, context.cpu.used(begun)
        return replace(result, started_at=started, seconds=took, steps=steps.ended(), cpu_s=used)

    facts = RunFacts(partial(scopes_if_configured, context.config))
    held = context.leases.hold_record(record, gives_way=turn is not None, read=facts.read)
    try:
        with held as (lease, newest):
            if record.attempt_id != newest.attempt_id:
                # It was copied again: the facts and the evidence are older than the copy.
                topic, captures = None, None
            run = _TableRun(context, newest, lease, facts, captures or Captures(context), topic)
            run.work(until, turn)
            result = timed(run.result)
            lease.at_release(commits.history_of_run(context, record, result))
    except LeaseHeldError as error:
        _log.info("%s", error)
        return timed(RunResult(record.table, record.state, skipped=True, warnings=(error.message,)))
    except StateError as error:
        _log.warning("%s", error)
        result = timed(RunResult(record.table, record.state, error=ErrorRecord.of(error)))
        commits.record_apart(context, record, result)
    finally:
        context.cpu.end()
    return result


class _TableRun:
    """The run of one table, under the table's lease."""

    def __init__(
        self,
        context: RunContext,
        record: TableRecord,
        lease: Lease,
        facts: RunFacts,
        captures: Captures,
        topic: TopicFacts | KafkaError | None,
    ) -> None:
        self._context = context
        self._topic = topic
        self._table = record.table
        self._lease = lease
        self._facts = facts
        self._captures = captures
        self._losses = Losses(context.store)
        self._record = record
        self._settings: TableSettings
        self._made_by: SettingsDigests
        self._counts: Counter[str] = Counter()
        self._stopped: SchemaEntry | None = None
        self._still_open: Collection[int] | None = None
        self._end: Mapping[int, int] = {}
        self._turn: Turn | None = None
        self._began = time.monotonic()
        self.result = RunResult(record.table, self._record.state)

    def work(self, until: Mapping[int, int] | None, turn: Turn | None = None) -> None:
        """Run one table.

        The result says if another process works on the table. `_stop` handles other errors.
        """
        self._turn = turn
        if self._state not in RUN_STATES:
            self.result = replace(
                self.result,
                skipped=True,
                warnings=(f"table {self._table} is {self._record.state.name} now",),
            )
            return
        try:
            self._work(until)
        except FencedError as error:
            # Another writer has the table now, and the table's state is that writer's.
            _log.warning("%s", error)
            self.result = replace(self.result, error=ErrorRecord.of(error))
        except LeaseHeldError as held:
            # Another process writes to the shared table. The next run continues.
            _log.info("%s", held)
            warnings = (*self.result.warnings, held.message)
            found = replace(self.result, warnings=warnings, skipped=not self.result.commits)
            self.result = replace(found, deferred=self._turn is not None)

    def _work(self, until: Mapping[int, int] | None) -> None:
        """Run the table, and move it to the state that an error requires."""
        try:
            self._settings, self._made_by = self._context.newest_settings(self._record)
            self._apply_seen(until)
        except (FencedError, LeaseHeldError):
            raise
        except TributaryError as error:
            self._stop(error)
        except Exception as error:  # noqa: BLE001 - one table's failure never stops another's
            _log.exception("the run of table %s failed", self._table)
            self._stop(unexpected(self._record, error))

    @property
    def _state(self) -> State | None:
        """The table's state; for a FAILED table, its state before the failure."""
        return self._record.resume_to if self._record.state is State.FAILED else self._record.state

    def _apply_seen(self, until: Mapping[int, int] | None) -> None:
        """Apply the records; try again if the catalog was read before a transaction was visible.

        Between the two tries, the method waits until the transactions of the failed batch are
        visible. Then it asks the source which transactions are still open. The second try ends at
        the end offsets of the first try. So all transactions of the second try were in the log when
        the source was asked.
        """
        try:
            self._apply_all(until)
        except UnseenError as early:
            _log.info("%s", early)
            context = self._context
            self._still_open = context.sources[self._table.source].wait_until_visible(
                early.context["transactions"], timeout_s=VISIBLE_S, progress=context.progress
            )
            self._apply_all(self._end)

    def _apply_all(self, until: Mapping[int, int] | None) -> None:
        """Check the table, follow its schema changes, and apply records up to the end offsets."""
        attempt, facts = self._record.attempt, self._topic
        if isinstance(facts, KafkaError):
            raise facts
        if attempt is None:
            raise no_offsets(self._record, "the table has no attempt")
        pointer = check_serving(self._context, self._record)
        self._context.served.note_pointer(self._record, pointer)
        timeline = self._context.timeline(attempt)
        latest = timeline.latest_offsets()
        if latest is None:
            require_folder(self._context.spark, self._record)
            reason = f"no commit under {attempt.path} carries offsets"
            raise no_offsets(self._record, reason, gone=not timeline.exists)
        if latest.record.attempt != str(attempt.id):
            raise no_offsets(
                self._record, f"the newest commit is of attempt {latest.record.attempt}"
            )
        require_listed(latest.record, self._facts.quarantined)
        require_files(self._context, self._record, timeline, latest)
        warnings = commits.commit_warnings(self._record, latest)
        self.result = replace(self.result, warnings=warnings)
        at = dict(latest.record.offsets)
        # Another process could have committed offsets that are newer than these facts of the topic.
        if facts is None or any(end > facts.stable.get(part, 0) for part, end in at.items()):
            facts = one_topic(self._context, self._record.topic)
            # The DDL statements read so far can lack one that lies before the topic's new end.
            if self._context.capture(self._record).reports_definitions:
                self._captures.gather_again(self._record)
        latest = still_in_topic(self._context, self._record, latest, facts)
        end = self._end = dict(facts.stable) if until is None else dict(until)
        handoff = latest.record.handoff
        if handoff is None:
            raise no_offsets(self._record, "the newest commit carries no handoff")
        self._keep_history(latest)
        compared = self._compared(latest.record, handoff)
        self._captures.require_own_types(self._record, compared.wanted)
        guard = commits.RunGuard(self._table, self._lease, latest)
        shape, followed = follow(self._context, self._record, latest, compared, guard, self._turn)
        if followed is not latest:
            self.result = replace(self.result, commits=self.result.commits + 1)
            self._keep_history(followed)
        behind = any(at[partition] < end.get(partition, 0) for partition in at)
        self._remember(followed, recovered=not behind)
        self._accept(compared)
        crash("run.after_plan")
        if behind:
            self._apply_range(shape, seen_at(followed, compared.fingerprint), end)

    def _apply_range(self, shape: LakeShape, latest: Committed, end: Mapping[int, int]) -> None:
        """Commit batches up to end offsets, or until the turn is over."""
        writer = BatchWriter(
            self._context,
            shape,
            settings=self._settings,
            record=self._record,
            quarantined=HeldQuarantine(self._facts.quarantined, self._lease.transaction),
            turn=self._turn,
        )
        newest, at = latest, dict(latest.record.offsets)
        end = {partition: max(offset, end.get(partition, 0)) for partition, offset in at.items()}
        total = sum(end[partition] - offset for partition, offset in at.items())
        most = (self._turn or Turn()).events_per_commit(self._settings.max_events_per_run)
        task = self._context.progress.start(f"run {self._table}", total, "offsets")
        try:
            while at != end:
                piece = next(plan.ranges(at, end, most))
                guard = commits.RunGuard(self._table, self._lease, newest)
                applied = writer.apply(piece, newest.record, guard, still_open=self._still_open)
                crash("run.after_commit")
                newest = Committed(applied.instant, "commit", applied.record)
                task.advance(sum(applied.record.offsets[p] - was for p, was in at.items()))
                at = dict(applied.record.offsets)
                self._count_applied(applied)
                crash("run.before_state")
                self._remember(newest, guard.writes())
                if self._state not in RUN_STATES:
                    return  # the table was paused or retired: what is committed is recorded
                if self._leaves_to_waiter(at != end):
                    return
                if shape.lake.keep_up(self._lease.check):
                    context = self._context
                    self._record = commits.keep_size(context.spark, context.store, self._record)
                if self._turn is not None and self._turn.is_over(time.monotonic() - self._began):
                    return
                if at != end:  # each commit checks the lease itself; this saves a useless batch
                    self._lease.check()
        finally:
            task.done()

    def _leaves_to_waiter(self, unfinished: bool) -> bool:
        """Whether an unfinished run ends here because another process waits for the table."""
        if self._turn is None or not unfinished or not self._lease.is_wanted():
            return False
        warning = f"table {self._table} has more changes, left to a process that waits for it"
        _log.info("%s", warning)
        self.result = replace(self.result, warnings=(*self.result.warnings, warning))
        return True

    @step("check")
    def _compared(self, newest: CommitRecord, handoff: Handoff) -> Comparison:
        """Check the source and the capture; then compare the lake with the source's catalog."""
        evidence = self._captures.evidence(self._record)
        source = self._context.sources[self._table.source]
        rests = position_check.Rests(
            handoff.view,
            handoff.reads_upto,
            newest.position,
            handoff.statements_upto,
            handoff.statements_topic_id,
        )
        try:
            position_check.check_stream(self._table, rests, evidence, source)
        except LostLogError:
            if evidence.lost is not None:
                raise
            # Another process could have copied the table after this evidence was gathered. The new
            # copy continues from a later position than the one that Connect had stored then.
            evidence = self._captures.gather_again(self._record)
            position_check.check_stream(self._table, rests, evidence, source)
        source_table, fingerprint, obstacles = source.capture(evidence.names).audited(self._table)
        own = of_table(evidence, self._table, obstacles, self._record)
        position_check.check_capture(self._table, stopping([*of_capture(evidence), *own]))
        # The evidence can be newer than the lease, and can have counted a loss since.
        seen = newest_losses(self._facts.losses, self._captures.losses(self._record))
        check_losses(seen, evidence.names, self._record)
        lake, reported = self._context.config.lake, self._captures.statements(self._record)
        look = Look(source_table, fingerprint)
        statements = statement_effects(self._context, self._record, handoff, look, reported)
        look = replace(look, statements=statements)
        truncates = Truncates(self._context, self._record, newest.offsets)
        compared = compare(source, look, self._settings, handoff, lake, truncates=truncates)
        try:
            warnings = position_check.check_changes(
                self._table, compared.changes, self._settings.on_schema_change
            )
        except (LostHistoryError, SchemaChangeError, PausedByPolicyError) as error:
            paused, now = isinstance(error, PausedByPolicyError), datetime.now(timezone.utc)
            self._stopped = SchemaEntry.stopped(
                self._record,
                handoff.next_schema(compared.changes, at=now, schema_ids=newest.schema_ids),
                State.PAUSED if paused else State.NEEDS_BOOTSTRAP,
                catalog=fingerprint.digest,
            )
            raise
        if compared.ignored:
            names = ", ".join(compared.ignored)
            warnings += (f"table {self._table} is frozen, so the lake leaves out: {names}",)
        if gone := not_there(source_table, self._settings):
            names = ", ".join(gone)
            warnings += (f"the settings of table {self._table} name columns it lacks: {names}",)
        for warning in warnings:
            _log.warning("%s", warning)
        # The look at the connector's tasks has logged it.
        doubt = self._captures.doubt(self._record)
        warnings += () if doubt is None else (doubt,)
        self.result = replace(self.result, warnings=(*self.result.warnings, *warnings))
        return compared

    def _accept(self, compared: Comparison) -> None:
        """Store the compared fingerprint and the digests of the settings in the table's record.

        A later command compares these values to find out whether an idle table needs a run.
        """
        attempt, fingerprint = self._record.attempt, compared.fingerprint
        if attempt is not None and (
            compared.statements
            or attempt.fingerprint is None
            or attempt.fingerprint.digest != fingerprint.digest
            or (attempt.settings_digest, attempt.policies_digest) != self._made_by
        ):
            accepted = replace(attempt, fingerprint=fingerprint, **self._made_by._asdict())
            now = datetime.now(timezone.utc)
            self._save(lambda record: replace(record, attempt=accepted, updated_at=now))

    def _keep_history(self, committed: Committed) -> None:
        """Store the schema change and count the late rows that the lake's newest commit records.

        If a run dies after its commit, the next run finds the change and the rows in the newest
        commit. So no run makes another commit before both are in the state store.
        """
        entry = SchemaEntry.followed(self._record, committed.record.require_handoff())
        if entry is not None:
            self._context.store.record_schema(entry)
        note_late(self._context.store, self._record, committed, self._settings)

    def _count_applied(self, applied: Applied) -> None:
        """Add a commit's counts, and a warning for records that were left out, to the result."""
        self._counts.update(applied.record.counts)
        if left_out := applied.record.counts.get("quarantined"):
            warning = (
                f"{left_out:,} records up to offset {max(applied.record.offsets.values())} cannot"
                f" be applied and were left out: see `tributary quarantine list {self._table}`"
            )
            self.result = replace(self.result, warnings=(*self.result.warnings, warning))
        self.result = replace(
            self.result,
            commits=self.result.commits + 1,
            events=self.result.events + applied.events,
            counts=dict(self._counts),
        )

    def _remember(
        self, committed: Committed, writes: CommitWrites | None = None, *, recovered: bool = True
    ) -> None:
        """Cache the lake's newest commit in the state store, and count its late rows in the store.

        Args:
            committed: The newest commit.
            writes: What the commit wrote; None if this run has not made the commit.
            recovered: False if the run has records left to apply and has applied none. Then a
                FAILED table stays FAILED, unless the state store lacks the newest commit.
        """
        known = self._record.last_commit
        summary = commits.commit_summary(committed, known, writes)
        self.result = self.result.at_commit(committed, 0 if writes is None else writes.bytes)
        healthy = self._record.state in RUN_STATES and not self._record.failures
        place = (committed.instant, summary.epochs)
        same = known is not None and (known.instant, known.epochs) == place

        def remembered(record: TableRecord) -> TableRecord:
            if record.state is State.FAILED and record.resume_to in RUN_STATES:
                record = transition(record, record.resume_to, at=datetime.now(timezone.utc))
            return with_commit(record, summary, at=datetime.now(timezone.utc))

        if not same or (recovered and not healthy):
            self._save(remembered)
            self.result = replace(self.result, state=self._record.state)
        note_late(self._context.store, self._record, committed, self._settings)

    def _stop(self, error: TributaryError) -> None:
        """Add the error to the result, and move the table to the state that the error requires.

        If the command is ending, the state stays, since the command's end can cause the error.
        """
        if self._context.ending:
            self.result = replace(self.result, error=ErrorRecord.of(error))
            return
        _log.warning("the run of table %s stopped: %s", self._table, error)
        # Another process could have copied the table again. The record of the new copy must not get
        # this error, and the former copy's loss must not count for the new copy.
        self._lease.check()
        self._require_same_attempt(self._context.store.newest(self._record))
        if counts_as_loss(error, beside=self._record.beside):
            names, shared = self._context.capture(self._record), isinstance(error, LostLogError)
            scope = names.resource if shared else table_scope(names, self._table)
            self._losses.note(scope, error.message)
        at = self._context.store.now()  # another machine can retry the table
        self._save(lambda record: stopped(record, error, at=at), self._stopped)
        self.result = replace(self.result, state=self._record.state, error=ErrorRecord.of(error))

    def _save(
        self, change: Callable[[TableRecord], TableRecord], schema: SchemaEntry | None = None
    ) -> None:
        """Apply a change to the table's record, and store the record.

        If another process has stored a newer record, the change is applied to the newer record.

        Raises:
            FencedError: This process has lost the table's lease, or the newer record has another
                attempt.
        """
        for tried in range(_STORE_TRIES):
            changed = change(self._record)
            if changed == self._record:
                return
            try:
                self._record = self._context.store.put(changed, schema=schema)
            except StateError:
                newer = self._context.store.newest(self._record)
                if newer.version == self._record.version or tried == _STORE_TRIES - 1:
                    raise
                self._lease.check()
                self._require_same_attempt(newer)
                self._record = newer
            else:
                return

    def _require_same_attempt(self, newer: TableRecord) -> None:
        """Refuse to continue if another process has copied the table again."""
        if self._record.attempt_id != newer.attempt_id:
            raise FencedError(
                f"table {self._table} was copied again by another process during this run",
                remedy="Nothing was committed after that; the next run follows the new copy.",
                table=self._table,
            )
