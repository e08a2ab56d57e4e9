"""Compares the data files in the lake with the files that the table's commits name.

A difference arises if the lake was copied while it was written, or if the lake is a replica that
has not received all files. There are two kinds of differences, and Hudi notices neither of them:

- If a commit's file is missing, Hudi takes the file group's former version for the newest. Readers
  then see old rows, and the next commit merges them.
- If a file's commit is missing, Hudi ignores the file at first. But Hudi treats a file as committed
  if the file's instant is less than the first instant of the active timeline. So once archiving has
  passed the file's instant, readers see the file's rows beside the same rows of later commits.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from cdc.errors import LakeError
from cdc.lake.data_files import all_files, file_system, files_of, instant_of, literal, paths_of
from cdc.lake.storage_errors import storage_error
from cdc.runtime.spark import java_reason

_AT_ONCE = 16
"""Number of partitions that are listed at the same time."""

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.lake.timeline import Timeline


class WholeCommits:
    """For each lake table, the newest commit whose data files this process has written or checked.

    All writers of a process share one object, so each commit is checked once per process. Safe to
    share among threads.
    """

    def __init__(self) -> None:
        self._newest: dict[str, str] = {}  # the instant by the table's path
        self._all: dict[str, str] = {}  # the same, if the files of all commits were checked

    def note(self, path: str, instant: str) -> None:
        """Record that this process has just written the files of a lake table's newest commit."""
        self._newest[path] = instant

    def require(
        self,
        spark: SparkSession,
        timeline: Timeline,
        table: object,
        *,
        otherwise: str,
        lacks_commits: bool = False,
    ) -> None:
        """Refuse to write to a lake table whose data files differ from its commits.

        The files of the newest commit are checked, unless this process has written or checked them.

        Args:
            spark: The session whose file systems are used.
            timeline: The table's commits.
            table: The table that an error names.
            otherwise: The instruction that helps if files are gone for good.
            lacks_commits: Whether the lake lacks a commit that the state store knows. If so, the
                files of all commits are checked.

        Raises:
            LakeError: The files and the commits differ, or cannot be read. The next call checks
                them again, so that the table continues once a restore has finished.
        """
        at, checked = timeline.newest_instant(), self._all if lacks_commits else self._newest
        if at is None or checked.get(timeline.path) == at:
            return
        look = any_difference if lacks_commits else newest_difference
        if (found := look(spark, timeline)) is not None:
            raise LakeError(
                f"the files of table {table} in the lake are not of one moment: {found}, in"
                f" {timeline.path}",
                remedy="Was the lake copied while it was written, or is it a replica that still"
                " lacks files? Finish the restore, or restore all files as of one moment; the next"
                f" try then continues. If the files are gone for good, {otherwise}.",
                table=table,
                path=timeline.path,
            )
        self._newest[timeline.path] = checked[timeline.path] = at


def newest_difference(spark: SparkSession, timeline: Timeline) -> str | None:
    """Return a message that names a missing file of a lake table's newest commit.

    A clustering counts as a commit, too. The message is the end of a sentence. Each partition with
    a file of the commit is listed once.

    Args:
        spark: The session whose file systems are used.
        timeline: The table's commits.

    Returns:
        The message; None if all files of the newest commit are in the lake.

    Raises:
        LakeError: The commit's metadata cannot be read, or a folder cannot be listed.
    """
    newest = timeline.newest_instant()
    if newest is None:
        return None
    try:
        named = paths_of(timeline, newest)
        files = file_system(spark, timeline.path)

        def there(partition: str) -> set[str]:
            folder = f"{timeline.path}/{partition}" if partition else timeline.path
            listed = files_of(spark, files, literal(folder), [newest])
            return {f"{partition}/{one.getName()}".lstrip("/") for one in listed}

        partitions = {path.rpartition("/")[0] for path in named}
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="whole") as pool:
            found = set[str]().union(*pool.map(there, partitions))
    except Py4JJavaError as error:
        raise _not_compared_error(timeline, error) from error
    return _missing_file_message(newest, min(named - found)) if named - found else None


def any_difference(spark: SparkSession, timeline: Timeline) -> str | None:
    """Return a message about a data file that is missing in the lake, or whose commit is missing.

    The message is the end of a sentence. This function is slow: it lists all folders of the table
    and reads the metadata of each commit of the active timeline.

    Args:
        spark: The session whose file systems are used.
        timeline: The table's commits.

    Returns:
        The message; None if no such file is found. A file counts as missing only if it is the
        newest version of its file group. A commit counts as missing only if it is newer than the
        first commit of the active timeline.

    Raises:
        LakeError: The metadata of a commit cannot be read, or a folder cannot be listed.
    """
    completed = timeline.completed_instants()
    known = {*completed, *timeline.pending_instants(), *timeline.undone()}
    try:
        there = set(all_files(spark, timeline.path))
        newest: dict[tuple[str, str], tuple[str, str]] = {}
        for instant in sorted(completed):
            metadata = json.loads(timeline.metadata_of(instant).toJsonString())
            for partition, groups in (metadata.get("partitionToReplaceFileIds") or {}).items():
                for group in groups:
                    newest.pop((partition, group), None)
            for partition, stats in metadata["partitionToWriteStats"].items():
                for stat in stats:
                    newest[partition, str(stat["fileId"])] = instant, str(stat["path"])
    except Py4JJavaError as error:
        raise _not_compared_error(timeline, error) from error
    for instant, path in sorted(newest.values()):
        if path not in there:
            return _missing_file_message(instant, path)
    first = min(completed, default="")
    unknown = [one for one in sorted(there) if first < (at := instant_of(one)) and at not in known]
    if unknown:
        return f"{unknown[0]} is of commit {instant_of(unknown[0])}, which the lake does not have"
    return None


def _missing_file_message(instant: str, path: str) -> str:
    """Return the message that a commit's file is not in the lake."""
    return f"commit {instant} names {path}, which is not there"


def _not_compared_error(timeline: Timeline, error: Py4JJavaError) -> Exception:
    """Return the error for a lake table whose files cannot be compared with its commits."""
    what = f"the files of the lake table at {timeline.path} cannot be compared with its commits"
    return storage_error(what, java_reason(error), path=timeline.path)
