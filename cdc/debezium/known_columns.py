"""Columns of a table as Debezium's connector of MySQL or MariaDB knows them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.table import TableId

_ID = re.compile(r'"((?:[^"]|"")*)"\."((?:[^"]|"")*)"')


@dataclass(frozen=True)
class KnownColumn:
    """A column of a table, in the definition by which Debezium interprets the table's rows.

    Args:
        name: The column's name.
        type_name: The column's type as in the DDL statement, for example ``INT UNSIGNED``.
        length: Length or precision; None if the DDL statement has none.
        scale: Scale; None if the DDL statement has none.
        charset: Character set of the column's strings; None if the connector knows none.
        nullable: Whether the column may be NULL.
        labels: The labels of an ENUM or SET, in quotes, as the statement has them.
    """

    name: str
    type_name: str
    length: int | None
    scale: int | None
    charset: str | None
    nullable: bool
    labels: tuple[str, ...] = ()


def table_of(quoted: str, source: str) -> TableId:
    """Parse a table's name as Debezium writes it, for example ``"shop"."orders"``.

    Raises:
        ValueError: The name has another format.
    """
    match = _ID.fullmatch(quoted)
    if match is None:
        raise ValueError(f"{quoted} names no table")
    return TableId(source, *(name.replace('""', '"') for name in match.groups()))


def known_columns(table: Mapping[str, Any]) -> Iterator[KnownColumn]:
    """Yield the columns in Debezium's definition of a table, in the order of the table."""
    for column in sorted(table["columns"], key=lambda one: int(one["position"])):
        yield KnownColumn(
            name=column["name"],
            type_name=column["typeName"],
            length=column.get("length"),
            scale=column.get("scale"),
            charset=column.get("charsetName"),
            nullable=bool(column["optional"]),
            labels=tuple(column.get("enumValues") or ()),
        )
