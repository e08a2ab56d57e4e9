"""Columns that the events of a batch may lack, or have under a name of before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cdc.errors import SchemaChangeError
from schemas.table import DROPPED

if TYPE_CHECKING:
    from schemas.avro import DebeziumSchema
    from schemas.table import TableSchema


@dataclass(frozen=True)
class LateColumns:
    """How events differ from the lake's columns that are older than these.

    Args:
        absent: By column that an event may lack, Spark SQL of the value that it has there then.
        former: By column that was renamed, the names that an event may have it under, newest
            first.
    """

    absent: Mapping[str, str] = field(default_factory=dict)
    former: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, handoff: Mapping[str, Any], *, replayed: bool = False) -> LateColumns:
        """What the newest commit says of it.

        Args:
            handoff: As that commit has it.
            replayed: Whether events are read again that may be older than any column of the lake.
        """
        columns = handoff["columns"]
        return cls(
            absent={
                str(one["name"]): str(one.get("fill", "NULL"))
                for one in columns
                if one["source"] == DROPPED or one.get("added" if replayed else "late")
            },
            former={
                str(one["name"]): tuple(map(str, one["former"]))
                for one in columns
                if one.get("former") and (replayed or one.get("renamed"))
            },
        )

    def require(self, schema: TableSchema, written: Mapping[int, DebeziumSchema]) -> None:
        """Refuse events without a column that the table had all the time, or with two of it.

        The catalog does not show that a column had another name for a while, and its values of
        that while would become NULL. Nor does it show which of two names was the column's when
        another one came under its new name and went before it was renamed.

        Args:
            schema: The lake's columns.
            written: The writers' schemas of a batch, by id.

        Raises:
            SchemaChangeError: Names the schema and the column.
        """
        for schema_id, writer in written.items():
            for column in schema.columns:
                if column.asked or not column.live:
                    continue
                names = (column.name, *self.former.get(column.name, ()))
                there = [name for name in names if writer.field(name) is not None]
                if len(there) == 1 or (not there and column.name in self.absent):
                    continue
                raise SchemaChangeError(
                    f"events of table {schema.table} with schema id {schema_id} have no column"
                    f" {column.name!r}, which it had before and has now: it had another name for a"
                    " while"
                    if not there
                    else f"events of table {schema.table} with schema id {schema_id} have columns"
                    f" {' and '.join(map(repr, there))}, and nothing tells which of them is"
                    f" {column.name!r} now",
                    remedy=f"Copy the table again: `tributary bootstrap {schema.table}`.",
                    table=schema.table,
                    schema_id=schema_id,
                    field=column.name,
                )


def settled(handoff: Mapping[str, Any], written: Mapping[int, DebeziumSchema]) -> dict[str, Any]:
    """The handoff after a batch: a column that all its events had is late no more.

    Args:
        handoff: As the commit before has it.
        written: The writers' schemas of the batch.
    """

    def shown(name: str) -> bool:
        return bool(written) and all(one.field(name) is not None for one in written.values())

    columns = [
        {key: value for key, value in one.items() if key not in ("late", "renamed")}
        if shown(str(one["name"]))
        else one
        for one in handoff["columns"]
    ]
    return {**handoff, "columns": columns}
