"""Builds a connector's configuration, in which references take the place of secrets.

Most functions only call the `ConnectorKind` method that has the function's name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from cdc.debezium.kind import LARGEST_REQUEST, ConnectorKind
from cdc.debezium.mysql import Mysql
from cdc.debezium.names import CaptureNames, names
from cdc.debezium.postgres import Postgres

if TYPE_CHECKING:
    from cdc.config import ConnectConfig, KafkaConfig, SourceConfig
    from cdc.config.secrets import SecretRef
    from cdc.connect import ConnectClient
    from cdc.log.position import LogPosition
    from schemas.catalog import SourceKind
    from schemas.table import TableId

KINDS: Mapping[SourceKind, ConnectorKind] = {
    "postgres": Postgres(),
    "mysql": Mysql("mysql"),
    "mariadb": Mysql("mariadb"),
}
"""The kind of connector for each kind of source."""

_PRODUCER_BUFFER = 32 * 1024 * 1024
"""Kafka's default size for a producer's buffer, in bytes."""

APICURIO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
"""The Java class of Apicurio's Avro converter."""
CONFLUENT_CONVERTER = "io.confluent.connect.avro.AvroConverter"
"""The Java class of Confluent's Avro converter."""
WRITER_SCHEMA: Mapping[str, Mapping[str, str]] = {
    APICURIO_CONVERTER: {
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "false",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": "false",
    },
    CONFLUENT_CONVERTER: {".auto.register.schemas": "true", ".use.latest.version": "false"},
}
"""For each converter, the settings that put the id of the writer's schema into each record."""
_APICURIO_LOGINS = ("apicurio.auth", "apicurio.registry.auth")
"""Where versions 2 and 3 of Apicurio's converter look for the registry's login."""


def connector_class(kind: SourceKind) -> str:
    """Return the Java class of Debezium's connector, which is the plugin's name in Connect."""
    return KINDS[kind].connector_class


def settings_changed_while_running(capture: CaptureNames) -> tuple[str, ...]:
    """Return the Debezium settings that onboarding may change on a connector in use."""
    return KINDS[capture.kind].settings_changed_while_running


def capture_settings(capture: CaptureNames) -> dict[str, str]:
    """Return the Debezium settings that `audit` requires, since Tributary relies on these settings.

    Args:
        capture: The names of the connector and of its topics.
    """
    return KINDS[capture.kind].settings(capture)


def heartbeat_sql(capture: CaptureNames) -> str:
    """Return the SQL statement that Debezium's connector runs for each heartbeat."""
    return KINDS[capture.kind].heartbeat_sql(capture)


def include_settings(capture: CaptureNames, tables: Collection[TableId]) -> dict[str, str]:
    """Return the Debezium settings that select the tables; empty if a publication selects them."""
    return KINDS[capture.kind].include_settings(tables)


def captured_tables(effective: Mapping[str, str], capture: CaptureNames) -> list[TableId] | None:
    """Return the tables in Debezium's include list, without Tributary's own tables.

    Args:
        effective: The configuration as Connect returns it.
        capture: The names of the connector and of its topics.

    Returns:
        The tables; None if the connector has no include list, because a publication selects the
        tables.
    """
    return KINDS[capture.kind].captured_tables(effective, capture.source)


def silence_remedy(capture: CaptureNames) -> str:
    """Return the remedy for a Debezium connector that runs but sends no heartbeat."""
    return KINDS[capture.kind].silence_remedy(capture)


def lost_after_s(capture: CaptureNames, interval_ms: int) -> float | None:
    """Return how long a Debezium connector may send nothing before it counts as disconnected.

    Args:
        capture: The names of the connector and of its topics.
        interval_ms: Interval between two heartbeats, in milliseconds.

    Returns:
        The time in seconds. None for PostgreSQL, whose connector fails or connects again by itself
        when it loses its connection.
    """
    return KINDS[capture.kind].lost_after_s(interval_ms)


def read_server(settings: Mapping[str, str]) -> str | None:
    """Return the server that Debezium reads, as ``host:port`` or ``host:port/database``.

    Args:
        settings: The connector's configuration.

    Returns:
        The server; None if the configuration names none.
    """
    if not (host := settings.get("database.hostname")):
        return None
    port, database = settings.get("database.port"), settings.get("database.dbname")
    # The names of hosts have no case.
    return host.lower() + (f":{port}" if port else "") + (f"/{database}" if database else "")


def stored_position(connect: ConnectClient, capture: CaptureNames) -> LogPosition | None:
    """Return a Debezium connector's stored position, up to which Kafka has every change.

    Args:
        connect: Kafka Connect.
        capture: The names of the connector and of its topics.

    Returns:
        The position; None if Connect has stored none, or if the connector does not exist.

    Raises:
        ConnectError: Connect does not answer.
        StateError: The stored position is malformed.
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
    """Return the configuration of Debezium's connector for one source and tier.

    Secrets are references, which the worker resolves through its ConfigProviders. The properties in
    the setting ``connect.connector`` override all others. If such a property breaks the capture,
    `audit` finds it.

    Args:
        source_name: Key of the source.
        source: The source's section of the configuration.
        tier: The tier, a group of the source's tables that share the connector.
        kafka: The cluster and registry.
        connect: Kafka Connect.
        tables: The tables to capture. They are ignored if a publication selects the tables.

    Raises:
        ConfigError: The connector cannot use a setting of the source, for example a certificate in
            PEM.
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
        # `onboard` creates the topics. These settings are for the topic of Debezium's own
        # heartbeats, and for a topic that was deleted: other tables must not stop. The new topic
        # has another id, by which its own table stops.
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": replication,
        "topic.creation.default.cleanup.policy": "delete",
        "topic.creation.default.retention.ms": str(kafka.topic.retention_ms),
        "producer.override.compression.type": "lz4",
        "producer.override.max.request.size": str(largest),
        "producer.override.buffer.memory": str(max(_PRODUCER_BUFFER, 2 * largest)),
        **_converter_settings(kafka, connect),
    }
    if connect.exactly_once:
        config["exactly.once.support"] = "required"
        config["transaction.boundary"] = "poll"
    return {**config, **connect.secrets, **connect.connector}


def _converter_settings(kafka: KafkaConfig, connect: ConnectConfig) -> dict[str, str]:
    """Return the settings of Debezium's Avro converters, including those for the registry."""
    registry = kafka.registry
    url = connect.registry_url or registry.url
    user, password = registry.username, _secret_reference(registry.password)
    if connect.converter == "apicurio":
        settings = {
            "": APICURIO_CONVERTER,
            ".apicurio.registry.url": apicurio_url(url),
            # Without it, version 3 registers schemas in parts.
            ".apicurio.registry.dereference-schema": "true",
            **WRITER_SCHEMA[APICURIO_CONVERTER],
        }
        if user is not None and password is not None:
            for login in _APICURIO_LOGINS:
                settings[f".{login}.username"] = user
                settings[f".{login}.password"] = password
    else:
        settings = {
            "": CONFLUENT_CONVERTER,
            ".schema.registry.url": url,
            **WRITER_SCHEMA[CONFLUENT_CONVERTER],
            # Without this setting a NULL arrives as the default of its column.
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
    """Return the URL of Apicurio's own API, which Debezium's converters need.

    Args:
        url: The URL of Apicurio's Confluent-compatible API.
    """
    root, found, _ = url.partition("/apis/")
    return f"{root if found else url.rstrip('/')}/apis/registry/v2"


def _secret_reference(secret: SecretRef | None) -> str | None:
    """Return the reference by which settings name a secret; None if there is no secret."""
    return None if secret is None else secret.connect_reference()
