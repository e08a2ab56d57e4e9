"""The cluster's facts about topics, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NEVER_COMPACTED = {"min.compaction.lag.ms": str(2**63 - 1), "max.compaction.lag.ms": str(2**63 - 1)}
"""Settings that keep every record of a topic with compaction, until a run sees the compaction."""


def never_compacted(settings: Mapping[str, str]) -> bool:
    """Return whether compaction keeps every record of a topic with these settings."""
    (lag, *_) = NEVER_COMPACTED
    return int(settings.get(lag, "0")) >= int(NEVER_COMPACTED[lag])


@dataclass(frozen=True)
class TopicInfo:
    """A topic as the cluster describes it.

    Args:
        name: The topic's name.
        id: The topic's UUID. A recreated topic has another UUID.
        partitions: Number of partitions.
        replicas: Number of replicas of the partition with the fewest replicas.
        leaderless: The partitions without a leader.
    """

    name: str
    id: str
    partitions: int
    replicas: int
    leaderless: tuple[int, ...] = ()


@dataclass(frozen=True)
class End:
    """The end of a partition's log, with the epoch of the leader that reports it, if it has one."""

    offset: int
    epoch: int | None


@dataclass(frozen=True)
class TopicLook:
    """The facts about one topic, from a look at many topics.

    Args:
        info: The topic as the cluster describes it.
        earliest: First offset that is still in the log, per partition.
        ends: The stable end, per partition.
    """

    info: TopicInfo
    earliest: Mapping[int, int]
    ends: Mapping[int, End]


@dataclass(frozen=True)
class ReachedOffset:
    """An offset that a partition's log had reached.

    Args:
        topic: The topic.
        partition: Its partition.
        offset: The offset that the log had reached.
        epoch: The leader epoch at that time.
    """

    topic: str
    partition: int
    offset: int
    epoch: int


def leader_epochs(ends: Mapping[int, End]) -> dict[int, int]:
    """Return the epoch of each partition's leader; partitions without an epoch are left out."""
    return {partition: end.epoch for partition, end in ends.items() if end.epoch is not None}
