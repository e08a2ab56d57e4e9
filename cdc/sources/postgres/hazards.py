"""Finds columns whose values stop Debezium 3.7's connector, and so the capture of the whole tier.

A tier has all tables that share the connector. Excluding such a column from the lake does not help,
since the connector still reads the column. Reading the column as text does not help, either.
"""

from __future__ import annotations

from collections.abc import Sequence

from cdc.sources.postgres.column_type import plain_type_of, type_of
from cdc.sources.source_facts import ReplicaIdentity, SourceColumn
from schemas.types_postgres import PostgresType

# Element types of arrays for which the connector has a placeholder. It sends the placeholder for a
# large value that an update leaves unchanged.
_WITH_STAND_IN = frozenset(
    ("int4", "int8", "text", "varchar", "bpchar", "json", "jsonb", "bytea", "uuid", "date")
)
# Element types of arrays that the connector leaves out of events.
_NOT_SENT = frozenset(("interval", "money", "xml", "name", "point", "line", "box", "polygon"))
_LARGE_WITHOUT_STAND_IN = frozenset(
    (
        *("bit", "varbit", "polygon", "path"),
        *("vector", "halfvec", "sparsevec", "geometry", "geography"),
    )
)
_NEVER_SENT = {
    "interval": "an interval of more than 2,147,483,647 hours",
    "timetz": "a time whose offset has seconds (+05:30:15)",
}
"""For each type, the values that the connector cannot send.

The connector sends no arrays of intervals.
"""


def hazards(columns: Sequence[SourceColumn], identity: ReplicaIdentity) -> tuple[str, ...]:
    """Return a sentence for each PostgreSQL column whose values can stop the source's connector.

    Args:
        columns: The table's columns in the catalog.
        identity: The table's replica identity.
    """
    found = []
    for column in columns:
        if column.generated:
            continue
        of_domain = type_of(column).kind == "d"
        kind = plain_type_of(column)
        reasons = _unsendable_values(kind)
        if identity != "full" and _lacks_stand_in(kind, of_domain=of_domain):
            reasons.append(
                "a large value that an update leaves unchanged (REPLICA IDENTITY FULL avoids it for"
                " later updates; columns.as and columns.exclude do not)"
            )
        if reasons:
            found.append(
                f"column {column.name} ({column.type}) stops the connector of its tier at"
                f" {' and at '.join(reasons)}"
            )
    return tuple(found)


def _unsendable_values(kind: PostgresType) -> list[str]:
    """Return which values of a PostgreSQL source's column the connector can never send."""
    element = kind.element
    if element is None or element.name == "timetz":
        name = (element or kind).name
        return [_NEVER_SENT[name]] if name in _NEVER_SENT else []
    if element.name == "bit":
        return ["any value"]
    if element.kind == "e" or element.name == "tsvector":
        return ["a NULL in the array"]
    return ["a NaN in the array"] if element.name == "numeric" else []


def _lacks_stand_in(kind: PostgresType, *, of_domain: bool) -> bool:
    """Whether the connector has no placeholder for a large value of a PostgreSQL source's column.

    Without a placeholder, the connector fails at a large value that an update leaves unchanged.

    Args:
        kind: The column's type without its domains.
        of_domain: Whether the column's type is a domain. The connector does not recognize an array
            under a domain, so it has no placeholder for such an array.
    """
    element = kind.element
    if element is None:
        return kind.name in _LARGE_WITHOUT_STAND_IN and not (
            kind.name == "bit" and kind.typmod == 1
        )
    sent = element.kind in ("b", "e", "r") and element.name not in _NOT_SENT
    return sent and (of_domain or element.name not in _WITH_STAND_IN)
