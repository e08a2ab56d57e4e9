"""Reads the first record of a range of offsets in many topics at once."""

from __future__ import annotations

import time
from collections.abc import Mapping

import confluent_kafka as ck

from cdc.kafka.client import TRANSIENT, KafkaClient
from cdc.kafka.records import AT_END, KafkaRecord, consumer_settings, record_of

_SETTINGS = {
    **AT_END,
    # Records of open transactions wait, too. They are read like the others.
    "isolation.level": "read_uncommitted",
    # One record of each partition is wanted. A broker sends one that is larger than this, too.
    "fetch.message.max.bytes": 32 * 1024,
}


def first_records(
    client: KafkaClient, ranges: Mapping[str, tuple[int, int]], *, deadline: float
) -> dict[str, KafkaRecord]:
    """Return the first record of a range in each topic, as `KafkaAdmin.first_records` does.

    Args:
        client: The cluster.
        ranges: For each topic, the first offset and the offset after the last one.
        deadline: When to give up, as a time of ``time.monotonic()``.
    """
    found: dict[str, KafkaRecord] = {}
    left = {topic: end for topic, (start, end) in ranges.items() if start < end}
    if not left:
        return found
    consumer = ck.Consumer({**consumer_settings(client), **_SETTINGS})
    try:
        consumer.assign([ck.TopicPartition(topic, 0, ranges[topic][0]) for topic in left])
        while left and time.monotonic() < deadline:
            message = consumer.poll(min(1.0, max(0.0, deadline - time.monotonic())))
            topic = None if message is None else message.topic()
            if message is None or topic not in left:
                continue
            error, offset = message.error(), message.offset() or 0
            if error is not None and error.code() in TRANSIENT:
                continue
            # A leader of another moment can show an earlier end than the caller has seen.
            at_end = error is not None and error.code() == ck.KafkaError._PARTITION_EOF
            if at_end and offset < left[topic]:
                continue
            if error is None and offset < left[topic]:
                found[topic] = record_of(topic, 0, offset, message)
            del left[topic]
            consumer.incremental_unassign([ck.TopicPartition(topic, 0)])
    finally:
        consumer.close()
    return found
