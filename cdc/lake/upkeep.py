"""Maintains a lake table between commits: cleaning, archiving, and merging small files.

Each step writes to the timeline, so each step runs under the table's lease. A clustering replaces
files, so its commit has a guard like the commit of a run. If a process dies in a clustering, the
clustering stays planned. Hudi's overwrite does not replace the files of a planned clustering. So
each writer first drops such a clustering.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cdc.errors import FencedError, LakeError
from cdc.lake.archived_commits import delete_old_archives
from cdc.lake.commit_effects import effects_of, plan_clustering
from cdc.lake.file_sizes import FilePlan, judge
from cdc.lake.guard import CommitGuard
from cdc.lake.late_files import delete_late_files, delete_unnamed, require_named
from cdc.lake.process_instants import follow_clock
from cdc.lake.table_services import CLUSTERING_KEY
from cdc.lake.timeline import Timeline
from cdc.runtime.failpoints import crash
from cdc.runtime.spark import java_class, java_reason
from cdc.runtime.step_times import step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Merging = Literal["never", "judged", "as set"]
"""Which small files are merged: none (``never``), the files that no update touches (``judged``), or
the files that the table's own settings of Hudi choose (``as set``)."""


class Upkeep:
    """The upkeep of one lake table, by Hudi's services.

    Args:
        spark: The session.
        path: Base path of the Hudi table.
        options: Hudi's settings of the table.
        check: Raises :class:`~cdc.errors.FencedError` if this process no longer holds the table's
            lease.
        merging: Which small files are merged: none (for a table with a bucket index), the files
            that no update touches, or the files that the table's own settings of Hudi choose.
        every: Number of commits between two upkeeps.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        options: Mapping[str, str],
        check: Callable[[], None],
        *,
        merging: Merging,
        every: int = 1,
    ) -> None:
        self._spark = spark
        self._path = path
        self._options = options
        self._check = check
        self._merging = merging
        self._every = every

    @step("upkeep")
    def run(self) -> None:
        """Clean the lake table and archive its old commits. If a clustering is due, do it.

        If a step fails, the later steps are done nevertheless, and the first error is raised at the
        end. A FencedError is an exception: it is raised at once. If late files could not be
        deleted, nothing is archived.

        Raises:
            FencedError: This process no longer holds the table's lease.
            LakeError: The lake cannot be read or written.
            Py4JError, PySparkException: Hudi failed.
        """
        failures: list[Exception] = []
        with _write_client(self._spark, self._path, self._options) as client:
            for step in (
                client.clean,
                partial(self._archive, client),
                self._cluster,
            ):
                self._check()
                try:
                    step()
                except FencedError:
                    raise
                except (LakeError, Py4JError, PySparkException) as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    def _archive(self, client: Any) -> None:
        """Delete late files, and then archive: readers would see late files of archived commits."""
        archives = self._delete_late_files()
        self._check()
        client.archive()
        if archives:
            delete_old_archives(self._spark, Timeline(self._spark, self._path))

    def _delete_late_files(self) -> bool:
        """Delete late files: files that are added to a commit after its completion or rollback.

        Late files of a completed commit are deleted in each upkeep. Once the commit is archived,
        Tributary can no longer recognize them. Late files of a rolled back commit are deleted when
        Hudi is about to archive commits or rollbacks. Readers see these files only once archiving
        has passed the files' instant.

        Returns:
            Whether Hudi is about to archive.
        """
        columns = self._options["hoodie.datasource.write.partitionpath.field"]
        partition_columns = len(columns.split(",")) if columns else 0
        timeline = Timeline(self._spark, self._path)
        # Hudi archives if there are more than these, and counts again: a commit may complete first.
        most = int(self._options["hoodie.keep.max.commits"])
        archives = max(len(timeline.completed_instants()), timeline.rollbacks()) >= most
        if archives:
            delete_late_files(self._spark, timeline, partition_columns=partition_columns)
        delete_unnamed(self._spark, timeline)
        return archives

    def _cluster(self) -> None:
        """Merge the lake table's small files, or split large ones, if a clustering is due."""
        timeline = Timeline(self._spark, self._path)
        often = self._options.get(CLUSTERING_KEY)
        if self._merging == "never" or often is None:
            return
        since, cycle = timeline.commits_since_clustering(), max(1, int(often))
        # If there is nothing to merge, the next look is as many commits later.
        if since < cycle or since % cycle >= self._every:
            return
        plan = judge(effects_of(timeline)) if self._merging == "judged" else None
        plans = [plan] if plan is None or not plan.too_large else [plan, plan.merging()]
        for one in plans:
            options = self._options if one is None else {**self._options, **one.options()}
            with _write_client(self._spark, self._path, options) as client:
                if self._cluster_by(client, one, timeline):
                    return

    def _cluster_by(self, client: Any, plan: FilePlan | None, timeline: Timeline) -> bool:
        """Rewrite the files that a plan takes; without a plan, all files that Hudi proposes.

        A guard refuses the clustering's commit if this process no longer holds the table's lease.

        Returns:
            Whether there were files to rewrite.
        """
        option = java_class(self._spark, "org.apache.hudi.common.util.Option")
        guard = CommitGuard(
            self._spark,
            self._path,
            lambda _: self._check(),
            began=timeline.completed_instants(),
            passed=lambda: crash("upkeep.in_clustering"),
        )
        if plan is None:
            planned = client.scheduleClustering(option.empty())
            instant = str(planned.get()) if planned.isPresent() else ""
        else:
            instant = plan_clustering(self._spark, client, timeline, plan)
        if not instant:
            return False
        planned_on = Timeline(self._spark, self._path)
        require_named(self._spark, planned_on, lambda: planned_on.clustered_paths(instant))
        written = client.cluster(instant, False)
        operations = java_class(self._spark, "org.apache.hudi.common.model.WriteOperationType")
        client.setOperationType(operations.CLUSTER)
        try:
            committed = client.commit(
                instant,
                written.getWriteStatuses(),
                option.empty(),
                "replacecommit",
                planned_on.clustered_files(instant),
                option.of(guard),
                option.empty(),
            )
        except (Py4JError, PySparkException):
            if guard.refusal is not None:
                raise guard.refusal from None
            raise
        if not committed:
            raise LakeError(
                f"Hudi did not commit clustering {instant} of the lake table at {self._path}",
                remedy="Nothing was replaced. The log of Spark says why.",
                path=self._path,
            )
        what = "split large files that updates touch" if plan and plan.too_large else "merged files"
        _log.info("clustering %s of %s: %s", instant, self._path, what)
        return True


def drop_clusterings(spark: SparkSession, timeline: Timeline, options: Mapping[str, str]) -> None:
    """Undo Hudi's clusterings that are planned or begun, and not completed.

    The processes that planned these clusterings have ended or have lost the table's lease.

    Args:
        spark: The session.
        timeline: The table's commits. They are reloaded if a clustering is undone.
        options: Hudi's settings of the table.

    Raises:
        LakeError: A clustering cannot be undone. As long as the clustering exists, no writer may
            write to the table.
    """
    pending = timeline.pending_clusterings()
    if not pending:
        return
    try:
        with _write_client(spark, timeline.path, options) as client:
            for instant in pending:
                _log.info("clustering %s of %s was cut short and is undone", instant, timeline.path)
                # The purge finds clusterings that have begun. The others are only planned and are
                # rolled back.
                if not client.purgePendingClustering(instant):
                    client.rollback(instant)
    except (Py4JError, PySparkException) as error:
        raise LakeError(
            f"clustering {pending[0]} of the lake table at {timeline.path} was cut short and cannot"
            f" be undone: {java_reason(error)}",
            remedy="Nothing was written. Check the lake's permissions, then run again.",
            path=timeline.path,
        ) from error
    timeline.reload()


@contextmanager
def _write_client(spark: SparkSession, path: str, options: Mapping[str, str]) -> Iterator[Any]:
    """Yield Hudi's write client for a table, and close it after the block."""
    tools: Any = getattr(java_class(spark, "org.apache.hudi.HoodieCLIUtils$"), "MODULE$")
    maps = java_class(spark, "org.apache.spark.api.python.PythonUtils")
    none = getattr(java_class(spark, "scala.None$"), "MODULE$")
    follow_clock(spark)
    client = tools.createHoodieWriteClient(
        spark._jsparkSession, path, maps.toScalaMap(dict(options)), none
    )
    try:
        yield client
    finally:
        client.close()
