"""Deletes the files that a writer adds to a commit after another writer has rolled it back.

A rollback deletes the files that exist at that time. A writer that still runs, or resumes later,
adds more files. The writer's commit is refused, but these late files remain. Hudi counts a file as
committed if its instant is below the first commit of the active timeline. So late files are deleted
before archiving moves that first commit above their instant.
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
"""Special characters in patterns of Hadoop's file systems."""


def delete_late_files(spark: SparkSession, timeline: Timeline, *, partition_columns: int) -> None:
    """Delete the files of each rolled back commit above the active timeline's first commit.

    If there is such a commit, each partition is listed once. If there is none, nothing is listed.

    Args:
        spark: The session whose file systems are used.
        timeline: The table's commits.
        partition_columns: Number of the table's partition columns. Each is a level of folders.

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
    """Delete the files of a refused commit if another writer has already rolled it back.

    The files of a commit that is still pending stay. The commit's rollback deletes them.

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
    """Delete late files in a Hadoop file system, and log each file that was there."""
    for path in paths:
        if files.delete(path, False):
            _log.info("%s was written after its commit was rolled back: deleted", path)


def _instant(file: str) -> str:
    """Return a data file's instant by its name, ``<file id>_<write token>_<instant>.parquet``."""
    return file.rpartition("_")[2].partition(".")[0]
