"""What DAGs need of tributary.yaml: which tables it names, their tiers, targets and periods.

Only the file is read. No reference to a secret is resolved, and no server is asked. Patterns and
their ranks are those of Tributary; a test compares them with Tributary's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

DEFAULT_TIER = "default"
DEFAULT_TARGET_S = 900
_WILD = frozenset("*?[")
_TIER = re.compile(r"[a-z0-9]{1,20}")
_LITERAL = re.compile(r"\[[*?\[]\]")
_NAME = re.compile(r'"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^:."]+)')
_TOKEN = re.compile(r"\*|\?|\[(?P<not>!?)(?P<set>\]?[^\]]*)\](?P<more>\+?)|(?P<plain>.)", re.DOTALL)


class LayoutError(ValueError):
    """A tributary.yaml, or a name of a table, that DAGs cannot be made of."""


@dataclass(frozen=True, order=True)
class Table:
    """One table of one source."""

    source: str
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.source}:{_quote(self.schema)}.{_quote(self.name)}"

    @classmethod
    def parse(cls, text: str, default_source: str | None = None) -> Table:
        """Parse ``[source:]schema.table``, whose names can be quoted.

        Raises:
            LayoutError: The text has another form, or names no source while there are several.
        """
        return cls(*(name for name, _ in _parts(text, default_source)))


def slug_of(table: str) -> str:
    """Return a table's name as part of a task's id; a hash keeps changed names distinct."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", table)[:150]
    if re.fullmatch(r"[a-z0-9-]+:[a-z0-9_]+\.[a-z0-9_]+", table) and table.count("_") == 0:
        return plain
    return f"{plain}_{hashlib.sha256(table.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class TablePlan:
    """What DAGs need of one table.

    Args:
        table: The table.
        tier: Its tier.
        target_s: Its freshness target, in seconds.
        periods: ``hour`` or ``day`` if its complete periods are announced; None if not.
    """

    table: Table
    tier: str
    target_s: int
    periods: str | None


@dataclass(frozen=True)
class Layout:
    """What DAGs need of a tributary.yaml.

    Args:
        tables: The tables with tasks of their own.
        targets: For each tier, the shortest freshness target of its tables, in seconds. It has the
            tiers whose tables only patterns match, too.
    """

    tables: tuple[TablePlan, ...]
    targets: Mapping[str, int]


def read(path: str | Path, more: Iterable[str] = (), onboard: Iterable[str] = ()) -> Layout:
    """Return the tables that tributary.yaml names one by one or ``more`` names, and all tiers.

    Args:
        path: The file.
        more: Names of tables that only patterns of the file match.
        onboard: Names and patterns of the tables that are onboarded.

    Raises:
        LayoutError: The file cannot be read or has another form, or a name in ``more`` names no
            table.
    """
    try:
        document = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise LayoutError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        # The text of the error could quote a line with a secret.
        raise LayoutError(f"{path} is not valid YAML; `tributary check` says where") from None
    if not isinstance(document, Mapping):
        raise LayoutError(f"{path} is no map of sections, as `tributary init` writes it")
    return layout_of(document, more, onboard)


def layout_of(
    document: Mapping[str, Any], more: Iterable[str] = (), onboard: Iterable[str] = ()
) -> Layout:
    """Return the tables and tiers of a configuration, as `read` does."""
    sections = _map(document, "tables")
    sources = list(_map(document, "sources"))
    only = sources[0] if len(sources) == 1 else None
    found = {Table.parse(text, only) for text in more}
    rules, wild = [], [Pattern.parse(text) for text in onboard]
    for place, (text, section) in enumerate(sections.items()):
        settings = section if isinstance(section, Mapping) else {}
        feeding = settings.get("from") or ()
        for one in [feeding] if isinstance(feeding, str) else feeding or (text,):
            pattern = Pattern.parse(str(one))
            rules.append((pattern, place, settings))
            if (named := pattern.table(only)) is not None:
                found.add(named)
            else:
                wild.append(pattern)
    base, tiers = _map(document, "defaults"), _map(document, "tiers")
    tables = tuple(_plan(table, base, tiers, rules) for table in sorted(found))
    if not tables and not wild:
        wild.append(Pattern.parse("*"))  # without sections, all tables have the defaults
    placed = [(plan.tier, plan.target_s) for plan in tables]
    for one in wild:
        # A wider pattern matches the text of a narrower one.
        inner = Table(only if only and one.source == "*" else one.source, one.schema, one.name)
        sections_of = [own for _, _, own in _matching(inner, rules)]
        placed.append(_tier_and_target(f"pattern {inner}", base, tiers, sections_of))
    targets: dict[str, int] = {}
    for tier, target in placed:
        targets[tier] = min(target, targets.get(tier, target))
    return Layout(tables, targets)


def _plan(
    table: Table,
    base: Mapping[str, Any],
    tiers: Mapping[str, Any],
    rules: list[tuple[Pattern, int, Mapping[str, Any]]],
) -> TablePlan:
    """Return a table's plan: matching sections win over the tier, and the tier over defaults."""
    own = [settings for _, _, settings in _matching(table, rules)]
    periods = _period(base)
    for settings in own:
        periods |= _period(settings)
    return TablePlan(
        table, *_tier_and_target(f"table {table}", base, tiers, own), periods.get("by")
    )


def _matching(
    table: Table, rules: list[tuple[Pattern, int, Mapping[str, Any]]]
) -> list[tuple[Pattern, int, Mapping[str, Any]]]:
    """Return the sections that match a table, the most specific last."""
    matching = [rule for rule in rules if rule[0].matches(table)]
    return sorted(matching, key=lambda rule: (rule[0].specificity, rule[1]))


def _tier_and_target(
    what: str,
    base: Mapping[str, Any],
    tiers: Mapping[str, Any],
    own: Iterable[Mapping[str, Any]],
) -> tuple[str, int]:
    """Return the tier and the freshness target of a table or a pattern; later sections win."""
    merged: dict[str, Any] = {}
    for settings in own:
        merged |= settings
    tier = merged.get("tier", base.get("tier", DEFAULT_TIER))
    if not isinstance(tier, str) or not _TIER.fullmatch(tier):
        raise LayoutError(f"{what}: its tier must be of a-z and 0-9 in tributary.yaml itself")
    of_tier = tiers.get(tier) or {}
    usual = of_tier.get("freshness_target_s") or base.get("freshness_target_s", DEFAULT_TARGET_S)
    target = merged.get("freshness_target_s", usual)
    if not isinstance(target, int):
        raise LayoutError(f"{what}: its freshness_target_s must be a number in the file itself")
    return tier, target


def _period(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting ``completeness`` as a section, whether it is written short or not."""
    found = settings.get("completeness")
    return dict(found) if isinstance(found, Mapping) else {} if found is None else {"by": found}


def _map(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class Pattern:
    """A key of ``tables``: source, schema and table, each with wildcards or without."""

    source: str
    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Parse ``*`` or ``[source:]schema.table``."""
        if text == "*":
            return cls("*", "*", "*")
        return cls(*(_literal(*part) for part in _parts(text, "*")))

    def matches(self, table: Table) -> bool:
        """Return whether the pattern matches a table. Case counts."""
        return all(
            _expression(pattern).fullmatch(name) is not None
            for pattern, name in (
                (self.source, table.source),
                (self.schema, table.schema),
                (self.name, table.name),
            )
        )

    def table(self, only: str | None) -> Table | None:
        """Return the one table that the pattern names; None if it can match several tables.

        Args:
            only: The source of a pattern that names no source; None if there are several sources.
        """
        source = only if self.source == "*" else self.source
        if source is None or any(map(_is_open, (source, self.schema, self.name))):
            return None
        return Table(*(_LITERAL.sub(_inner, part) for part in (source, self.schema, self.name)))

    @property
    def specificity(self) -> tuple[bool, bool, bool, int]:
        """The rank of the pattern: if several match a table, the highest wins."""
        parts = (self.name, self.schema, self.source)
        plain = _LITERAL.sub("x", "".join(parts))
        closed = [not _is_open(part) for part in parts]
        return closed[0], closed[1], closed[2], sum(letter not in _WILD for letter in plain)


def _inner(found: re.Match[str]) -> str:
    return found[0][1]


def _is_open(part: str) -> bool:
    return bool(_WILD & set(_LITERAL.sub("", part)))


def _literal(name: str, quoted: bool) -> str:
    return "".join(f"[{one}]" if one in _WILD else one for one in name) if quoted else name


def _parts(text: str, default_source: str | None) -> list[tuple[str, bool]]:
    """Return source, schema and table of a name, each with whether it was quoted."""
    names, separators, position = list[tuple[str, bool]](), "", 0
    while (found := _NAME.match(text, position)) is not None:
        quoted = found["quoted"]
        plain = found["plain"] if quoted is None else quoted.replace('""', '"')
        names.append((plain, quoted is not None))
        position = found.end()
        if position == len(text) or text[position] not in ":.":
            break
        separators += text[position]
        position += 1
    whole = position == len(text) and len(names) == len(separators) + 1
    if whole and separators == ":.":
        return names
    if whole and separators == "." and default_source is not None:
        return [(default_source, False), *names]
    raise LayoutError(f"{text!r} does not name a table: the form is [source:]schema.table")


def _quote(name: str) -> str:
    plain = name.replace("_", "").replace("$", "")
    if plain.isascii() and plain.isalnum() and not name[0].isdigit() and name == name.lower():
        return name
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    text = "".join(_translated(token) for token in _TOKEN.finditer(pattern))
    try:
        return re.compile(text, re.DOTALL)
    except re.error:
        return re.compile("(?!)")


def _translated(token: re.Match[str]) -> str:
    if token["plain"] is not None:
        return re.escape(token["plain"])
    if token["set"] is None:
        return ".*" if token[0] == "*" else "."
    chosen = re.sub(r"([\\\[\]^&|~])", r"\\\1", token["set"])
    return f"[{'^' if token['not'] else ''}{chosen}]{token['more']}"
