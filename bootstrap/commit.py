"""Makes the metadata of a bootstrap's lake commits, and checks that each chunk was copied once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bootstrap.errors import AttemptSpoiledError
from cdc.lake.commit import CommitRecord
from cdc.lake.handoff import Handoff, hash_key_of

if TYPE_CHECKING:
    from cdc.lake.layout import LakeLayout
    from cdc.run import RunContext
    from cdc.store.attempt import Attempt, Chunk
    from cdc.store.table_state import TableRecord


def chunk_commit(
    record: TableRecord, attempt: Attempt, chunks: Sequence[Chunk], run_id: str
) -> CommitRecord:
    """Return the metadata of the lake commit that contains a wave of a copy.

    The metadata names the wave's chunks, which a resumed copy skips.
    """
    return CommitRecord(
        kind="chunk",
        table=record.table,
        attempt=str(attempt.id),
        generation=record.generation,
        start_offsets=attempt.start_offsets or {},
        topic=record.topic,
        topic_id=attempt.topic_id,
        chunk_ids=tuple(chunk.id for chunk in chunks),
        run_id=run_id,
    )


def handoff_commit(
    record: TableRecord,
    attempt: Attempt,
    layout: LakeLayout,
    context: RunContext,
) -> CommitRecord:
    """Return the metadata of the lake commit that has a copy's handoff and no rows."""
    return CommitRecord(
        kind="handoff",
        table=record.table,
        attempt=str(attempt.id),
        generation=record.generation,
        start_offsets=attempt.start_offsets or {},
        offsets=attempt.start_offsets or {},
        epochs=attempt.start_epochs or {},
        topic=record.topic,
        topic_id=attempt.topic_id,
        handoff=Handoff.of_copy(
            attempt,
            layout,
            shared=record.shard is not None,
            hash_key=hash_key_of(layout.schema.columns, context.config.lake),
        ),
        run_id=context.run_id,
    )


def require_planned(record: TableRecord, attempt: Attempt, commits: Iterable[CommitRecord]) -> None:
    """Raise an error if the lake lacks a planned chunk of a copy, or has a chunk twice.

    A process that was suspended and has lost its lease can still commit a chunk that the next
    process copies again.

    Raises:
        AttemptSpoiledError: A chunk is missing, or was copied twice.
    """
    copied = sorted(
        chunk for commit in commits if commit.kind == "chunk" for chunk in commit.chunk_ids
    )
    planned = sorted(chunk.id for chunk in attempt.chunks)
    if copied != planned:
        raise AttemptSpoiledError(
            f"the copy of table {record.table} holds chunks {copied} instead of {planned}:"
            " two processes have written to it",
            remedy="Nothing to do: the copy begins again.",
            table=record.table,
            path=attempt.path,
        )
