"""One MySQL or MariaDB server, its replica, and what is asked of them."""

from __future__ import annotations

from cdc.config import MysqlSourceConfig
from cdc.sources.mysql import catalog, checks
from cdc.sources.mysql.connection import Connections
from cdc.sources.values import Check, TableStats


class MysqlSource:
    """A source of kind ``mysql`` or ``mariadb``; see `cdc.sources.base.Inspected`.

    Args:
        name: Key of the source in the configuration.
        config: Its section.
    """

    def __init__(self, name: str, config: MysqlSourceConfig) -> None:
        self._name = name
        self._config = config
        self._connections = Connections(name, config)

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""
        return self._name

    def tables(self) -> list[TableStats]:
        """All tables of its databases, without our own, sorted by name."""
        with self._connections.open("admin") as session:
            return catalog.read_tables(session, self._name, self._config.databases)

    def checks(self) -> list[Check]:
        """Pre-flight of connections, versions, settings, privileges and the replica."""
        return checks.run(self._connections)
