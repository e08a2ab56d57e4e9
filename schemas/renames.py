"""Decides which renames of columns the lake follows, by the table setting `columns.renames`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from schemas.catalog import Catalog


def related(entries: Mapping[str, str], name: str) -> frozenset[str]:
    """Return all names that one column has under the renames in the setting ``columns.renames``.

    With ``{b: a, c: b}``, the result for each of the three names is ``a``, ``b`` and ``c``.
    """
    found = {name}
    while more := {one for pair in entries.items() if found & {*pair} for one in pair} - found:
        found |= more
    return frozenset(found)


@dataclass(frozen=True)
class Renames:
    """The renames of columns that the settings allow the lake to follow.

    Args:
        entries: A mapping from each column's new name to its former name. An entry can be set
            before the source renames the column, and can stay in the settings afterwards.
        placing: The lake table's key and partition columns, whose renames the lake cannot follow.
    """

    entries: Mapping[str, str] = field(default_factory=dict)
    placing: frozenset[str] = frozenset()

    def between(self, old: str, new: str) -> tuple[str, ...]:
        """Return the names that a column had before ``new``, newest first, down to ``old``.

        The result is empty if the settings do not allow the rename.

        The result has several names if the column was renamed several times between two reads of
        the catalog. An event from that time can have any of these names for the column.
        """
        names: list[str] = []
        name = new
        while name != old:
            before = self.entries.get(name)
            if before is None or before in names or before == new:
                return ()
            names.append(name := before)
        return tuple(names)

    def renamed_columns(
        self, before: Catalog, now: Catalog, carried: Collection[str]
    ) -> frozenset[str]:
        """Return the new names of those lake columns whose renames the settings allow.

        Args:
            before: The catalog that the lake follows.
            now: The catalog now.
            carried: Names of the lake's columns.
        """
        return frozenset(
            new.name
            for old, new in now.kept_columns(before)
            if old.name in carried and self.between(old.name, new.name)
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
        """Return why the lake cannot follow a column's rename; None if the lake can.

        Args:
            old: The column's former name.
            new: The column's new name.
            before: The catalog that the lake follows.
            now: The catalog now.
            lake: Names of the lake's columns, including those that the source has dropped.
            wanted: Names of the columns that the settings replicate.

        Returns:
            The reason, as the end of a sentence that begins "the lake has its values under the old
            name"; None if the lake can follow.
        """
        if self.placing & {old, new}:
            return ", and finds or partitions rows by it"
        if taken := [name for name in lake if name.lower() == new.lower()]:
            return f", and already has a column {taken[0]!r}"
        names = self.between(old, new)
        if held := {column.name for column in now.columns.values()} & {old, *names}:
            return f", and another column has the name {min(held)!r} now"
        if now.added_and_dropped(before):
            return "; another column was added and dropped, and events may have its values"
        if not names:
            return (
                f"; columns.renames: {{{new}: {old}}}, set before the rename, lets the lake"
                " follow it"
            )
        return None if new in wanted else ", and the settings leave the new name out"
