"""The commits of one shard in a lake table that several source tables feed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdc.lake.timeline import Committed, Timeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ShardTimeline(Timeline):
    """The commits of one shard in a shared table.

    One commit of the shard can be listed several times, since each later commit of another shard
    repeats this shard's record.

    Args:
        spark: The session whose JVM and file systems are used.
        path: Base path of the Hudi table.
        shard: Name of the shard.
    """

    def __init__(self, spark: SparkSession, path: str, shard: str) -> None:
        self._shard = shard
        super().__init__(spark, path)

    @classmethod
    def of(cls, table: Timeline, shard: str) -> ShardTimeline:
        """Return a shard's commits in a timeline that is read already; storage is not asked again.

        A guard of a commit of many shards would otherwise open the table once for each of them,
        and read the newest commit as often, which has an entry of each shard.
        """
        found = cls.__new__(cls)
        found.__dict__.update(table.__dict__)
        found._shard = shard
        return found

    def _newest_first(self) -> Iterator[Committed]:
        """Yield the shared table's commits since the shard joined the table, the newest first.

        Each yielded commit has the shard's record, and the instant of the commit that first had
        this record.
        """
        for committed in super()._newest_first():
            mine = committed.record.shards.get(self._shard)
            if mine is None:
                return  # before this commit, the shard's rows were not in the table
            self._whole(committed)
            instant = mine.instant or committed.instant
            yield Committed(instant, committed.action, mine.record, committed.index)
