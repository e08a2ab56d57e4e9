"""Reads what a lake table's last commits did to its files, and plans clusterings accordingly."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from cdc.lake.data_files import file_system
from cdc.lake.file_sizes import CommitEffect, FilePlan, UpdatedFile, groups_that_fit, grows
from cdc.runtime.spark import java_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cdc.lake.index import IndexLayout
    from cdc.lake.timeline import Committed, Timeline

_CLUSTER = "org.apache.hudi.table.action.cluster"
_TIMELINE = "org.apache.hudi.common.table.timeline"
READ_COMMITS = 40
"""Maximum number of commits whose effects are read."""
GROWTH_EVERY_COMMITS = 5
"""Number of commits between two judgements whether a table of buckets grows fast."""
_CHANGES = ("UPSERT", "UPSERT_PREPPED", "INSERT", "INSERT_PREPPED", "DELETE")
"""Hudi's names of the operations by which runs write changes. Copies, overwrites and clusterings
have other operations."""


def effects_of(timeline: Timeline) -> list[CommitEffect]:
    """Return the effects of the newest Hudi commits by which runs wrote changes, newest first.

    Overwrites, clusterings and commits without files are left out.

    Args:
        timeline: The table's commits. Up to `READ_COMMITS` of them are read from storage.

    Raises:
        Py4JJavaError: A commit's metadata cannot be read.
    """
    newest = sorted(timeline.completed_instants(), reverse=True)[:READ_COMMITS]
    return list(islice(_commit_effects(timeline, newest), READ_COMMITS))


def _commit_effects(timeline: Timeline, instants: list[str]) -> Iterator[CommitEffect]:
    """Yield the effects of the Hudi commits in ``instants`` that runs made and that have files."""
    for instant in instants:
        document = json.loads(timeline.metadata_of(instant).toJsonString())
        stats = [one for listed in document["partitionToWriteStats"].values() for one in listed]
        if document["operationType"] in _CHANGES and stats:
            yield effect_of(stats)


def effect_of(stats: list[dict[str, Any]]) -> CommitEffect:
    """Return what a commit did to files, from Hudi's statistics of these files."""
    updated = {}
    for one in stats:
        if changed := one["numUpdateWrites"] + one["numDeletes"]:
            size = one["fileSizeInBytes"]
            updated[str(one["fileId"])] = UpdatedFile(size, one["numWrites"], changed)
    return CommitEffect(
        inserted=sum(one["numInserts"] for one in stats),
        rows=sum(one["numWrites"] for one in stats),
        updated=updated,
    )


def has_outgrown(timeline: Timeline, committed: Committed, index: IndexLayout) -> bool:
    """Return whether a Hudi table has outgrown its buckets: their files have become too large.

    The growth of the table is judged only before every fifth commit, since this judgment reads the
    effects of up to `READ_COMMITS` commits.

    Args:
        timeline: The table's commits.
        committed: The table's newest commit.
        index: The table's index.
    """
    if not (index.automatic and index.is_bucket):
        return False
    # Hudi takes 40 ms to print the statistics of single files, so most commits do without them.
    most = timeline.written_bytes(committed)
    if not (index.outgrown(most) or index.outgrown(most, growing=True)):
        return False
    largest = timeline.largest_file_bytes(committed)
    if index.outgrown(largest) or not index.outgrown(largest, growing=True):
        return index.outgrown(largest)
    due = len(timeline.completed_instants()) % GROWTH_EVERY_COMMITS == 0
    return due and grows(effects_of(timeline))


def plan_clustering(spark: SparkSession, client: Any, timeline: Timeline, plan: FilePlan) -> str:
    """Plan a clustering of those files that shall be rewritten, and store this plan.

    Hudi proposes all files below a size, and has no setting that leaves out single files. So the
    files that shall stay are removed from the proposal before it is stored. A stored plan is never
    changed: Hudi's readers open the plans of pending clusterings.

    Args:
        spark: The session.
        client: Hudi's client of the table, with the options of ``plan``.
        timeline: The table's commits.
        plan: Which files the clustering shall rewrite.

    Returns:
        The instant of the clustering; an empty string if there is nothing to rewrite.
    """
    config, engine = client.getConfig(), client.getEngineContext()
    table = java_class(spark, "org.apache.hudi.table.HoodieSparkTable").create(config, engine)
    strategies = java_class(spark, f"{_CLUSTER}.strategy.ClusteringPlanStrategy")
    strategy = java_class(spark, strategies.checkAndGetClusteringPlanStrategy(config))(
        table, engine, config
    )
    none = java_class(spark, "org.apache.hudi.common.util.Option").empty()
    instant = str(client.createNewInstantTime(True))
    executor = java_class(spark, f"{_CLUSTER}.ClusteringPlanActionExecutor")(
        engine, config, table, instant, none
    )
    service = java_class(spark, "org.apache.hudi.common.model.TableServiceType").CLUSTER
    partitions = java_class(spark, "org.apache.hudi.util.Lazy").eagerly(
        executor.getPartitions(strategy, service)
    )
    proposed = strategy.generateClusteringPlan(executor, partitions)
    if not proposed.isPresent() or not _narrow_clustering(
        spark, timeline.path, proposed.get(), plan
    ):
        return ""
    meta = table.getMetaClient()
    requested = java_class(spark, f"{_TIMELINE}.HoodieInstant$State").REQUESTED
    meta.getActiveTimeline().saveToPendingReplaceCommit(
        meta.getInstantGenerator().createNewInstant(requested, "replacecommit", instant),
        java_class(spark, "org.apache.hudi.avro.model.HoodieRequestedReplaceMetadata")
        .newBuilder()
        .setOperationType("CLUSTER")
        .setExtraMetadata(java_class(spark, "java.util.Collections").emptyMap())
        .setClusteringPlan(proposed.get())
        .build(),
    )
    return instant


def _narrow_clustering(spark: SparkSession, path: str, proposed: Any, plan: FilePlan) -> bool:
    """Remove from a proposed clustering all files that ``plan`` does not take.

    Groups with too few files are removed, too. The groups with the most files are taken first: Hudi
    fills groups up to a size, so these groups have the smallest files. The remaining groups have at
    most `AT_ONCE_BYTES` in total, unless a single group has more.

    Args:
        spark: The session.
        path: Path of the table.
        proposed: Hudi's proposal, which is changed.
        plan: Which files the clustering shall rewrite.

    Returns:
        Whether the proposal still has files.
    """
    groups = proposed.getInputGroups()
    files: dict[int, list[Any]] = {}
    for place in range(len(groups)):
        slices = groups[place].getSlices()
        for at in reversed(range(len(slices))):
            if not plan.takes(str(slices[at].getFileId())):
                del slices[at]
        files[place] = list(slices)
    storage = file_system(spark, path)
    taken = groups_that_fit(
        {place: len(found) for place, found in files.items() if len(found) >= plan.fewest},
        lambda place: sum(_clustered_file_bytes(spark, storage, path, one) for one in files[place]),
    )
    for place in reversed(range(len(groups))):
        if place in taken:
            groups[place].setNumOutputFileGroups(plan.outputs(taken[place]))
        else:
            del groups[place]
    return len(groups) > 0


def _clustered_file_bytes(spark: SparkSession, files: Any, path: str, planned: Any) -> int:
    """Return the size of one file in Hudi's plan of a clustering, in bytes."""
    name = str(planned.getDataFilePath()).rpartition("/")[2]
    folder = "/".join(filter(None, (path, str(planned.getPartitionPath() or ""))))
    file = java_class(spark, "org.apache.hadoop.fs.Path")(f"{folder}/{name}")
    return int(files.getFileStatus(file).getLen())
