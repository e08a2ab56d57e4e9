"""Hudi's settings for what follows a commit: cleaning, archiving and clustering.

Nothing of it runs by itself, in a commit or beside it: a service that writes to the timeline on
its own is a second writer. :mod:`cdc.lake.upkeep` runs it, under the table's lease.
"""

from __future__ import annotations

KEPT_FILE_VERSIONS = 3
"""Versions of a file that a reader of an older commit can still open, at least."""
CLEAN_EVERY_COMMITS = 5
KEPT_COMMITS = 20
"""Commits that stay in the active timeline, at least."""
ARCHIVE_ABOVE_COMMITS = 40
CLUSTER_EVERY_COMMITS = 20
MIB = 1024 * 1024
SMALL_FILE_BYTES = 32 * MIB
"""New rows are packed into files below this size, and only such files are clustered."""
TARGET_FILE_BYTES = 128 * MIB
CLUSTER_AT_ONCE_BYTES = 512 * MIB
"""What one clustering may rewrite, at most."""


def service_options(*, clustered: bool, sort_columns: tuple[str, ...]) -> dict[str, str]:
    """Table services of one table.

    Args:
        clustered: Whether small files are merged; not for bucket indexes, whose files are fixed.
        sort_columns: Order of rows in clustered files, which keeps key ranges narrow.
    """
    options = {
        "hoodie.clean.async.enabled": "false",
        "hoodie.archive.async": "false",
        "hoodie.clustering.async.enabled": "false",
        "hoodie.clustering.inline": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.clean.fileversions.retained": str(KEPT_FILE_VERSIONS),
        "hoodie.clean.trigger.strategy": "NUM_COMMITS",
        "hoodie.clean.trigger.max.commits": str(CLEAN_EVERY_COMMITS),
        "hoodie.keep.min.commits": str(KEPT_COMMITS),
        "hoodie.keep.max.commits": str(ARCHIVE_ABOVE_COMMITS),
    }
    if clustered:
        strategy = "hoodie.clustering.plan.strategy."
        options |= {
            "hoodie.clustering.inline.max.commits": str(CLUSTER_EVERY_COMMITS),
            strategy + "small.file.limit": str(SMALL_FILE_BYTES),
            strategy + "target.file.max.bytes": str(TARGET_FILE_BYTES),
            strategy + "max.bytes.per.group": str(CLUSTER_AT_ONCE_BYTES),
            strategy + "max.num.groups": "1",
            strategy + "single.group.clustering.enabled": "false",
            strategy + "sort.columns": ",".join(sort_columns),
        }
    return options
