"""What a cluster reports about topics and partitions, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NEVER_COMPACTED = {"min.compaction.lag.ms": str(2**63 - 1), "max.compaction.lag.ms": str(2**63 - 1)}
"""Settings by which a topic keeps every record even if somebody sets its policy to compaction."""


def never_compacted(settings: Mapping[str, str]) -> bool:
    """Return whether the settings' compaction lag lets Kafka compact no record of a topic."""
    (lag, *_) = NEVER_COMPACTED
    return int(settings.get(lag, "0")) >= int(NEVER_COMPACTED[lag])


@dataclass(frozen=True)
class TopicInfo:
    """A topic as the Kafka cluster describes it.

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
    """The end offset of a Kafka partition, and the epoch of the leader that reports it.

    The epoch is None if the leader reports no epoch.
    """

    offset: int
    epoch: int | None


@dataclass(frozen=True)
class TopicLook:
    """The description and the offsets of one Kafka topic at one moment.

    Args:
        info: The topic as the cluster describes it.
        earliest: First offset that the topic still has, per partition.
        ends: Last stable offset and the leader's epoch, per partition.
    """

    info: TopicInfo
    earliest: Mapping[int, int]
    ends: Mapping[int, End]


@dataclass(frozen=True)
class ReachedOffset:
    """An offset that a Kafka partition had reached.

    Args:
        topic: The topic.
        partition: The partition's number.
        offset: The offset that the partition had reached.
        epoch: The epoch of the partition's leader at that time.
    """

    topic: str
    partition: int
    offset: int
    epoch: int


def leader_epochs(ends: Mapping[int, End]) -> dict[int, int]:
    """Return the leader's epoch per Kafka partition, without partitions of unknown epoch."""
    return {partition: end.epoch for partition, end in ends.items() if end.epoch is not None}
