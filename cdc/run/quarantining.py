"""Keeps the quarantine in step with commits that leave out or apply quarantined records.

A record is put into quarantine before the commit that leaves it out. A record is removed from
quarantine after the commit that applies it. A process that dies between two such steps loses
nothing. If it dies before a commit that leaves records out, the next run reads the records again
and finds them in quarantine. If it dies after a commit that applies records, the next replay
applies them again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.errors import LostHistoryError, copy_lost
from cdc.runtime.failpoints import crash
from cdc.store.quarantine import MAX_BYTES, Quarantine, Quarantined

if TYPE_CHECKING:
    from cdc.config import TableSettings
    from cdc.lake.commit import CommitRecord
    from cdc.rows.kafka_records import Range
    from cdc.run.batch_reading import Batch, BatchReader
    from cdc.run.context import RunContext
    from cdc.store.quarantine import Transaction

_log = logging.getLogger(__name__)

Place = tuple[int, int]
"""Partition and offset of a record."""


def require_listed(commit: CommitRecord, quarantined: Collection[Place]) -> None:
    """Check that the state store lists as many quarantined records as the lake table lacks.

    Args:
        commit: The record of the newest commit.
        quarantined: Partition and offset of each quarantined record of the commit's attempt.

    Raises:
        LostHistoryError: The state store lists fewer records. Which records it lacks is not known.
    """
    listed = sum(at < commit.offsets.get(partition, 0) for partition, at in quarantined)
    if listed < commit.lacks:
        raise LostHistoryError(
            f"the lake lacks {commit.lacks} records of table {commit.table} that could not be"
            f" applied, and the state store lists {listed} of them: it is no longer known which"
            " changes are missing",
            remedy="Was the state store or the lake restored from a backup? Restore the other one"
            f" from the same time; or {copy_lost(commit.table)}.",
            table=commit.table,
            topic=commit.topic,
        )


@dataclass(frozen=True)
class HeldQuarantine:
    """The quarantined records of an attempt, as the holder of the table's lease knows them.

    Only the holder changes the quarantine, so the state store is not asked again.

    Args:
        places: Partition and offset of each record.
        changing: Opens a transaction that raises `FencedError` if this process no longer holds the
            lease (`Lease.transaction`). Otherwise, a process that was suspended could change the
            quarantine of the next holder.
    """

    places: set[Place]
    changing: Transaction


class LeftOut:
    """The quarantined records that a lake table lacks just before a commit.

    Args:
        context: The runs' context.
        previous: The record of the lake's newest commit with offsets.
        settings: The table's settings.
        quarantined: The quarantined records of the attempt; updated when the quarantine changes.
    """

    def __init__(
        self,
        context: RunContext,
        previous: CommitRecord,
        settings: TableSettings,
        quarantined: HeldQuarantine,
    ) -> None:
        self._run_id = context.run_id
        self._previous = previous
        self._settings = settings
        self._quarantine = Quarantine(context.store, changing=quarantined.changing)
        self._kept = quarantined.places

    def outside(self, piece: Range) -> set[Place]:
        """Return partition and offset of each quarantined record outside of a range."""
        return self._kept - self.within(piece)

    def within(self, piece: Range) -> set[Place]:
        """Return partition and offset of each quarantined record in a range.

        Even a range that no commit has passed can have such records: a run quarantines records and
        can then die before its commit.
        """
        return {
            (partition, at)
            for partition, at in self._kept
            if partition in piece.start and piece.start[partition] <= at < piece.end[partition]
        }

    def will_lack_records(self, batch: Batch) -> bool:
        """Whether the table will still lack records after the batch's commit."""
        return bool(self.outside(batch.piece) or batch.left_out)

    def lacking(self, batch: Batch) -> int:
        """Return how many records the table lacks after a batch's commit.

        Records after the batch's end do not count.
        """
        end = batch.piece.end
        passed = [at for partition, at in self.outside(batch.piece) if at < end.get(partition, 0)]
        return len(passed) + len(batch.left_out)

    def tolerated(self, piece: Range) -> int:
        """Return how many of a range's records a commit may leave out, by the settings."""
        if self._settings.on_bad_message != "quarantine":
            return 0
        return max(0, self._settings.max_quarantined - len(self.outside(piece)))

    def keep(self, batch: Batch, reader: BatchReader) -> None:
        """Quarantine the records that the batch leaves out.

        The caller calls this method before the batch's commit.
        """
        if not batch.left_out:
            return
        now, commit = datetime.now(timezone.utc), self._previous
        raw = reader.raw(batch.left_out, max_bytes=MAX_BYTES)
        self._quarantine.keep(
            [
                Quarantined(
                    table=commit.table,
                    attempt=commit.attempt,
                    topic=reader.topic,
                    topic_id=commit.topic_id,
                    partition=problem.partition,
                    offset=problem.offset,
                    schema_id=problem.schema_id,
                    reason=problem.reason,
                    timestamp=record.timestamp,
                    size=record.size,
                    run_id=self._run_id,
                    quarantined_at=now,
                    key=record.key,
                    value=record.value,
                )
                for problem, record in zip(batch.left_out, raw, strict=True)
            ]
        )
        self._kept.update((one.partition, one.offset) for one in batch.left_out)
        for problem in batch.left_out:
            _log.warning(
                "table %s lacks the record at offset %d of topic %s: %s",
                commit.table,
                problem.offset,
                reader.topic,
                problem.reason,
            )
        crash("quarantine.after_keep")

    def drop_applied(self, batch: Batch) -> None:
        """Remove from quarantine the records that the batch has applied.

        The caller calls this method after the batch's commit.

        Raises:
            FencedError: Another process has taken the lease since then. The records stay in
                quarantine until the next `quarantine replay`.
        """
        if not self._kept and not batch.left_out:
            return
        lacking = [(problem.partition, problem.offset) for problem in batch.left_out]
        piece = batch.piece
        self._quarantine.forget_range(self._previous.attempt, piece.start, piece.end, lacking)
        self._kept.difference_update(self.within(piece).difference(lacking))
