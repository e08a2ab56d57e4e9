"""Finds events whose values can be in wrong columns, because of columns that the log withholds.

The events of PostgreSQL's log have no generated column, unless the publication says so. Debezium
3.7.0 reads a table's definition from the catalog at an enum's label that it does not know, and this
definition has all generated columns. The connector then reads each row by place: behind a generated
column, each column gets the value of the next one. This lasts until the server describes the table
again (ALTER TABLE, or a new session of the connector).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from schemas.catalog import LABEL, Catalog
from schemas.changes import LoseEvents, Verdict


def withheld(catalog: Catalog) -> frozenset[str]:
    """Return the columns that the events of a table never have; empty except for PostgreSQL."""
    if catalog.source_kind != "postgres":
        return frozenset()
    generated = {one.name for one in catalog.columns.values() if one.generated}
    return frozenset(generated - {*catalog.sent_generated})


def misplacing(names: Sequence[str], hidden: Collection[str]) -> str | None:
    """Return the first withheld column behind which values are in wrong columns; None if none are.

    Nothing is wrong in front of the first withheld column. So an event is right if it has only
    withheld columns from there on.

    Args:
        names: The columns of a table's definition, or of an event, in order.
        hidden: The columns that the log withholds.
    """
    first = next((place for place, name in enumerate(names) if name in hidden), len(names))
    if all(name in hidden for name in names[first:]):
        return None
    return names[first]


def no_longer_withheld(before: Catalog, now: Catalog) -> Iterator[LoseEvents]:
    """Yield a change for each withheld column whose name would no longer show misplaced values.

    A run finds misplaced values by the names of withheld columns in the schemas of events. If such
    a column is dropped, renamed, or no longer generated, earlier events still have it by its former
    name.

    Args:
        before: The catalog that the lake follows.
        now: The catalog now.
    """
    columns = {**before.columns, **now.columns}
    has_labels = any(part.startswith(LABEL) for one in columns.values() for part in one.parts)
    hidden, still = withheld(before), withheld(now)
    last = max((n for n, one in columns.items() if one.name not in hidden | still), default=0)
    for number, old in sorted(before.columns.items()):
        if old.name not in hidden or number > last or not has_labels:
            continue
        new = now.columns.get(number)
        if new is None or new.name != old.name or new.name not in still:
            yield LoseEvents(
                verdict=Verdict.BOOTSTRAP,
                why="at a new label of an enum, the connector takes the columns behind it for other"
                " ones, and its name no longer shows this",
                fact=f"generated column {old.name!r} was dropped, renamed or redefined",
            )
