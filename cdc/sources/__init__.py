"""The only modules that talk SQL to a source."""

from __future__ import annotations

from cdc.config import PostgresSourceConfig
from cdc.sources.base import Source
from cdc.sources.postgres.source import PostgresSource


def open_source(name: str, config: PostgresSourceConfig) -> Source:
    """The source of that name; connects on first use.

    Args:
        name: Key of the source in the configuration.
        config: Its section.
    """
    return PostgresSource(name, config)
