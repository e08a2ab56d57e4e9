"""Debezium's connectors: their names, their configuration, and the proof that changes arrive."""

from __future__ import annotations

from cdc.debezium.audit import audit, keeps_nulls
from cdc.debezium.connector import (
    captured_tables,
    connector_class,
    connector_config,
    heartbeat_sql,
    include_settings,
    lost_after_s,
    read_server,
    settings_changed_while_running,
    silence_remedy,
    stored_position,
)
from cdc.debezium.definitions import (
    DefinitionChange,
    Definitions,
    KeptStatements,
    ReportedStatements,
    StatementsByTable,
    TopicRead,
    definition_changes,
    fresh_starts,
    known_tables,
)
from cdc.debezium.heartbeat import (
    Heartbeat,
    came_lately,
    latest_heartbeat,
    parse_heartbeats,
    silence_bound_s,
    wait_for_heartbeat,
    wait_while_sending,
)
from cdc.debezium.kind import SettingFinding
from cdc.debezium.known_columns import KnownColumn
from cdc.debezium.mysql import SERVER_ID, server_id
from cdc.debezium.names import CaptureNames, names, topic_collisions, topic_for
from cdc.debezium.postgres import after_truncate
from cdc.debezium.transactions import TransactionReader

__all__ = [
    "SERVER_ID",
    "CaptureNames",
    "DefinitionChange",
    "Definitions",
    "Heartbeat",
    "KeptStatements",
    "KnownColumn",
    "ReportedStatements",
    "SettingFinding",
    "StatementsByTable",
    "TopicRead",
    "TransactionReader",
    "after_truncate",
    "audit",
    "came_lately",
    "captured_tables",
    "connector_class",
    "connector_config",
    "definition_changes",
    "fresh_starts",
    "heartbeat_sql",
    "include_settings",
    "keeps_nulls",
    "known_tables",
    "latest_heartbeat",
    "lost_after_s",
    "names",
    "parse_heartbeats",
    "read_server",
    "server_id",
    "settings_changed_while_running",
    "silence_bound_s",
    "silence_remedy",
    "stored_position",
    "topic_collisions",
    "topic_for",
    "wait_for_heartbeat",
    "wait_while_sending",
]
