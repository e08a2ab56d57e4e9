"""The Debezium PostgreSQL connector: its names, its configuration, and the proof of capture."""

from __future__ import annotations

from cdc.debezium.audit import Finding, audit
from cdc.debezium.connector import (
    CONNECTOR_CLASS,
    FOLLOWED_SETTINGS,
    connector_config,
    heartbeat_sql,
)
from cdc.debezium.heartbeat import (
    Heartbeat,
    latest_heartbeat,
    parse_heartbeat,
    wait_for_heartbeat,
)
from cdc.debezium.names import CaptureNames, names, topic_collisions, topic_for
from cdc.debezium.transactions import TransactionReader

__all__ = [
    "CONNECTOR_CLASS",
    "FOLLOWED_SETTINGS",
    "CaptureNames",
    "Finding",
    "Heartbeat",
    "TransactionReader",
    "audit",
    "connector_config",
    "heartbeat_sql",
    "latest_heartbeat",
    "names",
    "parse_heartbeat",
    "topic_collisions",
    "topic_for",
    "wait_for_heartbeat",
]
