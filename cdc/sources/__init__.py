"""The only modules that talk SQL to a source."""

from __future__ import annotations

from cdc.config import PostgresSourceConfig, SourceConfig
from cdc.errors import ConfigError
from cdc.sources.base import Source
from cdc.sources.postgres.source import PostgresSource


def open_source(name: str, config: SourceConfig) -> Source:
    """The source of that name; connects on first use.

    Args:
        name: Key of the source in the configuration.
        config: Its section.

    Raises:
        ConfigError: Sources of its kind cannot be replicated yet.
    """
    if isinstance(config, PostgresSourceConfig):
        return PostgresSource(name, config)
    raise ConfigError(
        f"sources.{name}.kind: tables of a {config.kind} source cannot be replicated yet",
        remedy="Name tables of other sources; `tributary stack` runs servers of this kind.",
        field=f"sources.{name}.kind",
    )
