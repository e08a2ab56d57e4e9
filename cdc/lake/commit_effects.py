"""Reads what a lake table's last commits did to its files, and narrows clusterings by it."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from cdc.lake.data_files import file_system
from cdc.lake.file_sizes import AT_ONCE_BYTES, CommitEffect, FilePlan, UpdatedFile, grows
from cdc.runtime.spark import java_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cdc.lake.index import IndexLayout
    from cdc.lake.timeline import Committed, Timeline

READ_COMMITS = 40
"""Maximum number of commits whose effects are read."""
_CHANGES = ("UPSERT", "UPSERT_PREPPED", "INSERT", "INSERT_PREPPED", "DELETE")
"""Hudi's names of the operations of a run. Those of copies, overwrites and clusterings are not
here."""


def effects_of(timeline: Timeline) -> list[CommitEffect]:
    """Return what the newest commits of changes did, newest first; empty commits are left out.

    Args:
        timeline: The table's commits. Up to `READ_COMMITS` of them are read from storage.

    Raises:
        Py4JJavaError: A commit's metadata cannot be read.
    """
    newest = sorted(timeline.completed_instants(), reverse=True)[:READ_COMMITS]
    return list(islice(_effects(timeline, newest), READ_COMMITS))


def _effects(timeline: Timeline, instants: list[str]) -> Iterator[CommitEffect]:
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
    """Return whether a table has outgrown its buckets. Only few commits have to be read for this.

    Args:
        timeline: The table's commits.
        committed: The newest one.
        index: The table's index.
    """
    if not (index.automatic and index.is_bucket):
        return False
    largest = timeline.largest_file_bytes(committed)
    return index.outgrown(largest) or (
        index.outgrown(largest, growing=True) and grows(effects_of(timeline))
    )


def narrow(spark: SparkSession, timeline: Timeline, instant: str, plan: FilePlan) -> bool:
    """Remove from a planned clustering all files that it shall not rewrite.

    Hudi proposes all files of some sizes, and has no setting that leaves out single files. So the
    plan that it has stored is replaced, before anything is written by it.

    Args:
        spark: The session.
        timeline: The table's commits, read after Hudi planned the clustering.
        instant: Instant of the clustering.
        plan: Which files it shall rewrite.

    Returns:
        Whether files are left. If not, the clustering is removed from the timeline.
    """
    meta, active = timeline.client, timeline.client.getActiveTimeline()
    utils = java_class(spark, "org.apache.hudi.common.util.ClusteringUtils")
    proposed = utils.getPendingClusteringPlan(meta, instant)
    wanted = utils.getRequestedClusteringInstant(instant, active, meta.getInstantGenerator()).get()
    groups = proposed.getInputGroups()
    files, left = file_system(spark, timeline.path), AT_ONCE_BYTES
    for place in reversed(range(len(groups))):
        slices = groups[place].getSlices()
        for at in reversed(range(len(slices))):
            if not plan.takes(str(slices[at].getFileId())):
                del slices[at]
        total = sum(_size(spark, files, timeline.path, one) for one in slices)
        if len(slices) < plan.fewest or (total > left and left < AT_ONCE_BYTES):
            del groups[place]
            continue
        left -= total
        groups[place].setNumOutputFileGroups(plan.outputs(total))
    active.deletePending(wanted)
    if not len(groups):
        return False
    requested = java_class(spark, "org.apache.hudi.avro.model.HoodieRequestedReplaceMetadata")
    none = java_class(spark, "java.util.Collections").emptyMap()
    active.saveToPendingReplaceCommit(
        wanted,
        requested.newBuilder()
        .setOperationType("CLUSTER")
        .setExtraMetadata(none)
        .setClusteringPlan(proposed)
        .build(),
    )
    return True


def _size(spark: SparkSession, files: Any, path: str, planned: Any) -> int:
    """Return the size of a planned clustering's file, in bytes."""
    name = str(planned.getDataFilePath()).rpartition("/")[2]
    folder = "/".join(filter(None, (path, str(planned.getPartitionPath() or ""))))
    file = java_class(spark, "org.apache.hadoop.fs.Path")(f"{folder}/{name}")
    return int(files.getFileStatus(file).getLen())
