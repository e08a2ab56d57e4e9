"""Finds out whether a connector sends changes: whether it has recently sent any record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture.evidence import SignsOfLife
from cdc.debezium import came_lately, lost_after_s, silence_bound_s, silence_remedy
from cdc.errors import KafkaError

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.debezium import CaptureNames
    from cdc.kafka import KafkaAdmin


def look(
    kafka: KafkaAdmin, names: CaptureNames, topics: Sequence[str], interval_ms: int
) -> SignsOfLife:
    """Return whether a capture's connector sends changes, and the age of the newest heartbeat.

    Args:
        kafka: The cluster.
        names: The capture.
        topics: All topics of the capture, including its tables' topics.
        interval_ms: Interval between two heartbeats, in milliseconds.

    Raises:
        KafkaError: The cluster does not answer.
    """
    beat = kafka.newest_times([names.heartbeat_topic]).get(names.heartbeat_topic)
    return signs(names, interval_ms, beat, lambda bound_s: any_lately(kafka, topics, bound_s))


def signs(
    names: CaptureNames,
    interval_ms: int,
    beat: datetime | None,
    flows: Callable[[float], bool],
) -> SignsOfLife:
    """Return a capture's signs of life, from its newest heartbeat and its other records.

    Args:
        names: The capture.
        interval_ms: Interval between two heartbeats, in milliseconds.
        beat: Time of the newest heartbeat; None if there is none.
        flows: Takes a number of seconds; returns whether any record was sent within that time. It
            is called only if no heartbeat was sent recently.
    """
    bound_s = silence_bound_s(interval_ms)
    age = None if beat is None else (datetime.now(timezone.utc) - beat).total_seconds()
    sends = came_lately(beat, bound_s) or flows(bound_s)
    return SignsOfLife(names.heartbeat_topic, age, sends, silence_remedy(names))


def lost_connection(kafka: KafkaAdmin, config: Config, names: CaptureNames) -> bool:
    """Return whether a capture's running connector has silently lost its connection.

    A connected connector writes to the capture's `look_topic` all the time, even while it reads a
    backlog or a large transaction. While the source has no changes, the server's keep-alive
    messages cause records in this topic. So a connector has lost its connection if neither this
    topic nor the topic of heartbeat rows has a recent record.

    Args:
        kafka: The cluster.
        config: The configuration of the capture's source.
        names: The capture.

    Raises:
        KafkaError: The cluster does not answer.
    """
    bound_s = lost_after_s(names, config.source(names.source).heartbeat_interval_ms)
    if bound_s is None:
        return False
    sent = kafka.newest_times_each([names.heartbeat_topic, names.look_topic]).values()
    times = [one for one in sent if not isinstance(one, KafkaError)]
    # A connector that has not sent anything yet is about to start. And a topic that cannot be read
    # proves nothing.
    if not times or len(times) < len(sent):
        return False
    return not any(came_lately(one, bound_s) for one in times)


def any_lately(kafka: KafkaAdmin, topics: Sequence[str], bound_s: float) -> bool:
    """Return whether any of a capture's topics got a record in the last ``bound_s`` seconds.

    Raises:
        KafkaError: The cluster does not answer. Or a topic cannot be read, and no other topic got
            a record in this time.
    """
    sent = kafka.newest_times_each(topics).values()
    if any(not isinstance(one, KafkaError) and came_lately(one, bound_s) for one in sent):
        return True
    for one in sent:
        if isinstance(one, KafkaError):
            raise one
    return False
