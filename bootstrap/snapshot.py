"""Copies a table's chunks from the source to the lake with Spark tasks."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from bootstrap.chunks import key_range
from bootstrap.errors import CopyError
from cdc.rows.columns import (
    INGESTED_AT,
    META_COLUMNS,
    OFFSET,
    OP,
    POSITION,
    SCHEMA_ID,
    SNAPSHOT_OFFSET,
    SNAPSHOT_POSITION,
    SOURCE_TS,
)
from cdc.rows.masking import hidden
from cdc.runtime.waiting import pause

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from cdc.config import LakeConfig
    from cdc.lake.commit import CommitRecord
    from cdc.lake.guard import Guard
    from cdc.lake.index import SnapshotSize
    from cdc.lake.timeline import Timeline
    from cdc.lake.write import LakeTable
    from cdc.runtime.progress import Progress, Task
    from cdc.sources.base import SnapshotReader, SourceTable, View
    from cdc.store.attempt import Chunk
    from schemas.table import TableId, TableSchema

FETCH_BYTES = 4 * 1024 * 1024
"""Maximum number of bytes that a session fetches at once, if rows have the table's mean size."""
FETCH_ROWS = 10_000
"""Maximum number of rows that a session fetches in one round trip.

More rows per round trip would save no time.
"""

_WATCH_S = 1.0


@dataclass(frozen=True)
class SnapshotCopy:
    """Copies the rows of one attempt.

    Args:
        spark: The session.
        source: The source database.
        table: The source table.
        schema: The table's lake schema.
        lake: The attempt's own lake table.
        lake_config: The settings of the lake, which contain the secret key of the hashes.
        guard: Called right before each commit completes; raises FencedError to refuse the commit.
        taken_at: Start of the attempt, which all copied rows get as their source time.
        parallel: Maximum number of tasks that read the chunks. If None, each chunk has a task of
            its own, and Spark runs one task per core at the same time.
    """

    spark: SparkSession
    source: SnapshotReader
    table: SourceTable
    schema: TableSchema
    lake: LakeTable
    lake_config: LakeConfig
    guard: Guard
    taken_at: datetime
    parallel: int | None = None

    def copy(
        self,
        chunks: Sequence[Chunk],
        view: View,
        commit: CommitRecord,
        size: SnapshotSize,
        *,
        task: Task,
        failures: int = 0,
    ) -> int:
        """Copy chunks in one lake commit.

        Args:
            chunks: The chunks. One Spark task reads one chunk, or several (see ``parallel``).
            view: The view in which the copy's sessions read the chunks.
            commit: The metadata of the commit.
            size: Planned size of the whole copy.
            task: The display of the copy's progress, which shows the number of rows.
            failures: Number of times in a row that the copy has failed. After each failure, fewer
                rows are fetched at once.

        Returns:
            Number of rows read.

        Raises:
            CopyError: Spark cannot run the query on the source.
            FencedError: The guard refused the commit, or another writer has taken the table over.
            LakeError: A task cannot read rows from the source, or cannot write them.
            ReplicaError: The view's rows can differ from the primary's rows.
        """

        def guard(timeline: Timeline) -> None:
            # A later check would be too late: the rows of a committed chunk are not read again.
            self.source.assert_rows_of_primary(view)
            self.guard(timeline)

        at_once = fetch_rows(size.rows, size.bytes, failures=failures)
        rows = self.rows(chunks, view, at_once=at_once)
        counter = RowCounter(self.spark, f"tributary-copy-{uuid.uuid4()}", task)
        with counter.counting(f"copy {self.table.table}"):
            self.lake.bulk_insert(rows, commit, guard, size)
        return counter.rows

    def rows(self, chunks: Sequence[Chunk], view: View, *, at_once: int) -> DataFrame:
        """Return the chunks' rows as the view contains them, with the columns that Tributary adds.

        Raises:
            CopyError: Spark cannot run the query on the source.
        """
        query = self.source.snapshot_query(
            self.table,
            self.schema,
            list(map(key_range, chunks)),
            view=view,
            fetch_size=at_once,
        )
        try:
            source_rows = self.spark.read.jdbc(
                query.url,
                query.table,
                predicates=list(query.predicates),
                properties=query.properties,
            ).selectExpr(*query.select)
        except (Py4JError, PySparkException) as error:
            raise CopyError(
                f"table {self.table.table} cannot be read by Spark: {_spark_failure_reason(error)}",
                remedy="Check that the Spark nodes reach the server, and the server's log.",
                table=self.table.table,
            ) from error
        if self.parallel is not None and self.parallel < len(chunks):
            source_rows = source_rows.coalesce(self.parallel)
        rows = hidden(source_rows, self.schema, self.lake_config)
        return rows.select(*self._meta_columns(), "*")

    def _meta_columns(self) -> list[Column]:
        """Return the columns that Tributary adds to a copied row.

        A copied row gets an offset below every event's offset, so each event counts as newer than
        the row.
        """
        values = {
            OP: F.lit("r"),
            SOURCE_TS: F.lit(self.taken_at),
            POSITION: F.lit(SNAPSHOT_POSITION),
            OFFSET: F.lit(SNAPSHOT_OFFSET),
            SCHEMA_ID: F.lit(None),
            INGESTED_AT: F.lit(datetime.now(timezone.utc)),
        }
        return [values[name].cast(kind).alias(name) for name, kind in META_COLUMNS]


def read_once(rows: DataFrame, source: SnapshotReader, table: TableId, view: View) -> DataFrame:
    """Read the rows of a copy once and cache them on disks, since a view cannot be opened again.

    Args:
        rows: The rows, not read yet. The caller releases the result with ``unpersist``.
        source: The source.
        table: The table.
        view: The view in which the rows are read.

    Raises:
        TributaryError: The rows cannot be read.
    """
    kept = rows.persist(StorageLevel.DISK_ONLY)
    try:
        kept.count()
    except (Py4JError, PySparkException) as error:
        kept.unpersist()
        found = source.read_failure(table, str(error), view)
        raise found or CopyError(
            f"table {table} cannot be read by Spark: {_spark_failure_reason(error)}",
            remedy="Check that the Spark nodes reach the server, and the server's log.",
            table=table,
        ) from error
    return kept


class RowCounter:
    """Counts the rows that a copy's tasks have read, from Spark's metrics.

    Args:
        spark: The session.
        group: Unique name of the job group.
        task: The display of the copy's progress, which shows the number of rows.
    """

    def __init__(self, spark: SparkSession, group: str, task: Task) -> None:
        self.group = group
        self.rows = 0
        self._stop = threading.Event()
        self._spark = spark
        self._task = task

    @contextmanager
    def counting(self, description: str) -> Iterator[None]:
        """Count the rows that the Spark jobs of a ``with`` block read; show the count meanwhile."""
        context = self._spark.sparkContext
        context.setJobGroup(self.group, description)
        # A pool for each thread: Spark keeps each pool until it ends, and asks all pools for each
        # free core, so a pool for each of thousands of tables would slow all jobs down.
        context.setLocalProperty("spark.scheduler.pool", f"copy {threading.current_thread().name}")
        watch = threading.Thread(target=self._watch_tasks, name=self.group, daemon=True)
        watch.start()
        try:
            yield
        finally:
            self._stop.set()
            watch.join()
            for name in ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool"):
                context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it
            self.look()

    def _watch_tasks(self) -> None:
        while not self._stop.wait(_WATCH_S):
            self.look()

    def look(self) -> None:
        """Read from Spark's metrics how many rows were read; show the increase as progress."""
        context = self._spark.sparkContext
        tracker, jvm_store = context.statusTracker(), context._jsc.sc().statusStore()
        found = 0
        for job in tracker.getJobIdsForGroup(self.group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                try:
                    found += int(jvm_store.lastStageAttempt(stage).inputRecords())
                except Py4JError:  # the stage has not begun: Spark has nothing stored yet
                    continue
        if found > self.rows:
            self._task.advance(found - self.rows)
            self.rows = found


def fetch_rows(rows: int, size_bytes: int, *, failures: int = 0) -> int:
    """Return how many rows a session of the copy fetches at once.

    Args:
        rows: Estimated number of rows of the table.
        size_bytes: Estimated size of the table in bytes.
        failures: Number of times in a row that the copy has failed. Each failure divides the result
            by eight, so that rows far wider than the mean fit into memory.
    """
    width = max(1, size_bytes // max(1, rows))
    return max(1, min(FETCH_ROWS, FETCH_BYTES // width) >> (3 * failures))


def wait_to_retry(table: TableId, failures: int, progress: Progress) -> None:
    """Wait before the copy's next try, longer after each failure, for at most 30 s.

    Args:
        table: The table.
        failures: Number of times in a row that the copy has failed, at least one.
        progress: Shows the wait, and can interrupt it.

    Raises:
        StoppedError: The progress was interrupted.
    """
    pause(f"wait to copy {table} again", float(min(30, 2 ** (failures - 1))), progress)


def _spark_failure_reason(error: BaseException) -> str:
    """Return why Spark cannot read the rows of a copy, in one line."""
    cause = getattr(error, "java_exception", None)
    text = str(error if cause is None else cause)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
