"""What the cluster tells of topics, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NEVER_COMPACTED = {"min.compaction.lag.ms": str(2**63 - 1), "max.compaction.lag.ms": str(2**63 - 1)}
"""Keeps every record also while somebody has the topic compacted, until a run has seen it."""


def never_compacted(settings: Mapping[str, str]) -> bool:
    """Whether compaction leaves every record of a topic with these settings alone."""
    (lag, *_) = NEVER_COMPACTED
    return int(settings.get(lag, "0")) >= int(NEVER_COMPACTED[lag])


@dataclass(frozen=True)
class TopicInfo:
    """A topic as the cluster describes it.

    Args:
        name: The topic's name.
        id: Its UUID, which a deleted and re-created topic does not share.
        partitions: How many partitions it has.
        replicas: How many brokers have each of them, at least.
    """

    name: str
    id: str
    partitions: int
    replicas: int


@dataclass(frozen=True)
class End:
    """Where a partition's log ends, and the epoch of the leader that says so, if it has one."""

    offset: int
    epoch: int | None


@dataclass(frozen=True)
class Reached:
    """Where a partition's log once ended.

    Args:
        topic: The topic.
        partition: Its partition.
        offset: The offset that the log reached.
        epoch: The leader epoch under which it did.
    """

    topic: str
    partition: int
    offset: int
    epoch: int


def leader_epochs(ends: Mapping[int, End]) -> dict[int, int]:
    """The epoch of each partition's leader; without those whose brokers keep none."""
    return {partition: end.epoch for partition, end in ends.items() if end.epoch is not None}
