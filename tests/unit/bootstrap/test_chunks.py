from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.chunks import (
    QUICK_BYTES,
    QUICK_START,
    SINGLE_WAVE_BYTES,
    SMALL_ROWS,
    WAVE_SHARE,
    at_most,
    chunk_count,
    cut_chunks,
    default_chunk_rows,
    waves,
)
from cdc.sources.source_facts import Boundaries, TableSize
from cdc.store.attempt import Chunk

MIB = 1024 * 1024
SIZES = st.builds(TableSize, st.integers(0, 10**10), st.integers(0, 10**13))
POINTS = st.lists(st.integers(-1000, 1000), unique=True, max_size=40).map(sorted)


def boundaries(points: list[int], size: TableSize | None = None) -> Boundaries:
    return Boundaries(tuple((str(p),) for p in points), size or TableSize(1000, 10**9))


def holds(chunk: Chunk, key: int) -> bool:
    above = chunk.lower is None or int(chunk.lower[0]) <= key
    return above and (chunk.upper is None or key < int(chunk.upper[0]))


@given(POINTS, st.integers(-2000, 2000))
def test_every_key_is_in_exactly_one_chunk(points: list[int], key: int) -> None:
    chunks = cut_chunks(boundaries(points))
    assert sum(holds(chunk, key) for chunk in chunks) == 1
    assert [chunk.id for chunk in chunks] == list(range(len(points) + 1))


@given(POINTS, SIZES)
def test_estimates_add_up_to_the_table(points: list[int], size: TableSize) -> None:
    chunks = cut_chunks(boundaries(points, size))
    assert sum(chunk.rows_estimate for chunk in chunks) == size.rows
    assert sum(chunk.bytes_estimate for chunk in chunks) == size.heap_bytes
    rows = [chunk.rows_estimate for chunk in chunks]
    assert max(rows) - min(rows) <= 1


@given(POINTS, st.integers(1, 12))
def test_as_few_chunks_as_can_be_read_at_once_are_of_the_same_keys(
    points: list[int], most: int
) -> None:
    found = at_most(boundaries(points), most)
    assert len(cut_chunks(found)) == min(len(points) + 1, most)
    assert set(found.points) <= set(boundaries(points).points)
    assert list(found.points) == sorted(found.points, key=lambda point: int(point[0]))


def count(rows: int, size: int, *, parallel: int = 2) -> int:
    return chunk_count(
        TableSize(rows, size), chunk_rows=500_000, chunk_bytes=128 * MIB, parallel=parallel
    )


def test_an_empty_or_tiny_table_is_one_chunk() -> None:
    assert count(0, 0) == 1
    assert count(1, 8192) == 1
    assert count(SMALL_ROWS - 1, MIB, parallel=8) == 1


def test_rows_and_bytes_both_bound_a_chunk() -> None:
    assert count(10_000_000, MIB) == 20
    assert count(10_000_000, 100 * 128 * MIB) == 100
    assert count(10, 10 * 128 * MIB) == 10


def test_never_more_chunks_than_rows() -> None:
    assert count(3, 10 * 128 * MIB) == 3


def test_a_table_that_is_not_small_keeps_every_reader_busy_in_each_commit() -> None:
    assert count(SMALL_ROWS, 8 * MIB, parallel=8) == 8
    chunks = count(2_000_000, 508 * MIB, parallel=4)
    assert chunks == 20
    planned = cut_chunks(boundaries(list(range(chunks - 1)), TableSize(2_000_000, 508 * MIB)))
    assert [len(wave) for wave in waves(planned, parallel=4)] == [12, 4, 4]
    planned = cut_chunks(
        boundaries(list(range(chunks - 1)), TableSize(20_000_000, 2 * QUICK_BYTES))
    )
    assert [len(wave) for wave in waves(planned, parallel=4)] == [4] * 5


def test_a_wave_is_no_larger_than_the_rate_allows() -> None:
    size = TableSize(20_000_000, 2 * QUICK_BYTES)
    planned = cut_chunks(boundaries(list(range(39)), size))
    assert [len(wave) for wave in waves(planned, parallel=4)] == [8] * 5
    for wave_bytes, expected in ((QUICK_BYTES // 4, [4] * 10), (MIB, [1] * 40)):
        found = waves(planned, parallel=4, wave_bytes=wave_bytes)
        assert [len(wave) for wave in found] == expected
    quick = cut_chunks(boundaries(list(range(19)), TableSize(2_000_000, 508 * MIB)))
    for wave_bytes, expected in ((105 * MIB, [4] * 5), (1024 * MIB, [12, 4, 4])):
        found = waves(quick, parallel=4, wave_bytes=wave_bytes)
        assert [len(wave) for wave in found] == expected
    huge = cut_chunks(boundaries(list(range(9_999)), TableSize(10**9, 10**12)))
    assert len(waves(huge, parallel=1, wave_bytes=10_000_000)) == 100, "its commits are bounded"
    least = TableSize(10, SINGLE_WAVE_BYTES)
    small = cut_chunks(boundaries([1, 2, 3], least))
    assert len(waves(small, parallel=4, wave_bytes=MIB)) == 1


def test_a_few_wide_rows_are_cut_for_several_commits() -> None:
    assert count(10_000, 80 * MIB) == 10


@given(SIZES, st.integers(1, 64))
def test_one_wave_repeats_no_more_than_its_share(size: TableSize, parallel: int) -> None:
    chunks = chunk_count(size, chunk_rows=500_000, chunk_bytes=128 * MIB, parallel=parallel)
    chunks = min(chunks, 5000)
    planned = cut_chunks(boundaries(list(range(chunks - 1)), size))
    groups = waves(planned, parallel=parallel)
    assert [chunk for wave in groups for chunk in wave] == list(planned)
    total = sum(chunk.bytes_estimate for chunk in planned)
    if total <= SINGLE_WAVE_BYTES:
        assert len(groups) == 1
    elif size.rows >= SMALL_ROWS:
        sizes = [sum(chunk.bytes_estimate for chunk in wave) for wave in groups]
        start = QUICK_START if total <= QUICK_BYTES else WAVE_SHARE
        assert sizes[0] <= total * start + len(planned)
        assert max(sizes[1:]) <= total * WAVE_SHARE + len(planned)


@given(st.sets(st.integers(0, 19)), st.integers(1, 6))
def test_a_resume_takes_up_what_is_left(done: set[int], parallel: int) -> None:
    planned = cut_chunks(boundaries(list(range(19)), TableSize(10**6, 10**9)))
    left = [chunk.id for wave in waves(planned, parallel=parallel, done=done) for chunk in wave]
    assert left == [number for number in range(20) if number not in done]


@pytest.mark.parametrize(
    ("rows", "row_bytes", "appends", "expected"),
    [
        (10**6, 200, False, 200_000),
        (10**6, 200, True, 500_000),
        (10**6, 100, False, 335_544),
        (10**7, 40, False, 500_000),
        (10**9, 200, False, 500_000),
        (600_000_000, 200, False, 300_000),
        (0, 0, False, 200_000),
    ],
)
def test_a_file_of_a_copy_has_as_many_rows_as_a_commit_may_rewrite(
    rows: int, row_bytes: int, appends: bool, expected: int
) -> None:
    assert default_chunk_rows(TableSize(rows, rows * row_bytes), appends=appends) == expected
