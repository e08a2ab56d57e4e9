"""Deletes the files that a writer adds after another writer has rolled its commit back.

A rollback deletes the files that are there by then. A writer that still runs, or wakes up later,
adds more. Its commit is refused, but its files stay, and Hudi counts a file as committed if its
instant is below the first commit of the active timeline. So they are deleted before archiving moves
this first commit past them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cdc.lake.timeline import Timeline
from cdc.runtime.spark import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_SPECIAL = re.compile(r"[\\\[\]{}*?]")
"""Characters that a pattern of Hadoop's file systems gives a meaning."""


def delete_late_files(spark: SparkSession, timeline: Timeline, *, partition_columns: int) -> None:
    """Delete all files of commits that were rolled back and that archiving has not passed yet.

    It lists each partition once if there is such a commit, and nothing otherwise.

    Args:
        spark: The session whose file systems are used.
        timeline: The table's commits.
        partition_columns: Number of the table's partition columns, each of which is a folder.

    Raises:
        Py4JError: The files cannot be listed or deleted.
    """
    completed = timeline.completed_instants()
    first = min(completed, default="")
    undone = sorted(one for one in timeline.undone() - completed if one > first)
    if not undone:
        return
    base = _SPECIAL.sub(r"\\\g<0>", timeline.path)
    pattern = f"{base}{'/*' * partition_columns}/*_{{{','.join(undone)}}}.parquet"
    path = java_class(spark, "org.apache.hadoop.fs.Path")(pattern)
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    _delete(files, (one.getPath() for one in files.globStatus(path) or ()))


def delete_refused(spark: SparkSession, timeline: Timeline, stats: Iterable[Any]) -> None:
    """Delete the files of a refused commit, unless its rollback is still to come.

    Args:
        spark: The session whose file systems are used.
        timeline: The table's commits.
        stats: Hudi's statistics of the files that the commit wrote.

    Raises:
        Py4JError: The files cannot be deleted.
    """
    known = {*timeline.pending_instants(), *timeline.completed_instants()}
    written = [str(one.getPath()) for one in stats]
    path = java_class(spark, "org.apache.hadoop.fs.Path")
    late = [path(timeline.path, one) for one in written if _instant(one) not in known]
    if late:
        _delete(late[0].getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), late)


def _delete(files: Any, paths: Iterable[Any]) -> None:
    for path in paths:
        if files.delete(path, False):
            _log.info("%s was written after its commit was rolled back: deleted", path)


def _instant(file: str) -> str:
    """The instant in the name of a data file, ``<file id>_<write token>_<instant>.parquet``."""
    return file.rpartition("_")[2].partition(".")[0]
