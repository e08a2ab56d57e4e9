"""Finds the tables that the names and wildcards in a command's arguments select."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cdc.config.patterns import Pattern, is_wildcard
from cdc.config.shards import fed_by
from cdc.config.tables import configured_tier
from cdc.errors import ConfigError, StateError
from cdc.store.table_state import State
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.store.table_state import TableRecord


def can_match_many(argument: str, config: Config) -> bool:
    """Whether a command's table argument can select several tables."""
    return is_wildcard(argument) or argument in config.sharded


def sources_of(arguments: Sequence[str], config: Config) -> list[str]:
    """Return the sources whose tables the wildcards in a command's arguments can match."""
    wanted: set[str] = set()
    for pattern in _patterns(arguments, config):
        wanted.update(name for name in config.sources if pattern.covers_source(name))
    return sorted(wanted)


def schemas_of(arguments: Sequence[str], config: Config, source: str) -> Callable[[str], bool]:
    """Return whether the wildcards in a command's arguments can match tables of a schema.

    The result takes the name of a schema of the source, or of a database of MySQL or MariaDB.
    """
    found = [one for one in _patterns(arguments, config) if one.covers_source(source)]
    return lambda schema: any(pattern.covers_schema(schema) for pattern in found)


def _patterns(arguments: Sequence[str], config: Config) -> Iterator[Pattern]:
    """Yield the patterns of the arguments that can select several tables."""
    for argument in arguments:
        if argument in config.sharded:
            yield from map(Pattern.parse, config.tables[argument].from_)
        elif is_wildcard(argument):
            yield Pattern.parse(argument)


def expand(
    arguments: Sequence[str],
    config: Config,
    known: Iterable[TableId],
    *,
    where: str,
    unmatched: Callable[[str], object] | None = None,
) -> list[TableId]:
    """Return the tables that a command's arguments select, each once, in the arguments' order.

    Args:
        arguments: Each is ``[source:]schema.table``, or the name of a lake table that several
            shards share. The parts of ``[source:]schema.table`` can have the wildcards ``*``, ``?``
            and ``[...]``.
        config: The configuration, which has the default source and the shared lake tables.
        known: The tables that a wildcard or the name of a lake table can match. An argument of
            another kind can also name a table that is not among ``known``.
        where: Where the known tables are, for the error's message, such as ``on the plan``.
        unmatched: Called with each argument that matches no known table. If None, such an argument
            is an error.

    Raises:
        InvalidIdentifierError: An argument does not name a table.
        ConfigError: A named source is not configured; or an argument matches no known table, and
            ``unmatched`` is None.
    """
    candidates = sorted(known)
    chosen: dict[TableId, None] = {}
    for argument in arguments:
        if not can_match_many(argument, config):
            chosen[config.table_id(argument)] = None
            continue
        matches = _argument_matcher(argument, config)
        matching = [table for table in candidates if matches(table)]
        if not matching:
            if unmatched is None:
                raise matches_none(argument, where)
            unmatched(argument)
        chosen.update(dict.fromkeys(matching))
    return list(chosen)


class Selection:
    """Decides whether a command's arguments select a table, even a table that is onboarded later.

    Args:
        arguments: Names and wildcards, as for `expand`. If there are none, all tables are selected.
        config: The configuration.
        tiers: Only tables of these tiers are selected. If there are none, the tier does not matter.

    Raises:
        InvalidIdentifierError: An argument does not name a table.
        ConfigError: A named source is not configured.
    """

    def __init__(self, arguments: Sequence[str], config: Config, tiers: Sequence[str] = ()) -> None:
        many = [argument for argument in arguments if can_match_many(argument, config)]
        self.named = frozenset(config.table_id(one) for one in arguments if one not in many)
        """The tables that arguments name without a wildcard."""
        self._everything = not arguments
        self._many = {argument: _argument_matcher(argument, config) for argument in many}
        self._tiers = tuple(dict.fromkeys(tiers))
        self._known: dict[TableId, bool] = {}

    def selects(self, record: TableRecord) -> bool:
        """Whether an argument selects a table on the plan, and the table is of a chosen tier."""
        return self._in_tier(record) and self._matches(record.table)

    def require_tier(self, record: TableRecord) -> None:
        """Raise an error if a table that an argument names is not of a chosen tier.

        Raises:
            ConfigError: The table is of another tier.
        """
        if not self._in_tier(record):
            tier = configured_tier(record.tier)
            raise ConfigError(
                f"table {record.table} is of tier {tier}, not of {' or '.join(self._tiers)}",
                remedy=f"Leave out --tier, or name {tier}.",
                field="tier",
                table=record.table,
            )

    def _in_tier(self, record: TableRecord) -> bool:
        return not self._tiers or configured_tier(record.tier) in self._tiers

    def _matches(self, table: TableId) -> bool:
        if table not in self._known:
            chosen = self._everything or table in self.named
            self._known[table] = chosen or any(match(table) for match in self._many.values())
        return self._known[table]

    def unmatched(self, known: Iterable[TableRecord]) -> list[str]:
        """Return the tiers, wildcards and shared lake tables that select no table on the plan."""
        records = list(known)
        tiers = {configured_tier(record.tier) for record in records}
        tables = [record.table for record in records if self._in_tier(record)]
        return [
            *(f"tier {name}" for name in self._tiers if name not in tiers),
            *(text for text, match in self._many.items() if not any(map(match, tables))),
        ]


def matches_none(argument: str, where: str) -> ConfigError:
    """Return the error for a wildcard, shared lake table or tier that selects no table.

    Args:
        argument: A wildcard, the name of a lake table, or ``tier`` followed by a tier's name.
        where: Where the tables were looked for, for the message, such as ``on the plan``.
    """
    return ConfigError(
        f"{argument!r} matches no table {where}",
        remedy="See `tributary discover` and `tributary status` for the names and tiers; quote a"
        " wildcard so that the shell does not expand it.",
        field=argument,
    )


def not_on_plan(*tables: TableId, offboarded: bool = False) -> StateError:
    """Return the error for one or several tables that are not on the plan of onboarded tables.

    Args:
        tables: The tables.
        offboarded: Whether the tables were offboarded. Schedules that name such a table see it in
            the error's context, and have nothing to do.
    """
    names = [str(table) for table in tables]
    subject = f"table {names[0]} is" if len(names) == 1 else f"tables {', '.join(names)} are"
    return StateError(
        f"{subject} not on the plan",
        remedy=f"Run `tributary onboard {' '.join(names)}`; `tributary status` lists the tables on"
        " the plan.",
        table=names[0],
        **({"state": State.RETIRED.value} if offboarded else {}),
    )


def _argument_matcher(argument: str, config: Config) -> Callable[[TableId], bool]:
    """Return a function that returns whether a command's argument matches a table.

    Args:
        argument: A wildcard, or the name of a shared lake table, which matches each shard.
        config: The configuration, which has the shared lake tables.
    """
    if argument in config.sharded:
        return lambda table: _selects_shard(table, argument, config)
    return Pattern.parse(argument).matches


def _selects_shard(table: TableId, shared: str, config: Config) -> bool:
    """Whether a table is a shard of the lake table ``shared``; False if settings are invalid."""
    try:
        return fed_by(table, config.tables) == shared
    except ConfigError:
        return False  # its own examination reports the reason
