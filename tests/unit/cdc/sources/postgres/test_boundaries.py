from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.sources.postgres.boundaries import (
    MAX_SAMPLED_PAGES,
    MAX_SHARE,
    PAGE_BYTES,
    PAGES_PER_CHUNK,
    WHOLE_PAGES,
    pages,
    sampled_share,
)


@given(st.integers(0, 2**50), st.integers(1, 100_000))
def test_a_sample_is_bounded_however_large_the_table(size: int, chunks: int) -> None:
    share = sampled_share(size, chunks)
    count = size // PAGE_BYTES
    if share is None:
        assert count <= WHOLE_PAGES
    else:
        assert 0 < share <= MAX_SHARE
        assert share * count <= MAX_SAMPLED_PAGES + 1


def test_each_chunk_has_its_pages_while_that_is_little() -> None:
    share = sampled_share(1_000_000 * PAGE_BYTES, 20)
    assert share is not None
    assert round(share * 1_000_000) == 20 * PAGES_PER_CHUNK


def test_pages_are_cut_into_ranges_of_the_same_length_and_none_is_empty() -> None:
    assert pages(100, 4) == (("(25,0)",), ("(50,0)",), ("(75,0)",))
    assert pages(2, 4) == (("(1,0)",),)
    assert pages(0, 4) == ()
