"""The records of all tables, read once for a command over many tables, with their lake paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cdc.errors import ConfigError

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.store.table_state import TableRecord
    from schemas.table import Shard, TableId

_Lake = tuple[str, str] | None
"""The lake table that a shard feeds: its name and folder; None for a table that is no shard."""


class TablesOnRecord:
    """The records of all tables, even of retired tables, and the tables' paths in the lake.

    One read of the state store serves all tables of a command. A search for overlapping paths looks
    up a path and the folders around it, and does not compare the path with each table's path.

    Args:
        config: The configuration, which has the path of each table to onboard.
        records: The records of all tables.
    """

    def __init__(self, config: Config, records: Iterable[TableRecord]) -> None:
        self._config = config
        self._records: dict[TableId, TableRecord] = {}
        self._own, self._shared = _Paths(), _Paths()
        for record in records:
            self.note(record)

    def get(self, table: TableId) -> TableRecord | None:
        """Return the record of a table; None if the table was never onboarded."""
        return self._records.get(table)

    def note(self, record: TableRecord) -> None:
        """Add ``record``, which was stored later; it replaces the table's former record."""
        table = record.table
        self._own.remove(table)
        self._shared.remove(table)
        self._records[table] = record
        shard = record.shard
        lake = None if shard is None else _lake_of_shard(shard)
        self._own.add(record.base_path, lake, table)
        if shard is not None:
            self._shared.add(shard.base_path, lake, table)

    def unused_path(self, table: TableId) -> str:
        """Return the lake path of a table to onboard, which may not overlap with another path.

        Paths of retired tables count, too.

        Raises:
            ConfigError: The path overlaps with the path of another table.
        """
        path, shard = self._config.table_path(table), self._config.shard(table)
        mine = None if shard is None else _lake_of_shard(shard)
        # The folder of a shared table contains its shards' copies.
        other = self._own.overlapping(path, table) or self._shared.overlapping(path, table, mine)
        if shard is not None:
            other = other or self._own.overlapping(shard.base_path, table, mine)
        if other is not None:
            raise ConfigError(
                f"table {table} would be written to {path}, which overlaps with the path of table"
                f" {other}",
                remedy=f"Set name of {table.relation}, under tables, to a path of its own.",
                table=table,
                field="name",
            )
        return path


def _lake_of_shard(shard: Shard) -> _Lake:
    """Return the name and folder of a shard's lake table, to find overlapping paths on the plan."""
    return shard.of, shard.base_path


class _Paths:
    """Finds overlapping paths: two paths overlap if they are equal, or one is inside the other.

    Upper and lower case count as equal. The time of a search does not grow with the number of
    tables, except for shards of one lake table.
    """

    def __init__(self) -> None:
        self._at: dict[str, dict[_Lake, dict[TableId, None]]] = {}
        self._below: dict[str, dict[_Lake, dict[TableId, None]]] = {}
        self._places: dict[TableId, tuple[str, _Lake]] = {}

    def add(self, path: str, lake: _Lake, table: TableId) -> None:
        """Add the path of a table, with the lake table that the table feeds if it is a shard."""
        self._places[table] = (path, lake)
        whole, *around = _folders_around(path)
        self._at.setdefault(whole, {}).setdefault(lake, {})[table] = None
        for folder in around:
            self._below.setdefault(folder, {}).setdefault(lake, {})[table] = None

    def remove(self, table: TableId) -> None:
        """Remove the path of a table, if it has one."""
        if table not in self._places:
            return
        path, lake = self._places.pop(table)
        whole, *around = _folders_around(path)
        del self._at[whole][lake][table]
        for folder in around:
            del self._below[folder][lake][table]

    def overlapping(self, path: str, but: TableId, lake: _Lake = None) -> TableId | None:
        """Return a table whose path overlaps with the given path; None if there is no such table.

        Args:
            path: The path.
            but: A table whose path is ignored.
            lake: A lake table; the paths of its shards are ignored. If None, no shard is ignored.
        """
        whole, *around = _folders_around(path)
        places = (self._below.get(whole), *(self._at.get(one) for one in (whole, *around)))
        for tables in places:
            for of, those in (tables or {}).items():
                if lake is not None and of == lake:
                    continue
                for other in those:
                    if other != but:
                        return other
        return None


def _folders_around(path: str) -> Iterator[str]:
    """Yield a table's path in lower case, then each folder around the path, innermost first."""
    folder = path.casefold()
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
