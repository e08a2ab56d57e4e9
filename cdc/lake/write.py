"""Writes one Hudi table: copied chunks, changes, truncation and offset-only commits."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from cdc.errors import ConfigError, FencedError, LakeError, copy_again
from cdc.lake.client import guarded_client
from cdc.lake.commit import COMMIT_KEY, INDEX_KEY, CommitRecord
from cdc.lake.commit_effects import has_outgrown
from cdc.lake.guard import CommitGuard, Guard
from cdc.lake.index import IndexLayout, SnapshotSize
from cdc.lake.instants import ahead_of_clock
from cdc.lake.late_files import delete_unnamed, may_come_late
from cdc.lake.layout import LakeLayout, column
from cdc.lake.options import NO_REPEATED_TASKS, check_overrides, require_keyed, table_options
from cdc.lake.process_instants import follow_clock
from cdc.lake.restored_files import WholeCommits
from cdc.lake.storage_errors import known_remedy
from cdc.lake.table_services import CLUSTERING_KEY, CLUSTERING_SETTINGS, Retention
from cdc.lake.timeline import Committed, Timeline
from cdc.lake.upkeep import Merging, Upkeep, drop_clusterings
from cdc.rows.columns import OP
from cdc.runtime.failpoints import crash
from cdc.runtime.spark import java_class, java_reason
from schemas.table import TableSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from cdc.config import TableSettings

_log = logging.getLogger(__name__)

_REPEATABLE = frozenset(("bulk_insert", "insert_overwrite", "insert_overwrite_table"))
"""Write operations whose tasks Spark may repeat, even if a task has begun a data file."""


class FollowedTable(Protocol):
    """The operations that runs and the ``verify`` command perform on a lake table.

    The table can be a shard's part of a shared table. `LakeTable` describes operations and errors.
    """

    path: str
    layout: LakeLayout

    def read(self, instant: str | None = None) -> DataFrame:
        """Return the lake table's rows as of the last commit or of an instant."""

    def timeline(self) -> Timeline:
        """Return the lake table's commits."""

    def upsert(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Apply changes to the lake table in one commit; return the commit's instant."""

    def insert(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Add new rows to the lake table in one commit; return the commit's instant."""

    def overwrite(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Replace all rows of the lake table in one commit; return the commit's instant."""

    def empty_commit(self, commit: CommitRecord, guard: Guard) -> str:
        """Commit a record without rows of the table or shard; return the commit's instant."""

    def keep_up(self, check: Callable[[], None]) -> bool:
        """Do the lake table's upkeep if it is due; return whether the upkeep was done."""


class LakeTable:
    """One table of the lake, written through Hudi's Spark writer.

    Args:
        spark: The session.
        path: Base path of the Hudi table, which the first write creates.
        schema: The table's current columns in the source.
        settings: The table's settings.
        whole: The commits whose files the process has checked. If None, this object checks the
            table's newest commit before its own first write.

    Raises:
        ConfigError: ``settings.hudi`` changes an option that the lake's correctness depends on.
        SchemaError: The table's columns do not make valid lake rows, or the table lacks a key and
            is not an append table.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        schema: TableSchema,
        settings: TableSettings,
        whole: WholeCommits | None = None,
    ) -> None:
        self._spark = spark
        self.path = path
        self._settings = settings
        self._overrides = check_overrides(schema.table, settings.hudi)
        self.layout = layout_of(schema, settings)
        self._whole = WholeCommits() if whole is None else whole
        self._commits: frozenset[str] = frozenset()

    def bulk_insert(
        self, rows: DataFrame, commit: CommitRecord, guard: Guard, size: SnapshotSize | None = None
    ) -> str:
        """Append copied rows to the lake table in one commit.

        The rows must not be in the table yet.

        Args:
            rows: Meta and source columns.
            commit: The commit's record. A resumed copy skips the chunks that the record names.
            guard: The same as in `upsert`.
            size: Planned size of the whole copy. The first commit chooses the table's index by this
                size. None if the size is not known; the index is then chosen as for a copy with
                several commits.

        Returns:
            The commit's instant.

        Raises:
            FencedError: The table's newest commit is not a chunk of the attempt in ``commit``; the
                guard refused the new commit; or another writer has taken the table over.
            LakeError: The rows cannot be read or written; or the table has a bucket index and
                already has rows. Nothing was committed.
        """
        timeline = self.timeline()
        previous = timeline.latest()
        if previous is not None:
            _require_copying(previous, commit, self.path)
        if previous is None:
            size = size or SnapshotSize(rows=0, bytes=0, commits=2)
            index = IndexLayout.choose(self._settings, self.layout, size)
        else:
            index = previous.index or IndexLayout("bloom")
        if previous is not None and index.is_bucket:
            raise LakeError(
                f"the lake table at {self.path} has a bucket index and rows already; a second "
                "bulk insert would put keys into two files",
                remedy="Set index: bloom for this table, or let auto choose, and bootstrap again.",
                table=commit.table,
                path=self.path,
            )
        check = self._guard(timeline, commit, guard)
        return self._write(rows, "bulk_insert", commit, index, check)

    def upsert(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Apply changes to the lake table in one commit.

        A row with ``OP = 'd'`` is deleted; in soft delete mode, it stays with ``DELETED`` set. Any
        other row replaces the lake's row with the same key, or is inserted if there is no such row.

        Args:
            rows: Rows with meta and source columns, at most one per key. They are computed once.
            commit: The commit's record.
            guard: Called after all files are written, just before the commit completes. It raises
                FencedError to refuse the commit.

        Returns:
            The commit's instant.

        Raises:
            ConfigError: The table was created with another ``delete_mode``.
            FencedError: The guard refused the commit, or another writer has taken the table over.
            LakeError: The rows cannot be written. Nothing was committed.
        """
        return self._write_if_current(rows, "upsert", commit, guard)

    def insert(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Add rows that are not in the lake table yet, without a search for the rows' keys.

        Arguments, result and errors are those of `upsert`.
        """
        return self._write_if_current(rows, "insert", commit, guard)

    def fill(self, rows: DataFrame, commit: CommitRecord, guard: Guard, size: SnapshotSize) -> str:
        """Create the lake table with ``rows`` and with an index that suits the copy's ``size``.

        The other arguments, the result and the errors are those of `upsert`.
        """
        index = IndexLayout.choose(self._settings, self.layout, size)
        check = self._guard(self.timeline(), commit, guard)
        operation = "upsert" if index.is_bucket else "insert"
        return self._write(rows, operation, commit, index, check)

    def overwrite_partitions(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Replace each lake partition for which ``rows`` has a row; other partitions stay.

        Arguments, result and errors are those of `upsert`.
        """
        return self._write_if_current(rows, "insert_overwrite", commit, guard)

    def overwrite(self, rows: DataFrame, commit: CommitRecord, guard: Guard) -> str:
        """Replace all rows of the lake table with ``rows``.

        Arguments, result and errors are those of `upsert`.
        """
        return self._write_if_current(
            live_rows(rows, self.layout), "insert_overwrite_table", commit, guard
        )

    def empty_commit(self, commit: CommitRecord, guard: Guard) -> str:
        """Write a commit with a commit record, but without rows, for example the handoff.

        Arguments, result and errors are those of `upsert`.
        """
        columns = [F.lit(None).cast(kind).alias(name) for name, kind in self.layout.input_columns]
        no_rows = self._spark.range(0).select(*columns).where("false")
        # An insert needs no look-up in the index.
        return self._write_if_current(no_rows, "insert", commit, guard)

    def keep_up(self, check: Callable[[], None]) -> bool:
        """Do the upkeep that is due: clean the table, archive its commits, merge its small files.

        An error is only logged, unless it is a FencedError: the commit before the upkeep remains
        valid. After a failure, the upkeep is due again after later commits.

        Args:
            check: Raises FencedError if this process no longer holds the table's lease. It is
                called before each step, and just before the commit of a clustering completes.

        Returns:
            Whether the upkeep was due and was done.

        Raises:
            FencedError: This process no longer holds the table's lease.
        """
        try:
            return self._keep_up(check)
        except FencedError:
            raise
        except LakeError as error:
            _log.warning("upkeep of %s failed: %s", self.path, error)
        except (Py4JError, PySparkException) as error:
            _log.warning("upkeep of %s failed: %s", self.path, java_reason(error))
        return False

    def _keep_up(self, check: Callable[[], None]) -> bool:
        """Do the lake table's upkeep if it is due; return whether the upkeep was done.

        Errors of the upkeep are raised.
        """
        # Most commits end here, so the timeline is not read for them.
        if self._commits and not self._is_due(self._commits):
            return False
        timeline = self.timeline()
        instants, latest = timeline.completed_instants(), timeline.latest()
        if latest is None or latest.index is None or not self._is_due(instants):
            return False
        # Services take their instants from the clock. These instants must be above those of all
        # commits.
        if ahead_of_clock(timeline.newest_instant()):
            return False
        options, clusters = self._options(latest.index, "upsert"), not latest.index.is_bucket
        cluster_every = int(options[CLUSTERING_KEY]) if clusters else 0
        retention = self._retention(instants)
        options |= retention.options(cluster_every=cluster_every)
        own = any(key.startswith(CLUSTERING_SETTINGS) for key in self._overrides)
        merging: Merging = "never" if not clusters else "as set" if own else "judged"
        Upkeep(self._spark, self.path, options, check, merging=merging, every=retention.every).run()
        return True

    def _is_due(self, instants: frozenset[str]) -> bool:
        return self._retention(instants).is_due(len(instants), self.layout.schema.table)

    def _retention(self, instants: frozenset[str]) -> Retention:
        """Return how many of the newest commits stay readable, by the setting ``readers_keep``."""
        now = datetime.now(timezone.utc)
        return Retention.of(instants, self._settings.readers_keep_s, now)

    def read(self, instant: str | None = None) -> DataFrame:
        """Return the lake table as of its last commit or an instant, with all meta columns."""
        return read_table(self._spark, self.path, instant)

    def timeline(self) -> Timeline:
        """Return the lake table's commits, as of now."""
        return Timeline(self._spark, self.path)

    def _write_if_current(
        self, rows: DataFrame, operation: str, commit: CommitRecord, guard: Guard
    ) -> str:
        """Write lake rows; refuse the write if the table was created with another ``delete_mode``.

        Interrupted clusterings are dropped first. If the new commit record has no handoff document,
        it gets the document of the newest commit's record.
        """
        timeline = self.timeline()
        if timeline.exists and timeline.deletes_rows == self.layout.soft_delete:
            raise ConfigError(
                f"delete_mode of table {commit.table} was changed after its bootstrap",
                remedy=f"Set it back, or {copy_again(commit.table)}.",
                table=commit.table,
                field="delete_mode",
            )
        previous = timeline.latest()
        index = self._index(timeline, previous)
        if commit.handoff is None and previous is not None:
            commit = replace(commit, handoff=previous.record.handoff)
        drop_clusterings(self._spark, timeline, self._options(index, operation))
        check = self._guard(timeline, commit, guard)
        return self._write(rows, operation, commit, index, check)

    def _guard(self, timeline: Timeline, commit: CommitRecord, guard: Guard) -> CommitGuard:
        """Return a new commit's guard; refuse the commit if the table's files and commits differ.

        Args:
            timeline: The table's commits, read before the new commit began.
            commit: The new commit's record.
            guard: The caller's check.
        """
        self._whole.require(self._spark, timeline, commit.table, otherwise=copy_again(commit.table))
        return CommitGuard(
            self._spark,
            self.path,
            guard,
            began=timeline.completed_instants(),
            passed=(lambda: crash("run.in_commit")) if commit.kind == "run" else None,
        )

    def _index(self, timeline: Timeline, previous: Committed | None) -> IndexLayout:
        """Return Hudi's index for the next commit, which usually is the index of the newest commit.

        A new index is chosen if the table has no commit, if the newest commit names no index, or if
        the table has outgrown its buckets. If the settings name a number of buckets, the table
        keeps this number.
        """
        if previous is None or previous.index is None:
            return IndexLayout.choose(self._settings, self.layout, None)
        index = previous.index
        if self._settings.buckets is None and has_outgrown(timeline, previous, index):
            _log.info("%s outgrew its %d buckets: its index is now bloom", self.path, index.buckets)
            return IndexLayout("bloom", automatic=True)
        return index

    def _write(
        self,
        rows: DataFrame,
        operation: str,
        commit: CommitRecord,
        index: IndexLayout,
        guard: CommitGuard,
    ) -> str:
        """Write rows and a commit record to the lake in one commit, which the guard can refuse.

        Return the commit's instant.
        """
        options = self._options(index, operation)
        self._commits = frozenset()
        options |= {COMMIT_KEY: commit.to_json(), INDEX_KEY: index.to_json(), "path": self.path}
        projected = self.layout.project(rows)
        # An index that looks keys up in files reads the batch three times. A bucket index reads it
        # once.
        kept = operation == "upsert" and not index.is_bucket
        if kept:
            projected.persist()
        try:
            instant = self._call_writer(projected, operation, options, guard)
        except (Py4JError, PySparkException) as error:
            timeline = self.timeline()
            done = timeline.latest()
            if done is not None and done.record == commit and done.instant == guard.instant:
                _log.warning(
                    "commit %s of %s is complete; a step after it failed: %s",
                    done.instant,
                    self.path,
                    java_reason(error),
                )
                self._whole.note(self.path, done.instant)
                return done.instant
            if (verdict := guard.verdict(timeline)) is not None:
                raise verdict from error
            reason = java_reason(error)
            after = f" {cause}" if (cause := known_remedy(reason)) else ""
            self._delete_unnamed(timeline)
            raise LakeError(
                f"the commit to the lake table at {self.path} failed: {reason}",
                remedy=f"Nothing was committed; the next run takes the same changes again.{after}",
                table=commit.table,
                path=self.path,
            ) from error
        finally:
            if kept:
                projected.unpersist()
        if instant is None or not guard.called:
            raise LakeError(
                f"Hudi reported {instant or 'no commit'} for the lake table at {self.path}"
                f"{'' if instant is None else ' without a call of the guard'}",
                remedy="See the log for rows that could not be written.",
                table=commit.table,
                path=self.path,
            )
        self._commits = guard.began | {instant}
        self._whole.note(self.path, instant)
        return instant

    def _delete_unnamed(self, timeline: Timeline) -> None:
        """Delete the files that an executor added to an earlier commit after it was complete.

        Such a late file may be the cause of a failed commit: Hudi refuses to write to a bucket that
        has a second file.
        """
        try:
            delete_unnamed(self._spark, timeline)
        except LakeError as error:
            _log.warning("%s", error)

    def _call_writer(
        self, rows: DataFrame, operation: str, options: dict[str, str], guard: CommitGuard
    ) -> str | None:
        """Write rows by the Java function behind ``df.write.format("hudi")``, with the guard.

        Return the commit's instant; None if Hudi did not commit.
        """
        none, some = getattr(self._java("scala.None$"), "MODULE$"), self._java("scala.Some")
        params, client = none, none
        follow_clock(self._spark)
        if ahead := ahead_of_clock(max(guard.began, default=None)):
            _log.warning(
                "the newest commit of %s is %s ahead of this machine's clock: new commits get"
                " later times than it, and readers by time find them there",
                self.path,
                ahead,
            )
        if ahead or operation == "bulk_insert":
            client = some(guarded_client(self._spark, self.timeline(), options, rows, guard))
        else:
            streaming = self._java("org.apache.hudi.HoodieSparkSqlWriter$StreamingWriteParams")
            params = some(streaming(none, none, none, some(guard)))
        writer = getattr(self._java("org.apache.hudi.HoodieSparkSqlWriter$"), "MODULE$")
        result: Any = writer.write(
            rows._jdf.sqlContext(),
            self._java("org.apache.spark.sql.SaveMode").Append,
            self._java("org.apache.spark.api.python.PythonUtils").toScalaMap(options),
            rows._jdf,
            params,
            client,
            none,
        )
        return str(result._2().get()) if result._1() else None

    def _options(self, index: IndexLayout, operation: str) -> dict[str, str]:
        options = table_options(self.layout, index, self._overrides, operation=operation)
        # Copies and rewrites of a table take long, so a failed task costs them only that task. The
        # late files of its other tries are deleted before a copy is published, and in each upkeep.
        repeatable = operation in _REPEATABLE or not may_come_late(self._spark)
        return options if repeatable else options | NO_REPEATED_TASKS

    def _java(self, name: str) -> Any:
        return java_class(self._spark, name)


def layout_of(schema: TableSchema, settings: TableSettings) -> LakeLayout:
    """Return the row layout that the settings define for a lake table.

    Raises:
        SchemaError: The table's columns do not make valid lake rows, or the table lacks a key and
            is not an append table.
    """
    require_keyed(schema, settings)
    return LakeLayout(schema, tuple(settings.partition_by), settings.delete_mode == "soft")


def _require_copying(previous: Committed, commit: CommitRecord, path: str) -> None:
    """Refuse to add copied rows to a lake table whose copy is complete.

    Raises:
        FencedError: The table's newest commit, ``previous``, is not a chunk of the attempt that the
            new commit's record ``commit`` names.
    """
    found = previous.record
    if (found.kind, found.attempt) != ("chunk", commit.attempt):
        raise FencedError(
            f"the newest commit of the lake table at {path}, {previous.instant}, is a {found.kind}"
            f" of attempt {found.attempt}, so no rows of attempt {commit.attempt} are copied into"
            " the table: its copy is complete",
            remedy="Nothing was committed. Run again; it starts from the newest commit.",
            table=commit.table,
            path=path,
        )


def live_rows(rows: DataFrame, layout: LakeLayout) -> DataFrame:
    """Return all rows in soft delete mode, else the rows that are not marked as deleted."""
    return rows if layout.soft_delete else rows.filter(column(OP) != "d")


def read_table(spark: SparkSession, path: str, instant: str | None = None) -> DataFrame:
    """Return a Hudi table as of its last commit or of an instant, with all meta columns."""
    reader = spark.read.format("hudi")
    return (reader if instant is None else reader.option("as.of.instant", instant)).load(path)
