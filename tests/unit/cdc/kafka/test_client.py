"""Requests that a Kafka cluster never answers."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from cdc.config import KafkaConfig
from cdc.errors import KafkaError
from cdc.kafka.client import KafkaClient

CONFIG = KafkaConfig.model_validate(
    {"bootstrap_servers": "localhost:1", "registry": {"url": "http://localhost"}}
)


def test_an_answer_that_never_comes_is_an_error_with_a_remedy() -> None:
    """This holds in each Python version: before 3.11, a future's timeout is not a TimeoutError."""
    client = KafkaClient(CONFIG, timeout_s=-4.99)
    with pytest.raises(KafkaError, match="did not answer") as caught:
        client.call("list offsets", lambda: {"t": Future[int]()}, topic="t")
    assert caught.value.context["topic"] == "t"
