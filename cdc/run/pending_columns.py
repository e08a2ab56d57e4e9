"""Columns that the events of a batch may lack, or have under a name of before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.errors import SchemaChangeError

if TYPE_CHECKING:
    from cdc.lake.handoff import Handoff
    from schemas.avro import DebeziumSchema
    from schemas.table import TableSchema


@dataclass(frozen=True)
class LateColumns:
    """How events differ from the lake's columns that are older than these.

    Args:
        absent: By column that an event may lack, Spark SQL of the value that it has there then.
        former: By column that was renamed, the names that an event may have it under, newest
            first.
        new: Those of ``absent`` whose first events this may be.
        known: Names that an event may have beside the lake's columns: of columns that the source
            has now, and of those that the settings leave out.
        ordered: Whether a source's columns never change their places, and events have them in
            that order.
    """

    absent: Mapping[str, str] = field(default_factory=dict)
    former: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    new: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    ordered: bool = False

    @classmethod
    def of(
        cls, handoff: Handoff, known: Iterable[str] = (), *, replayed: bool = False
    ) -> LateColumns:
        """What the newest commit says of it.

        Args:
            handoff: That of the commit.
            known: Names of columns that the source has now, and that the settings leave out.
            replayed: Whether events are read again that may be older than any column of the lake.
        """
        late = {one.name for one in handoff.columns if one.late and not replayed}
        return cls(
            new=frozenset(late),
            known=frozenset(known),
            ordered=bool(handoff.fingerprint.facts.get("numbered", True)),
            absent={
                one.name: one.fill or "NULL"
                for one in handoff.columns
                if one.dropped or (one.added if replayed else one.late)
            },
            former={
                one.name: one.former
                for one in handoff.columns
                if one.former and (replayed or one.renamed)
            },
        )

    def require(self, schema: TableSchema, written: Mapping[int, DebeziumSchema]) -> None:
        """Refuse events without a column that the table had all the time, or with two of it.

        The catalog does not show that a column had another name for a while, and its values of
        that while would become NULL; nor that one which is new had another name at first. Nor does
        it show which of two names was the column's when another one came under its new name and
        went before it was renamed.

        Args:
            schema: The lake's columns.
            written: The writers' schemas of a batch, by id.

        Raises:
            SchemaChangeError: Names the schema and the column.
        """
        for schema_id, writer in written.items():
            self._require_order(schema, schema_id, writer)
            for column in schema.columns:
                if column.asked or not column.live:
                    continue
                names = (column.name, *self.former.get(column.name, ()))
                there = [name for name in names if writer.field(name) is not None]
                if not there and column.name in self.absent:
                    self._require_new(column.name, schema, schema_id, writer)
                    continue
                if len(there) == 1:
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

    def _require_order(self, schema: TableSchema, schema_id: int, writer: DebeziumSchema) -> None:
        """Refuse events that have the columns in another order: names were another column's."""
        live = [column.name for column in schema.columns if column.live and not column.asked]
        places = {name: place for place, name in enumerate(live)}
        places |= {
            former: places[name]
            for name, names in self.former.items()
            if name in places
            for former in names
            if former not in places
        }
        found = [one.column for one in writer.after if one.column in places]
        if not self.ordered or found == sorted(found, key=places.__getitem__):
            return
        raise SchemaChangeError(
            f"events of table {schema.table} with schema id {schema_id} have its columns in another"
            f" order ({', '.join(found)}), which columns never change: some had another one's name"
            " for a while",
            remedy=f"Copy the table again: `tributary bootstrap {schema.table}`.",
            table=schema.table,
            schema_id=schema_id,
        )

    def _require_new(
        self, name: str, schema: TableSchema, schema_id: int, writer: DebeziumSchema
    ) -> None:
        """Refuse events without a new column that have one which nobody knows."""
        former = {one for names in self.former.values() for one in names}
        known = {*self.known, *former, *(column.name for column in schema.columns)}
        expected = [writer.field(column) for column in known]
        strange = [one.column for one in writer.after if one not in expected]
        if name in self.new and strange:
            raise SchemaChangeError(
                f"events of table {schema.table} with schema id {schema_id} have no column"
                f" {name!r}, which is new, and have {', '.join(map(repr, strange))}, which the"
                " table has no more: it may be the new one's name of before",
                remedy=f"Copy the table again: `tributary bootstrap {schema.table}`.",
                table=schema.table,
                schema_id=schema_id,
                field=name,
            )
