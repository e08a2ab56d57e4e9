"""Debezium's connector for PostgreSQL: its settings, heartbeats and stored positions.

The settings were checked with version 3.7.0 of Debezium's connector, on PostgreSQL 15.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cdc.config import PostgresSourceConfig
from cdc.debezium.kind import (
    COMMON_FORBIDDEN,
    COMMON_HARMLESS,
    COMMON_REASONS,
    COMMON_SETTINGS,
    FOLLOWED_SETTINGS,
    AuditRules,
    Beat,
    SettingFinding,
)
from cdc.debezium.names import SCHEMA
from cdc.log.position import Lsn
from schemas.avro import field_name
from schemas.types_postgres import PRINTED

if TYPE_CHECKING:
    from cdc.config import ConnectConfig, KafkaConfig, SourceConfig
    from cdc.debezium.names import CaptureNames
    from schemas.table import TableId

_CONNECTOR_CLASS = "io.debezium.connector.postgresql.PostgresConnector"

_SETTINGS: Mapping[str, str] = {
    **COMMON_SETTINGS,
    "connector.class": _CONNECTOR_CLASS,
    "plugin.name": "pgoutput",
    # The publication is the only filter, and the connector must not change it.
    "publication.autocreate.mode": "disabled",
    # The slot advances only past what Kafka has acknowledged, never by the driver's keepalives.
    "lsn.flush.mode": "connector",
    # The connector fails if the slot's log begins after the stored position. But it compares only
    # restart_lsn, which stays behind while confirmed_flush_lsn advances. Tributary itself compares
    # confirmed_flush_lsn each time that it looks at a connector that does not run.
    "offset.mismatch.strategy": "trust_offset",
    "slot.drop.on.stop": "false",
    "schema.refresh.mode": "columns_diff",
    "include.unknown.datatypes": "false",
    # The connector finds the type of a column by its name. A temporary table would be such a type.
    "schema.exclude.list": "pg_temp_.*",
    # Anyone can write messages to the log (pg_logical_emit_message), as other connectors do for
    # their heartbeats. The server sends them whatever the publication is. Without this setting, the
    # connector would write them to a topic that nothing has created.
    "message.prefix.exclude.list": "(?s).*",
    "time.precision.mode": "microseconds",
    "interval.handling.mode": "string",
    "hstore.handling.mode": "json",
    # The server prints the values in the WAL by the settings of the connector's session. Options of
    # the connection override the settings of the server, the database and the role.
    "driver.options": " ".join(f"-c {name}={value}" for name, value in PRINTED.items()),
    "topic.naming.strategy": "io.debezium.schema.SchemaTopicNamingStrategy",
}

_RULES = AuditRules(
    reasons={
        **COMMON_REASONS,
        "publication.autocreate.mode": "the connector would change the publication by itself",
        "lsn.flush.mode": "the slot could move past changes that Kafka has not acknowledged",
        "offset.mismatch.strategy": "lost changes would be skipped without an error",
        "unavailable.value.placeholder": "unchanged large values would look like real ones",
        "slot.drop.on.stop": "changes during a stop would be lost",
        "message.prefix.exclude.list": "messages of other programs would be written to a topic",
        "schema.exclude.list": "a temporary table could be taken for the type of a column",
        "driver.options": "the server would print values in a form that the connector misreads",
        "provide.transaction.metadata": "only the handoff of an append table needs it",
    },
    forbidden=(
        *COMMON_FORBIDDEN,
        (
            r"(?:table|database)\.(?:include|exclude)\.list|schema\.include\.list",
            "the publication is the only filter",
        ),
        (r"message\.key\.columns", "keys come from the table's replica identity"),
        (r"message\.prefix\.include\.list", "the publication is the only filter"),
        (r"snapshot\.(?!mode$).*", "the connector must take no snapshot"),
        (
            r"flush\.lsn\.source|slot\.seek\.to\.known\.offset\.on\.start",
            "replaced by another setting; may contradict it",
        ),
        (r"slot\.stream\.params", "it changes what the server sends"),
        (r"database\.options", "driver.options says how the server prints values"),
        (
            r"driver\.socketTimeout",
            "after a time-out amid a message the driver misreads the next",
        ),
        (r"database\.initial\.statements", "they change the session that reads definitions"),
        (r"replica\.identity\.autoset\.values", "the connector must not alter tables"),
    ),
    harmless={
        **COMMON_HARMLESS,
        "driver.socketTimeout": frozenset({"0"}),
        "flush.lsn.source": frozenset({"true"}),
    },
)


class Postgres:
    """PostgreSQL's connector. A publication selects its tables; a slot retains the WAL for it."""

    connector_class = _CONNECTOR_CLASS
    settings_changed_while_running = FOLLOWED_SETTINGS
    rules = _RULES

    def settings(self, capture: CaptureNames) -> dict[str, str]:
        """Return the settings that Tributary requires of a PostgreSQL connector.

        Only the connector of append tables reports transactions in a topic: the end of a
        transaction shows whether an append table's copy contains the transaction's rows. Other
        tables do not need this topic, which costs two records per transaction.
        """
        publication, slot = capture.on_primary
        return {
            **_SETTINGS,
            "topic.prefix": capture.topic_prefix,
            "publication.name": publication,
            "slot.name": slot,
            "unavailable.value.placeholder": capture.placeholder,
            "provide.transaction.metadata": str(capture.reports_transactions).lower(),
        }

    def connection(
        self,
        source_name: str,
        source: SourceConfig,
        connect: ConnectConfig,
    ) -> dict[str, str]:
        """Return the settings by which Debezium reaches PostgreSQL."""
        if not isinstance(source, PostgresSourceConfig):
            raise TypeError(f"a PostgreSQL source is needed, not {source.kind}")
        endpoint = source.endpoint_for_connect or source.primary
        login = source.credentials.capture
        given = {
            "database.hostname": endpoint.host,
            "database.port": str(endpoint.port),
            "database.dbname": endpoint.database,
            "database.user": login.user,
            "database.password": login.password and login.password.connect_reference(),
            "database.sslmode": endpoint.sslmode,
            "database.sslrootcert": endpoint.sslrootcert,
            "database.sslcert": endpoint.sslcert,
            "database.sslkey": endpoint.sslkey,
        }
        return {key: str(value) for key, value in given.items() if value is not None}

    def more(
        self,
        capture: CaptureNames,
        source: SourceConfig,
        kafka: KafkaConfig,
        tables: Collection[TableId],
    ) -> dict[str, str]:
        """Return no settings: the common settings are enough for PostgreSQL's connector."""
        return {}

    def include_settings(self, tables: Collection[TableId]) -> dict[str, str]:
        """Return no settings, since the publication selects the tables."""
        return {}

    def heartbeat_sql(self, capture: CaptureNames) -> str:
        """Return the SQL statement that the connector runs for each heartbeat.

        The statement writes a row, so the slot advances even while the tables are idle. The row
        names the server, so the stream shows between which changes a server was promoted or
        restored. The publication of append tables does not publish updates. So for append tables,
        the statement inserts a row for each heartbeat, and deletes rows that are older than an
        hour.
        """
        table, slot = f"{SCHEMA}.{capture.heartbeat_table}", capture.on_primary.slot
        insert = (
            f"INSERT INTO {table}"  # noqa: S608 - fixed names and [a-z0-9_]
            " (source, system_identifier, timeline, beat_at)"
            f" SELECT '{slot}', system_identifier::text,"
            " ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int,"
            " clock_timestamp() FROM pg_control_system()"
        )
        if capture.append:
            old = f"source = '{slot}' AND beat_at < clock_timestamp() - interval '1 hour'"
            return f"WITH old AS (DELETE FROM {table} WHERE {old}) {insert}"  # noqa: S608
        return (
            f"{insert} ON CONFLICT (source) DO UPDATE SET"
            " system_identifier = EXCLUDED.system_identifier,"
            " timeline = EXCLUDED.timeline, beat_at = EXCLUDED.beat_at"
        )

    def beat(self, row: Mapping[str, Any]) -> Beat:
        """Return the server's identity and timeline from a heartbeat row."""
        return Beat(row[field_name("system_identifier")], int(row["timeline"]), None)

    def silence_remedy(self, capture: CaptureNames) -> str:
        """Return the remedy for a silent connector of PostgreSQL."""
        publication, slot = capture.on_primary
        rights = "INSERT, DELETE" if capture.append else "INSERT, UPDATE"
        return (
            "While the connector reads a large transaction, or is far behind, nothing is wrong: run"
            " the command again once it has caught up (`tributary status` shows how much log is"
            f" left). Otherwise check that nothing else reads slot {slot}, that the capture"
            f" role has USAGE on schema {SCHEMA} and SELECT, {rights} on"
            f" {SCHEMA}.{capture.heartbeat_table} (`tributary onboard` for a table of the source"
            " grants them), and the primary's log. If that log says that publication"
            f" {publication} does not exist, or the worker's log says `Conversion of interval"
            " failed` (an interval of more than 2,147,483,647 hours, which the connector reads"
            " again without end), the slot cannot be read any more: run"
            " `tributary offboard` for all tables of this source and tier, then `tributary onboard`"
            " for them, which recreates the slot."
        )

    def lost_after_s(self, interval_ms: int) -> None:
        """Return None: PostgreSQL's connector itself reacts to a lost connection."""

    def stored_position(self, offset: Mapping[str, Any]) -> Lsn | None:
        """Return the LSN of the last commit that the connector has sent completely.

        Debezium stores the LSN as a signed number.
        """
        value = offset.get("lsn_commit")
        return None if value is None else Lsn(int(value) % (1 << 64))

    def captured_tables(
        self,
        effective: Mapping[str, str],
        source_name: str,
    ) -> list[TableId] | None:
        """Return None, since the publication selects the tables."""
        return None

    def missing_tables(self, effective: Mapping[str, str]) -> Iterator[SettingFinding]:
        """Return no findings, since PostgreSQL's connector has no include list."""
        return iter(())


def after_truncate(offset: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an offset from which Debezium can start after a TRUNCATE of several tables.

    Such a TRUNCATE is one record of the WAL, with one event for each table. If a task ends after it
    has sent the last of these events, and before it has stored a later position, Debezium 3.7.0
    cannot start again. Debezium must skip as many events as the stored offset counts. But for each
    event Debezium skips a whole record of the WAL, and then fails at the next record. In the
    returned offset, the count of events is 1, so that Debezium skips only the TRUNCATE.

    Args:
        offset: The offset that Connect has stored. It is returned unchanged if it is not the offset
            of the last event of such a TRUNCATE.
    """
    several = int(offset.get("lsn_events_processed") or 0) > 1
    # Before the last event, the completely processed position is that of an earlier record.
    last = offset.get("lsn_proc") == offset.get("lsn")
    if offset.get("messageType") != "TRUNCATE" or not several or not last:
        return offset
    return {**offset, "lsn_events_processed": 1}
