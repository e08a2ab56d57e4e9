"""What a lake table's commits say: offsets, snapshot chunks and the handoff, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from cdc.errors import LakeError
from cdc.lake.commit import COMMIT_KEY, CommitRecord
from cdc.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CommitRecord", "Committed", "Timeline"]


@dataclass(frozen=True)
class Committed:
    """One completed commit that carries our record.

    Args:
        instant: Hudi's instant time, which orders commits of a table.
        action: ``commit``, ``deltacommit`` or ``replacecommit``.
        record: What the commit says about itself.
    """

    instant: str
    action: str
    record: CommitRecord


class Timeline:
    """The completed commits of one lake table, read through Hudi's meta client without a Spark job.

    Args:
        spark: The session whose JVM and file systems are used.
        path: Base path of the Hudi table.

    The object sees the table as it was at construction or at the last :meth:`reload`.
    """

    def __init__(self, spark: SparkSession, path: str, *, meta_client: Any = None) -> None:
        self._spark = spark
        self.path = path
        self._meta = meta_client if meta_client is not None else open_meta_client(spark, path)

    @property
    def exists(self) -> bool:
        """Whether there is a Hudi table at the path."""
        return self._meta is not None

    def reload(self) -> None:
        """See commits that were made since."""
        if self._meta is None:
            self._meta = open_meta_client(self._spark, self.path)
        else:
            self._meta.reloadActiveTimeline()

    def commits(self) -> list[Committed]:
        """The active timeline's commits that carry our record, oldest first."""
        found = [self._read(instant) for instant in self._instants()]
        return [committed for committed in found if committed is not None]

    def latest_offsets(self) -> Committed | None:
        """The newest commit that carries stream offsets, past commits of table services.

        The writer refuses to commit at an instant below a completed one (see
        :mod:`cdc.lake.guard`), so the newest by instant is the newest by offsets.
        """
        for instant in reversed(self._instants()):
            committed = self._read(instant)
            if committed is not None and committed.record.offsets:
                return committed
        return None

    def latest(self) -> Committed | None:
        """The newest commit that carries our record, of any kind."""
        for instant in reversed(self._instants()):
            committed = self._read(instant)
            if committed is not None:
                return committed
        return None

    def chunks(self, attempt: str) -> frozenset[int]:
        """Ids of the snapshot chunks that commits of ``attempt`` hold."""
        return frozenset(
            chunk
            for committed in self.commits()
            if committed.record.kind == "chunk" and committed.record.attempt == attempt
            for chunk in committed.record.chunk_ids
        )

    def handoff(self) -> Committed | None:
        """The newest commit that carries a handoff."""
        for instant in reversed(self._instants()):
            committed = self._read(instant)
            if committed is not None and committed.record.handoff is not None:
                return committed
        return None

    def newest_instant(self) -> str | None:
        """The greatest completed instant of any action, or None for an empty timeline."""
        if self._meta is None:
            return None
        last = self._meta.getActiveTimeline().filterCompletedInstants().lastInstant()
        return str(last.get().requestedTime()) if last.isPresent() else None

    def pending_instants(self) -> list[str]:
        """Instants of commits that are requested or inflight."""
        if self._meta is None:
            return []
        pending = self._meta.getActiveTimeline().getCommitsTimeline().filterInflightsAndRequested()
        return sorted({str(one.requestedTime()) for one in pending.getInstants()})

    def _instants(self) -> list[Any]:
        if self._meta is None:
            return []
        timeline = self._meta.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
        return list(timeline.getInstants())

    def _read(self, instant: Any) -> Committed | None:
        jvm = java(self._spark)
        timeline = self._meta.getActiveTimeline()
        metadata = jvm.org.apache.hudi.common.table.timeline.TimelineUtils.getCommitMetadata(
            instant, timeline
        )
        text = metadata.getMetadata(COMMIT_KEY)
        if text is None:
            return None
        record = CommitRecord.from_json(text)
        return Committed(str(instant.requestedTime()), str(instant.getAction()), record)


def open_meta_client(spark: SparkSession, path: str) -> Any:
    """Hudi's meta client for the table at ``path``, or None when there is no table.

    Raises:
        LakeError: There is something at the path, but not a readable Hudi table.
    """
    context = spark.sparkContext
    jvm = java(spark)
    hadoop = context._jsc.hadoopConfiguration()
    try:
        storage = jvm.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(hadoop)
        builder = jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
        return builder.setConf(storage).setBasePath(path).build()
    except Py4JJavaError as error:
        if "TableNotFoundException" in str(error.java_exception):
            return None
        raise LakeError(
            f"the lake table at {path} cannot be opened: {error.java_exception}",
            remedy="Check the lake URL, its credentials, and that nothing else wrote there.",
            path=path,
        ) from error
