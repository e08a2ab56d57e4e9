"""Reads the descriptions and offsets of many topics, even if some of the topics cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin as ck_admin

from cdc.errors import KafkaError
from cdc.kafka.client import UNKNOWN_TOPIC, KafkaClient
from cdc.kafka.topic_values import End, Since, TopicInfo, TopicLook
from cdc.runtime.waiting import wait_while

_POLL_S = 0.1
_ELECTION_S = 5.0
"""The longest wait for the leaders of some topics, in seconds, while other topics have leaders."""


def looks(
    client: KafkaClient, admin: ck_admin.AdminClient, names: Iterable[str]
) -> dict[str, TopicLook | KafkaError]:
    """Return the descriptions and offsets of many topics; topics that do not exist are left out.

    Args:
        client: The cluster.
        admin: The admin client of the same cluster.
        names: The topics.

    Returns:
        For each topic, the description and offsets, or an error if the topic cannot be read.

    Raises:
        KafkaError: Several topics were requested, and none of them can be read.
    """
    infos, failed = _topics_with_leaders(client, admin, list(dict.fromkeys(names)))

    def listed(
        topics: Mapping[str, TopicInfo], spec: ck_admin.OffsetSpec, level: ck.IsolationLevel
    ) -> dict[str, dict[int, End]]:
        """Return, for each topic, an offset of each partition; add topics' errors to ``failed``."""
        seen: dict[str, dict[int, End]] = {name: {} for name in topics}
        asked = left = places(topics, spec)
        refused: dict[ck.TopicPartition, KafkaError] = {}

        def late() -> bool:
            nonlocal left, refused
            found, refused = client.call_each(
                "list offsets",
                lambda: admin.list_offsets(
                    left, isolation_level=level, request_timeout=client.timeout_s
                ),
                others_answer=len(left) < len(asked),
            )
            for place, result in found.items():
                seen[place.topic][place.partition] = End(result.offset, result.leader_epoch)
            left = dict.fromkeys(refused, spec)
            return bool(left)

        if asked:
            wait_while(late, timeout_s=_ELECTION_S, poll_s=_POLL_S)
        failed.update((place.topic, error) for place, error in refused.items())
        return {name: dict(sorted(ends.items())) for name, ends in seen.items()}

    latest, uncommitted = ck_admin.OffsetSpec.latest(), ck.IsolationLevel.READ_UNCOMMITTED
    high = listed(infos, latest, uncommitted)
    there = {name: info for name, info in infos.items() if name not in failed}
    ends = listed(there, latest, ck.IsolationLevel.READ_COMMITTED)
    there = {name: info for name, info in there.items() if name not in failed}
    earliest = listed(there, ck_admin.OffsetSpec.earliest(), uncommitted)
    found = {
        name: TopicLook(info, _end_offsets(earliest[name]), ends[name], _end_offsets(high[name]))
        for name, info in there.items()
        if name not in failed
    }
    if len(failed) > 1 and not found:
        raise next(iter(failed.values()))
    return {**found, **failed}


def _end_offsets(ends: Mapping[int, End]) -> dict[int, int]:
    """Return the offset of each partition of a Kafka topic, without the leaders' epochs."""
    return {partition: end.offset for partition, end in ends.items()}


def ends_now(
    client: KafkaClient, admin: ck_admin.AdminClient, names: Iterable[str], *, committed: bool
) -> dict[str, dict[int, int] | KafkaError]:
    """Return the end offsets of topics without a wait for leaders, as `KafkaAdmin.ends_now` does.

    Args:
        client: The cluster.
        admin: The admin client of the same cluster.
        names: The topics.
        committed: Whether the last stable offsets are wanted, and not the high watermarks.
    """
    level = ck.IsolationLevel.READ_COMMITTED if committed else ck.IsolationLevel.READ_UNCOMMITTED
    infos, failed = _described_topics(client, admin, list(dict.fromkeys(names)))
    failed |= {
        name: _leaderless_topic_error(name) for name, info in infos.items() if info.leaderless
    }
    led = {name: info for name, info in infos.items() if not info.leaderless}
    ends: dict[str, dict[int, int]] = {name: {} for name in led}
    if asked := places(led, ck_admin.OffsetSpec.latest()):
        found, refused = client.call_each(
            "list offsets",
            lambda: admin.list_offsets(
                asked, isolation_level=level, request_timeout=client.timeout_s
            ),
            ignored=UNKNOWN_TOPIC,
        )
        for place, result in found.items():
            ends[place.topic][place.partition] = result.offset
        failed |= {place.topic: error for place, error in refused.items()}
    whole = {name: seen for name, seen in ends.items() if len(seen) == led[name].partitions}
    return {**whole, **failed}


def newest(
    client: KafkaClient, admin: ck_admin.AdminClient, names: Iterable[str]
) -> tuple[dict[str, int], dict[str, KafkaError]]:
    """Return the time of each topic's newest record, and the errors of unreadable topics.

    Topics without records, and topics that do not exist, are left out.

    Args:
        client: The cluster.
        admin: The admin client of the same cluster.
        names: The topics.

    Returns:
        For each topic, the largest timestamp, in milliseconds since 1970; and for each topic that
        cannot be read, the error.

    Raises:
        KafkaError: Several topics were requested, and none of them can be read.
    """
    infos, failed = _topics_with_leaders(client, admin, list(dict.fromkeys(names)))
    sent: dict[str, int] = {}
    if infos:
        asked = places(infos, ck_admin.OffsetSpec.max_timestamp())
        found, refused = client.call_each(
            "list offsets",
            lambda: admin.list_offsets(asked, request_timeout=client.timeout_s),
            ignored=UNKNOWN_TOPIC,
        )
        failed.update((place.topic, error) for place, error in refused.items())
        for place, result in found.items():
            if result.timestamp >= 0 and place.topic not in failed:
                sent[place.topic] = max(result.timestamp, sent.get(place.topic, 0))
    return sent, failed


def since(
    client: KafkaClient, admin: ck_admin.AdminClient, times: Mapping[str, datetime]
) -> dict[str, dict[int, Since]]:
    """Return the offsets of the first records at or after a time, as `KafkaAdmin.since` does.

    Args:
        client: The cluster.
        admin: The admin client of the same cluster.
        times: The time for each topic, in UTC.
    """
    latest, uncommitted = ck_admin.OffsetSpec.latest(), ck.IsolationLevel.READ_UNCOMMITTED

    def listed(
        asked: Mapping[ck.TopicPartition, ck_admin.OffsetSpec],
        level: ck.IsolationLevel = uncommitted,
    ) -> dict[Any, int]:
        if not asked:
            return {}
        found, _ = client.call_each(
            "list offsets",
            lambda: admin.list_offsets(
                dict(asked), isolation_level=level, request_timeout=client.timeout_s
            ),
            ignored=UNKNOWN_TOPIC,
        )
        return {place: result.offset for place, result in found.items()}

    infos, _ = _described_topics(client, admin, [*times])
    wanted = {
        ck.TopicPartition(name, partition): ck_admin.OffsetSpec.for_timestamp(
            int(times[name].timestamp() * 1000)
        )
        for name, info in infos.items()
        if not info.leaderless  # Kafka's client would wait for the leader
        for partition in range(info.partitions)
    }
    # The ends are read first: a record that arrives between the two requests is no old one.
    ends = listed(dict.fromkeys(wanted, latest))
    first = listed({place: wanted[place] for place in ends})
    stable = listed(dict.fromkeys(first, latest), ck.IsolationLevel.READ_COMMITTED)
    seen: dict[str, dict[int, Since]] = {}
    for place, end in stable.items():
        offset = ends[place] if first[place] < 0 else first[place]
        seen.setdefault(place.topic, {})[place.partition] = Since(offset, end)
    return seen


def _topics_with_leaders(
    client: KafkaClient, admin: ck_admin.AdminClient, names: Sequence[str]
) -> tuple[dict[str, TopicInfo], dict[str, KafkaError]]:
    """Return the topics whose partitions all have leaders, and the errors of the other topics."""
    infos: dict[str, TopicInfo] = {}
    failed: dict[str, KafkaError] = {}
    left: Sequence[str] = names

    def leaderless() -> Sequence[str]:
        nonlocal left
        seen, refused = _described_topics(client, admin, left)
        failed.update(refused)
        infos.update((name, info) for name, info in seen.items() if not info.leaderless)
        left = [name for name, info in seen.items() if info.leaderless]
        return left

    if leaderless():
        bound = _ELECTION_S if infos else client.timeout_s
        wait_while(leaderless, timeout_s=bound, poll_s=_POLL_S)
    failed.update((name, _leaderless_topic_error(name)) for name in left)
    return infos, failed


def _leaderless_topic_error(name: str) -> KafkaError:
    """Return the error for a Kafka topic that has a partition without a leader."""
    return KafkaError(
        f"topic {name} has a partition without a leader",
        remedy="Check that every partition has a leader, then run the command again.",
        topic=name,
    )


def _described_topics(
    client: KafkaClient, admin: ck_admin.AdminClient, names: Sequence[str]
) -> tuple[dict[str, TopicInfo], dict[str, KafkaError]]:
    """Return the descriptions and the errors by topic; topics that do not exist are left out."""
    if not names:
        return {}, {}
    found, failed = client.call_each(
        "describe topics",
        lambda: admin.describe_topics(
            ck.TopicCollection(list(names)), request_timeout=client.timeout_s
        ),
        ignored=UNKNOWN_TOPIC,
    )
    return {name: described(name, topic) for name, topic in found.items()}, failed


def described(name: str, topic: Any) -> TopicInfo:
    """Convert the description of a topic from Kafka's client library to a `TopicInfo`."""
    return TopicInfo(
        name,
        str(topic.topic_id),
        len(topic.partitions),
        min((len(one.replicas) for one in topic.partitions), default=0),
        tuple(one.id for one in topic.partitions if one.leader is None or one.leader.id < 0),
    )


def places(
    topics: Mapping[str, TopicInfo], spec: ck_admin.OffsetSpec
) -> dict[ck.TopicPartition, ck_admin.OffsetSpec]:
    """Return the argument of Kafka's list-offsets request, a mapping from partitions to ``spec``.

    Args:
        topics: The topics.
        spec: Which offset to request, for example the first or the last one.
    """
    return {
        ck.TopicPartition(topic.name, partition): spec
        for topic in topics.values()
        for partition in range(topic.partitions)
    }
