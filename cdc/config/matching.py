"""Finds the sections of ``tables`` that apply to a table, without comparing all sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.config.patterns import Pattern, is_literal
from cdc.config.tables import TableSettings, TierSettings, overlay
from cdc.config.templates import Conflict

if TYPE_CHECKING:
    from schemas.table import TableId


@dataclass(frozen=True)
class Resolved:
    """A table's settings: the defaults, overridden by the table's tier and matching sections.

    Args:
        settings: The settings.
        conflicts: The settings that cannot work, as (key path, problem).
    """

    settings: TableSettings
    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True)
class _Rule:
    """One pattern of a section of ``tables``, and the section's number in the order of the file."""

    place: int
    pattern: Pattern
    specificity: tuple[bool, bool, bool, int]


@dataclass
class Matching:
    """Finds the settings of each table: the defaults, overridden by its tier and matching sections.

    If two matching sections have the same setting, the more specific section wins; if both are
    equally specific, the later section in the file wins. A section with ``from`` applies to the
    source tables that its ``from`` names.

    A section without wildcards in its schema and table name is found in a map, by these names. Only
    the other sections are compared with each table. Each combination of sections is merged only
    once. So thousands of tables with thousands of sections cost little time.

    Args:
        base: The defaults.
        sections: A mapping from keys to sections, in the order of the file.
        tiers: A mapping from the names of tiers to the settings of tiers.
    """

    base: TableSettings
    sections: Mapping[str, TableSettings]
    tiers: Mapping[str, TierSettings]
    _settings: list[TableSettings] = field(default_factory=list, init=False)
    _named: dict[tuple[str, str], list[_Rule]] = field(default_factory=dict, init=False)
    _open: list[_Rule] = field(default_factory=list, init=False)
    _merged: dict[tuple[int, ...], Resolved] = field(default_factory=dict, init=False)
    _found: dict[TableId, Resolved] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Build the map of the patterns whose schema and table name have no wildcards."""
        for place, (text, settings) in enumerate(self.sections.items()):
            self._settings.append(settings)
            for one in settings.from_ or (text,):
                pattern = Pattern.parse(one)
                rule, parts = _Rule(place, pattern, pattern.specificity), pattern.parts
                if is_literal(parts.schema) and is_literal(parts.name):
                    self._named.setdefault((parts.schema, parts.name), []).append(rule)
                else:
                    self._open.append(rule)

    def of(self, table: TableId) -> Resolved:
        """Return the settings of a table, and the problems in these settings."""
        found = self._found.get(table)
        if found is None:
            found = self._found[table] = self._resolved(table)
        return found

    def _resolved(self, table: TableId) -> Resolved:
        rules = (*self._named.get((table.schema, table.name), ()), *self._open)
        matching = [rule for rule in rules if rule.pattern.matches(table)]
        matching.sort(key=lambda rule: (rule.specificity, rule.place))
        places = tuple(rule.place for rule in matching)
        found = self._merged.get(places)
        if found is None:
            sections = [self._settings[place] for place in places]
            settings = overlay_with_tier(self.base, sections, self.tiers)
            found = self._merged[places] = Resolved(settings, tuple(settings.conflicts()))
        return found


def overlay_with_tier(
    base: TableSettings, sections: Sequence[TableSettings], tiers: Mapping[str, TierSettings]
) -> TableSettings:
    """Return the settings of ``base``, overridden by the tier's and then by ``sections``."""
    settings = overlay(base, sections)
    tier = tiers.get(settings.tier)
    if tier is None or tier.freshness_target_s is None:
        return settings
    of_tier = TableSettings(freshness_target_s=tier.freshness_target_s)
    return overlay(base, [of_tier, *sections])
