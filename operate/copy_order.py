"""Orders the copies of a command: the largest table first, so that no large table comes last."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cdc.errors import SourceError

if TYPE_CHECKING:
    from operate.context import Services
    from schemas.table import TableId

_log = logging.getLogger(__name__)


def largest_first(services: Services, tables: Sequence[TableId], parallel: int) -> list[TableId]:
    """Return the tables of a command in the order in which their copies begin.

    Args:
        services: The services of the command.
        tables: The tables.
        parallel: Number of tables that are copied at the same time. If all tables begin at once,
            no size is read.
    """
    if len(tables) <= parallel:
        return list(tables)
    return by_size(tables, _sizes_at_sources(services, tables))


def by_size(tables: Sequence[TableId], sizes: Mapping[TableId, int]) -> list[TableId]:
    """Return tables in the order of their copies: the largest first, tables of unknown size last.

    Tables of equal size keep their order.
    """
    return sorted(tables, key=lambda table: -sizes.get(table, -1))


def _sizes_at_sources(services: Services, tables: Sequence[TableId]) -> dict[TableId, int]:
    """Return a mapping from each table to its size in bytes.

    If the sizes of a source's tables cannot be read, these tables are left out. For example, a
    session that rewrites a table locks the table, and the query of the table's size times out.
    """
    found: dict[TableId, int] = {}
    for name in sorted({table.source for table in tables}):
        own = [table for table in tables if table.source == name]
        try:
            found |= services.source(name).total_bytes(own)
        except SourceError as error:
            _log.warning("the tables of source %s are not copied by size: %s", name, error)
    return found
