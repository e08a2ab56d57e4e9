"""The only modules that talk SQL to a source."""

from __future__ import annotations

from cdc.config import PostgresSourceConfig, SourceConfig
from cdc.errors import ConfigError
from cdc.sources.base import Inspected, Source
from cdc.sources.mysql.source import MysqlSource
from cdc.sources.postgres.source import PostgresSource


def inspect_source(name: str, config: SourceConfig) -> Inspected:
    """The source of that name, to be looked at; connects on first use.

    Args:
        name: Key of the source in the configuration.
        config: Its section.
    """
    if isinstance(config, PostgresSourceConfig):
        return PostgresSource(name, config)
    return MysqlSource(name, config)


def open_source(name: str, config: SourceConfig) -> Source:
    """The source of that name, to be replicated; connects on first use.

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
        remedy="Name tables of other sources; `tributary check` and `tributary discover` look at"
        " those of this kind.",
        field=f"sources.{name}.kind",
    )
