"""Decides how large a lake table's data files may get, from what its last commits did to files.

A commit that changes one row of a file rewrites the whole file. So files that updates touch stay
small, and files that only ever get new rows may become large. The functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc.lake.table_services import MIB, SMALL_FILE_BYTES

FILL_BELOW_BYTES = 4 * MIB
"""Size below which a file takes new rows. A commit of few new rows rewrites at most one such file.

The copied files of a large table are larger than this size. If they also took new rows, the new
rows would be spread over all copied files. Later changes of the new rows would then rewrite all
copied files.
"""
UPDATED_FILE_BYTES = 16 * MIB
"""Largest size of a file that commits write, in bytes.

If commits update the table, it is also the largest size of a merged file, unless `CHANGED_SHARE`
allows a larger size.
"""
UPDATED_FILE_ROWS = 200_000
"""Largest number of rows of a merged file if commits update the table, with two exceptions.

A file may have more rows if its size is at most `FILL_BELOW_BYTES`, or if `CHANGED_SHARE` allows
them. The number is limited because the CPU time of a rewrite grows with the number of rows.
"""
LARGE_FILE_BYTES = 128 * MIB
"""Largest size of a merged file if commits hardly ever update the table."""
CHANGED_SHARE = 10
"""A file may be this many times as large as the rows that one commit changes in the file."""
AT_ONCE_BYTES = 128 * MIB
"""Number of bytes that one clustering rewrites at most, unless one file has more."""
MOST_SIZES = 20
"""Largest number of groups of files that are measured for one clustering."""
SPLIT_FACTOR = 3
"""A file that updates touch is split if its size is at least this many times the target size."""
RARELY = 0.05
"""Largest share of commits with updates at which a table counts as append-mostly."""
OFTEN = 0.25
"""Smallest share of commits with updates at which large files are split.

If the share is between `RARELY` and `OFTEN`, no file is split, and no large file is written. So a
small change of the share does not first merge files and then split them.
"""
LEAST_COMMITS = 5
"""The least number of commits by which a table is judged. A table with fewer commits counts as
one with updates."""
GROWTH_COMMITS = 500
"""A table counts as growing if it doubles within this number of commits."""


@dataclass(frozen=True)
class UpdatedFile:
    """A file in which a commit updated or deleted rows.

    Args:
        bytes: Size of the file after the commit.
        rows: Number of rows after the commit.
        changed: Number of rows that the commit updated or deleted.
    """

    bytes: int
    rows: int
    changed: int


@dataclass(frozen=True)
class CommitEffect:
    """What one commit of changes did to the table's files.

    Args:
        inserted: Number of new rows.
        rows: Number of rows of all files that the commit wrote.
        updated: A mapping from file ids to the files in which the commit updated or deleted rows.
    """

    inserted: int
    rows: int
    updated: Mapping[str, UpdatedFile] = field(default_factory=dict)


@dataclass(frozen=True)
class FilePlan:
    """What a clustering does with a table's files.

    Args:
        target: Target size of the files that the clustering writes, in bytes.
        updated: Ids of the files that recent commits have updated. They are not merged.
        too_large: Ids of updated files that are split. If there are any, no files are merged.
    """

    target: int
    updated: frozenset[str]
    too_large: frozenset[str] = frozenset()

    def takes(self, file: str) -> bool:
        """Return whether the clustering rewrites the file with this id."""
        return file in self.too_large if self.too_large else file not in self.updated

    def merging(self) -> FilePlan:
        """Return this plan without its splits, so that the clustering merges files instead.

        It is used if there is nothing to split: an earlier clustering can have split the files in
        ``too_large``.
        """
        return replace(self, too_large=frozenset())

    @property
    def fewest(self) -> int:
        """The smallest number of files to rewrite: one for a split, two for a merge."""
        return 1 if self.too_large else 2

    def outputs(self, total: int) -> int:
        """Return the number of files into which ``total`` bytes are written."""
        return max(1, math.ceil(total / self.target))

    def options(self) -> dict[str, str]:
        """Return Hudi's settings for the proposal of a clustering.

        The proposal can have more files than the clustering rewrites.
        """
        strategy = "hoodie.clustering.plan.strategy."
        small = 2**62 if self.too_large else min(SMALL_FILE_BYTES, self.target // 2)
        return {
            strategy + "small.file.limit": str(small),
            strategy + "target.file.max.bytes": str(self.target),
            strategy + "max.bytes.per.group": str(AT_ONCE_BYTES),
            strategy + "single.group.clustering.enabled": str(bool(self.too_large)).lower(),
            # The groups of files that updates touch are left out, so others must be proposed, too.
            strategy + "max.num.groups": "1000",
            # Files come to rest after the last commit to their partition.
            "hoodie.table.services.incremental.enabled": "false",
        }


def judge(effects: Sequence[CommitEffect]) -> FilePlan:
    """Decide which files of a lake table are merged or split, and up to which size.

    Args:
        effects: What the last commits did, newest first.
    """
    updated: dict[str, UpdatedFile] = {}
    for effect in effects:
        for file, done in effect.updated.items():
            updated.setdefault(file, done)
    share = sum(bool(effect.updated) for effect in effects) / max(1, len(effects))
    if len(effects) >= LEAST_COMMITS and share <= RARELY:
        return FilePlan(LARGE_FILE_BYTES, frozenset(updated))
    target = _updated_file_target([file for effect in effects for file in effect.updated.values()])
    large = {file for file, done in updated.items() if done.bytes >= SPLIT_FACTOR * target}
    splits = len(effects) >= LEAST_COMMITS and share >= OFTEN
    return FilePlan(target, frozenset(updated), frozenset(large if splits else ()))


def _updated_file_target(files: Collection[UpdatedFile]) -> int:
    """Return the target size of those files of a lake table that commits update, in bytes.

    Args:
        files: The files that the last commits have updated. A file is included once for each commit
            that updated it.
    """
    rows = sum(file.rows for file in files)
    if not rows:
        return UPDATED_FILE_BYTES
    row_bytes = sum(file.bytes for file in files) / rows
    changed = sum(file.changed for file in files) / len(files) * row_bytes
    by_rows = max(FILL_BELOW_BYTES, min(UPDATED_FILE_BYTES, int(UPDATED_FILE_ROWS * row_bytes)))
    return min(LARGE_FILE_BYTES, max(by_rows, int(CHANGED_SHARE * changed)))


def grows(effects: Sequence[CommitEffect]) -> bool:
    """Return whether a lake table with buckets doubles within `GROWTH_COMMITS` commits.

    The next commits are expected to insert as many rows as the last commits.

    Args:
        effects: What the last commits did, newest first. Each bucket is one file, so a commit to
            most buckets writes nearly all rows. So the greatest ``rows`` counts as the table size.
    """
    if len(effects) < LEAST_COMMITS:
        return False
    inserted = sum(effect.inserted for effect in effects) / len(effects)
    return inserted * GROWTH_COMMITS > max(effect.rows for effect in effects)


def groups_that_fit(files: Mapping[int, int], size: Callable[[int], int]) -> dict[int, int]:
    """Return the groups of files that one clustering rewrites, each with its size in bytes.

    The group with the most files is always taken. The other groups follow by number of files, the
    greatest first. Each is taken if the sum of the sizes is then at most `AT_ONCE_BYTES`. Groups
    with equally many files keep their order.

    Args:
        files: For each group, its number of files.
        size: Returns the size of a group in bytes. Each call asks the storage about each file, so
            at most `MOST_SIZES` groups are measured.
    """
    taken: dict[int, int] = {}
    left = AT_ONCE_BYTES
    for group in sorted(files, key=lambda one: -files[one])[:MOST_SIZES]:
        total = size(group)
        if not taken or total <= left:
            taken[group] = total
            left -= total
        if left <= 0:
            break
    return taken
