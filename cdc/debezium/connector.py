"""The connector's configuration: the settings that the handoff's proof rests on, and no secret.

Checked against Debezium 3.7.0 on PostgreSQL 15.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc.config import PostgresSourceConfig
from cdc.debezium.names import SCHEMA, CaptureNames, names
from cdc.errors import ConfigError

if TYPE_CHECKING:
    from cdc.config import ConnectConfig, KafkaConfig, SourceConfig
    from cdc.secrets import SecretRef

CONNECTOR_CLASS = "io.debezium.connector.postgresql.PostgresConnector"

CAPTURE_SETTINGS: Mapping[str, str] = {
    "connector.class": CONNECTOR_CLASS,
    "tasks.max": "1",
    "plugin.name": "pgoutput",
    # The publication is the only filter, and only `onboard` changes it.
    "publication.autocreate.mode": "disabled",
    # The snapshot is ours: a second one would put old images behind newer changes.
    "snapshot.mode": "no_data",
    "skipped.operations": "none",
    "skip.messages.without.change": "false",
    "tombstones.on.delete": "true",
    "provide.transaction.metadata": "false",
    # The slot advances only past what Kafka has acknowledged, never by the driver's keepalives.
    "lsn.flush.mode": "connector",
    # A slot that is ahead of the stored position has lost changes: fail instead of going on.
    "offset.mismatch.strategy": "trust_offset",
    "slot.drop.on.stop": "false",
    # The defaults turn a value that cannot be converted into NULL with a warning.
    "event.converting.failure.handling.mode": "fail",
    "event.processing.failure.handling.mode": "fail",
    "errors.tolerance": "none",
    "schema.refresh.mode": "columns_diff",
    "include.unknown.datatypes": "false",
    # Strings keep NaN, infinity and every digit; `precise` makes NULL of the first two.
    "decimal.handling.mode": "string",
    "time.precision.mode": "microseconds",
    "interval.handling.mode": "string",
    "hstore.handling.mode": "json",
    "binary.handling.mode": "bytes",
    # One to one, so names of any script travel and no two become one. With `avro`, columns such as
    # "größe" and "grüße" do, and a table that has both stops the connector for all.
    "schema.name.adjustment.mode": "avro_unicode",
    "field.name.adjustment.mode": "avro_unicode",
    # Brings each column's own name and type into the schema: the field is found by the name in
    # the catalog, and a changed type shows up as a new schema id.
    "column.propagate.source.type": ".*",
    "topic.naming.strategy": "io.debezium.schema.SchemaTopicNamingStrategy",
    "topic.delimiter": ".",
}
"""What every connector has, whatever it captures."""

_LARGEST_REQUEST = 20 * 1024 * 1024
_PRODUCER_BUFFER = 32 * 1024 * 1024
"""Kafka's own default, in bytes."""

FOLLOWED_SETTINGS = ("producer.override.max.request.size", "producer.override.buffer.memory")
"""What a connector that runs takes over when the configuration changes."""

_APICURIO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
_CONFLUENT_CONVERTER = "io.confluent.connect.avro.AvroConverter"


def capture_settings(capture: CaptureNames) -> dict[str, str]:
    """The settings that the handoff's proof rests on; `audit` compares each.

    Where each transaction ends decides which events of a log its copy contains; all else is exact
    without, and the topic would hold two records per transaction.

    Args:
        capture: What the connector captures.
    """
    return {
        **CAPTURE_SETTINGS,
        "topic.prefix": capture.topic_prefix,
        "publication.name": capture.publication,
        "slot.name": capture.slot,
        "unavailable.value.placeholder": capture.placeholder,
        "provide.transaction.metadata": str(capture.append).lower(),
    }


def heartbeat_sql(capture: CaptureNames) -> str:
    """The statement that the connector runs at each heartbeat.

    The row changes with every beat, so a slot moves on while other tables are idle, and a
    promoted or restored server shows itself in the order of the stream. Where only inserts are
    published it is a new row, and those of the last hour stay.
    """
    table = f"{SCHEMA}.{capture.heartbeat_table}"
    insert = (
        f"INSERT INTO {table}"  # noqa: S608 - fixed names and [a-z0-9_]
        " (source, system_identifier, timeline, beat_at)"
        f" SELECT '{capture.slot}', system_identifier::text,"
        " ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int,"
        " clock_timestamp() FROM pg_control_system()"
    )
    if capture.append:
        old = f"source = '{capture.slot}' AND beat_at < clock_timestamp() - interval '1 hour'"
        return f"WITH old AS (DELETE FROM {table} WHERE {old}) {insert}"  # noqa: S608
    return (
        f"{insert} ON CONFLICT (source) DO UPDATE SET"
        " system_identifier = EXCLUDED.system_identifier,"
        " timeline = EXCLUDED.timeline, beat_at = EXCLUDED.beat_at"
    )


def connector_config(
    source_name: str,
    source: SourceConfig,
    tier: str,
    kafka: KafkaConfig,
    connect: ConnectConfig,
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

    Raises:
        ConfigError: Sources of this kind cannot be captured yet.
    """
    if not isinstance(source, PostgresSourceConfig):
        raise ConfigError(
            f"sources.{source_name}.kind: a {source.kind} source cannot be captured yet",
            remedy="Name tables of other sources.",
            field=f"sources.{source_name}.kind",
        )
    capture = names(source_name, source, tier)
    largest = kafka.topic.max_message_bytes or _LARGEST_REQUEST
    replication = str(kafka.topic.replication_factor)
    config = {
        **capture_settings(capture),
        "name": capture.connector,
        **_database(source),
        "heartbeat.interval.ms": str(source.heartbeat_interval_ms),
        "heartbeat.action.query": heartbeat_sql(capture),
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


def _database(source: PostgresSourceConfig) -> dict[str, str]:
    endpoint = source.endpoint_for_connect or source.primary
    login = source.credentials.capture
    given = {
        "database.hostname": endpoint.host,
        "database.port": str(endpoint.port),
        "database.dbname": endpoint.database,
        "database.user": login.user,
        "database.password": _reference(login.password),
        "database.sslmode": endpoint.sslmode,
        "database.sslrootcert": endpoint.sslrootcert,
        "database.sslcert": endpoint.sslcert,
        "database.sslkey": endpoint.sslkey,
    }
    return {key: str(value) for key, value in given.items() if value is not None}


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
