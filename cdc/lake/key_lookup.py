"""Reads the rows of some keys from the lake without reading the rest of a large table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.rows.semantic_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.store.table_state import LakeSize

_FILE_NAME = "_hoodie_file_name"
"""The column in which Hudi writes, in each row, the name of the row's file."""
_LARGE_BYTES = 64 * 2**20
"""From this size of a table in bytes on, it saves time to find the files of some keys first."""
_MOST_FILES = 2_000
"""From this number of files on, their names are not a filter: Spark is slow to plan a long list."""


def is_large(size: LakeSize | None) -> bool:
    """Whether a lake table is so large that `rows_with_keys` must find the files of the keys first.

    Args:
        size: The table's size. None if it is not known. The size of a shard is never known; its
            table has the rows of all other shards, too.
    """
    return size is None or size.image_bytes >= _LARGE_BYTES


def rows_with_keys(
    lake: DataFrame,
    wanted: DataFrame,
    key: Sequence[str],
    columns: Sequence[str],
    *,
    files_first: bool,
) -> DataFrame:
    """Return the lake's rows with the wanted keys: the key columns, and ``columns``.

    ``columns`` can be hundreds of gigabytes of large values. If ``files_first`` is true, a Spark
    job finds the names of the files that have the wanted keys, and reads only the key columns of
    the table. The result then reads ``columns`` from these files only: the statistics and the
    dictionary of the column of file names exclude the row groups of all other files.

    The keys themselves are not used as a filter: anyone who reads Spark's logs would see them.

    Args:
        lake: The lake table's rows, with Hudi's meta columns.
        wanted: The wanted keys: the key columns of a few rows.
        key: Names of the key columns.
        columns: Names of the other columns to read.
        files_first: Whether to find the files first. If not, or if `_MOST_FILES` or more files have
            the keys, ``columns`` are read from all files.
    """
    if files_first:
        found = _with_keys(lake.select(*map(quoted, key), _FILE_NAME), wanted, key)
        files = [row[0] for row in found.select(_FILE_NAME).distinct().limit(_MOST_FILES).collect()]
        if len(files) < _MOST_FILES:
            names = ", ".join(f"'{name}'" for name in files)
            lake = lake.filter(F.expr(f"{_FILE_NAME} IN ({names})" if files else "false"))
    return _with_keys(lake.select(*map(quoted, (*key, *columns))), wanted, key)


def _with_keys(lake: DataFrame, wanted: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the lake's rows with the wanted keys."""
    # The lake can be large and the keys are few: the join drops other rows where they are read.
    return lake.join(F.broadcast(wanted), [*key], "leftsemi")
