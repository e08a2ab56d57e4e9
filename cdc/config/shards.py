"""Finds the source tables that feed one lake table together, as its shards."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from cdc.config.patterns import Pattern, pattern_problem
from cdc.config.tables import TableSettings
from cdc.config.templates import TABLE_PLACES, Conflict, encoded, template_problems
from cdc.errors import ConfigError
from schemas.table import Shard, TableId

_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?")
_FOLDER = "_shards"
"""Folder inside a shared lake table's folder, for copies whose rows are not in the table yet."""


def sharded(tables: Mapping[str, TableSettings]) -> dict[str, TableSettings]:
    """Return the sections of configured lake tables that several source tables feed, by name."""
    return {name: settings for name, settings in tables.items() if settings.from_}


def fed_by(table: TableId, tables: Mapping[str, TableSettings]) -> str | None:
    """Return the name of the configured lake table that a source table feeds as a shard.

    The result is None if the source table is no shard.

    Raises:
        ConfigError: The source table would feed two lake tables.
    """
    found = [
        name
        for name, settings in sharded(tables).items()
        if any(Pattern.parse(one).matches(table) for one in settings.from_)
    ]
    if len(found) > 1:
        raise ConfigError(
            f"table {table} would feed more than one lake table: {', '.join(found)}",
            remedy="Narrow the patterns of `from`, so that the table feeds only one.",
            field=f"tables.{found[1]}.from",
            table=table,
        )
    return found[0] if found else None


def shard_of(table: TableId, name: str, section: TableSettings, lake_url: str) -> Shard:
    """Return a source table's `Shard`, as the configured section of the lake table describes it.

    Args:
        table: The source table.
        name: The lake table's name.
        section: The lake table's section. Its ``name`` sets the path of the lake table. The
            ``name`` in a section that matches the source table is ignored.
        lake_url: URL of the lake.
    """
    return Shard(
        of=name,
        name=section.shard.format(source=table.source, schema=table.schema, table=table.name),
        column=section.shard_column,
        base_path=f"{lake_url}/{_path_of_shared_table(name, section)}",
    )


def _path_of_shared_table(name: str, section: TableSettings) -> str:
    """Return the configured path of a shared lake table under the lake's URL."""
    return section.name or name.replace(".", "/")


def described(shard: Shard | None) -> str:
    """Describe a configured shard for messages; None becomes ``a table of its own``."""
    if shard is None:
        return "a table of its own"
    return f"shard {shard.name} of {shard.of} (column {shard.column}) in {shard.base_path}"


def copy_path(shard: Shard) -> str:
    """Return the folder to which a shard is copied, inside the folder of its lake table.

    The folder exists until the copied rows are in the shared lake table.
    """
    return f"{shard.base_path}/{_FOLDER}/{encoded(shard.name)}"


def shard_conflicts(
    tables: Mapping[str, TableSettings], sources: Iterable[str]
) -> Iterator[Conflict]:
    """Yield the problems in configured sections of lake tables that several source tables feed."""
    known = list(sources)
    paths = {
        name: _path_of_shared_table(name, one).casefold() + "/"
        for name, one in sharded(tables).items()
    }
    for name, other in itertools.permutations(paths, 2):
        if paths[name].startswith(paths[other]):
            yield ("tables", name, "name"), f"would lie in the folder of {other}"
    for name, settings in sharded(tables).items():
        place = ("tables", name)
        if _NAME.fullmatch(name) is None:
            reason = "must be the lake table's name, since it has from: name or database.name, of"
            yield place, f"{reason} letters, digits and _"
        for number, text in enumerate(settings.from_):
            if problem := pattern_problem(text, known):
                yield (*place, "from", str(number)), f"{text}: {problem}"
        yield from template_problems((*place, "shard"), settings.shard, TABLE_PLACES, set())
        if settings.name is not None:
            yield from template_problems((*place, "name"), settings.name, frozenset(), set())
