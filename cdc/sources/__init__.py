"""The only modules that talk SQL to a source."""

from __future__ import annotations

from cdc.config import PostgresSourceConfig, SourceConfig
from cdc.sources.base import Source
from cdc.sources.mysql.source import MysqlSource
from cdc.sources.postgres.source import PostgresSource


def open_source(name: str, config: SourceConfig) -> Source:
    """The source of that name; connects on first use.

    Args:
        name: Key of the source in the configuration.
        config: Its section.
    """
    if isinstance(config, PostgresSourceConfig):
        return PostgresSource(name, config)
    return MysqlSource(name, config)
