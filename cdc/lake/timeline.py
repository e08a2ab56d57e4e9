"""Reads a lake table's commit records: offsets, copied chunks and the handoff document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from cdc.errors import LakeError, LostHistoryError
from cdc.lake.commit import COMMIT_KEY, INDEX_KEY, CommitRecord
from cdc.lake.data_files import stats_of
from cdc.lake.index import IndexLayout
from cdc.lake.instants import TimelineAction, actions_of, time_of
from cdc.lake.rollbacks import undone_by
from cdc.lake.storage_errors import storage_error
from cdc.runtime.java_calls import items_of
from cdc.runtime.spark import java_class, java_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLE_FILES = (".hoodie/hoodie.properties", ".hoodie/hoodie.properties.backup")

__all__ = ["CommitRecord", "Committed", "Timeline"]


@dataclass(frozen=True)
class Committed:
    """One completed commit with a :class:`CommitRecord`.

    Args:
        instant: Hudi's instant time, which orders commits of a table.
        action: ``commit`` or ``replacecommit``.
        record: The commit's record. From the handoff on, every commit's record has the handoff
            document, so that Hudi's archiving of old commits cannot lose the document.
        index: The Hudi index that the commit's metadata names; None if the metadata names none.
    """

    instant: str
    action: str
    record: CommitRecord
    index: IndexLayout | None = None

    @property
    def at(self) -> datetime:
        """The time that the commit's instant names, as an aware datetime in UTC."""
        return time_of(self.instant)


@dataclass(frozen=True)
class Written:
    """What a commit writes, according to Hudi's figures for the commit's files.

    Args:
        bytes: Size of the data files.
        inserts: Number of rows with a new key.
        updates: Number of rows that are replaced.
        deletes: Number of rows that are removed.
    """

    bytes: int
    inserts: int
    updates: int
    deletes: int

    @classmethod
    def of(cls, metadata: Any) -> Written:
        """Return Hudi's figures from the metadata of a commit, which the JVM has in memory."""
        return cls(
            bytes=int(metadata.fetchTotalBytesWritten()),
            inserts=int(metadata.fetchTotalInsertRecordsWritten()),
            updates=int(metadata.fetchTotalUpdateRecordsWritten()),
            deletes=int(metadata.getTotalRecordsDeleted()),
        )


class Timeline:
    """The commits of one lake table, read through Hudi's meta client without a Spark job.

    The object has the commits as of its construction, or as of the last :meth:`reload`.

    Args:
        spark: The session whose JVM and file systems are used.
        path: Base path of the Hudi table.

    Raises:
        LakeError: The path exists, but is not a readable Hudi table.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path
        self.writes: Written | None = None
        """What the commit that is about to complete writes; None except in the guard of a commit.
        """
        self.reload()

    @property
    def exists(self) -> bool:
        """Whether there is a Hudi table at the path."""
        return self._meta is not None

    @property
    def client(self) -> Any:
        """Hudi's meta client of the table; None when there is no table."""
        return self._meta

    @property
    def deletes_rows(self) -> bool:
        """Whether the table was created in hard delete mode."""
        properties = self._meta.getTableConfig().getProps()
        return bool(
            properties.containsKey("hoodie.record.merge.property.hoodie.payload.delete.marker")
        )

    def reload(self) -> None:
        """Read Hudi's timeline again from storage."""
        self._meta = _open_meta_client(self._spark, self.path)
        self._instants: Any = None
        self._shown: list[TimelineAction] | None = None
        self._read: dict[str, Committed | None] = {}
        self._last: tuple[str, Any] | None = None
        self._undone: frozenset[str] | None = None

    def commits(self) -> list[Committed]:
        """Return the active timeline's commits with a record, oldest first."""
        return list(self._newest_first())[::-1]

    def latest(self) -> Committed | None:
        """Return the newest commit with a record; None if there is none.

        A suspended writer can complete its commit after another process has rolled the commit back.
        The files of such a commit are gone. If such a commit has chunks, this method skips the
        commit, and the chunks are copied again.

        Raises:
            LostHistoryError: The commit to return, or any clustering or overwrite, was completed
                after its rollback, so the table lacks rows.
        """
        undone = self.undone()
        return self._whole(
            next(
                (
                    committed
                    for committed in self._newest_first()
                    if not (committed.record.kind == "chunk" and committed.instant in undone)
                ),
                None,
            )
        )

    def latest_offsets(self) -> Committed | None:
        """Return the newest commit with stream offsets; None if there is none.

        The guard refuses a commit whose instant is below that of a completed commit (see
        :mod:`cdc.lake.guard`). So the commit with the greatest instant has the greatest offsets.

        Raises:
            LostHistoryError: The commit to return, or any clustering or overwrite, was completed
                after another process had rolled it back, so the table lacks rows. Or a copied chunk
                was committed after the commit to return, so the table has the chunk's rows twice.
        """
        above: Committed | None = None
        for committed in self._newest_first():
            if committed.record.offsets:
                if above is not None:
                    raise _copied_twice_error(self.path, above)
                return self._whole(committed)
            if committed.record.kind == "chunk":
                above = committed
        return None

    def handoff(self) -> Committed | None:
        """Return the newest commit whose record has a handoff document; None if there is none."""
        return next((c for c in self._newest_first() if c.record.handoff is not None), None)

    def chunks(self, attempt: str) -> frozenset[int]:
        """Return the ids of the chunks that one attempt to copy the table has committed.

        Commits of the archived timeline do not count. Nor does a commit that a suspended writer
        completed after another process had rolled the commit back.
        """
        undone = self.undone()
        return frozenset(
            chunk
            for committed in self._newest_first()
            if committed.record.kind == "chunk" and committed.record.attempt == attempt
            if committed.instant not in undone
            for chunk in committed.record.chunk_ids
        )

    def completed_instants(self) -> frozenset[str]:
        """Return the instants of the active timeline's completed commits and clusterings."""
        return frozenset(one.instant for one in self._listed())

    def commits_since_clustering(self) -> int:
        """Return the number of commits that completed after the last clustering."""
        listed = self._listed()
        for place, one in enumerate(reversed(listed)):
            if (
                one.action == "replacecommit"
                and self._committed_at(one.instant, len(listed) - 1 - place) is None
            ):
                return place
        return len(listed)

    def newest_instant(self) -> str | None:
        """Return the greatest instant of a completed commit; None if there is no such commit."""
        return max(self.completed_instants(), default=None)

    def last_instant(self) -> str | None:
        """Return the greatest instant of all commits, including pending and rolled back commits.

        None if there is no commit.
        """
        if self._meta is None:
            return None
        taken = {*self.completed_instants(), *self.pending_instants(), *self.undone()}
        return max(taken, default=None)

    def pending_instants(self) -> list[str]:
        """Return the instants of unfinished commits, including clusterings."""
        if self._meta is None:
            return []
        pending = self._meta.getActiveTimeline().getCommitsTimeline().filterInflightsAndRequested()
        return sorted({one.instant for one in actions_of(pending.getInstants())})

    def undone(self) -> frozenset[str]:
        """Return the instants of the commits that were, or are being, rolled back.

        The rollbacks are listed once, and this process reads each completed rollback once.
        """
        if self._undone is None:
            self._undone = (
                frozenset() if self._meta is None else undone_by(self._spark, self.path, self._meta)
            )
        return self._undone

    def rollbacks(self) -> int:
        """Return the number of completed rollbacks in the active timeline."""
        if self._meta is None:
            return 0
        rollbacks = self._meta.getActiveTimeline().getRollbackTimeline()
        return int(rollbacks.filterCompletedInstants().countInstants())

    def pending_clusterings(self) -> list[str]:
        """Return the instants of clusterings that are planned or begun, and not completed."""
        if self._meta is None:
            return []
        clustering = java_class(self._spark, "org.apache.hudi.common.util.ClusteringUtils")
        pending = clustering.getPendingClusteringInstantTimes(self._meta)
        return sorted(one.instant for one in actions_of(pending))

    def clustered_files(self, instant: str) -> dict[str, list[str]]:
        """Return, for each partition, the ids of the files that a planned clustering rewrites."""
        files: dict[str, list[str]] = {}
        for file in self._planned(instant):
            files.setdefault(str(file.getPartitionPath()), []).append(str(file.getFileId()))
        return files

    def clustered_paths(self, instant: str) -> list[str]:
        """Return the files that a planned clustering rewrites, relative to the table's path."""
        return [
            f"{file.getPartitionPath()}/{str(file.getDataFilePath()).rpartition('/')[2]}".lstrip(
                "/"
            )
            for file in self._planned(instant)
        ]

    def _planned(self, instant: str) -> list[Any]:
        """Return Hudi's descriptions of the files that a planned clustering rewrites."""
        clustering = java_class(self._spark, "org.apache.hudi.common.util.ClusteringUtils")
        plan = clustering.getPendingClusteringPlan(self._meta, instant)
        groups = items_of(plan.getInputGroups())
        return [file for group in groups for file in items_of(group.getSlices())]

    def metadata_of(self, instant: str) -> Any:
        """Return Hudi's metadata of a completed commit of the active timeline.

        Raises:
            Py4JJavaError: The commit's file cannot be read.
        """
        (place,) = (n for n, one in enumerate(self._listed()) if one.instant == instant)
        return self._metadata(instant, self._completed().get(place))

    def written_bytes(self, committed: Committed) -> int:
        """Return the size in bytes of all files of a commit; 0 for an archived commit."""
        if committed.instant not in self.completed_instants():
            return 0
        return int(self.metadata_of(committed.instant).fetchTotalBytesWritten())

    def largest_file_bytes(self, committed: Committed) -> int:
        """Return the size in bytes of a commit's largest file; 0 for an archived commit."""
        if committed.instant not in self.completed_instants():
            return 0
        stats = stats_of(self.metadata_of(committed.instant)).values()
        return max((int(one["fileSizeInBytes"]) for listed in stats for one in listed), default=0)

    def _newest_first(self) -> Iterator[Committed]:
        """Yield the active timeline's commits that have a record, newest first."""
        listed = self._listed()
        for place in reversed(range(len(listed))):
            committed = self._committed_at(listed[place].instant, place)
            if committed is not None:
                yield committed

    def _committed_at(self, instant: str, place: int) -> Committed | None:
        """Return the completed commit at an index of Hudi's list; None if the commit has no record.

        Each commit is read from storage at most once.
        """
        if instant not in self._read:
            self._read[instant] = self._committed(instant, self._completed().get(place))
        return self._read[instant]

    def _committed(self, time: str, instant: Any) -> Committed | None:
        """Return a completed commit as `Committed`; None for a clustering, which has no record.

        Raises:
            LakeError: The commit's file cannot be read or is empty, or another program has written
                the commit.
        """
        try:
            metadata = self._metadata(time, instant)
        except Py4JJavaError as error:
            what = f"commit {time} of the lake table at {self.path} cannot be read"
            raise storage_error(what, java_reason(error), path=self.path) from error
        text = metadata.getMetadata(COMMIT_KEY)
        if text is None:
            # Hudi reads an empty file as a commit without operation, files and replaced files.
            operation = str(metadata.getOperationType())
            if operation != "CLUSTER":
                raise _unknown_commit_error(self.path, f"{time}.{instant.getAction()}", operation)
            return None
        index = metadata.getMetadata(INDEX_KEY)
        return Committed(
            time,
            str(instant.getAction()),
            CommitRecord.from_json(text, f"the record of commit {time} of {self.path}"),
            IndexLayout.from_json(index, f"the index of commit {time} of {self.path}")
            if index is not None
            else None,
        )

    def _completed(self) -> Any:
        """Return Hudi's list of the completed commits, oldest first."""
        if self._instants is None:
            commits = self._meta.getActiveTimeline().getCommitsTimeline()
            self._instants = commits.filterCompletedInstants().getInstants()
        return self._instants

    def _listed(self) -> list[TimelineAction]:
        """Return the completed commits and clusterings, oldest first."""
        if self._shown is None:
            self._shown = [] if self._meta is None else actions_of(self._completed())
        return self._shown

    def _metadata(self, time: str, instant: Any) -> Any:
        """Return Hudi's metadata of a commit.

        The metadata of the last call is cached, since reading it takes two calls to the lake's
        storage.
        """
        if self._last is None or self._last[0] != time:
            utils = java_class(self._spark, "org.apache.hudi.common.table.timeline.TimelineUtils")
            self._last = time, utils.getCommitMetadata(instant, self._meta.getActiveTimeline())
        return self._last[1]

    def _whole(self, committed: Committed | None) -> Committed | None:
        """Return the commit unchanged, after a check that no process has rolled it back.

        A writer can be suspended just before it completes its commit. The next writer then rolls
        the commit back and deletes its files. When the first writer resumes, it can still complete
        the commit. The offsets of such a commit must not count. If the commit is a clustering or an
        overwrite, the table lacks rows. So every completed clustering and overwrite is checked,
        too.

        Raises:
            LostHistoryError: The commit, or a completed clustering or overwrite, was rolled back.
        """
        if committed is None:
            return None
        complete = {committed.instant} | {
            one.instant for one in self._listed() if one.action == "replacecommit"
        }
        if gone := complete & self.undone():
            raise LostHistoryError(
                f"commit {min(gone)} of the lake table at {self.path} was rolled back "
                "by another writer while it completed; files of it are missing",
                remedy="Run `tributary run` for the table, which marks it, then `tributary"
                " bootstrap`. Two runs held it at once: check that all use one state store, and"
                " that no machine was suspended.",
                path=self.path,
            )
        return committed


def _unknown_commit_error(path: str, file: str, operation: str) -> LakeError:
    """Return the error for a Hudi commit that is not a clustering and that Tributary did not make.

    Args:
        path: Base path of the Hudi table.
        file: Name of the commit's file in the timeline.
        operation: Hudi's name of the operation; UNKNOWN if the file is empty.
    """
    found = (
        "is empty or lacks its contents"
        if operation == "UNKNOWN"
        else f"is of another program: it is a commit of {operation} without Tributary's record"
    )
    return LakeError(
        f"{path}/.hoodie/{file} {found}",
        remedy="A machine that loses its power can leave a new file empty. Restore this file, or"
        " the whole table as of one moment; the next try then continues. If it is gone for good,"
        " build the table again: `tributary resync`; for a table that shards share, run `tributary"
        " offboard` for all of them, then `tributary offboard --delete-data` and `tributary"
        " onboard --again`.",
        path=path,
    )


def _copied_twice_error(path: str, chunk: Committed) -> LostHistoryError:
    """Return the error for a chunk that was committed to the lake after the end of the copy."""
    return LostHistoryError(
        f"commit {chunk.instant} has copied rows into the lake table at {path} after its copy was"
        " complete; these rows are there twice",
        remedy="Run `tributary run` for the table, which marks it, then `tributary bootstrap`. Two"
        " processes copied it at once: check that all use one state store, and that no machine was"
        " suspended.",
        path=path,
    )


def _open_meta_client(spark: SparkSession, path: str) -> Any:
    """Return Hudi's meta client of the table at ``path``; None if there is no table."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    try:
        # Look at the files first. Hudi tries five times, a second apart, before it reports a
        # missing table.
        hadoop_path = java_class(spark, "org.apache.hadoop.fs.Path")
        known = [hadoop_path(path, name) for name in _TABLE_FILES]
        files = known[0].getFileSystem(hadoop)
        if not any(files.exists(file) for file in known):
            return None
        storage = java_class(spark, "org.apache.hudi.storage.hadoop.HadoopStorageConfiguration")
        client = java_class(spark, "org.apache.hudi.common.table.HoodieTableMetaClient")
        return client.builder().setConf(storage(hadoop)).setBasePath(path).build()
    except Py4JJavaError as error:
        if "TableNotFoundException" in str(error.java_exception):
            return None
        what = f"the lake table at {path} cannot be opened"
        raise storage_error(what, java_reason(error), path=path) from error
