"""Creates topics that are missing, and checks existing ones, in few requests for many topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import confluent_kafka as ck
from confluent_kafka import admin as ck_admin

from cdc.errors import KafkaError, RefusedError
from cdc.kafka.client import KafkaClient, missing
from cdc.kafka.topic_values import TopicInfo
from cdc.runtime.progress import shown_as
from cdc.runtime.waiting import wait_while
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cdc.kafka.admin import KafkaAdmin
    from cdc.runtime.progress import Progress

PARTITIONS = 1
"""Number of partitions of a topic. With several partitions, the delete and the insert of a key
change could be in different partitions."""
_POLL_S = 0.1
_AT_ONCE = 100
"""Maximum number of topics in one request. A controller writes all topics of a request in one batch
of records, and the size of a batch is limited."""

_THROTTLED = ck.KafkaError.THROTTLING_QUOTA_EXCEEDED
_QUOTA_S = 120.0
"""The longest wait, in seconds, while a quota refuses to create any further topic."""
_QUOTA_POLL_S = (1.0, 10.0)

Settings = Mapping[str, Mapping[str, str]]
"""A mapping from each topic to a mapping of the topic's settings."""


class ThrottledError(KafkaError):
    """Because of a quota of the cluster for topic changes, no further topic was created in time."""


def ensure(
    kafka: KafkaAdmin,
    client: KafkaClient,
    admin: ck_admin.AdminClient,
    wanted: Settings,
    replication_factor: int,
    progress: Progress | None = None,
) -> dict[str, TopicInfo]:
    """Create the Kafka topics that are missing, and check that existing ones are suitable.

    An existing topic is never altered. If an existing topic is not suitable, no topic is created.

    Args:
        kafka: The cluster.
        client: Sends requests to the same cluster.
        admin: The admin client of the same cluster.
        wanted: For each topic, the settings that the topic gets if it is created.
        replication_factor: The replication factor of a new topic; -1 for the broker's default.
        progress: Shows the wait while a quota of the cluster refuses further topics.

    Returns:
        The topics' descriptions, in the order of ``wanted``.

    Raises:
        ThrottledError: Because of a quota, no further topic was created for two minutes.
        KafkaError: A topic cannot be created, or it exists with another number of partitions, with
            compaction, or with a retention that is too short.
    """
    existing = kafka.topics(wanted)
    _check_existing_topics(
        kafka, {name: wanted[name] for name in wanted if name in existing}, existing
    )
    new = {name: settings for name, settings in wanted.items() if name not in existing}
    for part in _topics_per_request(new):
        _create_all(client, admin, part, replication_factor, progress)
    made = _wait_for_new_topics(kafka, new, client.timeout_s)
    # Another program could have created one of them meanwhile.
    _check_existing_topics(kafka, new, made)
    return {name: (existing | made)[name] for name in wanted}


def _topics_per_request(wanted: Settings) -> Iterator[Settings]:
    """Divide the topics to create into parts, one for each Kafka request, and yield the parts."""
    left = iter(wanted.items())
    while part := dict(islice(left, _AT_ONCE)):
        yield part


def _create_all(
    client: KafkaClient,
    admin: ck_admin.AdminClient,
    wanted: Settings,
    replication_factor: int,
    progress: Progress | None,
) -> None:
    """Create topics; repeat the request for topics that a quota for topic changes refuses.

    Managed clusters have such quotas (`controller_mutation_rate`). A broker with a quota can create
    some of a request's topics, and refuse the others for a moment. This function gives up after two
    minutes in which no further topic was created.

    Raises:
        ThrottledError: No further topic was created for two minutes.
        KafkaError: A topic cannot be created, and no quota is the reason.
    """
    left = _create_once(client, admin, wanted, replication_factor)
    if not left:
        return

    def refused() -> str:
        nonlocal left
        left = _create_once(client, admin, left, replication_factor)
        return f"{len(left):,} topics are left" if left else ""

    with shown_as("wait for the cluster's quota for changes of topics", progress) as task:
        while left:
            before = len(left)
            wait_while(refused, timeout_s=_QUOTA_S, poll_s=_QUOTA_POLL_S, task=task)
            if len(left) == before:
                topic = next(iter(left))
                raise ThrottledError(
                    f"Kafka at {client.servers} refused to create topic {topic} for"
                    f" {_QUOTA_S:.0f} s, since a quota for changes of topics is used up;"
                    f" {len(left):,} topics of the request are left",
                    remedy="Run the same command again, which creates what is left. If it fails"
                    " again, raise controller_mutation_rate of the user in kafka.security, or ask"
                    " whoever runs the cluster to do so.",
                    topic=topic,
                )


def _create_once(
    client: KafkaClient,
    admin: ck_admin.AdminClient,
    wanted: Settings,
    replication_factor: int,
) -> Settings:
    """Create topics; return the topics (with settings) that a quota for topic changes refused."""
    topics = [
        ck_admin.NewTopic(
            name,
            num_partitions=PARTITIONS,
            replication_factor=replication_factor,
            config=dict(settings),
        )
        for name, settings in wanted.items()
    ]
    answers: dict[str, Future[None]] = {}

    def request() -> Mapping[str, Future[None]]:
        answers.update(
            admin.create_topics(
                topics, operation_timeout=client.timeout_s, request_timeout=client.timeout_s
            )
        )
        return answers

    client.call(
        f"create topic {next(iter(wanted))}" if len(wanted) == 1 else "create topics",
        request,
        ignored=frozenset({ck.KafkaError.TOPIC_ALREADY_EXISTS, _THROTTLED}),
    )
    return {name: wanted[name] for name, answer in answers.items() if _is_topic_throttled(answer)}


def _is_topic_throttled(answer: Future[None]) -> bool:
    """Return whether a quota of the Kafka cluster has refused to create a topic."""
    error = answer.exception()
    return isinstance(error, ck.KafkaException) and error.args[0].code() == _THROTTLED


def _wait_for_new_topics(
    kafka: KafkaAdmin, new: Settings, timeout_s: float
) -> dict[str, TopicInfo]:
    """Wait until all brokers of Kafka know the new topics, and return their descriptions.

    The controller acknowledges the creation of a topic before all brokers know the topic.
    """
    found: dict[str, TopicInfo] = {}
    left = list(new)

    def unknown() -> list[str]:
        nonlocal left
        there, offsets = kafka.topics(left), kafka.start_offsets_many(left)
        found.update((name, there[name]) for name in left if name in there and offsets.get(name))
        left = [name for name in left if name not in found]
        return left

    if left and (late := wait_while(unknown, timeout_s=timeout_s, poll_s=_POLL_S)):
        raise missing(late[0])
    return found


def _check_existing_topics(
    kafka: KafkaAdmin, wanted: Settings, topics: Mapping[str, TopicInfo]
) -> None:
    """Refuse Kafka topics with several partitions, compaction or a retention that is too short."""
    settings = kafka.topic_configs(wanted) if wanted else {}
    refused: dict[str, TributaryError] = {}
    for name, asked in wanted.items():
        try:
            _check_existing_topic(name, asked, topics[name], settings.get(name))
        except KafkaError as error:
            refused[name] = error
    if refused:
        raise RefusedError.of(refused)


def _check_existing_topic(
    name: str, wanted: Mapping[str, str], topic: TopicInfo, actual: Mapping[str, str] | None
) -> None:
    """Refuse an existing Kafka topic with several partitions, or with settings that lose changes.

    Args:
        name: The topic.
        wanted: The settings that a new topic would have.
        topic: The topic's description.
        actual: The settings that the topic has; None if the topic has been deleted meanwhile.
    """
    if topic.partitions != PARTITIONS:
        raise KafkaError(
            f"topic {name} has {topic.partitions} partitions, not {PARTITIONS}",
            remedy=f"Delete topic {name} and run the command again, which recreates it: one"
            " partition keeps a table's changes in the order of its commits. A table that has"
            " read from the old topic then needs a new copy.",
            topic=name,
        )
    if actual is None:
        raise missing(name)
    _check_topic_settings(name, wanted, actual)


def _check_topic_settings(name: str, wanted: Mapping[str, str], actual: Mapping[str, str]) -> None:
    """Refuse an existing Kafka topic that is compacted or whose retention is too short.

    Args:
        name: The topic.
        wanted: The settings that a new topic would have.
        actual: The settings that the topic has.
    """
    policy = actual.get("cleanup.policy", "delete")
    if policy != "delete":
        raise KafkaError(
            f"topic {name} has cleanup.policy={policy}: compaction drops changes that the"
            " lake has not applied yet",
            remedy=f"Set cleanup.policy=delete on topic {name}.",
            topic=name,
            field="cleanup.policy",
        )
    asked, kept = int(wanted.get("retention.ms", "0")), int(actual.get("retention.ms", "-1"))
    if kept >= 0 and (asked < 0 or kept < asked):
        raise KafkaError(
            f"topic {name} keeps records for {kept} ms instead of {asked} ms",
            remedy=f"Raise retention.ms of topic {name}, or lower kafka.topic.retention_ms.",
            topic=name,
            field="retention.ms",
        )
