"""Executes the steps of a bootstrap: copy, handoff, catch-up, publication.

Each step is recorded, in the state store or in the lake's timeline, before the next step begins.
:func:`bootstrap.steps.next_step` finds the next step from these records. After a process dies at
any point, the same command continues with the next step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from bootstrap.boundary import boundary_of, joined_bounds, recorded
from bootstrap.capture_proof import Capture
from bootstrap.catchup import catch_up
from bootstrap.commit import handoff_commit, require_planned
from bootstrap.copying import Copying
from bootstrap.definition_renewal import renew_definition
from bootstrap.errors import AttemptSpoiledError, BootstrapError
from bootstrap.publish import after_publication, publish, require_own_folder
from bootstrap.spoiling_checks import require_same_server, require_same_settings, unspoiled
from bootstrap.steps import LakeFacts, Step, next_step
from cdc.capture.remembered_losses import RememberedLossError, check_losses, loss_scopes, times
from cdc.errors import (
    FencedError,
    LeaseHeldError,
    LostHistoryError,
    ReplacedGenerationError,
    StateError,
    onboard_again,
)
from cdc.lake.publish import attempt_path, delete_path
from cdc.lake.timeline import Timeline
from cdc.run.comparison import settings_digests
from cdc.run.published_generation import require_folder
from cdc.runtime.failpoints import crash
from cdc.store.attempt import Attempt, CopiedServer
from cdc.store.loss_counts import Losses
from cdc.store.table_state import RESUMABLE, Cause, State, TableRecord, transition, with_attempt
from schemas.errors import SchemaError, TributaryError
from schemas.fingerprint import Fingerprint

if TYPE_CHECKING:
    from cdc.connect import ConnectClient
    from cdc.run import RunContext
    from cdc.store.lease import Lease
    from cdc.store.loss_counts import Loss
    from schemas.table import TableId

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """The limits of a bootstrap's waits, in seconds, and of its retries.

    Args:
        older_transactions_s: Wait for the end of transactions that began before the table was added
            to the capture.
        replica_s: Wait for the replica to show the marker.
        captured_s: Wait for the connector to capture all changes from before the copy and, after
            the copy, all changes up to R, an upper bound of what the copy contains.
        readable_s: Wait for the end of open Kafka transactions.
        copy_failures: Maximum number of failures in a row after which the copy is tried again.
        attempts: Maximum number of attempts that one command begins. The command begins another
            attempt when a change has spoiled the copy.
        lease_s: Wait for a lease that another process holds. A killed process holds its lease until
            the lease expires.
    """

    older_transactions_s: float = 1800.0
    replica_s: float = 900.0
    captured_s: float = 600.0
    readable_s: float = 300.0
    copy_failures: int = 5
    attempts: int = 3
    lease_s: float = 90.0


@dataclass(frozen=True)
class BootstrapResult:
    """The result of a bootstrap.

    Args:
        record: The current record of the table.
        rows: Number of rows that this command read. A resumed copy reads only the remaining rows.
        attempts: Number of attempts that this command began.
        seconds: Duration of the command in seconds.
        warnings: Warnings for the operator, one sentence each.
    """

    record: TableRecord
    rows: int
    attempts: int
    seconds: float
    warnings: tuple[str, ...] = ()


def bootstrap_table(
    context: RunContext,
    connect: ConnectClient,
    record: TableRecord,
    *,
    limits: Limits | None = None,
) -> BootstrapResult:
    """Copy a table and hand it over to the stream; continue where an earlier command has stopped.

    Args:
        context: The runs' context.
        connect: Kafka Connect.
        record: The table's record in the state store.
        limits: Bounds of waits and retries.

    Returns:
        The result. If ``record`` is the record of a next generation, this generation has caught up,
        and is not published yet. Otherwise, the table is INCREMENTAL.

    Raises:
        TributaryError: The bootstrap cannot continue. A table that was BOOTSTRAPPING or CATCHING_UP
            is then FAILED with this error, and the same command continues it. A table whose copy
            cannot be published is NEEDS_BOOTSTRAP. In three cases the state does not change:
            another process holds a lease that this command needs, the state store cannot be used,
            or this command was asked to stop.
    """
    with context.copy_sessions(record.table.source).copying():
        return _Bootstrap(context, connect, record, limits or Limits()).run()


class _Bootstrap:
    """The bootstrap of one table by one command."""

    def __init__(
        self, context: RunContext, connect: ConnectClient, record: TableRecord, limits: Limits
    ) -> None:
        config = context.config
        self._context = context
        self._limits = limits
        self._record = record
        self._table: TableId = record.table
        self._source = context.sources[self._table.source]
        self._settings = context.settings(record)
        self._made_by = settings_digests(self._settings, config.lake)
        self._capture = Capture.of(context, connect, record)
        self._losses = Losses(context.store)
        self._rows = 0
        self._attempts = 0
        self._held: Lease | None = None
        self._warnings: tuple[str, ...] = ()
        self._steps: dict[Step, Callable[[], None]] = {
            Step.BEGIN: self._begin_attempt,
            Step.BEGIN_ANOTHER: self._begin_another,
            Step.BEGIN_AGAIN: self._lack_chunks,
            Step.RESUME: self._resume,
            Step.WAIT_FOR_OLDER_TRANSACTIONS: self._wait_for_older_transactions,
            Step.RECORD_START: self._record_start,
            Step.COPY: self._copy_chunks,
            Step.FIND_HANDOFF: self._find_handoff,
            Step.COMMIT_HANDOFF: self._commit_handoff,
            Step.ENTER_CATCHING_UP: self._enter_catching_up,
            Step.PUBLISH: self._publish,
        }

    def run(self) -> BootstrapResult:
        started = datetime.now(timezone.utc)
        while self._advance() is Step.CATCH_UP:
            # The incremental run takes the lease itself.
            self._catch_up()
        took = (datetime.now(timezone.utc) - started).total_seconds()
        return BootstrapResult(self._record, self._rows, self._attempts, took, self._warnings)

    def _advance(self) -> Step:
        """Take steps under the lease until CATCH_UP or DONE is the next step; return that step.

        Raises:
            TributaryError: A step failed. The table is then FAILED, as `_fail` describes, unless
                another process holds a lease that the step needs, or the state store cannot be
                used.
        """
        wait_s = self._limits.lease_s
        with self._context.leases.hold(self._record.resource, wait_s=wait_s) as lease:
            self._held = lease
            self._record = self._context.store.newest(self._record)
            self._context.published_settings.check(self._record, self._made_by)
            try:
                while (step := self._next_step()) not in (Step.CATCH_UP, Step.DONE):
                    _log.info("%s: %s", self._table, step.value)
                    lease.check()
                    self._take_step(step)
            except (FencedError, LeaseHeldError, StateError):
                raise  # the table belongs to another process now, and so does its record
            except TributaryError as error:
                self._fail(error)
                raise
            return step

    def _next_step(self) -> Step:
        return next_step(self._record, self._lake_facts())

    def _take_step(self, step: Step) -> None:
        try:
            self._steps[step]()
        except AttemptSpoiledError as spoiled:
            if self._attempts >= self._limits.attempts:
                raise
            _log.warning("%s; the copy of %s begins again", spoiled, self._table)
            self._begin_again()

    def _lake_facts(self) -> LakeFacts:
        record, attempt = self._record, self._record.attempt
        if attempt is None:
            return LakeFacts()
        timeline = self._context.timeline(attempt)
        if not timeline.exists and State.CATCHING_UP in (record.state, record.resume_to):
            require_folder(self._context.spark, record)
        handoff, latest = timeline.handoff(), timeline.latest_offsets()
        return LakeFacts(
            chunks=timeline.chunks(str(attempt.id)),
            handed_off=handoff is not None and handoff.record.attempt == str(attempt.id),
            position=latest.record.offsets if latest is not None else None,
        )

    def _begin_attempt(self) -> None:
        require_own_folder(self._context, self._record)
        self._store_record(
            transition(self._record, State.BOOTSTRAPPING, at=_now(), attempt=self._new_attempt())
        )

    def _begin_another(self) -> None:
        """Begin another attempt, since the lake has steps of this attempt that the store lacks."""
        _log.warning(
            "attempt %s of %s is further in the lake than in the state store: was the store"
            " restored from a backup? The table is copied again",
            self._attempt.id,
            self._table,
        )
        self._note_attempt(self._new_attempt())

    def _lack_chunks(self) -> None:
        """Raise an error, since the lake no longer has chunks that were copied."""
        raise AttemptSpoiledError(
            f"the lake lacks chunks of table {self._table} whose copy was finished: was it restored"
            " from a backup?",
            remedy="Nothing to do: the copy begins again.",
            table=self._table,
        )

    def _begin_again(self) -> None:
        """Begin another attempt; delete the spoiled attempt's folder, which has no readers."""
        left = self._attempt.path
        # The order matters: the record of a copy must never outlive the copy's files.
        self._note_attempt(self._new_attempt())
        delete_path(self._context.spark, left)

    def _new_attempt(self) -> Attempt:
        self._attempts += 1
        identity = self._context.store.installation.new_attempt()
        path = attempt_path(self._record.base_path, identity)
        attempt = Attempt(identity, _now(), path, **self._made_by._asdict())
        self._context.published_settings.note(attempt)
        return attempt

    def _resume(self) -> None:
        """Return a FAILED or PAUSED table to its former state, so that its copy continues."""
        to = self._record.resume_to
        if self._record.state not in RESUMABLE or to is None:
            raise BootstrapError(
                f"table {self._table} has nothing to resume",
                remedy=f"See `tributary status {self._table}`.",
                table=self._table,
            )
        self._store_record(transition(self._record, to, at=_now()))

    def _wait_for_older_transactions(self) -> None:
        """Wait until all transactions that are older than the capture have ended.

        The capture lacks the changes that an older transaction made before the capture began.

        Also wait until the connector has captured every change that is older than the fingerprint.
        The change's event is then below the start offset O, and is not applied. For example, a
        rewrite sends no event, so only the copy has the rewritten rows. If an event from before
        the rewrite were applied to the copy, the event would undo the rewrite.
        """
        # From here on, the table must not change in a way that spoils the copy, and must be
        # captured.
        fingerprint = self._fingerprint()
        ended = self._source.wait_for_older_transactions(
            timeout_s=self._limits.older_transactions_s, progress=self._context.progress
        )
        upto = ended.captured
        if upto is None and self._context.captured_looks.get(self._table) != fingerprint.digest:
            upto = self._source.write_marker().position
        if upto is not None:
            self._capture.wait_until_captured(upto, timeout_s=self._limits.captured_s)
        renew_definition(self._capture, self._context, self._settings, wait_s=self._limits.lease_s)
        self._note_attempt(replace(self._attempt, x0=ended.by, fingerprint=fingerprint))
        crash("bootstrap.after_x0")

    def _record_start(self) -> None:
        """Prove that changes are captured, then record the start offset O.

        O is the last stable offset of the table's topic; for append tables of PostgreSQL, O is the
        high watermark (see `Origin.now`). An open Kafka transaction could hold the last stable
        offset below captured changes. So this method first waits for the end of open transactions.
        """
        # The losses are read before the proof, so that each later loss counts for this attempt.
        self._context.looks.follow(self._capture.names, self._source)
        before = times(self._seen_losses(), self._capture.names, self._table)
        primary = self._capture.prove(self._source.table(self._table), self._losses)
        server = CopiedServer(primary.system_identifier, primary.timeline)
        self._require_known()
        upto = self._context.kafka.high_watermarks(self._record.topic)
        self._capture.wait_until_readable(upto, timeout_s=self._limits.readable_s)
        attempt = recorded(self._attempt, self._capture)
        self._note_attempt(replace(attempt, losses=before, server=server))
        crash("bootstrap.after_o")

    def _require_known(self) -> None:
        """Check that the connector uses the table definition that the copy uses.

        If the definition has changed since the fingerprint was read, `_require_unspoiled` judges
        the change.
        """
        table, now = self._source.capture(self._capture.names).described(self._table)
        known = self._attempt.fingerprint
        if known is not None and known.digest == now.digest:
            self._capture.require_known(table, self._settings)

    def _copy_chunks(self) -> None:
        self._require_start()
        copying = Copying(
            context=self._context,
            source=self._source,
            settings=self._settings,
            record=self._record,
            save=self._note_attempt,
            lease=self._lease,
            replica_s=self._limits.replica_s,
            failures=self._limits.copy_failures,
        )
        try:
            copying.run()
        finally:
            self._rows += copying.rows

    def _find_handoff(self) -> None:
        """Find the copy's upper bound R; wait until R is captured; record the topic's ends as H."""
        self._require_start()
        self._capture.prove(self._source.table(self._table), self._losses)
        self._require_unspoiled(self._fingerprint())  # of the primary
        # Without a new row, the log of an idle source would never pass R.
        marker = self._source.write_marker()
        require_same_server(self._record, marker)
        crash("bootstrap.after_second_marker")
        # The marker is written after the copy, not when the view opens: a session that opens late
        # can see later transactions than the first one. For an append table, the end of the first
        # transaction after the copy must be in its topic.
        upto = joined_bounds(self._source, self._record, marker)
        self._capture.wait_until_captured(upto, timeout_s=self._limits.captured_s)
        # By now, the connector has also reported the statements that were executed during the copy.
        self._require_known()
        # H is not the last stable offset, which a hanging transaction can hold below committed
        # rows.
        high = self._context.kafka.high_watermarks(self._record.topic)
        start = self._attempt.start_offsets
        if self._capture.names.append:
            # The stream begins at this boundary, so the view's position is no longer needed.
            limit = self._limits.readable_s
            start = boundary_of(
                self._attempt, self._capture, self._context.registry, timeout_s=limit
            )
        self._note_attempt(
            replace(self._attempt, start_offsets=start, reads_upto=str(upto), handoff_offsets=high)
        )

    def _commit_handoff(self) -> None:
        """Write the handoff commit, which has no rows and is the first lake commit with offsets."""
        self._require_start()
        crash("bootstrap.before_handoff_commit")
        described, now = self._source.capture(self._capture.names).described(self._table)
        self._require_unspoiled(now)
        schema = self._source.schema(described, self._settings)
        lake = self._context.copied(self._record, schema, self._settings)
        commit = handoff_commit(self._record, self._attempt, lake.layout, self._context)
        lake.empty_commit(commit, self._guard_handoff)
        crash("bootstrap.after_handoff_commit")

    def _guard_handoff(self, timeline: Timeline) -> None:
        """Raise an error before the handoff if the copy is incomplete or the lease is lost."""
        self._lease.check()
        undone = timeline.undone()
        whole = [one for one in timeline.commits() if one.instant not in undone]
        commits = [committed.record for committed in whole]
        require_planned(self._record, self._attempt, commits)

    def _enter_catching_up(self) -> None:
        self._store_record(transition(self._record, State.CATCHING_UP, at=_now()))
        crash("bootstrap.after_catching_up")

    def _catch_up(self) -> None:
        """Apply the changes from the start offsets O up to H, the offsets of the handoff."""
        handoff = self._attempt.handoff_offsets or {}
        try:
            self._capture.wait_until_readable(handoff, timeout_s=self._limits.readable_s)
        except TributaryError as error:
            self._fail(error)
            raise
        self._record = catch_up(self._context, self._record, handoff)

    def _publish(self) -> None:
        """Publish the table; an error in a step after the publication only becomes a warning."""
        try:
            check_losses(self._seen_losses(), self._capture.names, self._record)
            shown = publish(self._context, self._record, self._settings, self._lease)
        except (SchemaError, ReplacedGenerationError, RememberedLossError) as error:
            # The shard does not fit the others, or another generation has replaced this one, or
            # changes were lost since the copy began. Only another copy can be published.
            to, lost = State.NEEDS_BOOTSTRAP, isinstance(error, RememberedLossError)
            cause = Cause(reason=error.message, remedy=error.remedy, capture_lost=lost)
            self._store_record(transition(self._record, to, at=_now(), cause=cause))
            raise
        self._store_record(transition(self._record, State.INCREMENTAL, at=_now(), attempt=shown))
        self._record, self._warnings = after_publication(self._context, self._record, self._lease)

    def _fingerprint(self) -> Fingerprint:
        capture = self._source.capture(self._capture.names)
        return capture.fingerprint(self._table, on_replica=False)

    def _require_unspoiled(self, now: Fingerprint) -> None:
        """Check that no change of the table spoils the copy; store the current fingerprint."""
        attempt = unspoiled(self._source, self._settings, self._record, self._attempt, now)
        if attempt is not self._attempt:
            self._note_attempt(attempt)

    def _require_start(self) -> None:
        """Check that no setting changed, no loss was counted, no event expired since O was read."""
        require_same_settings(self._record, self._attempt, self._made_by.settings_digest)
        self._context.looks.follow(self._capture.names, self._source)
        try:
            check_losses(self._seen_losses(), self._capture.names, self._record)
        except LostHistoryError as lost:
            raise AttemptSpoiledError(
                lost.message, remedy="Nothing to do: the copy begins again.", table=self._table
            ) from lost
        attempt, capture = self._attempt, self._capture
        capture.require_start(attempt.topic_id, attempt.start_offsets or {})
        if (upto := attempt.statements_upto) is not None:
            topic = capture.names.schema_change_topic
            capture.require_start(attempt.statements_topic_id, {0: upto}, topic=topic)

    def _seen_losses(self) -> Mapping[str, Loss]:
        return self._losses.seen(*loss_scopes(self._capture.names, self._table))

    @property
    def _attempt(self) -> Attempt:
        attempt = self._record.attempt
        if attempt is None:
            raise BootstrapError(
                f"table {self._table} has no attempt",
                remedy=f"The state store was altered: {onboard_again(self._table)}.",
                table=self._table,
            )
        return attempt

    @property
    def _lease(self) -> Lease:
        if self._held is None:
            raise FencedError(
                f"table {self._table} is written without its lease",
                remedy="This is a defect of this version; report it.",
                table=self._table,
            )
        return self._held

    def _note_attempt(self, attempt: Attempt) -> TableRecord:
        return self._store_record(with_attempt(self._record, attempt, at=_now()))

    def _store_record(self, record: TableRecord) -> TableRecord:
        self._record = self._context.store.put(record)
        return self._record

    def _fail(self, error: TributaryError) -> None:
        """Set a BOOTSTRAPPING or CATCHING_UP table to FAILED, unless the command was asked to end.

        The caller raises the error.
        """
        if self._context.ending:
            return  # the command ends; the copy has no error
        current = self._context.store.newest(self._record)
        if current.state in (State.BOOTSTRAPPING, State.CATCHING_UP):
            self._store_record(
                transition(current, State.FAILED, at=_now(), cause=Cause(error=error))
            )


def _now() -> datetime:
    """Return the time at which a bootstrap changes the table's record, in UTC."""
    return datetime.now(timezone.utc)
