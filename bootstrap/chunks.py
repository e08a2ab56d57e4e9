"""How a table is cut for its snapshot: chunks of rows, and waves of chunks. Pure planning."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cdc.sources.values import Boundaries, KeyRange, TableSize
from cdc.store.attempt import Chunk

SMALL_ROWS = 50_000
"""Below this a table is one chunk: reading it in parallel gains nothing."""
WAVE_SHARE = 0.2
"""The largest part of a table that one Hudi commit, and so one crash, may cost."""
SINGLE_WAVE_BYTES = 64 * 1024 * 1024
"""A table up to this size is one commit: reading it again costs seconds."""
QUICK_BYTES = 1024 * 1024 * 1024
"""A table up to this size is read in less than a minute, of which each commit takes a part."""
QUICK_START = 0.6
"""So the first commit takes this part of it; the later ones their usual share."""


def key_range(chunk: Chunk) -> KeyRange:
    """A chunk as the source reads it."""
    return KeyRange(chunk.lower, chunk.upper)


def chunk_count(size: TableSize, *, chunk_rows: int, chunk_bytes: int, parallel: int) -> int:
    """How many chunks a table is cut into, at least one.

    Args:
        size: Of the table.
        chunk_rows: Rows of a chunk, at most.
        chunk_bytes: Bytes of a chunk, at most.
        parallel: Chunks that are read at the same time. A table that is not small has at least as
            many, and one that takes several commits enough for each of them.
    """
    needed = max(_ceil(size.rows, chunk_rows), _ceil(size.heap_bytes, chunk_bytes), 1)
    single = size.heap_bytes <= SINGLE_WAVE_BYTES
    if size.rows >= SMALL_ROWS or not single:
        needed = max(needed, parallel * (1 if single else round(1 / WAVE_SHARE)))
    return max(1, min(needed, size.rows))


def at_most(boundaries: Boundaries, chunks: int) -> Boundaries:
    """No more boundaries than give that many chunks, at even distances among those found."""
    points = boundaries.points
    if len(points) < chunks:
        return boundaries
    kept = tuple(points[len(points) * number // chunks] for number in range(1, chunks))
    return Boundaries(kept, boundaries.size)


def plan(boundaries: Boundaries) -> tuple[Chunk, ...]:
    """Disjoint chunks that cover every key: one between each two neighbouring boundaries.

    The estimates share the table's size evenly, as the boundaries were chosen to.
    """
    points = boundaries.points
    count = len(points) + 1
    lowers: list[tuple[str, ...] | None] = [None, *points]
    uppers: list[tuple[str, ...] | None] = [*points, None]
    rows, size = boundaries.size.rows, boundaries.size.heap_bytes
    return tuple(
        Chunk(
            id=number,
            lower=lower,
            upper=upper,
            rows_estimate=rows * (number + 1) // count - rows * number // count,
            bytes_estimate=size * (number + 1) // count - size * number // count,
        )
        for number, (lower, upper) in enumerate(zip(lowers, uppers, strict=True))
    )


def waves(
    chunks: Sequence[Chunk],
    *,
    parallel: int,
    done: Collection[int] = (),
    share: float = WAVE_SHARE,
    single_wave_bytes: int = SINGLE_WAVE_BYTES,
) -> tuple[tuple[Chunk, ...], ...]:
    """Group the chunks that are left into commits, in order.

    A wave is as large as its share of the whole table allows, so that a crash repeats no more
    than that; but at least one chunk, and no fewer than are read in parallel while that stays
    within the share.

    Args:
        chunks: The whole plan.
        parallel: Chunks that are read at the same time.
        done: Ids that are already committed.
        share: Part of the table's bytes in one wave, at most, where chunks are smaller than that.
        single_wave_bytes: A table up to this size is one wave.
    """
    left = [chunk for chunk in chunks if chunk.id not in set(done)]
    if not left:
        return ()
    total = sum(chunk.bytes_estimate for chunk in chunks)
    if total <= single_wave_bytes:
        return (tuple(left),)
    most = _wave_chunks(len(chunks), share, parallel)
    quick = total <= QUICK_BYTES and not done
    first = _wave_chunks(len(chunks), max(share, QUICK_START), parallel) if quick else most
    ends = [*range(first, len(left), most), len(left)]
    return tuple(tuple(left[start:end]) for start, end in zip([0, *ends], ends, strict=False))


def _wave_chunks(chunks: int, share: float, parallel: int) -> int:
    """Chunks of one wave: whole rounds of the readers, so that none idles in the last round."""
    most = max(1, int(chunks * share + 1e-9))
    return most - most % parallel if most > parallel else most


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)
