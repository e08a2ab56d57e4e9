"""The only modules that send SQL to a source."""

from __future__ import annotations

from cdc.config import PostgresSourceConfig, SourceConfig
from cdc.sources.base import Source
from cdc.sources.mysql.source import MysqlSource
from cdc.sources.postgres.source import PostgresSource


def open_source(name: str, config: SourceConfig) -> Source:
    """Return a source, which connects on first use.

    Args:
        name: Key of the source in the configuration.
        config: The source's section of the configuration.
    """
    if isinstance(config, PostgresSourceConfig):
        return PostgresSource(name, config)
    return MysqlSource(name, config)
