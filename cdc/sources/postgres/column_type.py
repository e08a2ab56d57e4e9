"""The parsed types of a PostgreSQL table's columns."""

from __future__ import annotations

from typing import cast

from cdc.sources.source_facts import SourceColumn
from schemas.types_postgres import PostgresType


def type_of(column: SourceColumn) -> PostgresType:
    """Return the type of a PostgreSQL source's column, which is always a `PostgresType`."""
    return cast("PostgresType", column.type)


def plain_type_of(column: SourceColumn) -> PostgresType:
    """Return a PostgreSQL column's type or, if it is a domain, the type under all its domains."""
    kind = type_of(column)
    while kind.kind == "d" and kind.base is not None:
        kind = kind.base
    return kind
