"""Which tables a command means: names and wildcards against what the source or the plan holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cdc.config.tables import Pattern
from cdc.errors import ConfigError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.config import Config

_WILD = frozenset("*?[")


def is_wildcard(argument: str) -> bool:
    """Whether a table argument stands for any number of tables."""
    return bool(_WILD & set(argument))


def sources_of(arguments: Sequence[str], config: Config) -> list[str]:
    """Sources that have to be asked to expand the wildcards among the arguments."""
    wanted: set[str] = set()
    for argument in arguments:
        if is_wildcard(argument):
            pattern = Pattern.parse(argument)
            wanted.update(
                name
                for name in config.sources
                if pattern.matches(TableId(name, pattern.parts.schema, pattern.parts.name))
            )
    return sorted(wanted)


def expand(
    arguments: Sequence[str], config: Config, known: Iterable[TableId], *, where: str
) -> list[TableId]:
    """Turn table arguments into tables, in the order given, each once.

    Args:
        arguments: ``[source:]schema.table``, whose parts may hold ``*``, ``?`` and ``[...]``.
        config: The configuration, for the default source.
        known: Tables that a wildcard can stand for.
        where: Where those come from, for the error.

    Raises:
        InvalidIdentifierError: An argument does not name a table.
        ConfigError: An unknown source, or a wildcard that matches nothing.
    """
    candidates = sorted(known)
    chosen: dict[TableId, None] = {}
    for argument in arguments:
        if not is_wildcard(argument):
            chosen[config.table_id(argument)] = None
            continue
        pattern = Pattern.parse(argument)
        matching = [table for table in candidates if pattern.matches(table)]
        if not matching:
            raise ConfigError(
                f"{argument!r} matches no table {where}",
                remedy="See `tributary discover` and `tributary status` for the names; quote the"
                " wildcard so that the shell leaves it alone.",
                field=argument,
            )
        chosen.update(dict.fromkeys(matching))
    return list(chosen)
