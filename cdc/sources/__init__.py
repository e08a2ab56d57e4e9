"""The source databases, to which no other package sends SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdc.config import PostgresSourceConfig, SourceConfig
from cdc.sources.base import Source
from cdc.sources.mysql.source import MysqlSource
from cdc.sources.mysql.table_rules import MysqlTableRules
from cdc.sources.postgres.source import PostgresSource
from cdc.sources.postgres.table_rules import PostgresTableRules
from cdc.sources.table_rules import TableRules
from schemas.catalog import SourceKind


def open_source(name: str, config: SourceConfig) -> Source:
    """Return the source with this configuration; the source connects to its servers on first use.

    Args:
        name: Key of the source in the configuration.
        config: The source's section of the configuration.
    """
    if isinstance(config, PostgresSourceConfig):
        return PostgresSource(name, config)
    return MysqlSource(name, config)


_TABLE_RULES: Mapping[SourceKind, Callable[[], TableRules]] = {
    "postgres": PostgresTableRules,
    "mysql": MysqlTableRules,
    "mariadb": MysqlTableRules,
}


def table_rules(kind: SourceKind) -> TableRules:
    """Return the rules that a kind of source has for replicated tables."""
    return _TABLE_RULES[kind]()
