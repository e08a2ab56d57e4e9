"""The records that a lake table lacks, before and after one commit that leaves out or applies some.

A record that a commit leaves out is quarantined before that commit. A record that a commit applies
leaves the quarantine after that commit. A process that dies in between loses nothing: the next one
reads the records again, and finds them in quarantine or applies them a second time.
"""

from __future__ import annotations

import logging
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
    from cdc.store.state_store import Store

_log = logging.getLogger(__name__)

Place = tuple[int, int]
"""Partition and offset."""


def require_listed(store: Store, commit: CommitRecord) -> None:
    """Check that the store lists the records that the lake's newest commit says are left out.

    Raises:
        LostHistoryError: It lists fewer.
    """
    if not commit.lacks:
        return
    places = Quarantine(store).offsets(commit.attempt)
    listed = sum(at < commit.offsets.get(partition, 0) for partition, at in places)
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


class LeftOut:
    """The records that one lake table lacks, as of the beginning of a commit.

    Args:
        context: What runs work with.
        previous: The lake's newest commit with offsets.
        settings: The table's settings.
    """

    def __init__(
        self, context: RunContext, previous: CommitRecord, settings: TableSettings
    ) -> None:
        self._run_id = context.run_id
        self._previous = previous
        self._settings = settings
        self._quarantine = Quarantine(context.store)
        self._kept = self._quarantine.offsets(previous.attempt)

    def outside(self, piece: Range) -> set[Place]:
        """Records that the table lacks and that are outside of the range."""
        return self._kept - self.within(piece)

    def within(self, piece: Range) -> set[Place]:
        """Records of the range that were left out before, or quarantined by a run that died."""
        return {
            (partition, at)
            for partition, at in self._kept
            if partition in piece.start and piece.start[partition] <= at < piece.end[partition]
        }

    def gaps(self, batch: Batch) -> bool:
        """Whether there are records that the table lacks, or will lack, outside of what applies."""
        return bool(self.outside(batch.piece) or batch.left_out)

    def lacking(self, batch: Batch) -> int:
        """How many records below the batch's end the table lacks once the batch is committed."""
        end = batch.piece.end
        passed = [at for partition, at in self.outside(batch.piece) if at < end.get(partition, 0)]
        return len(passed) + len(batch.left_out)

    def tolerated(self, piece: Range) -> int:
        """How many records of the range may be left out."""
        if self._settings.on_bad_message != "quarantine":
            return 0
        return max(0, self._settings.max_quarantined - len(self.outside(piece)))

    def keep(self, batch: Batch, reader: BatchReader) -> None:
        """Quarantine the records that the batch leaves out."""
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
        for problem in batch.left_out:
            _log.warning(
                "table %s lacks the record at offset %d of topic %s: %s",
                commit.table,
                problem.offset,
                reader.topic,
                problem.reason,
            )
        crash("quarantine.after_keep")

    def settle(self, batch: Batch) -> None:
        """Remove from the quarantine what the batch has applied; call it after the commit."""
        if not self._kept and not batch.left_out:
            return
        self._quarantine.settle(
            self._previous.attempt,
            batch.piece.start,
            batch.piece.end,
            [(problem.partition, problem.offset) for problem in batch.left_out],
        )
