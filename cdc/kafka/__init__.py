"""What Tributary asks of Kafka outside Spark: topics, offsets, last records.

Every call is bounded and retried while the failure is transient. Offsets of many topics are asked
for in one call, so a run over thousands of idle tables costs a few round trips.
"""

from __future__ import annotations

from cdc.kafka.admin import KafkaAdmin
from cdc.kafka.expiry import Expiry, expiries, kept_for
from cdc.kafka.records import KafkaRecord
from cdc.kafka.values import (
    NEVER_COMPACTED,
    End,
    Reached,
    TopicInfo,
    leader_epochs,
    never_compacted,
)

__all__ = [
    "NEVER_COMPACTED",
    "End",
    "Expiry",
    "KafkaAdmin",
    "KafkaRecord",
    "Reached",
    "TopicInfo",
    "expiries",
    "kept_for",
    "leader_epochs",
    "never_compacted",
]
