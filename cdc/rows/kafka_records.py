"""Reads the records of a topic between two sets of offsets, in Spark."""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOT_OF_ANOTHER_KEY = "NOT coalesce(exists(headers, h -> h.key = '__debezium.oldkey'), FALSE)"
_USED_AGAIN_AFTER_S = 3_600.0


@dataclass(frozen=True)
class Range:
    """A range of a topic's offsets that Spark reads for one commit.

    Args:
        start: First offset to read, per partition.
        end: First offset not to read, per partition.
    """

    start: Mapping[int, int]
    end: Mapping[int, int]

    @property
    def offsets(self) -> int:
        """The number of offsets in the range that Spark reads. An offset need not have a record."""
        return sum(self.end[partition] - at for partition, at in self.start.items())

    def up_to(self, offset: int) -> Range:
        """Return the range shortened, in every partition, to the offsets before ``offset``."""
        ends = {partition: min(at, offset) for partition, at in self.end.items()}
        return Range(self.start, ends)


@dataclass
class GroupIds:
    """Consumer group ids for Spark's reads, one for each read, which are used again an hour later.

    Spark's Kafka source keeps the settings of each pair of group id and partition as long as the
    JVM lives, in the driver and in each executor. Its own ids are new for each read, so a run of
    many commits would fill the memory. Consumers and the records that they have fetched ahead stay
    for five minutes after a read, so a later read with the same id fetches its records itself.
    No consumer joins the group.

    Args:
        clock: The time in seconds; it never goes back.
    """

    clock: Callable[[], float] = time.monotonic
    _process: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _taken: dict[str, deque[tuple[float, str]]] = field(default_factory=dict)
    _settings: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, topic: str, settings: Mapping[str, str]) -> str:
        """Return the group id for a read of a topic.

        Args:
            topic: The topic.
            settings: Settings of the Java client. Spark accepts one set of settings for a group id,
                so reads with other settings get other ids.
        """
        with self._lock:
            if self._settings.get(topic) != settings:
                self._settings[topic] = dict(settings)
                self._taken[topic] = deque()
            taken, now = self._taken[topic], self.clock()
            if taken and now - taken[0][0] >= _USED_AGAIN_AFTER_S:
                group = taken.popleft()[1]
            else:
                group = f"tributary-{self._process}-{next(self._numbers)}"
            taken.append((now, group))
            return group


_GROUP_IDS = GroupIds()  # like Spark's map of settings, one for the process


def read_changes(
    spark: SparkSession,
    java_config: Mapping[str, str],
    topic: str,
    piece: Range,
    *,
    tasks: int = 1,
    inserts_only: bool = False,
) -> DataFrame:
    """Return a data frame with the committed records of a topic between two sets of offsets.

    Args:
        spark: The session.
        java_config: Settings of the Java client: servers and security.
        topic: The topic.
        piece: The offsets to read.
        tasks: Number of Spark tasks that read the records. Each partition has at least one task.
        inserts_only: Whether to leave out inserts that are part of an update, for an append table.
            The connector sends an update of a row's key as a delete and an insert, and marks this
            insert by a header. Records of updates and deletes are returned in any case.

    Raises (when the data frame is used): Spark's error if an offset is no longer in the topic.
    """
    reader = spark.read.format("kafka").option("subscribe", topic)
    # A batch ends with the marker of a Kafka transaction, which is not a record. At the marker, the
    # broker waits for further records for this time. All records of the range exist already, and
    # the broker sends them at once.
    reader = reader.option("kafka.fetch.max.wait.ms", "5")
    reader = reader.option("kafka.group.id", _GROUP_IDS.take(topic, java_config))
    for key, value in java_config.items():
        reader = reader.option(f"kafka.{key}", value)
    if inserts_only:
        reader = reader.option("includeHeaders", "true")
    records = (
        reader.option("kafka.isolation.level", "read_committed")
        .option("startingOffsets", _offsets_json(topic, piece.start))
        .option("endingOffsets", _offsets_json(topic, piece.end))
        .option("failOnDataLoss", "true")
        .option("minPartitions", str(max(tasks, len(piece.start))))
        .load()
    )
    return records.where(_NOT_OF_ANOTHER_KEY).drop("headers") if inserts_only else records


def _offsets_json(topic: str, offsets: Mapping[int, int]) -> str:
    """Return a topic's offsets as the JSON that Spark's Kafka source expects."""
    return json.dumps({topic: {str(partition): at for partition, at in offsets.items()}})
