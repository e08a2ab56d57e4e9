"""The limit for the size of data files, derived from the changes of former commits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.lake.commit_effects import effect_of
from cdc.lake.file_sizes import (
    AT_ONCE_BYTES,
    FILL_BELOW_BYTES,
    LARGE_FILE_BYTES,
    LEAST_COMMITS,
    MOST_SIZES,
    SPLIT_FACTOR,
    UPDATED_FILE_BYTES,
    CommitEffect,
    UpdatedFile,
    groups_that_fit,
    grows,
    judge,
)
from cdc.lake.table_services import MIB

ADDS = CommitEffect(inserted=1000, rows=5000)


def updates(
    *files: str, size: int = 14 * MIB, rows: int = 200_000, changed: int = 10
) -> CommitEffect:
    each = UpdatedFile(size, rows, changed)
    return CommitEffect(inserted=0, rows=rows * len(files), updated=dict.fromkeys(files, each))


def test_a_table_without_updates_gets_large_files_and_merges_all() -> None:
    plan = judge([ADDS] * LEAST_COMMITS)
    assert plan.target == LARGE_FILE_BYTES
    assert plan.takes("any")
    assert plan.fewest == 2
    assert plan.options()["hoodie.clustering.plan.strategy.small.file.limit"] == str(32 * MIB)


def test_files_that_updates_touch_are_never_merged() -> None:
    plan = judge([updates("hot"), *[ADDS] * 30])
    assert plan.target == LARGE_FILE_BYTES
    assert not plan.takes("hot")
    assert plan.takes("cold")

    plan = judge([updates("hot", "warm")] * 5)
    assert plan.target < UPDATED_FILE_BYTES
    assert [plan.takes(file) for file in ("hot", "warm", "cold")] == [False, False, True]


@pytest.mark.parametrize("count", range(LEAST_COMMITS))
def test_a_table_that_is_hardly_known_counts_as_updated(count: int) -> None:
    assert judge([ADDS] * count).target == UPDATED_FILE_BYTES
    large = updates("large", size=100 * MIB, rows=1_400_000)
    assert not judge([large] * count).too_large


def test_a_large_file_that_updates_touch_often_is_split() -> None:
    """A table of a million rows whose ten files an earlier version had merged into one."""
    plan = judge([updates("merged", "small"), updates("merged", size=69 * MIB, rows=10**6)] * 5)
    assert plan.too_large == frozenset()  # its newest size counts
    plan = judge([updates("merged", size=69 * MIB, rows=10**6), updates("small")] * 5)
    assert plan.too_large == {"merged"}
    assert plan.takes("merged")
    assert not plan.takes("small")
    assert not plan.takes("cold")
    assert plan.fewest == 1
    assert plan.outputs(69 * MIB) == 5


def test_between_often_and_rarely_nothing_is_split_and_no_large_file_is_made() -> None:
    large = updates("large", size=100 * MIB, rows=1_400_000)
    plan = judge([large, *[ADDS] * 9])
    assert plan.target < UPDATED_FILE_BYTES
    assert not plan.too_large


def test_commits_that_change_much_of_a_file_may_have_larger_ones() -> None:
    few = judge([updates("a", changed=1000)] * 5).target
    many = judge([updates("a", changed=50_000)] * 5).target
    assert few < UPDATED_FILE_BYTES < many <= LARGE_FILE_BYTES
    assert judge([updates("a", changed=200_000)] * 5).target == LARGE_FILE_BYTES


def test_files_of_narrow_rows_are_bounded_by_their_rows() -> None:
    assert judge([updates("a", size=14 * MIB, rows=700_000)] * 5).target == FILL_BELOW_BYTES
    assert judge([updates("a", size=14 * MIB, rows=10_000)] * 5).target == UPDATED_FILE_BYTES


files = st.builds(UpdatedFile, st.integers(1, 2**40), st.integers(0, 10**8), st.integers(1, 10**6))
effects = st.builds(
    CommitEffect,
    st.integers(0, 10**6),
    st.integers(0, 10**8),
    st.dictionaries(st.sampled_from("abcdef"), files),
)


@given(st.lists(effects, max_size=40))
def test_no_updated_file_is_ever_merged_and_only_large_ones_are_split(
    found: list[CommitEffect],
) -> None:
    plan = judge(found)
    assert FILL_BELOW_BYTES <= plan.target <= LARGE_FILE_BYTES
    for file in {name for effect in found for name in effect.updated}:
        newest = next(effect.updated[file] for effect in found if file in effect.updated)
        if plan.takes(file):
            assert newest.bytes >= SPLIT_FACTOR * plan.target
    assert plan.takes("cold") is not bool(plan.too_large)


def test_a_table_grows_if_it_doubles_within_five_hundred_commits() -> None:
    assert grows([CommitEffect(inserted=201, rows=100_000)] * LEAST_COMMITS)
    assert not grows([CommitEffect(inserted=200, rows=100_000)] * LEAST_COMMITS)
    assert not grows([CommitEffect(inserted=201, rows=100_000)] * (LEAST_COMMITS - 1))
    once = [CommitEffect(inserted=6000, rows=100_000)]
    assert not grows([*once, *[CommitEffect(inserted=0, rows=100_000)] * 30])


def test_the_effect_of_a_commit_follows_from_hudis_statistics() -> None:
    kept = {"fileSizeInBytes": 7, "numWrites": 5}
    effect = effect_of(
        [
            {**kept, "fileId": "a", "numUpdateWrites": 1, "numDeletes": 2, "numInserts": 0},
            {**kept, "fileId": "b", "numUpdateWrites": 0, "numDeletes": 0, "numInserts": 5},
        ]
    )
    assert effect == CommitEffect(5, 10, {"a": UpdatedFile(7, 5, 3)})


def test_a_clustering_takes_the_groups_with_the_smallest_files_first() -> None:
    """Hudi puts the smallest files into the last group, which would use up the bytes alone."""
    sizes = {0: 120 * MIB, 1: 118 * MIB, 2: 12 * MIB}
    assert groups_that_fit({0: 6, 1: 30, 2: 3}, sizes.__getitem__) == {1: 118 * MIB}
    assert groups_that_fit({0: 6, 2: 3}, {0: 100 * MIB, 2: 12 * MIB}.__getitem__).keys() == {0, 2}
    assert groups_that_fit({0: 2}, lambda _: 4 * AT_ONCE_BYTES) == {0: 4 * AT_ONCE_BYTES}
    assert groups_that_fit({}, sizes.__getitem__) == {}


def test_the_largest_file_is_split_first() -> None:
    """Hudi's proposal begins with the largest files of a partition."""
    sizes = {0: 500 * MIB, 1: 70 * MIB, 2: 65 * MIB}
    assert groups_that_fit(dict.fromkeys(sizes, 1), sizes.__getitem__) == {0: 500 * MIB}


def test_few_groups_are_measured() -> None:
    measured = list[int]()

    def size(group: int) -> int:
        measured.append(group)
        return AT_ONCE_BYTES - 1

    assert len(groups_that_fit(dict.fromkeys(range(1000), 2), size)) == 1
    assert len(measured) == MOST_SIZES


def test_a_table_whose_large_files_are_gone_is_merged() -> None:
    plan = judge([updates("large", size=64 * MIB)] * LEAST_COMMITS)
    assert plan.too_large
    merging = plan.merging()
    assert (merging.fewest, merging.takes("large"), merging.takes("other")) == (2, False, True)
