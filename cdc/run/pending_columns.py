"""Columns that the events of a batch can lack, or have under a former name."""

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
    """The differences that a run allows between the lake's columns and the columns of older events.

    Args:
        absent: For each column that events can lack, Spark SQL of the value that then applies.
        former: For each renamed column, the former names under which an event can have the column,
            newest first.
        new: The columns of ``absent`` that are new in the table; empty in a replay.
        known: Names of other fields that an event can have: the source's current columns, and
            columns that the settings leave out.
        ordered: Whether the source never changes the order of a table's columns, and events have
            the columns in this order.
        numbered: Names of the source's columns in the order in which they were added; empty if the
            source is not PostgreSQL.
    """

    absent: Mapping[str, str] = field(default_factory=dict)
    former: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    new: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    ordered: bool = False
    numbered: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, handoff: Handoff, known: Iterable[str] = (), *, replayed: bool = False
    ) -> LateColumns:
        """Return the differences that a run allows, by what the lake's newest commit records.

        Args:
            handoff: The handoff document of that commit.
            known: Names of the source's current columns, and of columns that the settings leave
                out.
            replayed: Whether the batch is of a replay. The events of a replay can be older than any
                added column.
        """
        late = {one.name for one in handoff.columns if one.late and not replayed}
        facts = handoff.fingerprint.facts
        ordered = facts["source_kind"] == "postgres"
        columns = facts.get("columns", {}) if ordered else {}
        return cls(
            new=frozenset(late),
            known=frozenset(known),
            ordered=ordered,
            numbered=tuple(columns[number]["name"] for number in sorted(columns, key=int)),
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
        """Refuse a batch with events that lack a required column or have two candidates for it.

        The catalog does not show these cases:

        - A column had another name for a while. Its values from that time would become NULL.
        - A new column ``b`` was first named ``a``. Today, a column that was added after ``b`` can
          be named ``a``.
        - Before a rename, another column had the new name and was dropped. Older events have both
          names, and nothing shows which of the two names belongs to the renamed column.

        Args:
            schema: The lake's columns.
            written: The writers' schemas of a batch, by id.

        Raises:
            SchemaChangeError: There is such an event. The error names its schema and the column.
        """
        for schema_id, writer in written.items():
            self._require_order(schema, schema_id, writer)
            for column in schema.columns:
                if column.read_by_key or not column.live:
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
                    f" {' and '.join(map(repr, there))}, and any of them may be"
                    f" {column.name!r} now",
                    remedy=f"Copy the table again: `tributary bootstrap {schema.table}`.",
                    table=schema.table,
                    schema_id=schema_id,
                    field=column.name,
                )

    def _require_order(self, schema: TableSchema, schema_id: int, writer: DebeziumSchema) -> None:
        """Refuse a batch with events whose column order shows that two columns exchanged names."""
        live = [column.name for column in schema.columns if column.live and not column.read_by_key]
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
            f" order ({', '.join(found)}), so some columns had another one's name for a while",
            remedy=f"Copy the table again: `tributary bootstrap {schema.table}`.",
            table=schema.table,
            schema_id=schema_id,
        )

    def _require_new(
        self, name: str, schema: TableSchema, schema_id: int, writer: DebeziumSchema
    ) -> None:
        """Refuse a batch with events that lack a new column, but may have it under a former name.

        A field's name may be a former name of the new column in two cases: the table has no column
        of that name now, or the column of that name was added after the new column.
        """
        former = {one for names in self.former.values() for one in names}
        known = {*self.known, *former, *(column.name for column in schema.columns)}
        expected = [writer.field(column) for column in known]
        strange = [one.column for one in writer.after if one not in expected]
        after = self.numbered[self.numbered.index(name) + 1 :] if name in self.numbered else ()
        if later := [one for one in after if writer.field(one) is not None]:
            raise SchemaChangeError(
                f"events of table {schema.table} with schema id {schema_id} have no column"
                f" {name!r}, which is new, and have {', '.join(map(repr, later))}, which was added"
                f" after it: that may be the former name of {name!r}",
                remedy=f"Copy the table again: `tributary bootstrap {schema.table}`.",
                table=schema.table,
                schema_id=schema_id,
                field=name,
            )
        if name in self.new and strange:
            raise SchemaChangeError(
                f"events of table {schema.table} with schema id {schema_id} have no column"
                f" {name!r}, which is new, and have {', '.join(map(repr, strange))}, which the"
                f" table no longer has: that may be the former name of {name!r}",
                remedy=f"Copy the table again: `tributary bootstrap {schema.table}`.",
                table=schema.table,
                schema_id=schema_id,
                field=name,
            )
