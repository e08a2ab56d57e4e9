"""Applies the quarantined records of a table, after they have become readable.

A quarantined record cannot be applied alone: the lake can already have a later change to the row
with the record's key, and a later delete leaves no trace in the lake. So a replay reads the topic
again, from the first quarantined record to the lake's offsets. It folds all changes in this range
to rows with the quarantined records' keys as one batch. The last change to each row wins, so it is
harmless that some of these changes are applied a second time. If the topic no longer has the whole
range, the replay applies nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture import position_check
from cdc.capture.topic_facts import one_topic
from cdc.errors import LostHistoryError, StateError, copy_again
from cdc.lake.timeline import Committed
from cdc.rows.kafka_records import Range
from cdc.run.batch import BatchWriter, Replayed
from cdc.run.commits import RunGuard, commit_summary
from cdc.run.comparison import compare
from cdc.run.ddl_events import statement_effects
from cdc.run.follow import follow
from cdc.run.late_rows import note_late
from cdc.run.published_generation import check_serving, no_offsets, require_files, require_folder
from cdc.run.quarantining import HeldQuarantine, Place, require_listed
from cdc.run.truncates import Truncates
from cdc.sources.source_facts import Look
from cdc.store.quarantine import Quarantine
from cdc.store.table_state import State, TableRecord, with_commit

if TYPE_CHECKING:
    from cdc.run.context import RunContext
    from cdc.run.follow import LakeShape
    from cdc.store.attempt import Attempt
    from cdc.store.lease import Lease


_log = logging.getLogger(__name__)


def replay_table(
    context: RunContext, record: TableRecord, *, first: int | None = None, lease_wait_s: float = 0.0
) -> Replayed:
    """Apply a table's quarantined records, and later changes to the same rows, in one commit.

    Args:
        context: The runs' context.
        record: The table.
        first: Offset of the first quarantined record that is applied; earlier records stay in
            quarantine. If None, all quarantined records are applied.
        lease_wait_s: Bound of the wait for another process's lease, in seconds.

    Raises:
        LostHistoryError: The topic no longer has all changes since the first quarantined record. A
            bootstrap is needed.
        DecodeError: None of the quarantined records can be decoded, or a record that an earlier run
            has applied can no longer be decoded.
        PausedByPolicyError: A quarantined record is a TRUNCATE, and `on_truncate` is pause.
        StateError: No record to apply is in quarantine. Or the table's state (the former one, if it
            FAILED) is not INCREMENTAL. Or the table's schema has changed since its last run.
        FencedError: Another writer has committed to the table.
        LeaseHeldError: Another process holds the table's lease.
    """
    with context.leases.hold(record.table, wait_s=lease_wait_s) as lease:
        current = context.store.get(record.table) or record
        return _QuarantineReplay(context, current, lease).run(first)


class _QuarantineReplay:
    """The replay of one table's quarantined records, under the table's lease."""

    def __init__(self, context: RunContext, record: TableRecord, lease: Lease) -> None:
        self._context = context
        self._record = record
        self._table = record.table
        self._lease = lease
        self._settings = context.settings(record)

    def run(self, first: int | None) -> Replayed:
        """Apply the quarantined records from offset ``first`` on; if it is None, apply all."""
        attempt = self._attempt()
        check_serving(self._context, self._record)
        timeline = self._context.timeline(attempt)
        latest = timeline.latest_offsets()
        if latest is None or latest.record.attempt != str(attempt.id):
            require_folder(self._context.spark, self._record)
            raise no_offsets(self._record, f"no commit under {attempt.path} belongs to its attempt")
        quarantined = Quarantine(self._context.store).offsets(str(attempt.id))
        require_listed(latest.record, quarantined)
        require_files(self._context, self._record, timeline, latest)
        start = self._first_offsets(quarantined, latest, first)
        piece = Range(start, dict(latest.record.offsets))
        self._require_history(attempt, latest, start)
        shape, latest = self._shape(latest)
        guard = RunGuard(self._table, self._lease, latest)
        writer = BatchWriter(
            self._context,
            shape,
            settings=self._settings,
            record=self._record,
            quarantined=HeldQuarantine(quarantined, self._lease.transaction),
        )
        replayed = writer.replay(piece, latest.record, guard)
        applied = replayed.applied
        committed = Committed(applied.instant, "commit", applied.record)
        summary = commit_summary(committed, writes=guard.writes())
        self._record = self._context.store.put(
            with_commit(self._record, summary, at=datetime.now(timezone.utc))
        )
        note_late(self._context.store, self._record, committed, self._settings)
        _log.info(
            "table %s: %d records replayed from %s", self._table, replayed.records, dict(start)
        )
        return replayed

    def _attempt(self) -> Attempt:
        """Return the attempt of a table that is INCREMENTAL, or was INCREMENTAL before it FAILED.

        Raises:
            StateError: The table is in another state, or has no attempt.
        """
        record = self._record
        state = record.resume_to if record.state is State.FAILED else record.state
        if state is not State.INCREMENTAL or record.attempt is None:
            raise self._replay_refused(f"the table is {record.state.value}")
        return record.attempt

    def _first_offsets(
        self, quarantined: Collection[Place], latest: Committed, first: int | None
    ) -> Mapping[int, int]:
        """Return the offsets from which a replay reads the topic again."""
        offsets = dict(latest.record.offsets)
        places = [
            (partition, at)
            for partition, at in quarantined
            if at < offsets.get(partition, 0) and (first is None or at >= first)
        ]
        if not places:
            since = "" if first is None else f" from offset {first} on"
            raise StateError(
                f"table {self._table} has no quarantined record{since}",
                remedy=f"`tributary quarantine list {self._table}` shows what there is.",
                table=self._table,
            )
        for partition, at in places:
            offsets[partition] = min(offsets[partition], at)
        return offsets

    def _require_history(
        self, attempt: Attempt, latest: Committed, start: Mapping[int, int]
    ) -> None:
        """Check that the topic still has all records from the start offsets on."""
        topic = self._record.topic
        try:
            position_check.check_topic(
                self._table,
                topic,
                topic_id=latest.record.topic_id or attempt.topic_id,
                start=start,
                now=one_topic(self._context, topic),
            )
        except LostHistoryError as error:
            raise LostHistoryError(
                f"the quarantined records of table {self._table} cannot be replayed: a later change"
                f" of the same row may be in the lake, and {error.message}",
                remedy=f"To be exact, {copy_again(self._table)}.",
                **error.context,
            ) from error

    def _shape(self, latest: Committed) -> tuple[LakeShape, Committed]:
        """Return the lake table to replay into, and the table's newest commit.

        A replay raises an error at a schema change, since only runs follow schema changes. If the
        catalog has changed without a schema change, a new commit records the current catalog.
        """
        source = self._context.sources[self._table.source]
        capture = source.capture(self._context.capture(self._record))
        source_table, fingerprint = capture.described(self._table)
        handoff = latest.record.require_handoff()
        lake = self._context.config.lake
        look = Look(source_table, fingerprint)
        statements = statement_effects(self._context, self._record, handoff, look)
        look = replace(look, statements=statements)
        truncates = Truncates(self._context, self._record, latest.record.offsets)
        compared = compare(source, look, self._settings, handoff, lake, truncates=truncates)
        if compared.changes:
            raise StateError(
                f"table {self._table} has changed since its last run:"
                f" {'; '.join(str(change) for change in compared.changes)}",
                remedy=f"Let a run look at it first: `tributary run {self._table}`.",
                table=self._table,
            )
        guard = RunGuard(self._table, self._lease, latest)
        return follow(self._context, self._record, latest, compared, guard)

    def _replay_refused(self, reason: str) -> StateError:
        return StateError(
            f"the quarantined records of table {self._table} cannot be replayed: {reason}",
            remedy=f"See `tributary status {self._table}` for what it needs first.",
            table=self._table,
        )
