"""Finds the tables that the names and wildcards in a command's arguments select."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cdc.config.patterns import Pattern, is_wildcard
from cdc.config.shards import fed_by
from cdc.errors import ConfigError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.config import Config


def can_match_many(argument: str, config: Config) -> bool:
    """Whether a command's table argument can select several tables."""
    return is_wildcard(argument) or argument in config.sharded


def sources_of(arguments: Sequence[str], config: Config) -> list[str]:
    """Return the sources with tables that wildcards in a command's arguments can match."""
    wanted: set[str] = set()
    for argument in arguments:
        if argument in config.sharded:
            patterns = [Pattern.parse(text) for text in config.tables[argument].from_]
        elif is_wildcard(argument):
            patterns = [Pattern.parse(argument)]
        else:
            continue
        for pattern in patterns:
            wanted.update(name for name in config.sources if pattern.covers_source(name))
    return sorted(wanted)


def expand(
    arguments: Sequence[str], config: Config, known: Iterable[TableId], *, where: str
) -> list[TableId]:
    """Return the tables that a command's arguments select, each once, in their order.

    Args:
        arguments: Each is ``[source:]schema.table``, whose parts can have ``*``, ``?`` and
            ``[...]``, or the name of a lake table that several shards share.
        config: The configuration, which has the default source and the shared lake tables.
        known: The tables that a wildcard can match. A table that is named without a wildcard need
            not be among them.
        where: Origin of the known tables, for the text of the error.

    Raises:
        InvalidIdentifierError: An argument does not name a table.
        ConfigError: A source is unknown, or a wildcard matches no table.
    """
    candidates = sorted(known)
    chosen: dict[TableId, None] = {}
    for argument in arguments:
        if argument in config.sharded:
            matching = [one for one in candidates if _feeds(one, argument, config)]
        elif is_wildcard(argument):
            pattern = Pattern.parse(argument)
            matching = [table for table in candidates if pattern.matches(table)]
        else:
            chosen[config.table_id(argument)] = None
            continue
        if not matching:
            raise ConfigError(
                f"{argument!r} matches no table {where}",
                remedy="See `tributary discover` and `tributary status` for the names; quote the"
                " wildcard so that the shell does not expand it.",
                field=argument,
            )
        chosen.update(dict.fromkeys(matching))
    return list(chosen)


def _feeds(table: TableId, shared: str, config: Config) -> bool:
    """Whether a selected table is a shard of a lake table; False if settings contradict."""
    try:
        return fed_by(table, config.tables) == shared
    except ConfigError:
        return False  # its own examination reports the reason
