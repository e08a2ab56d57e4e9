"""The number of requests for the creation of the topics of many tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import NewTopic

from cdc.config import KafkaConfig
from cdc.errors import KafkaError
from cdc.kafka import topic_creation
from cdc.kafka.client import KafkaClient
from cdc.kafka.topic_creation import ThrottledError, ensure
from cdc.kafka.topic_values import TopicInfo

THROTTLED = ck.KafkaError.THROTTLING_QUOTA_EXCEEDED
CONFIG = KafkaConfig.model_validate(
    {"bootstrap_servers": "localhost:1", "registry": {"url": "http://localhost"}}
)


class Cluster:
    """Topics in memory, as `KafkaAdmin` and the admin client show them; it notes the requests."""

    def __init__(self, *names: str, partitions: int = 1, late: int = 0) -> None:
        self.there = {name: TopicInfo(name, name, partitions, 1) for name in names}
        self.settings: dict[str, Mapping[str, str]] = {name: {} for name in names}
        self.requests: Counter[str] = Counter()
        self._late = late
        self.quota: int | None = None
        """How many topics a request may create; None for all."""

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        self.requests["describe"] += 1
        return {name: self.there[name] for name in names if name in self.there}

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        self.requests["settings"] += 1
        return {name: dict(self.settings[name]) for name in names}

    def start_offsets_many(self, names: Iterable[str]) -> dict[str, dict[int, int]]:
        self.requests["offsets"] += 1
        self._late -= 1
        return {} if self._late >= 0 else {name: {0: 0} for name in names if name in self.there}

    def create_topics(self, topics: list[NewTopic], **_: Any) -> dict[str, Future[None]]:
        self.requests["create"] += 1
        answers: dict[str, Future[None]] = {}
        quota = len(topics) if self.quota is None else self.quota
        for one in topics[quota:]:
            answers[one.topic] = Future()
            answers[one.topic].set_exception(ck.KafkaException(ck.KafkaError(THROTTLED)))
        for one in topics[:quota]:
            self.there[one.topic] = TopicInfo(one.topic, one.topic, one.num_partitions, 1)
            self.settings[one.topic] = one.config
            answers[one.topic] = Future()
            answers[one.topic].set_result(None)
        return answers

    def ensure(self, *names: str) -> dict[str, TopicInfo]:
        settings = {"retention.ms": "1000", "cleanup.policy": "delete"}
        wanted = dict.fromkeys(names, settings)
        return ensure(self, KafkaClient(CONFIG), self, wanted, -1)  # type: ignore[arg-type]


def some(count: int) -> list[str]:
    return [f"shop.public.t_{number:04}" for number in range(count)]


def test_the_topics_of_a_hundred_tables_take_the_requests_of_ten() -> None:
    requests = []
    for count in (10, 100):
        cluster = Cluster()
        assert list(cluster.ensure(*some(count))) == some(count)
        requests.append(cluster.requests)
    assert requests[0] == requests[1]
    assert sum(requests[0].values()) == 5


def test_a_thousand_topics_are_created_by_hundreds_and_waited_for_together() -> None:
    cluster = Cluster(*some(5), late=1)
    assert list(cluster.ensure(*some(1_000))) == some(1_000)
    assert cluster.requests["create"] == 10
    assert cluster.requests["offsets"] == 2


def test_topics_that_are_there_take_two_requests() -> None:
    cluster = Cluster(*some(1_000))
    cluster.ensure(*some(1_000))
    assert cluster.requests == {"describe": 1, "settings": 1}


def test_nothing_is_created_beside_a_topic_that_would_lose_changes() -> None:
    cluster = Cluster("shop.public.t_0007", partitions=3)
    with pytest.raises(KafkaError, match="has 3 partitions") as caught:
        cluster.ensure(*some(10))
    assert caught.value.context["topic"] == "shop.public.t_0007"
    assert cluster.requests["create"] == 0


def test_a_quota_for_changes_of_topics_is_waited_for_as_long_as_it_lets_some_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_creation, "_QUOTA_POLL_S", 0.001)
    cluster = Cluster()
    cluster.quota = 30
    assert list(cluster.ensure(*some(100))) == some(100)
    assert cluster.requests["create"] == 4


def test_a_quota_that_lets_nothing_through_is_an_error_that_says_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_creation, "_QUOTA_POLL_S", 0.001)
    monkeypatch.setattr(topic_creation, "_QUOTA_S", 0.01)
    cluster = Cluster()
    cluster.quota = 0
    with pytest.raises(ThrottledError, match="3 topics of the request are left") as refused:
        cluster.ensure(*some(3))
    assert "controller_mutation_rate" in refused.value.remedy
    assert refused.value.context["topic"] == some(1)[0]
    assert cluster.requests["create"] > 2
    cluster.quota = None
    assert list(cluster.ensure(*some(3))) == some(3), "the same command goes on"
