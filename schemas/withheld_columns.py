"""Finds events with values in wrong columns, which generated columns can cause.

PostgreSQL's WAL withholds the generated columns that the publication does not add: the rows in the
WAL have no values of these columns. When Debezium 3.7.0 finds an unknown label of an enum, Debezium
reads the table's definition from the catalog. This definition has all generated columns. Debezium
then assigns a row's values to the columns by their order. For example, let ``g`` be generated in a
table with the columns ``a``, ``g``, ``b`` and ``c``. The WAL has the values of ``a``, ``b`` and
``c``. In the event, ``g`` has the value of ``b``, and ``b`` has the value of ``c``. The values stay
in wrong columns until the server describes the table again: after ALTER TABLE, or for a new session
of the connector.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from schemas.catalog import LABEL, Catalog
from schemas.changes import LoseEvents, Verdict


def withheld(catalog: Catalog) -> frozenset[str]:
    """Return the generated columns that PostgreSQL's WAL withholds; empty for other sources."""
    if catalog.source_kind != "postgres":
        return frozenset()
    generated = {one.name for one in catalog.columns.values() if one.generated}
    return frozenset(generated - {*catalog.sent_generated})


def misplacing(names: Sequence[str], hidden: Collection[str]) -> str | None:
    """Return the first withheld column if it gets another column's value in an event; else None.

    The WAL has no value for this column, so the values of later columns move up. If the WAL has no
    values of later columns, nothing moves, and the result is None.

    Args:
        names: The columns of a table's definition, or of an event, in order.
        hidden: The columns that the WAL withholds.
    """
    first = next((place for place, name in enumerate(names) if name in hidden), len(names))
    if all(name in hidden for name in names[first:]):
        return None
    return names[first]


def no_longer_withheld(before: Catalog, now: Catalog) -> Iterator[LoseEvents]:
    """Yield a change for each withheld column that was dropped, renamed or redefined.

    If the schema of an event has the name of a withheld column, a run knows that the event's values
    can be in wrong columns. After the change, no withheld column has this name. A run would then
    accept earlier events whose values are in wrong columns. Nothing is yielded for a table without
    an enum, or for a withheld column that no column of the WAL follows: in these cases, no values
    are in wrong columns.

    Args:
        before: The catalog that the lake follows.
        now: The catalog now.
    """
    columns = {**before.columns, **now.columns}
    has_labels = any(part.startswith(LABEL) for one in columns.values() for part in one.parts)
    hidden, still = withheld(before), withheld(now)
    others = (one.number or 0 for one in columns.values() if one.name not in hidden | still)
    last = max(others, default=0)
    for old, new in now.column_pairs(before):
        if old is None or old.name not in hidden or (old.number or 0) > last or not has_labels:
            continue
        if new is None or new.name != old.name or new.name not in still:
            yield LoseEvents(
                verdict=Verdict.BOOTSTRAP,
                why="at a new label of an enum, the connector takes the columns behind it for other"
                " ones, and its name no longer shows this",
                fact=f"generated column {old.name!r} was dropped, renamed or redefined",
            )
