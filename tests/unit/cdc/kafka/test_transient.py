"""Which of Kafka's errors pass by themselves and are worth another try."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

from cdc.kafka.client import TRANSIENT


@pytest.mark.parametrize(
    "code",
    [
        # Seen on listing the offsets of a topic that had just been created.
        ck.KafkaError.UNKNOWN_LEADER_EPOCH,
        ck.KafkaError.FENCED_LEADER_EPOCH,
        ck.KafkaError.LEADER_NOT_AVAILABLE,
    ],
)
def test_a_leader_that_is_being_settled_is_asked_again(code: int) -> None:
    assert code in TRANSIENT


def test_a_refusal_is_not_asked_again() -> None:
    assert ck.KafkaError.TOPIC_AUTHORIZATION_FAILED not in TRANSIENT
