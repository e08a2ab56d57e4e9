"""The connector's configuration: the settings that the handoff's proof rests on, and no secret."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from cdc.debezium.kind import LARGEST_REQUEST, ConnectorKind
from cdc.debezium.mysql import Mysql
from cdc.debezium.names import CaptureNames, Kind, names
from cdc.debezium.postgres import Postgres

if TYPE_CHECKING:
    from cdc.config import ConnectConfig, KafkaConfig, SourceConfig
    from cdc.config.secrets import SecretRef
    from cdc.connect import ConnectClient
    from cdc.log.position import LogPosition
    from schemas.table import TableId

KINDS: Mapping[Kind, ConnectorKind] = {
    "postgres": Postgres(),
    "mysql": Mysql("mysql"),
    "mariadb": Mysql("mariadb"),
}
"""The connectors by the kind of their source."""

_PRODUCER_BUFFER = 32 * 1024 * 1024
"""Kafka's own default, in bytes."""

_APICURIO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
_CONFLUENT_CONVERTER = "io.confluent.connect.avro.AvroConverter"


def connector_class(kind: Kind) -> str:
    """The class of the connector, as Connect names the plugin."""
    return KINDS[kind].connector_class


def followed_settings(capture: CaptureNames) -> tuple[str, ...]:
    """What a connector that runs takes over when the configuration changes."""
    return KINDS[capture.kind].followed


def capture_settings(capture: CaptureNames) -> dict[str, str]:
    """The settings that the handoff's proof rests on; `audit` compares each.

    Args:
        capture: What the connector captures.
    """
    return KINDS[capture.kind].settings(capture)


def heartbeat_sql(capture: CaptureNames) -> str:
    """The statement that the connector runs at each heartbeat."""
    return KINDS[capture.kind].heartbeat_sql(capture)


def listing(capture: CaptureNames, tables: Collection[TableId]) -> dict[str, str]:
    """The settings by which a connector captures these tables; none where a publication does."""
    return KINDS[capture.kind].listing(tables)


def captured_tables(effective: Mapping[str, str], capture: CaptureNames) -> list[TableId] | None:
    """The application's tables that a connector's include list names, in order.

    Args:
        effective: The configuration as Connect returns it.
        capture: The connector's names.

    Returns:
        None where a publication has them instead.
    """
    return KINDS[capture.kind].captured_tables(effective, capture.source)


def silence(capture: CaptureNames) -> str:
    """What to look at when a connector runs and no heartbeat comes."""
    return KINDS[capture.kind].silence(capture)


def stored_position(connect: ConnectClient, capture: CaptureNames) -> LogPosition | None:
    """The position up to which Kafka has acknowledged every change, as Connect has stored it.

    Args:
        connect: Kafka Connect.
        capture: The connector's names.

    Returns:
        None before the first, or without such a connector.

    Raises:
        ConnectError: Connect cannot be asked.
        StateError: What it has stored is not in the form of its kind.
    """
    offset = connect.offset(capture.connector)
    return None if offset is None else KINDS[capture.kind].stored_position(offset)


def connector_config(
    source_name: str,
    source: SourceConfig,
    tier: str,
    kafka: KafkaConfig,
    connect: ConnectConfig,
    tables: Collection[TableId] = (),
) -> dict[str, str]:
    """The configuration of the connector for one source and tier.

    Secrets are references that the worker resolves through its ConfigProviders. Raw overrides of
    ``connect.connector`` come last; `audit` refuses those that break the capture.

    Args:
        source_name: Key of the source.
        source: Its configuration.
        tier: The tier.
        kafka: The cluster and registry.
        connect: Kafka Connect.
        tables: What it captures; where there is a publication, that knows.

    Raises:
        ConfigError: The worker cannot do what the source's configuration asks for.
    """
    capture = names(source_name, source, tier)
    kind = KINDS[capture.kind]
    largest = kafka.topic.max_message_bytes or LARGEST_REQUEST
    replication = str(kafka.topic.replication_factor)
    config = {
        **kind.settings(capture),
        "name": capture.connector,
        **kind.connection(source_name, source, connect),
        **kind.more(capture, source, kafka, tables),
        "heartbeat.interval.ms": str(source.heartbeat_interval_ms),
        "heartbeat.action.query": kind.heartbeat_sql(capture),
        "poll.interval.ms": "50",
        # `onboard` creates the topics; this is for the connector's own heartbeats, and for a topic
        # that was deleted, which must not stop the other tables (its new id stops its own).
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": replication,
        "topic.creation.default.cleanup.policy": "delete",
        "topic.creation.default.retention.ms": str(kafka.topic.retention_ms),
        "producer.override.compression.type": "lz4",
        "producer.override.max.request.size": str(largest),
        "producer.override.buffer.memory": str(max(_PRODUCER_BUFFER, 2 * largest)),
        **_converters(kafka, connect),
    }
    if connect.exactly_once:
        config["exactly.once.support"] = "required"
        config["transaction.boundary"] = "poll"
    return {**config, **connect.secrets, **connect.connector}


def _converters(kafka: KafkaConfig, connect: ConnectConfig) -> dict[str, str]:
    registry = kafka.registry
    url = connect.registry_url or registry.url
    user, password = registry.username, _reference(registry.password)
    if connect.converter == "apicurio":
        settings = {
            "": _APICURIO_CONVERTER,
            ".apicurio.registry.url": apicurio_url(url),
            ".apicurio.registry.auto-register": "true",
            # Each record names the id of the very schema it was written with.
            ".apicurio.registry.find-latest": "false",
            ".apicurio.registry.as-confluent": "true",
            ".apicurio.registry.use-id": "contentId",
            ".apicurio.registry.headers.enabled": "false",
        }
        if user is not None and password is not None:
            settings[".apicurio.auth.username"] = user
            settings[".apicurio.auth.password"] = password
    else:
        settings = {
            "": _CONFLUENT_CONVERTER,
            ".schema.registry.url": url,
            ".auto.register.schemas": "true",
            ".use.latest.version": "false",
            # Without it a NULL arrives as the default of its column.
            ".ignore.default.for.nullables": "true",
        }
        if user is not None and password is not None:
            settings[".basic.auth.credentials.source"] = "USER_INFO"
            settings[".basic.auth.user.info"] = f"{user}:{password}"
    return {
        f"{side}.converter{key}": value
        for side in ("key", "value")
        for key, value in settings.items()
    }


def apicurio_url(url: str) -> str:
    """Apicurio's own API beside its Confluent-compatible one."""
    root, found, _ = url.partition("/apis/")
    return f"{root if found else url.rstrip('/')}/apis/registry/v2"


def _reference(secret: SecretRef | None) -> str | None:
    return None if secret is None else secret.connect_reference()
