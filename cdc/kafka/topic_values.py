"""What a cluster reports about topics and partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NEVER_COMPACTED = {"min.compaction.lag.ms": str(2**63 - 1), "max.compaction.lag.ms": str(2**63 - 1)}
"""Settings by which a topic keeps every record even if somebody sets its policy to compaction."""


def never_compacted(settings: Mapping[str, str]) -> bool:
    """Return whether a Kafka topic's compaction lag is so long that compaction removes no record.

    Args:
        settings: The topic's effective settings.
    """
    (lag, *_) = NEVER_COMPACTED
    return int(settings.get(lag, "0")) >= int(NEVER_COMPACTED[lag])


@dataclass(frozen=True)
class TopicInfo:
    """The description of a topic.

    Args:
        name: The topic's name.
        id: The topic's UUID. A recreated topic has another UUID.
        partitions: Number of partitions.
        replicas: Number of replicas of the partition with the fewest replicas.
        leaderless: Numbers of the partitions without a leader.
    """

    name: str
    id: str
    partitions: int
    replicas: int
    leaderless: tuple[int, ...] = ()


@dataclass(frozen=True)
class End:
    """The end offset of a partition, and the epoch of the leader that reports it.

    The epoch is None if the leader reports none.
    """

    offset: int
    epoch: int | None


@dataclass(frozen=True)
class TopicLook:
    """The description and the offsets of a topic at one moment.

    Args:
        info: The description.
        earliest: For each partition, the first offset that the partition still has.
        ends: For each partition, the last stable offset and the leader's epoch.
        high: For each partition, the offset after the last record, committed or not. ``high`` was
            read before ``ends``. So if ``high`` is above the last stable offset, a Kafka
            transaction was open.
    """

    info: TopicInfo
    earliest: Mapping[int, int]
    ends: Mapping[int, End]
    high: Mapping[int, int]


@dataclass(frozen=True)
class Since:
    """The offset of a Kafka partition's first record at or after some time.

    Args:
        offset: Offset of the first record sent at or after the time, committed or not. If there is
            no such record, it is the offset after the last record.
        stable: The last stable offset of the partition, read after ``offset``.
    """

    offset: int
    stable: int


@dataclass(frozen=True)
class ReachedOffset:
    """An offset that a partition had reached.

    Args:
        topic: The topic.
        partition: The partition's number.
        offset: The offset.
        epoch: The epoch of the partition's leader when the partition had reached the offset.
    """

    topic: str
    partition: int
    offset: int
    epoch: int


@dataclass(frozen=True)
class KnownRecord:
    """A record that a partition had.

    Args:
        topic: The topic.
        partition: The partition's number.
        offset: The record's offset.
        sent_ms: Kafka's timestamp of the record, in milliseconds since 1970.
    """

    topic: str
    partition: int
    offset: int
    sent_ms: int

    @property
    def log(self) -> tuple[str, int]:
        """The topic and the partition of the record."""
        return self.topic, self.partition


def leader_epochs(ends: Mapping[int, End]) -> dict[int, int]:
    """Return the leader's epoch of each partition of a Kafka topic, without unknown epochs."""
    return {partition: end.epoch for partition, end in ends.items() if end.epoch is not None}
