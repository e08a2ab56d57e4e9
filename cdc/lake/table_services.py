"""Hudi's settings for the services after a commit: cleaning, archiving and clustering.

These settings stop Hudi from starting a service by itself, in a commit or asynchronously. A service
that Hudi starts by itself would be a second writer of the timeline. :mod:`cdc.lake.upkeep` runs the
services under the table's lease.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from schemas.table import TableId

UPKEEP_EVERY_COMMITS = 5
"""Number of commits between upkeeps, unless a tenth of the retained commits is more."""
KEPT_COMMITS = 20
"""Minimum number of commits in the active timeline."""
CLUSTER_EVERY_COMMITS = 20
"""Default number of commits between clusterings."""
CLUSTERING_KEY = "hoodie.clustering.inline.max.commits"
"""Hudi's setting for the number of commits between clusterings.

Under ``hudi:``, a table's settings may have another number.
"""
MOST_BETWEEN_CLUSTERINGS = 1000
"""Maximum of `CLUSTERING_KEY`.

Hudi counts the commits since the last clustering in the active timeline. So the active timeline
keeps all of these commits. The number has a limit, since each commit reads the whole active
timeline.
"""
MIB = 1024 * 1024
SMALL_FILE_BYTES = 32 * MIB
"""Size below which a clustering merges a file. :mod:`cdc.lake.file_sizes` may choose a smaller
size.
"""
TARGET_FILE_BYTES = 128 * MIB
"""Size up to which a clustering fills a file, if the table's setting ``hudi`` has options of Hudi
for clusterings. If not, :mod:`cdc.lake.file_sizes` decides the size."""
CLUSTERING_SETTINGS = "hoodie.clustering."
"""Prefix of Hudi's settings for clusterings."""
CLUSTER_AT_ONCE_BYTES = 512 * MIB
"""Maximum number of bytes that one clustering rewrites, if the table's setting ``hudi`` has options
of Hudi for clusterings."""


@dataclass(frozen=True)
class Retention:
    """How many of a lake table's newest commits stay readable.

    Args:
        commits: Number of the newest commits that stay readable. Hudi's cleaning deletes no file
            that a reader of one of these commits needs.
    """

    commits: int

    @classmethod
    def of(cls, instants: Collection[str], keep_s: float, now: datetime) -> Retention:
        """Return a retention for readers whose queries take up to ``keep_s`` seconds.

        Args:
            instants: Instants of the table's completed commits.
            keep_s: Maximum duration of a reader's query, in seconds.
            now: The current time, aware UTC.
        """
        first = f"{now - timedelta(seconds=keep_s):%Y%m%d%H%M%S%f}"[:17]
        # One more: the commit before these was the newest one when the oldest reader began.
        return cls(max(2, 1 + sum(instant >= first for instant in instants)))

    @property
    def every(self) -> int:
        """Number of commits from one upkeep of a lake table to the next upkeep."""
        return max(UPKEEP_EVERY_COMMITS, self.commits // 10)

    def is_due(self, commits: int, table: TableId) -> bool:
        """Whether a lake table's upkeep is due after its newest commit.

        Tables that were copied together often commit together from then on. Their upkeeps come
        after different commits, so that no run has the upkeeps of all tables at once.

        Args:
            commits: Number of completed commits in the active timeline.
            table: The source table.
        """
        return (commits + crc32(table.relation.encode())) % self.every == 0

    def options(self, *, cluster_every: int = 0) -> dict[str, str]:
        """Return Hudi's settings for this retention.

        Args:
            cluster_every: Number of commits from one clustering to the next; 0 if there is none.
                The active timeline keeps more commits than this number. With fewer commits, Hudi
                could not count the commits since the last clustering.
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
    """Return Hudi's settings for the services of one table.

    Args:
        clustered: Whether small files are merged. False for bucket indexes, whose files are fixed.
        sort_columns: Columns that order the rows of merged files, so that each file has a narrow
            range of keys.
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
