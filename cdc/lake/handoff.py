"""The handoff document, which the end of a copy creates and each later commit of the table has.

All code creates, reads and changes the document through the types of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from cdc.config.partitions import PartitionField, partition_field
from cdc.errors import StateError
from cdc.lake.key_text import key_form
from cdc.rows.masking import key_check
from cdc.store.attempt import CopyView
from cdc.store.documents import Part
from cdc.store.recorded_change import RecordedChange
from cdc.store.table_state import LakeField
from schemas.catalog import Catalog
from schemas.changes import Change, RenameColumn, Verdict
from schemas.evolution import LakeColumns
from schemas.fingerprint import Fingerprint
from schemas.table import DROPPED, Column, TableId, TableSchema

if TYPE_CHECKING:
    from cdc.config import LakeConfig
    from cdc.lake.layout import LakeLayout
    from cdc.store.attempt import Attempt
    from schemas.avro import DebeziumSchema

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class LakeColumn(Part):
    """A column of a lake table.

    Args:
        name: The column's name.
        source: The column's type as the source prints it; ``DROPPED`` if the source no longer has
            the column.
        lake: The column's Spark SQL type in the lake.
        read_by_key: Whether runs read the column's values from the source by key, instead of from
            events.
        hide: How the lake hides the values: ``hash`` or ``mask``; empty if the values are not
            hidden.
        plain: The Spark SQL type of the values before they are hidden; empty if they are not
            hidden.
        late: Whether events that runs have not read yet can lack the column, since it is new.
        added: Whether the column was added after the copy. If so, replayed events can lack it.
        fill: Spark SQL expression for the column's value in rows and events from before the column
            was added; None for NULL.
        renamed: Whether events that runs have not read yet can have the column under a former name.
        former: The column's former names, newest first.
    """

    name: str
    source: str
    lake: str
    read_by_key: bool = False
    hide: str = ""
    plain: str = ""
    late: bool = False
    added: bool = False
    fill: str | None = None
    renamed: bool = False
    former: tuple[str, ...] = ()

    @property
    def dropped(self) -> bool:
        """Whether the source no longer has the column."""
        return self.source == DROPPED

    @classmethod
    def of(cls, column: Column) -> LakeColumn:
        """Return the lake column that a copy creates for a source column."""
        return cls(
            column.name,
            column.source_type,
            column.lake_type,
            read_by_key=column.read_by_key,
            hide=column.hide,
            plain=column.plain if column.hide else "",
        )

    def with_name(self, change: RenameColumn) -> LakeColumn:
        """Return the lake column after a rename. ``late``, ``added`` and ``fill`` do not change."""
        former = (*change.former, *self.former)
        return replace(self, name=change.to, renamed=True, former=former)

    def as_in(self, column: Column) -> LakeColumn:
        """Return a lake column for the source's ``column``, with five values of this lake column.

        The five values are ``late``, ``added``, ``fill``, ``renamed`` and ``former``.
        """
        return replace(
            LakeColumn.of(column),
            late=self.late,
            added=self.added,
            fill=self.fill,
            renamed=self.renamed,
            former=self.former,
        )

    def as_dropped(self) -> LakeColumn:
        """Return the lake column after its source column was dropped."""
        return LakeColumn(self.name, DROPPED, self.lake)


@dataclass(frozen=True)
class FollowedSchema(Part):
    """The newest change of the source's schema that the lake has followed.

    Args:
        version: Number of the schema in the table's generation; the copy's schema is version 1.
        at: Time of the commit that followed the change, in UTC.
        schema_ids: Registry ids of the writers' schemas in the last batch before the change.
        changes: The changes.
    """

    version: int
    at: datetime
    schema_ids: tuple[int, ...]
    changes: tuple[RecordedChange, ...]


@dataclass(frozen=True)
class Handoff(Part):
    """The handoff document: the positions of a table's copy, and the schema that the lake follows.

    The commit that ends the copy has the document in its metadata, and so has each later commit.

    Args:
        start_offsets: O, the first offset that the stream applies, by partition.
        handoff_offsets: H, the offset at which everything up to R was captured, by partition.
        reads_upto: R as a string, an upper bound of the position that the copy contains.
        x0: x0 as a string, the transaction id before which every transaction has ended. For MySQL
            and MariaDB, the id of a marker: only transactions before this marker can be captured in
            part.
        marker_id: Id of M, the marker row that the copy's view contains.
        topic_id: UUID of the table's topic.
        statements_upto: End offset of the topic of DDL statements, read before O; None if the
            connector has no such topic.
        statements_topic_id: UUID of the topic of DDL statements; None if there is no such topic.
        view: The view of the source that was copied.
        fingerprint: The facts in the source's catalog from which the lake's columns were derived.
        columns: The lake's columns: first the source's columns, then the columns that the source no
            longer has.
        key: Names of the columns that identify a row; empty for an append table.
        key_text: Version of the rules by which Tributary renders the record key
            (`cdc.lake.key_text.FORM`); None if Hudi renders it.
        partition_by: The lake table's partitions, in compact form, as `PartitionField` writes
            them; for a shard, without the shard column.
        hash_key: A digest that identifies the secret key by which columns are hashed; None if no
            column is hashed.
        schema: The newest schema change that the lake has followed; None if there is none.
    """

    start_offsets: Mapping[int, int]
    handoff_offsets: Mapping[int, int]
    reads_upto: str
    x0: str
    marker_id: UUID
    topic_id: str | None
    statements_upto: int | None
    statements_topic_id: str | None
    view: CopyView
    fingerprint: Fingerprint
    columns: tuple[LakeColumn, ...]
    key: tuple[str, ...]
    key_text: int | None = None
    partition_by: tuple[str, ...] = ()
    hash_key: str | None = None
    schema: FollowedSchema | None = None

    @classmethod
    def of_copy(
        cls, attempt: Attempt, layout: LakeLayout, *, shared: bool, hash_key: str | None
    ) -> Handoff:
        """Return the handoff document for the end of an attempt's copy.

        Args:
            attempt: The attempt.
            layout: The layout of the rows that the attempt copied.
            shared: Whether the rows are written to a table that several shards share.
            hash_key: The result of :func:`hash_key_of`.

        Raises:
            StateError: The attempt lacks O, H, R or x0 (see `Handoff`), its marker, its view or the
                catalog.
        """
        schema = layout.schema

        def recorded(value: _Value | None, what: str) -> _Value:
            if value is None:
                raise _incomplete_handoff_error(schema.table, attempt, what)
            return value

        return cls(
            start_offsets=recorded(attempt.start_offsets, "O"),
            handoff_offsets=recorded(attempt.handoff_offsets, "H"),
            reads_upto=recorded(attempt.reads_upto, "R"),
            x0=recorded(attempt.x0, "x0"),
            marker_id=recorded(attempt.marker_id, "its marker"),
            topic_id=attempt.topic_id,
            statements_upto=attempt.statements_upto,
            statements_topic_id=attempt.statements_topic_id,
            view=recorded(attempt.view, "its view"),
            fingerprint=recorded(attempt.fingerprint, "the catalog"),
            columns=tuple(map(LakeColumn.of, schema.columns)),
            key=schema.key,
            key_text=key_form(map(schema.column, schema.key), shared=shared),
            partition_by=tuple(map(str, layout.partition_by)),
            hash_key=hash_key,
        )

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """The lake table's partitions, as the settings name them."""
        return tuple(map(partition_field, self.partition_by))

    @property
    def catalog(self) -> Catalog:
        """The source's catalog as of the newest schema that the lake follows."""
        return Catalog.read(self.fingerprint.facts)

    @property
    def version(self) -> int:
        """The version of the schema that the lake follows; 1 if it is still the copy's schema."""
        return 1 if self.schema is None else self.schema.version

    @property
    def lake_columns(self) -> LakeColumns:
        """The lake's columns, for the comparison with the source's columns."""
        return LakeColumns(
            {one.name: one.lake for one in self.columns},
            dropped=frozenset(one.name for one in self.columns if one.dropped),
            read_by_key=frozenset(one.name for one in self.columns if one.read_by_key),
            hidden={one.name: (one.hide, one.plain) for one in self.columns if one.hide},
        )

    @property
    def fields(self) -> tuple[LakeField, ...]:
        """The lake's columns, as the state store describes them."""
        return tuple(LakeField(one.name, one.lake, one.source, one.hide) for one in self.columns)

    def lake_schema(self, table: TableId) -> TableSchema:
        """Return the lake's columns as a schema that has lake types in place of source types."""
        columns = (Column(one.name, one.lake, one.lake) for one in self.columns)
        return TableSchema(table, tuple(columns), self.key)

    def carried(self, schema: TableSchema) -> TableSchema:
        """Return a source's schema, extended by the columns that only the lake still has.

        Args:
            schema: The source's schema.
        """
        names = {column.name for column in schema.columns}
        kept = (
            Column(one.name, DROPPED, one.lake) for one in self.columns if one.name not in names
        )
        return replace(schema, columns=(*schema.columns, *kept))

    def next_schema(
        self, changes: Sequence[Change], *, at: datetime, schema_ids: Sequence[int]
    ) -> FollowedSchema:
        """Return the schema that the lake follows after a change.

        Args:
            changes: The source's changes since the schema that the lake follows now.
            at: The current time, in UTC.
            schema_ids: Registry ids of the writers' schemas in the last batch.
        """
        recorded = tuple(map(RecordedChange.of, changes))
        return FollowedSchema(self.version + 1, at, tuple(schema_ids), recorded)

    def after_schema_change(
        self,
        wanted: Iterable[Column],
        changes: Sequence[Change],
        fingerprint: Fingerprint,
        *,
        fills: Mapping[str, str],
        schema: FollowedSchema,
        hash_key: str | None,
    ) -> Handoff:
        """Return the handoff document after the lake has followed a schema change.

        A new column is ``late`` until all events of a batch have it. If an event lacks the column,
        the column has the value ``fill`` in the event's row, as in old rows. A new column stays
        ``added`` forever, since replayed events can lack it. A column with a new name is
        ``renamed`` until all events of a batch have it under this name. Older events have it under
        a ``former`` name.

        Args:
            wanted: The columns that the settings replicate.
            changes: The differences between the source's columns and the lake's columns.
            fingerprint: The current facts of the catalog.
            fills: Spark SQL expressions for the values of new columns in old rows, by column name.
            schema: The new schema, from :meth:`next_schema`.
            hash_key: The result of :func:`hash_key_of`.
        """
        had = {one.name: one for one in self.columns}
        renamed = {one.to: had[one.name].with_name(one) for one in renames(changes)}
        columns = []
        for column in wanted:
            new = renamed.get(column.name) or replace(LakeColumn.of(column), late=True, added=True)
            followed = had.pop(column.name, new).as_in(column)
            fill = fills.get(column.name, followed.fill)
            columns.append(replace(followed, fill=fill))
        columns += [one.as_dropped() for one in had.values()]
        return replace(
            self,
            columns=tuple(columns),
            fingerprint=fingerprint,
            hash_key=hash_key or self.hash_key,
            schema=schema if schema.changes else self.schema,
        )

    def without_late_columns(self, written: Mapping[int, DebeziumSchema]) -> Handoff:
        """Return the handoff document after a batch.

        A column that all events of the batch have under its present name is no longer ``late`` or
        ``renamed``. A batch without events changes nothing.

        Args:
            written: The writers' schemas of the batch, by registry id.
        """

        def shown(name: str) -> bool:
            return bool(written) and all(one.field(name) is not None for one in written.values())

        columns = (
            replace(one, late=False, renamed=False)
            if (one.late or one.renamed) and shown(one.name)
            else one
            for one in self.columns
        )
        return replace(self, columns=tuple(columns))


def renames(changes: Iterable[Change]) -> Iterator[RenameColumn]:
    """Yield the renames by which a lake table's columns keep their values under new names."""
    for change in changes:
        if isinstance(change, RenameColumn) and change.verdict is Verdict.FILL:
            yield change


def hash_key_of(columns: Iterable[Column], config: LakeConfig) -> str | None:
    """Return a digest of the secret hash key for the lake's commits; None if no column is hashed.

    Raises:
        SecretError: The key cannot be read.
    """
    return key_check(config) if any(one.hide == "hash" for one in columns) else None


def _incomplete_handoff_error(table: TableId, attempt: Attempt, what: str) -> StateError:
    """Return the error for an attempt that lacks a value of the lake's handoff document."""
    return StateError(
        f"attempt {attempt.id} of table {table} has not recorded {what}, and cannot hand it off",
        remedy=f"The state store was altered: copy the table again, `tributary bootstrap {table}`.",
        table=table,
        field=what,
    )
