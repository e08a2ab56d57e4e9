"""Tributary's access to Kafka without Spark: topics, offsets and single records.

Each call has a time limit, and most calls are repeated after a transient failure. One call reads
the offsets of many topics, so a run over thousands of idle tables needs only a few round trips.
"""

from __future__ import annotations

from cdc.kafka.admin import KafkaAdmin
from cdc.kafka.expiry import Expiry, expiries, kept_for
from cdc.kafka.reader import RecordReader
from cdc.kafka.records import KafkaRecord
from cdc.kafka.topic_values import (
    End,
    KnownRecord,
    ReachedOffset,
    Since,
    TopicInfo,
    TopicLook,
    leader_epochs,
    never_compacted,
)

__all__ = [
    "End",
    "Expiry",
    "KafkaAdmin",
    "KafkaRecord",
    "KnownRecord",
    "ReachedOffset",
    "RecordReader",
    "Since",
    "TopicInfo",
    "TopicLook",
    "expiries",
    "kept_for",
    "leader_epochs",
    "never_compacted",
]
