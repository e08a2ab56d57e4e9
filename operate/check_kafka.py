"""What ``check`` prints about Kafka: the cluster, and the topics of the tables on the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from cdc.capture.gathering import cleanup_policy
from cdc.capture.judgement import of_topic
from cdc.errors import SourceError, onboard_again
from cdc.kafka import expiries, kept_for
from cdc.run.overdue import held_back
from cdc.sources.source_facts import Check
from operate.open_transactions import ended, unreadable
from operate.readiness import DEFAULT_MESSAGE_BYTES, too_large

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.context import Services

_DAY_MS = 24 * 3600 * 1000


def cluster(services: Services) -> list[Check]:
    """Return the lines that ``check`` prints about the Kafka cluster.

    The lines report whether Kafka answers, whether the cluster has enough brokers for new topics,
    and whether new topics retain changes for less than a day.
    """
    cluster, brokers = services.kafka.ping()
    settings = services.config.kafka.topic
    lines = [Check("Kafka", "ok", f"cluster {cluster}, brokers: {brokers}")]
    if settings.replication_factor > brokers:
        lines.append(
            Check(
                "Kafka: replication",
                "error",
                f"kafka.topic.replication_factor is {settings.replication_factor}, but there are"
                f" only {brokers} brokers",
                "Lower kafka.topic.replication_factor, or add brokers.",
            )
        )
    if 0 <= settings.retention_ms < _DAY_MS:
        lines.append(
            Check(
                "Kafka: retention",
                "warning",
                f"new topics keep changes for only {settings.retention_ms / 3_600_000:.1f} h",
                "Raise kafka.topic.retention_ms above the longest bootstrap and the longest pause;"
                " a table whose changes have expired needs a bootstrap.",
            )
        )
    return lines


def topic(services: Services, record: TableRecord) -> list[Check]:
    """Return the lines that ``check`` prints about a topic: settings, transactions, row size."""
    name = f"topic {record.topic}"
    info = services.kafka.topic(record.topic)
    actual = services.kafka.topic_config(record.topic)
    findings = list(of_topic(record.topic, cleanup_policy(actual)))
    if findings:
        return [Check(one.subject, "error", one.message, one.remedy) for one in findings]
    if info.partitions != 1:
        return [
            Check(
                name,
                "error",
                f"{info.partitions} partitions: a table's changes would lose their order",
                f"To start again, {onboard_again(record.table, without_data=True)}.",
            )
        ]
    target = services.config.settings_on_plan(record.table, record.tier).freshness_target_s
    since = services.kafka.since(
        {record.topic: datetime.now(timezone.utc) - timedelta(seconds=target)}
    )
    for held in held_back(record.topic, since.get(record.topic, {})):
        why = "a Kafka transaction is open for longer than the table's freshness target"
        detail = f"{why}, so nobody can read {unreadable(held)}"
        return [Check(name, "error", detail, f"If it hangs, {ended(record.table, held)}.")]
    short = expiries(actual, services.config.kafka.topic.retention_ms)
    weak = [(one.what, one.remedy(name)) for one in short]
    _, brokers = services.kafka.ping()
    weak += durability(record.topic, info.replicas, brokers, actual)
    if weak:
        return [Check(name, "warning", detail, remedy) for detail, remedy in weak]
    source = services.source(record.table.source)
    table = source.table(record.table)
    limit = int(actual.get("max.message.bytes", DEFAULT_MESSAGE_BYTES))
    try:
        largest = source.largest_row(table)
    except SourceError as error:
        return [
            Check(
                name,
                "warning",
                f"the size of its rows could not be sampled: {error.message}",
                error.remedy,
            )
        ]
    if large := too_large(table, largest, limit):
        return [
            Check(
                name,
                "warning",
                large,
                f"Raise max.message.bytes of topic {record.topic}, and"
                " kafka.topic.max_message_bytes, which the connector's producer uses.",
            )
        ]
    return [Check(name, "ok", f"one partition; keeps changes {kept_for(actual)}")]


def durability(
    topic: str, replicas: int, brokers: int, settings: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield, for ``check``, each reason why a topic can lose acknowledged changes, with its remedy.

    Args:
        topic: The topic's name.
        replicas: Number of brokers with a replica of the topic.
        brokers: Number of brokers in the cluster. With a single broker, nothing is yielded, since
            that cluster cannot replicate a topic.
        settings: The topic's effective settings.
    """
    if brokers > 1 and replicas == 1:
        yield (
            "is on one broker only: its changes are lost with the disk of that broker",
            f"Reassign topic {topic} to three brokers, and set kafka.topic.replication_factor.",
        )
    if replicas > 1 and settings.get("unclean.leader.election.enable") == "true":
        yield (
            "has unclean.leader.election.enable=true: a broker that is behind may become the"
            " leader, and the changes that it lacks are lost (a run detects it; the table then"
            " needs a bootstrap)",
            f"Set unclean.leader.election.enable=false on topic {topic}.",
        )
    if replicas > 1 and int(settings.get("min.insync.replicas", "1")) == 1:
        yield (
            "has min.insync.replicas=1: a change is acknowledged once a single broker has it",
            f"Set min.insync.replicas=2 on topic {topic}.",
        )
