"""Deletes late files: files that are added to a commit after it was completed or rolled back.

Late files have two causes:

- A writer goes on with a commit that another writer has rolled back. The rollback deletes only the
  files that exist by then. The files that the first writer adds later remain, although the guard,
  the check right before a commit completes, refuses the commit. Hudi treats a file as committed if
  the file's instant is less than the first instant of the active timeline, and archiving removes
  the oldest commits from the active timeline. So the late files must be deleted before archiving
  reaches the instant of these files.
- An executor goes on although the driver has given it up, has repeated its task, and has completed
  the commit. The commit names the files of the repeated task. But Hudi finds the files of a commit
  by the instant in the file names. So readers also see the rows of a file that the commit does not
  name, and later commits merge these rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from cdc.errors import LakeError
from cdc.lake.data_files import file_system, files_of, instant_of, literal, paths_of, stats_of
from cdc.lake.storage_errors import storage_error
from cdc.lake.timeline import Timeline
from cdc.runtime.executors import is_local
from cdc.runtime.spark import java_class, java_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def may_come_late(spark: SparkSession) -> bool:
    """Return whether an executor that the driver has given up can still write files to the lake.

    This is so if executors run on other machines. In local mode, Spark repeats no task, so a commit
    never has such late files.
    """
    return not is_local(spark)


def delete_late_files(spark: SparkSession, timeline: Timeline, *, partition_columns: int) -> None:
    """Delete the late files of Hudi commits that were rolled back.

    A rolled back commit is checked if it is newer than the first completed commit of the active
    timeline. If there is such a commit, each partition is listed once.

    Args:
        spark: The session whose file systems are used.
        timeline: The table's commits.
        partition_columns: Number of the table's partition columns, which is the depth of its
            folders.

    Raises:
        Py4JError: The files cannot be listed or deleted.
    """
    completed = timeline.completed_instants()
    first = min(completed, default="")
    undone = sorted(one for one in timeline.undone() - completed if one > first)
    if undone:
        files = file_system(spark, timeline.path)
        folders = literal(timeline.path) + "/*" * partition_columns
        found = files_of(spark, files, folders, undone)
        _delete_lake_files(files, found, "after its commit was rolled back")


def delete_unnamed(spark: SparkSession, timeline: Timeline) -> None:
    """Delete the late files of completed Hudi commits.

    These files have the instant of a completed commit that does not name them. To find these
    files, each partition to which a completed commit of the timeline has written is listed once.
    In local mode there are no late files of this kind, and nothing is listed.

    Args:
        spark: The session whose file systems are used.
        timeline: The table's commits.

    Raises:
        LakeError: The statistics of a commit cannot be read, or files cannot be listed or deleted.
    """
    if not may_come_late(spark):
        return
    completed = timeline.completed_instants()
    named: dict[str, frozenset[str]] = {}
    wrote: dict[str, list[str]] = {}
    try:
        for instant in sorted(completed):
            paths = paths_of(timeline, instant)
            named[instant] = _file_names(paths)
            for partition in {path.rpartition("/")[0] for path in paths}:
                wrote.setdefault(partition, []).append(instant)
        files = file_system(spark, timeline.path)
        for partition, its_instants in wrote.items():
            folder = f"{timeline.path}/{partition}" if partition else timeline.path
            for path in files_of(spark, files, literal(folder), its_instants):
                file = str(path.getName())
                if file not in named[instant_of(file)]:
                    _delete_lake_files(files, [path], "after its commit completed")
    except Py4JJavaError as error:
        what = f"late files of the lake table at {timeline.path} cannot be looked for"
        raise storage_error(what, java_reason(error), path=timeline.path) from error


def require_named(
    spark: SparkSession, timeline: Timeline, merged: Callable[[], Iterable[str]]
) -> None:
    """Refuse a commit that would merge a late file of a completed commit, and delete the late file.

    Args:
        spark: The session whose file systems are used.
        timeline: The table's commits.
        merged: Returns the paths of all files that the commit merges, relative to the table's path.
            It is not called in local mode, in which there are no late files of this kind.

    Raises:
        LakeError: The commit merges a late file, or the statistics of a commit cannot be read.
    """
    if not may_come_late(spark):
        return
    completed = timeline.completed_instants()
    try:
        files = {one: instant_of(one) for one in merged()}
        named = {one: _file_names(paths_of(timeline, one)) for one in completed & {*files.values()}}
        late = [
            file
            for file, instant in files.items()
            if instant in named and file.rpartition("/")[2] not in named[instant]
        ]
        if not late:
            return
        path = java_class(spark, "org.apache.hadoop.fs.Path")
        paths = [path(f"{timeline.path}/{one}") for one in late]
        _delete_lake_files(file_system(spark, timeline.path), paths, "after its commit completed")
    except Py4JJavaError as error:
        what = f"the files that a commit to the lake table at {timeline.path} merges are not known"
        raise storage_error(what, java_reason(error), path=timeline.path) from error
    raise LakeError(
        f"a commit to the lake table at {timeline.path} would merge {late[0]}, which an executor"
        " that was given up has added after its commit completed; the file was deleted",
        remedy="Nothing was committed; the next run takes the same changes again.",
        path=timeline.path,
    )


def merged_files(metadata: Any) -> list[str]:
    """Return the existing files into which a Hudi commit merges rows, relative to the table's path.

    Args:
        metadata: Hudi's metadata of the commit.
    """
    return [
        f"{partition}/{before}".lstrip("/")
        for partition, stats in stats_of(metadata).items()
        for stat in stats
        if (before := stat.get("prevBaseFile"))
    ]


def delete_refused(spark: SparkSession, timeline: Timeline, stats: Iterable[Any]) -> None:
    """Delete the files of a refused commit if another writer has rolled the commit back.

    If the commit is still pending, the commit's rollback will delete the files.

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
    late = [path(timeline.path, one) for one in written if instant_of(one) not in known]
    if late:
        _delete_lake_files(
            file_system(spark, timeline.path), late, "after its commit was rolled back"
        )


def _file_names(paths: Iterable[str]) -> frozenset[str]:
    """Return the file names of paths in a lake table, which are unique within the table."""
    return frozenset(path.rpartition("/")[2] for path in paths)


def _delete_lake_files(files: Any, paths: Iterable[Any], why: str) -> None:
    """Delete late files of a lake table, and log each one that existed.

    Args:
        files: Hadoop's file system.
        paths: The paths.
        why: When the file was written, for the log: for example ``after its commit completed``.
    """
    for path in paths:
        if files.delete(path, False):
            _log.warning("%s was written %s: deleted", path, why)
