"""Renamed columns, and what a table's settings say about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from schemas.catalog import Catalog


def related(entries: Mapping[str, str], name: str) -> frozenset[str]:
    """All names that a column of that name may have had or may get, including that name."""
    found = {name}
    while more := {one for pair in entries.items() if found & {*pair} for one in pair} - found:
        found |= more
    return frozenset(found)


@dataclass(frozen=True)
class Renames:
    """The renames that the settings let the lake follow.

    Args:
        entries: The name before, by new name. An entry may precede its rename, and may stay.
        placing: Columns by which rows of the lake are found or partitioned; their renames are not
            followed.
    """

    entries: Mapping[str, str] = field(default_factory=dict)
    placing: frozenset[str] = frozenset()

    def between(self, old: str, new: str) -> tuple[str, ...]:
        """The names before ``new`` back to ``old``, newest first; empty when none lead there.

        There is more than one if a column was renamed twice between two reads of the catalog:
        events between the renames have the middle name.
        """
        names: list[str] = []
        name = new
        while name != old:
            before = self.entries.get(name)
            if before is None or before in names or before == new:
                return ()
            names.append(name := before)
        return tuple(names)

    def followed(self, before: Catalog, now: Catalog, carried: Collection[str]) -> frozenset[str]:
        """New names of columns whose lake name is found by following the entries back."""
        return frozenset(
            column.name
            for number, column in now.columns.items()
            if number in before.columns
            and (old := before.columns[number].name) in carried
            and self.between(old, column.name)
        )

    def obstacle(
        self,
        old: str,
        new: str,
        before: Catalog,
        now: Catalog,
        *,
        lake: Collection[str],
        wanted: Collection[str],
    ) -> str | None:
        """The reason why a column in the lake cannot continue under its new name.

        Args:
            old: Its name before.
            new: Its name now.
            before: The catalog that the lake follows.
            now: The catalog now.
            lake: Names of the lake's columns, including those that only the lake still has.
            wanted: Names of the columns that the settings replicate.

        Returns:
            The end of a sentence that says where its values are; None when it can continue.
        """
        if self.placing & {old, new}:
            return ", and finds or partitions rows by it"
        if taken := [name for name in lake if name.lower() == new.lower()]:
            return f", and already has a column {taken[0]!r}"
        names = self.between(old, new)
        if held := {column.name for column in now.columns.values()} & {old, *names}:
            return f", and another column has the name {min(held)!r} now"
        between = range(before.attributes + 1, now.attributes + 1)
        if any(number not in now.columns for number in between):
            return "; another column was added and dropped, and events may have its values"
        if not names:
            return (
                f"; columns.renames: {{{new}: {old}}}, set before the rename, lets the lake"
                " follow it"
            )
        return None if new in wanted else ", and the settings leave the new name out"
