"""The commits of one shard in a shared lake table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdc.lake.timeline import Committed, Timeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.store.attempt import Attempt


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
    def within(cls, table: Timeline, shard: str) -> ShardTimeline:
        """Return the commits of one shard from the timeline of the shared table.

        Nothing is read again: a commit of a thousand shards needs the timeline of each of them.
        """
        found = cls.__new__(cls)
        found.__dict__.update(table.__dict__)
        found._shard = shard
        found.writes = None  # the figures of `table` are those of all shards
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


def timeline_of(spark: SparkSession, attempt: Attempt) -> Timeline:
    """Return the timeline of an attempt's Hudi table; for a shard, only of the shard's commits."""
    if attempt.shard is None:
        return Timeline(spark, attempt.path)
    return ShardTimeline(spark, attempt.path, attempt.shard)
