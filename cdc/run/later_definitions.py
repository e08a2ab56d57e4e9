"""Finds events that PostgreSQL's connector may have decoded by a later definition of their table.

When Debezium 3.7.0 meets an enum label that it does not know, it reads the table's definition from
the current catalog. The event can be older than this definition. The definition can then differ
from the event's own definition in two ways:

- The definition has generated columns, which the log withholds (`schemas.withheld_columns`).
- Columns may have been dropped, added or renamed after the event. Until the server describes the
  table again, the connector assigns a row's values to the columns by their order.

If the connector has read a definition in this way, the event's schema has an enum label that no
earlier schema of the table has. There are two exceptions. In these cases, Debezium never knows the
label, so it reads the definition at each event with the label:

- The label is of a domain over an enum.
- The enum was created under the name of another enum, which lacks the label. A table with such an
  enum is not followed until a copy has restarted the connector (`cdc.capture.type_looks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.errors import SchemaChangeError
from cdc.rows.columns import OFFSET, SCHEMA_ID, TRANSACTION
from schemas.withheld_columns import misplacing, withheld

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.lake.handoff import Handoff
    from schemas.avro import DebeziumSchema
    from schemas.table import TableId

_ENUM, _LABELS = "io.debezium.data.Enum", "allowed"
_SIGN = 1 << 31


@dataclass(frozen=True)
class LaterDefinitions:
    """The changes of a table's definition that a run compares with the schemas of events.

    Args:
        withheld: The columns that the log withholds.
        written: The renamed columns, and the new columns that have a default. Each column
            is mapped to the newest transaction that changed the column's definition.
        dropped: The lake's columns that the source has dropped.
        dropped_by: The newest transaction that dropped a column; None if it is not known.
        over_enums: The columns whose type is a domain over an enum.
    """

    withheld: frozenset[str] = frozenset()
    written: Mapping[str, int] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    dropped_by: int | None = None
    over_enums: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, handoff: Handoff, dropped_by: str = "", *, replayed: bool = False
    ) -> LaterDefinitions:
        """Return the changes of a table's definition that the lake's newest commit records.

        Args:
            handoff: The handoff document of that commit.
            dropped_by: The newest transaction that dropped a column; empty if it is not known.
            replayed: Whether the batch is of a replay. The events of a replay can be older than
                every change of the table since the copy.
        """
        if handoff.fingerprint.facts["source_kind"] != "postgres":
            return cls()
        catalog = handoff.catalog
        by_name = {one.name: one for one in catalog.columns.values()}
        changed = {
            one.name
            for one in handoff.columns
            if (one.fill is not None and (one.late or (one.added and replayed)))
            or one.renamed
            or (one.former and replayed)
        }
        return cls(
            withheld=withheld(catalog),
            written={name: int(by_name[name].written) for name in changed & by_name.keys()},
            dropped=frozenset(one.name for one in handoff.columns if one.dropped),
            dropped_by=int(dropped_by) if dropped_by else None,
            over_enums=frozenset(name for name, one in by_name.items() if one.domain),
        )

    def require_places(self, table: TableId, written: Mapping[int, DebeziumSchema]) -> None:
        """Refuse a batch with events that have values in wrong columns due to a withheld column.

        Args:
            table: The table.
            written: The writers' schemas of the batch, by id.

        Raises:
            SchemaChangeError: There is such an event. The error names its schema and the withheld
                column.
        """
        for schema_id, writer in written.items():
            names = [one.column for one in writer.after]
            if name := misplacing(names, self.withheld):
                raise SchemaChangeError(
                    f"events of table {table} with schema id {schema_id} have the generated column"
                    f" {name!r}, which the log does not carry: the connector read the table's"
                    " definition again at a new label of an enum, and each column behind"
                    f" {name!r} has another column's value since",
                    remedy=f"Run `tributary bootstrap {table}`: it restarts the connector, and the"
                    " new copy replaces what came wrong.",
                    table=table,
                    schema_id=schema_id,
                    field=name,
                )

    def doubts(
        self, written: Mapping[int, DebeziumSchema], before: Mapping[int, DebeziumSchema]
    ) -> dict[int, int]:
        """Return which events the connector may have decoded by a later definition of the table.

        The result is incomplete in one case: it leaves out the events of a transaction that began
        after the ALTER TABLE's transaction began, and committed before the ALTER TABLE's
        transaction committed.

        Args:
            written: The writers' schemas of a batch, by id.
            before: The writers' schemas of the previous batch, by id.

        Returns:
            For each schema id, the id of a transaction. An event with this schema may have been
            decoded by a later definition if it is of this transaction or of an older one.
        """
        found = {}
        for schema_id, writer in written.items():
            labels = _enum_labels(writer)
            others = {n: one for n, one in before.items() if n != schema_id}
            if not labels or self._is_described(labels, others):
                continue
            until = [xid for name, xid in self.written.items() if writer.field(name) is not None]
            if self.dropped_by is not None and self._lacks_column(writer, before):
                until.append(self.dropped_by)
            if until:
                found[schema_id] = max(
                    until, key=lambda xid: (xid - until[0] + _SIGN) % (2 * _SIGN)
                )
        return found

    def _lacks_column(self, writer: DebeziumSchema, before: Mapping[int, DebeziumSchema]) -> bool:
        """Whether a writer's schema lacks a column that the table had earlier.

        The schemas of the previous batch show the earlier columns, including columns that the
        settings leave out of the lake. The first batch after a copy has no previous batch; its
        schema is compared with the dropped columns of the lake.
        """
        had = {field.column for one in before.values() for field in one.after} - self.withheld
        return any(writer.field(name) is None for name in (had if before else self.dropped))

    def _is_described(
        self, labels: Mapping[str, str], others: Mapping[int, DebeziumSchema]
    ) -> bool:
        """Whether the connector decoded a schema's events by the definition that the server sent.

        This is so if an earlier schema has the same enum labels. For a schema that has a column of
        a domain over an enum, the answer is False.

        Args:
            labels: For each enum column in the schema, the column's labels.
            others: The earlier schemas of the table, by id.
        """
        if self.over_enums & labels.keys():
            return False
        return any(labels.items() <= _enum_labels(one).items() for one in others.values())


def _enum_labels(writer: DebeziumSchema) -> dict[str, str]:
    """Return the labels of each enum column in a writer's schema."""
    return {
        one.column: one.parameters.get(_LABELS, "")
        for one in writer.after
        if one.connect_name == _ENUM
    }


def require_own_definition(table: TableId, changes: DataFrame, doubts: Mapping[int, int]) -> None:
    """Refuse a batch with an event that the connector may have decoded by a later definition.

    Args:
        table: The table.
        changes: The batch in the normal form of `cdc.rows.decode`.
        doubts: The result of `LaterDefinitions.doubts`.

    Raises:
        SchemaChangeError: There is such an event. The error names its offset.
    """
    found = _first_in_doubt(changes, [*doubts.items()]) if doubts else None
    if found is None:
        return
    offset, schema_id = found
    raise SchemaChangeError(
        f"an event of table {table} (offset {offset}, schema id {schema_id}) may be older than its"
        " columns: the connector read the table's definition again at a new label of an enum, and"
        " other columns of the table were dropped, renamed or added with a default meanwhile",
        remedy=f"Copy the table again: `tributary bootstrap {table}`.",
        table=table,
        offset=offset,
        schema_id=schema_id,
    )


def _first_in_doubt(
    changes: DataFrame, doubts: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Return offset and schema id of the first event possibly decoded by a later definition.

    None if there is no such event.
    """
    doubtful = F.lit(False)
    for schema_id, until in doubts:
        # The server orders the lower 32 bits of transaction ids in a circle.
        older = (F.lit(until).cast("bigint") - F.col(TRANSACTION)).bitwiseAND(_SIGN) == 0
        doubtful = doubtful | ((F.col(SCHEMA_ID) == schema_id) & older)
    row = changes.filter(doubtful).orderBy(OFFSET).select(OFFSET, SCHEMA_ID).first()
    return None if row is None else (int(row[0]), int(row[1]))
