"""Hudi's settings for the services after a commit: cleaning, archiving and clustering.

Hudi does not start these services itself, neither in a commit nor beside it: a service that writes
to the timeline on its own is a second writer. :mod:`cdc.lake.upkeep` runs them, under the table's
lease.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

UPKEEP_EVERY_COMMITS = 5
"""Commits from one upkeep to the next, at least; a tenth of the kept commits if that is more."""
KEPT_COMMITS = 20
"""Commits that stay in the active timeline, at least."""
CLUSTER_EVERY_COMMITS = 20
CLUSTERING_KEY = "hoodie.clustering.inline.max.commits"
"""Hudi's setting for the commits between clusterings; ``hudi:`` of a table may change it."""
MOST_BETWEEN_CLUSTERINGS = 1000
"""The limit of that setting: Hudi counts in the active timeline, which every commit reads."""
MIB = 1024 * 1024
SMALL_FILE_BYTES = 32 * MIB
"""New rows are packed into files below this size, and only such files are clustered."""
TARGET_FILE_BYTES = 128 * MIB
CLUSTER_AT_ONCE_BYTES = 512 * MIB
"""The most bytes that one clustering may rewrite."""


@dataclass(frozen=True)
class Retention:
    """The newest commits, which stay for readers with the files that they wrote.

    Args:
        commits: Number of these commits.
    """

    commits: int

    @classmethod
    def of(cls, instants: Collection[str], keep_s: float, now: datetime) -> Retention:
        """The commits that readers may have open if they began within the last ``keep_s`` seconds.

        Args:
            instants: Instants of the table's completed commits.
            keep_s: How long a reader may take, in seconds.
            now: The time, aware UTC.
        """
        first = f"{now - timedelta(seconds=keep_s):%Y%m%d%H%M%S%f}"[:17]
        # One more: the commit before these was the newest until the first of them completed.
        return cls(max(2, 1 + sum(instant >= first for instant in instants)))

    @property
    def every(self) -> int:
        """Commits from one upkeep to the next."""
        return max(UPKEEP_EVERY_COMMITS, self.commits // 10)

    def options(self, *, cluster_every: int = 0) -> dict[str, str]:
        """Hudi's settings for this retention.

        Args:
            cluster_every: Commits from one clustering to the next. The active timeline keeps at
                least that many, since Hudi counts them there.
        """
        least = max(KEPT_COMMITS, self.commits + 1, cluster_every + 1)
        return {
            "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
            "hoodie.clean.commits.retained": str(self.commits),
            "hoodie.clean.trigger.strategy": "NUM_COMMITS",
            "hoodie.clean.trigger.max.commits": "1",
            "hoodie.keep.min.commits": str(least),
            "hoodie.keep.max.commits": str(least + max(KEPT_COMMITS, self.every)),
        }


def service_options(*, clustered: bool, sort_columns: tuple[str, ...]) -> dict[str, str]:
    """Hudi's settings for the services of one table.

    Args:
        clustered: Whether small files are merged; not for bucket indexes, whose files are fixed.
        sort_columns: Order of rows in clustered files, which keeps key ranges narrow.
    """
    options = {
        "hoodie.clean.async.enabled": "false",
        "hoodie.archive.async": "false",
        "hoodie.clustering.async.enabled": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
    }
    if clustered:
        strategy = "hoodie.clustering.plan.strategy."
        options |= {
            CLUSTERING_KEY: str(CLUSTER_EVERY_COMMITS),
            strategy + "small.file.limit": str(SMALL_FILE_BYTES),
            strategy + "target.file.max.bytes": str(TARGET_FILE_BYTES),
            strategy + "max.bytes.per.group": str(CLUSTER_AT_ONCE_BYTES),
            strategy + "max.num.groups": "1",
            strategy + "single.group.clustering.enabled": "false",
            strategy + "sort.columns": ",".join(sort_columns),
        }
    return options
