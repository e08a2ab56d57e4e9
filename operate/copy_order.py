"""Copies the tables of a command: the largest table first, so that no large table comes last."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cdc.errors import SourceError
from cdc.runtime.progress import NullProgress
from operate.table_outcome import Outcome, for_each

if TYPE_CHECKING:
    from operate.context import Services
    from schemas.table import TableId

_log = logging.getLogger(__name__)


def copies(
    services: Services,
    tables: Sequence[TableId],
    work: Callable[[TableId], Outcome],
    *,
    action: str,
) -> list[Outcome]:
    """Copy a command's tables by calls of ``work``, several at a time and the largest first.

    Returns:
        One outcome per table, in the order in which the copies began.
    """
    parallel = min(services.config.spark.parallel_tables, len(tables))
    ordered = largest_first(services, tables, parallel)
    shown = services.progress if len(tables) > parallel else NullProgress()
    task = shown.start("copy tables", len(tables), "tables")

    def one(table: TableId) -> Outcome:
        try:
            return work(table)
        finally:
            task.advance()

    try:
        interrupt = services.interruptible.interrupt
        return for_each(ordered, one, action=action, parallel=parallel, interrupt=interrupt)
    finally:
        task.done()


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
