"""What a bootstrap's lake commits say about themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from bootstrap.errors import AttemptSpoiledError
from cdc.lake.commit import CommitRecord
from cdc.run.shape import column_facts, hash_key_fact, key_text_fact

if TYPE_CHECKING:
    from bootstrap.chunks import Chunk
    from cdc.attempt import Attempt
    from cdc.run import RunContext
    from cdc.state import TableRecord
    from schemas.table import TableSchema


def chunk_commit(
    record: TableRecord, attempt: Attempt, chunks: Sequence[Chunk], run_id: str
) -> CommitRecord:
    """The commit of a wave; its chunk ids decide what a resume may skip."""
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
    schema: TableSchema,
    context: RunContext,
) -> CommitRecord:
    """The empty commit that hands the table to the stream, with all that the handoff rests on."""
    view = dict(attempt.view or {})
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
        handoff={
            "start_offsets": _plain(attempt.start_offsets),
            "split": view.get("split"),
            "handoff_offsets": _plain(attempt.handoff_offsets),
            "topic_id": attempt.topic_id,
            "reads_upto": attempt.reads_upto,
            "x0": attempt.x0,
            "marker_id": str(attempt.marker_id),
            "system_identifier": view.get("system_identifier"),
            "timeline": view.get("timeline"),
            "told_upto": attempt.told_upto,
            "view": view,
            "fingerprint_digest": attempt.fingerprint_digest,
            "fingerprint": dict(attempt.fingerprint or {}),
            "columns": [column_facts(column) for column in schema.columns],
            "key": list(schema.key),
            **key_text_fact(schema, shared=record.shard is not None),
            **hash_key_fact(schema.columns, context.config.lake),
        },
        run_id=context.run_id,
    )


def require_planned(record: TableRecord, attempt: Attempt, commits: Iterable[CommitRecord]) -> None:
    """Refuse a copy that does not hold each planned chunk exactly once.

    A process that lost its lease while it was stopped may have committed a chunk that its
    successor copied again.

    Raises:
        AttemptSpoiledError: A chunk is missing, or there twice.
    """
    copied = sorted(
        chunk for commit in commits if commit.kind == "chunk" for chunk in commit.chunk_ids
    )
    planned = sorted(int(chunk["id"]) for chunk in attempt.chunks)
    if copied != planned:
        raise AttemptSpoiledError(
            f"the copy of table {record.table} holds chunks {copied}, planned are {planned}:"
            " two processes have written to it",
            remedy="Nothing to do: the copy begins again.",
            table=record.table,
            path=attempt.path,
        )


def _plain(offsets: Mapping[int, int] | None) -> dict[str, int]:
    return {str(partition): at for partition, at in (offsets or {}).items()}
