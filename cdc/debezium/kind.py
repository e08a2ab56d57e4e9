"""What each kind of Debezium connector implements, and the settings that all kinds share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cdc.config import ConnectConfig, KafkaConfig, SourceConfig
    from cdc.debezium.names import CaptureNames
    from cdc.log.position import LogPosition
    from schemas.table import TableId

NOT_SET = "(not set)"
NOT_SHOWN = "(not shown)"

LARGEST_REQUEST = 20 * 1024 * 1024
"""Limit for the size of an event, in bytes, if ``kafka.topic`` sets no limit."""

COMMON_SETTINGS: Mapping[str, str] = {
    "tasks.max": "1",
    # Tributary copies the tables. A snapshot by the connector would send old rows after newer
    # changes.
    "snapshot.mode": "no_data",
    "skipped.operations": "none",
    "skip.messages.without.change": "false",
    "tombstones.on.delete": "true",
    "provide.transaction.metadata": "false",
    # By default, a value that cannot be converted becomes NULL, with only a warning.
    "event.converting.failure.handling.mode": "fail",
    "event.processing.failure.handling.mode": "fail",
    "errors.tolerance": "none",
    # Strings keep NaN, infinity and every digit; `precise` turns NaN and infinity into NULL.
    "decimal.handling.mode": "string",
    "binary.handling.mode": "bytes",
    # This mode is one to one: it keeps names of any script, and never gives two names one form.
    # With `avro`, columns such as "größe" and "grüße" get one name, and a table with both of them
    # stops the connector for all tables.
    "schema.name.adjustment.mode": "avro_unicode",
    "field.name.adjustment.mode": "avro_unicode",
    # This setting adds each column's own name and type to the schema. So the field is found by the
    # name in the catalog, and a changed type has a new schema id.
    "column.propagate.source.type": ".*",
    "topic.delimiter": ".",
}
"""The settings that connectors of every kind must have."""

COMMON_REASONS: Mapping[str, str] = {
    "snapshot.mode": "old rows would arrive after newer changes, or changes would be skipped",
    "skipped.operations": "changes of that kind would never reach the lake",
    "skip.messages.without.change": "changes would be left out",
    "event.converting.failure.handling.mode": "values that fail to convert would become NULL",
    "event.processing.failure.handling.mode": "changes that fail would be left out",
    "errors.tolerance": "changes that fail would be left out",
    "decimal.handling.mode": "NaN and infinity would become NULL, or digits would be lost",
    "time.precision.mode": "times would be read in the wrong unit",
    "tombstones.on.delete": "the stream would not be what the run expects",
    "exactly.once.support": "the handoff could not determine what Kafka holds",
}

COMMON_FORBIDDEN: tuple[tuple[str, str], ...] = (
    (r"column\.(?:include|exclude)\.list", "columns would be missing from the changes"),
    (r"column\.(?:mask|truncate)\..*", "values would differ from the source's"),
    (r"transforms(?:\..*)?", "a transform can drop, reroute or change events"),
    (r"predicates(?:\..*)?", "a predicate belongs to a transform"),
    (r"converters", "a custom converter changes values"),
    (r"post\.processors", "a post processor changes events"),
    (
        r"signal\.(?:data\.collection|kafka\..*|file|enabled\.channels)",
        "a signal can start a snapshot",
    ),
    (r"topic\.(?:regex|replacement|key\..*)", "it reroutes events"),
    (r"transaction\.metadata\.factory", "it changes what shows the end of a transaction"),
    (r"sourceinfo\.struct\.maker", "it changes the position in each event"),
    (r"table\.ignore\.builtin|guardrail\..*", "tables could be left out"),
    (r"internal\..*", "undocumented behaviour"),
    (r"extended\.headers\.enabled", "events would not show where a task of it ended"),
    (
        r"producer\.override\.(?:acks|enable\.idempotence|transactional\.id)",
        "delivery would change",
    ),
    (
        r"producer\.override\.max\.in\.flight\.requests\.per\.connection",
        "a retry could send an older change after a newer one",
    ),
    (r"header\.converter", "events would not show where a task of the connector ended"),
    (
        r"(?:connector|(?:key|value|header)\.converter)\.plugin\.version",
        "another version could run than the one that `check` shows",
    ),
)
COMMON_HARMLESS: Mapping[str, frozenset[str]] = {
    "extended.headers.enabled": frozenset({"true"}),
    "transforms": frozenset({""}),
    "predicates": frozenset({""}),
    "converters": frozenset({""}),
    "post.processors": frozenset({""}),
    "guardrail.collections.max": frozenset({"0"}),
    "header.converter": frozenset(
        f"org.apache.kafka.connect.storage.{name}Converter" for name in ("Simple", "String")
    ),
    "signal.enabled.channels": frozenset({"source"}),
    "producer.override.acks": frozenset({"all", "-1"}),
    "producer.override.enable.idempotence": frozenset({"true"}),
    "producer.override.max.in.flight.requests.per.connection": frozenset({"1"}),
}

FOLLOWED_SETTINGS = ("producer.override.max.request.size", "producer.override.buffer.memory")
"""The settings, the same for every kind, that onboarding may change on a connector in use."""


@dataclass(frozen=True)
class SettingFinding:
    """One property of a Debezium connector that has a wrong value.

    Args:
        property: Name of the property.
        found: The property's value; ``(not set)`` if the connector does not have the property;
            ``(not shown)`` if the value could be a secret.
        required: The value that the property must have.
        reason: What goes wrong with the found value.
    """

    property: str
    found: str
    required: str
    reason: str

    def __str__(self) -> str:
        return f"{self.property} is {self.found}, must be {self.required}: {self.reason}"


@dataclass(frozen=True)
class AuditRules:
    """The rules by which `audit` judges a kind of Debezium connector.

    The required values themselves are in `ConnectorKind.settings`.

    Args:
        reasons: For each required property, what goes wrong if the property has another value.
        forbidden: Patterns of the properties that must not be set, each with the reason.
        harmless: For each forbidden property, the values that have no effect and are thus allowed.
    """

    reasons: Mapping[str, str]
    forbidden: tuple[tuple[str, str], ...]
    harmless: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Beat:
    """The values in a heartbeat row. The columns of this row differ by kind of connector.

    Args:
        system_identifier: The server's identity.
        timeline: PostgreSQL's timeline; None for other kinds.
        beats: Number of the capture's heartbeats so far; None if the row has no such number.
    """

    system_identifier: str
    timeline: int | None
    beats: int | None


class ConnectorKind(Protocol):
    """One kind of Debezium's connectors."""

    @property
    def connector_class(self) -> str:
        """The Java class of Debezium's connector, which is also the plugin's name in Connect."""

    @property
    def settings_changed_while_running(self) -> tuple[str, ...]:
        """The names of the settings that onboarding may change on a connector in use."""

    @property
    def rules(self) -> AuditRules:
        """The rules by which `audit` judges a Debezium connector of this kind."""

    def settings(self, capture: CaptureNames) -> dict[str, str]:
        """Return the settings that Tributary requires of a connector, with the required values."""

    def connection(
        self, source_name: str, source: SourceConfig, connect: ConnectConfig
    ) -> dict[str, str]:
        """Return the settings by which Debezium's connector reaches the database.

        Raises:
            ConfigError: The connector cannot use a setting of the source.
        """

    def more(
        self,
        capture: CaptureNames,
        source: SourceConfig,
        kafka: KafkaConfig,
        tables: Collection[TableId],
    ) -> dict[str, str]:
        """Return the settings that only this kind of Debezium connector needs."""

    def include_settings(self, tables: Collection[TableId]) -> dict[str, str]:
        """Return the settings that select the tables; empty if a publication selects them."""

    def heartbeat_sql(self, capture: CaptureNames) -> str:
        """Return the SQL statement that Debezium's connector runs for each heartbeat."""

    def beat(self, row: Mapping[str, Any]) -> Beat:
        """Return the values of a heartbeat row.

        Args:
            row: The row, as a mapping from each column's name to the value.

        Raises:
            KeyError: The row lacks a column.
            ValueError: A value is malformed.
        """

    def silence_remedy(self, capture: CaptureNames) -> str:
        """Return the remedy for a connector that runs but sends no heartbeat."""

    def lost_after_s(self, interval_ms: int) -> float | None:
        """Return how long a running connector may send nothing before it counts as disconnected.

        Args:
            interval_ms: Interval between two heartbeats, in milliseconds.

        Returns:
            The time in seconds. None if this kind of connector fails or connects again by itself
            when it loses its connection.
        """

    def stored_position(self, offset: Mapping[str, Any]) -> LogPosition | None:
        """Return the position up to which Kafka has every change, from Debezium's stored offset.

        The result is None if the offset has no position.
        """

    def captured_tables(
        self, effective: Mapping[str, str], source_name: str
    ) -> list[TableId] | None:
        """Return the tables in a connector's include list, without Tributary's own tables.

        The result is None if a publication selects the tables.
        """

    def missing_tables(self, effective: Mapping[str, str]) -> Iterator[SettingFinding]:
        """Yield a finding for each of Tributary's own tables that Debezium's include list lacks."""
