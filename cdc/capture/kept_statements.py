"""Keeps, in the state store, the DDL statements that connectors have reported.

Users wrote the texts of the statements. A text is stored only if a run can need it, and passwords
are removed from it. Debezium reports the statements on all tables. These include tables of engines
that read another server, such as FEDERATED, and a statement on such a table can have a password.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, overload

from cdc.debezium import DefinitionChange, KnownColumn, TopicRead
from cdc.errors import StateError
from cdc.store.statements import (
    STATEMENT_COLUMNS,
    StatementRows,
    StoredChange,
    StoredColumn,
    StoredColumns,
    StoredRead,
    StoredRecord,
)
from schemas.ddl.mysql_secrets import without_passwords
from schemas.table import TableId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.debezium import CaptureNames
    from cdc.store.state_store import Store
    from cdc.store.statements import StoredStatements

_log = logging.getLogger(__name__)

_READING = 2
"""Version of the code that reads statements. With a new value, all statements are read again.

Increase it with each change of what `cdc.debezium.definitions` derives from a record, and of the
texts that `without_passwords` hides.
"""


_MANY = 1000
"""Minimum number of records that are deleted at a time because no run can need them."""


def needless_offsets(
    changes: Iterable[DefinitionChange], on_record: Collection[tuple[str, str]]
) -> list[int]:
    """Return the offsets of the records that no run and no command can need, in order.

    Applications create and drop tables that are not on the plan, for example each night. Such a
    table can be onboarded later. Its copy then begins after all statements that were read until
    now. So only the connector's present definition of the table is needed: the newest record, or
    none at all after a DROP. These records are always needed:

    - those on tables with a record, since a lake restored from a backup needs the statements since
      its own newest commit, however long ago that is;
    - those that change a table which they do not name, and those that name none;
    - those of snapshots, the last record before a snapshot, and the last record of all: by them
      `fresh_starts` finds the starts of the connector without its position.

    Args:
        changes: The changes in all records that were read, in the order of the binlog.
        on_record: Schema and name of each table that has a record in the state store, whatever its
            source and state.
    """
    known = {_folded(*one) for one in on_record}
    records: dict[int, list[DefinitionChange]] = {}
    for change in changes:
        records.setdefault(change.offset, []).append(change)
    newest: dict[TableId, DefinitionChange] = {}
    fixed: set[int] = set()
    before = -1
    for offset, found in records.items():
        newest.update((one.table, one) for one in found if one.table is not None)
        if len(found) > 1 or any(_always_needed(one, known) for one in found):
            fixed.add(offset)
        if any(one.snapshot for one in found):
            fixed.add(before)
        before = offset
    fixed.add(before)
    # Without the DROP, an earlier record that stays would show the table as known.
    staying = {one.table for offset in fixed for one in records.get(offset, ())}
    return [
        offset
        for offset, (first, *_) in records.items()
        if offset not in fixed
        and first.table is not None
        and (
            newest[first.table] is not first
            or (first.kind == "DROP" and first.table not in staying)
        )
    ]


def _always_needed(change: DefinitionChange, known: Collection[tuple[str, str]]) -> bool:
    """Whether a reported DDL statement is needed even if a later one changes the same table.

    Args:
        change: The change.
        known: The tables with a record, as `_folded` returns them.
    """
    table = change.table
    if table is None or change.snapshot or change.beside is not None:
        return True
    return _folded(table.schema, table.name) in known


def _folded(schema: str, name: str) -> tuple[str, str]:
    """Return schema and name of a table in a form that does not depend on letter case."""
    return schema.casefold(), name.casefold()


class StatementsInStore:
    """The DDL statements that all processes of a state store have read (see `KeptStatements`).

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        formats = f"{StoredRecord.format}.{StoredColumns.format}"
        self._rows = StatementRows(
            store, f"{_READING}, formats {formats}, sqlglot {version('sqlglot')}"
        )

    def load(
        self, capture: CaptureNames
    ) -> tuple[TopicRead, tuple[DefinitionChange, ...] | None] | None:
        """Return how far a connector's topic was read, and the changes (see `KeptStatements`).

        Raises:
            StateError: The state store cannot be used.
        """
        found = self._rows.of(capture.schema_change_topic)
        if found is None:
            return None
        read, records = TopicRead(**vars(found.read)), found.records
        if records is None:
            return read, None
        changes = tuple(_changes(records, capture.source))
        if len(records) >= _MANY:
            try:
                self._prune(capture.schema_change_topic, found, changes)
            except StateError as error:
                # What was loaded is complete, and the next process can delete what is left.
                _log.warning("needless statements are not deleted from the store: %s", error)
        return read, changes

    def _prune(
        self, topic: str, stored: StoredStatements, changes: Sequence[DefinitionChange]
    ) -> None:
        """Delete the records that nobody can need, if there are many.

        Args:
            topic: The topic.
            stored: What is stored of it.
            changes: The changes in ``stored``.

        Raises:
            StateError: The state store cannot be used.
        """
        # The records of tables are read after the statements. So if a table gets a record after
        # this moment, its copy begins after all of the statements that are deleted here.
        needless = needless_offsets(changes, self._rows.tables_on_record())
        if len(needless) >= _MANY:
            self._rows.prune(topic, stored, needless)

    def add(
        self,
        capture: CaptureNames,
        before: TopicRead | None,
        now: TopicRead,
        records: Mapping[int, Sequence[DefinitionChange]],
    ) -> None:
        """Keep further records; do nothing if another process has kept some (see `KeptStatements`).

        Raises:
            StateError: The state store cannot be used.
        """
        self._rows.add(
            capture.schema_change_topic,
            None if before is None else StoredRead(**vars(before)),
            StoredRead(**vars(now)),
            {offset: StoredRecord(tuple(map(_stored, one))) for offset, one in records.items()},
        )


class _LazyColumns(Sequence[KnownColumn]):
    """The columns of a stored definition. They are parsed when they are first needed.

    Args:
        text: The text of a `StoredColumns`.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _columns(self) -> tuple[KnownColumn, ...]:
        """The columns.

        Raises:
            StateError: The text does not describe columns.
        """
        found = STATEMENT_COLUMNS.read(self._text, "a stored definition of a table").columns
        return tuple(KnownColumn(**vars(column)) for column in found)

    @overload
    def __getitem__(self, at: int) -> KnownColumn: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[KnownColumn]: ...
    def __getitem__(self, at: int | slice) -> KnownColumn | Sequence[KnownColumn]:
        return self._columns[at]

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._columns == tuple(other)

    def __hash__(self) -> int:
        return hash(self._columns)


def _columns_as_text(columns: Iterable[KnownColumn]) -> str:
    """Return the text of the columns of a connector's definition, for the state store."""
    return STATEMENT_COLUMNS.write(
        StoredColumns(tuple(StoredColumn(**vars(one)) for one in columns))
    )


def _changes(records: Mapping[int, StoredRecord], source: str) -> Iterator[DefinitionChange]:
    """Yield the changes in stored records of a connector's topic, in order.

    Args:
        records: The records by offset, in order.
        source: Key of the source.
    """
    for offset, record in records.items():
        for one in record.changes:
            yield DefinitionChange(
                kind=one.kind,
                table=None if one.table is None else TableId(source, *one.table),
                statement=one.statement,
                gtid=one.gtid,
                snapshot=one.snapshot,
                offset=offset,
                place=one.place,
                columns=_LazyColumns(one.columns) if one.columns else (),
                beside=None if one.beside is None else TableId(source, *one.beside),
            )


def _stored(change: DefinitionChange) -> StoredChange:
    """Return a change by a DDL statement, in the form in which the state store keeps it."""
    table, beside = (
        None if one is None else (one.schema, one.name) for one in (change.table, change.beside)
    )
    return StoredChange(
        kind=change.kind,
        table=table,
        statement=without_passwords(change.statement) if _needed_text(change) else "",
        gtid=change.gtid,
        snapshot=change.snapshot,
        place=change.place,
        columns=_columns_as_text(change.columns) if change.columns else "",
        beside=beside,
    )


def _needed_text(change: DefinitionChange) -> bool:
    """Return whether a run can need the text of a reported DDL statement.

    Outside a snapshot, a run needs the text of each statement that can have changed a table, and
    derives the statement's effect from it. It does not need the text of any other statement, such
    as CREATE USER. Inside a snapshot, a run needs only the statement that sets variables of the
    server. It changes no table, and shows where the snapshot begins.
    """
    of_table = change.table is not None or change.beside is not None
    return not of_table if change.snapshot else of_table
