"""Plans a table's copy: chunks of rows, and waves of chunks.

A chunk is a part of the table that one Spark task reads: a range of keys, or a range of pages if
the table has no key. A wave is the set of chunks that one lake commit contains. The functions are
pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cdc.sources.source_facts import Boundaries, KeyRange, TableSize
from cdc.store.attempt import Chunk

SMALL_ROWS = 50_000
"""A table of fewer rows that is copied in a single commit is not split for parallel reads."""
CHUNK_ROWS = 200_000
"""Number of rows of a chunk, which becomes one file. If a later commit changes one row of a file,
the commit rewrites all rows of the file."""
MOST_CHUNK_ROWS = 500_000
"""The largest number of rows of a chunk, unless the settings give another number."""
LEAST_CHUNK_BYTES = 32 * 1024 * 1024
"""A chunk of up to this size in the source, in bytes, can have more than `CHUNK_ROWS` rows."""
MOST_FILES = 2_000
"""If a table would have more chunks than this, its chunks get more than `CHUNK_ROWS` rows.

Each chunk becomes one file, and each commit opens every file of the table.
"""
WAVE_SHARE = 0.2
"""The largest share of a table that one Hudi commit of its copy contains.

So after a crash, at most this share is copied again.
"""
LEAST_SHARE = 0.01
"""The share of a table that one commit may contain even if the rate of copies allows less.

So a copy has at most about two hundred commits. Each of them reads the timeline of all the others.
"""
SINGLE_WAVE_BYTES = 64 * 1024 * 1024
"""A table of up to this size, in bytes, is copied in one commit, since a repeated copy takes only
seconds."""
QUICK_BYTES = 1024 * 1024 * 1024
"""A table of up to this size, in bytes, is read within a minute.

Each commit takes time in addition, so the copy of such a table has a larger first commit.
"""
QUICK_START = 0.6
"""The largest share of a table of up to `QUICK_BYTES` that the first commit of its copy contains.

`WAVE_SHARE` limits the later commits of such a copy.
"""


def key_range(chunk: Chunk) -> KeyRange:
    """Return the range of keys of a copy's chunk, as the argument of the source's queries."""
    return KeyRange(chunk.lower, chunk.upper)


def default_chunk_rows(size: TableSize, *, appends: bool) -> int:
    """Return the maximum number of rows of a copy's chunk if the settings have no such maximum.

    Args:
        size: Size of the table.
        appends: Whether rows are only ever added to the table.
    """
    if appends:
        return MOST_CHUNK_ROWS
    narrow = LEAST_CHUNK_BYTES * size.rows // max(1, size.heap_bytes)
    return min(MOST_CHUNK_ROWS, max(CHUNK_ROWS, narrow, _divided_size(size.rows, MOST_FILES)))


def chunk_count(size: TableSize, *, chunk_rows: int, chunk_bytes: int, parallel: int) -> int:
    """Return the number of chunks of a table's copy, at least one.

    Args:
        size: Size of the table.
        chunk_rows: Maximum number of rows of a chunk.
        chunk_bytes: Maximum size of a chunk in bytes.
        parallel: Number of chunks that are read at the same time. A table of at least `SMALL_ROWS`
            rows has at least this number of chunks. A table that is copied in several commits has
            at least this number of chunks for each commit.
    """
    needed = max(
        _divided_size(size.rows, chunk_rows), _divided_size(size.heap_bytes, chunk_bytes), 1
    )
    single = size.heap_bytes <= SINGLE_WAVE_BYTES
    if size.rows >= SMALL_ROWS or not single:
        needed = max(needed, parallel * (1 if single else round(1 / WAVE_SHARE)))
    return max(1, min(needed, size.rows))


def at_most(boundaries: Boundaries, chunks: int) -> Boundaries:
    """Return evenly selected boundaries, which cut a copy into at most ``chunks`` chunks."""
    points = boundaries.points
    if len(points) < chunks:
        return boundaries
    kept = tuple(points[len(points) * number // chunks] for number in range(1, chunks))
    return Boundaries(kept, boundaries.size)


def cut_chunks(boundaries: Boundaries) -> tuple[Chunk, ...]:
    """Return disjoint chunks of a copy that together cover the table, cut at each boundary.

    Each chunk's estimated size is an equal part of the table's size, since the boundaries divide
    the table evenly.
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
    wave_bytes: int | None = None,
) -> tuple[tuple[Chunk, ...], ...]:
    """Return the copy's remaining chunks, grouped into waves, in order.

    A wave is as large as ``share`` allows, and has at least one chunk. After a crash, at most one
    wave is copied again. If ``share`` allows, a wave's number of chunks is a multiple of
    ``parallel``. The first wave of a table of at most `QUICK_BYTES` can be larger, up to the share
    `QUICK_START`.

    Args:
        chunks: All planned chunks.
        parallel: Number of chunks that are read at the same time.
        done: Ids of the chunks that are already committed.
        share: The largest share of the table in one wave, unless a single chunk is larger.
        single_wave_bytes: A table of at most this size in bytes is one wave.
        wave_bytes: The largest size of a wave in bytes, unless a single chunk or `LEAST_SHARE` of
            the table is larger; None for no limit.
    """
    left = [chunk for chunk in chunks if chunk.id not in set(done)]
    if not left:
        return ()
    total = sum(chunk.bytes_estimate for chunk in chunks)
    if total <= single_wave_bytes:
        return (tuple(left),)
    allowed = 1.0 if wave_bytes is None else max(wave_bytes / total, LEAST_SHARE)
    most = _chunks_per_wave(len(chunks), min(share, allowed), parallel)
    quick = QUICK_START if total <= QUICK_BYTES and not done else 0.0
    first = _chunks_per_wave(len(chunks), min(max(share, quick), allowed), parallel)
    ends = [*range(first, len(left), most), len(left)]
    return tuple(tuple(left[start:end]) for start, end in zip([0, *ends], ends, strict=False))


def _chunks_per_wave(chunks: int, share: float, parallel: int) -> int:
    """Return the largest number of chunks in one wave of a copy."""
    most = max(1, int(chunks * share + 1e-9))
    return most - most % parallel if most > parallel else most


def _divided_size(amount: int, unit: int) -> int:
    """Return a number of rows or bytes of a copy, divided by ``unit`` and rounded up."""
    return -(-amount // unit)
