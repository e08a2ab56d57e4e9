"""What Tributary asks of Kafka outside Spark: topics, offsets, last records.

Every call is bounded and retried while the failure is transient. Offsets of many topics are asked
for in one call, so a run over thousands of idle tables costs a few round trips.
"""

from __future__ import annotations

from cdc.kafka.admin import NEVER_COMPACTED, KafkaAdmin, TopicInfo, never_compacted
from cdc.kafka.records import KafkaRecord

__all__ = ["NEVER_COMPACTED", "KafkaAdmin", "KafkaRecord", "TopicInfo", "never_compacted"]
