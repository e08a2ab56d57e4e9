"""The configuration: frozen sections, read once from ``tributary.yaml``."""

from __future__ import annotations

from cdc.config.document import DEFAULT_PATH, VARIABLE, load, parse
from cdc.config.kafka import ConnectConfig, KafkaConfig, RegistryConfig, Security, TopicConfig
from cdc.config.lake import LakeConfig, SparkConfig, StateConfig
from cdc.config.root import Config
from cdc.config.source import (
    Credential,
    Credentials,
    Endpoint,
    MysqlEndpoint,
    MysqlSourceConfig,
    PostgresSourceConfig,
    SourceConfig,
)
from cdc.config.tables import ColumnRules, TableSettings

__all__ = [
    "DEFAULT_PATH",
    "VARIABLE",
    "ColumnRules",
    "Config",
    "ConnectConfig",
    "Credential",
    "Credentials",
    "Endpoint",
    "KafkaConfig",
    "LakeConfig",
    "MysqlEndpoint",
    "MysqlSourceConfig",
    "PostgresSourceConfig",
    "RegistryConfig",
    "Security",
    "SourceConfig",
    "SparkConfig",
    "StateConfig",
    "TableSettings",
    "TopicConfig",
    "load",
    "parse",
]
