"""Spark SQL that turns the decoded events of one schema into the lake's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.rows.binlog_values import (
    binlog_position,
    binlog_value,
    doubt_test,
    is_declared_boolean,
    is_tagged,
    order_in_transaction,
    transaction_number,
)
from cdc.rows.key_updates import changed_key
from cdc.rows.old_rows import lacks_key
from cdc.rows.semantic_types import (
    default_test,
    doubtful_test,
    garbled_test,
    lake_value,
    names_where,
    placeholder_test,
    position,
    quoted,
)
from cdc.rows.stand_ins import replaces_null_test
from schemas.avro import END_MARK, DebeziumField, DebeziumSchema

if TYPE_CHECKING:
    from schemas.table import Column, TableSchema

MARK_SQL = f"X'{END_MARK.hex()}'"
_LAST_MICROS = 253_402_300_799_999_999
"""The end of the year 9999, the last time that Python and most readers can represent."""


@dataclass(frozen=True)
class EventRules:
    """The rules for decoding a table's events, from its settings, its source and its connector.

    Args:
        placeholder: What the connector sends in place of a value that has not changed and that the
            log does not have.
        absent: By column, Spark SQL of the column's value in events that lack the column. A column
            that is not listed is NULL in such events.
        former: By column, earlier names of the column. An event from before a rename has the value
            under such a name.
        nulls_are_kept: Whether the converter sends a NULL as NULL. If not, a value that equals its
            column's default may be a NULL. Such a value counts as unavailable, and ``UNCLEAR``
            names its column.
        own_key: Whether the key of the lake table may differ from the connector's key. The
            connector sends an update of its own key as a delete and an insert. It sends an update
            of any other key as one event, which is split into a delete of the former key and an
            insert.
        identity: Names of the columns of the replica identity. At an update or delete, the log has
            the old values of only these columns. None if the log has the old values of all columns.
        nullable: Columns that allow NULL on the source, but that the connector may regard as NOT
            NULL. In such a column, the connector sends another value instead of a NULL. A value
            that may replace a NULL counts as unavailable, and ``UNCLEAR`` names its column.
    """

    placeholder: str
    absent: Mapping[str, str] = field(default_factory=dict)
    former: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nulls_are_kept: bool = True
    own_key: bool = False
    identity: frozenset[str] | None = None
    nullable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EventPlan:
    """The Spark SQL expressions that read the decoded events of one schema.

    Spark evaluates each argument except ``from_binlog`` and ``booleans`` to the described value.

    Args:
        from_binlog: Whether a connector of MySQL or MariaDB wrote the events.
        operation: Debezium's letter for the operation, for example ``c`` for an insert.
        whole: Whether the record's body ends where an event with this schema must end.
        has_row: Whether there is a row after the change.
        source_ts: Time of the change, a timestamp.
        position: Position in the log.
        transaction: Number of the transaction.
        order: Number of the event within the transaction.
        tagged: Whether MySQL's connector may send the transaction again, since its GTID has a tag.
        values: By column, the value in the lake type.
        given: By column, whether the event has a value. Only columns whose lake type cannot
            represent every value are listed. If the settings chose the column's decimal type and
            the column is not secret, the expression returns the beginning of the event's value
            instead, for error messages.
        unavailable: Names of the columns whose values the connector did not have.
        unclear: Names of the unavailable columns whose values the event may have changed.
        garbled: Names of the columns whose text is not UTF-8.
        doubted: Names of the key columns whose value in the event may differ from the source's
            value.
        former: The key before an update that changed the key; null for any other event.
        keyless: Whether the event's row before the change lacks the key (`lacks_key`).
        booleans: Names of the columns whose TRUE in an event stands for any number other than 0.
    """

    from_binlog: bool
    operation: str
    whole: str
    has_row: str
    source_ts: str
    position: str
    transaction: str
    order: str
    tagged: str
    values: Mapping[str, str]
    given: Mapping[str, str]
    unavailable: str
    unclear: str
    garbled: str
    doubted: str
    former: str
    keyless: str
    booleans: tuple[str, ...]


def event_plan(
    record: str, schema: DebeziumSchema, table: TableSchema, rules: EventRules
) -> EventPlan:
    """Return the Spark SQL expressions that read the events of one schema.

    Args:
        record: Name of the Spark column with the decoded records, a struct of ``event`` and
            ``mark``. The mark equals :data:`END_MARK` if the record's body ends where the schema
            requires.
        schema: The schema with which the events were written.
        table: The lake's columns and key.
        rules: The rules by which the events are decoded.

    Raises:
        SchemaChangeError: A field's type in an event's schema does not convert to the lake's type.
    """
    event = f"{record}.event"
    columns = {one.name: _column_sql(event, one, schema, table, rules) for one in table.columns}
    values = {name: one.value for name, one in columns.items()}
    # The key's columns may be in another order than the table's.
    former = {name: columns[name].former or "NULL" for name in table.key}
    micros = f"try_multiply({event}.source.ts_ms, 1000L)"
    if any(inner.name == "ts_us" for inner in schema.source):
        micros = f"coalesce({event}.source.ts_us, {micros})"
    return EventPlan(
        from_binlog=schema.from_binlog,
        operation=f"{event}.op",
        whole=f"{record}.mark = {MARK_SQL}",
        has_row=f"{event}.after IS NOT NULL",
        source_ts=f"CASE WHEN {micros} BETWEEN 0 AND {_LAST_MICROS}"
        f" THEN timestamp_micros({micros}) END",
        position=binlog_position(f"{event}.source")
        if schema.from_binlog
        else position(f"{event}.source.sequence"),
        transaction=transaction_number(f"{event}.source", schema),
        order=order_in_transaction(event, schema),
        tagged=is_tagged(f"{event}.source", schema),
        values=values,
        given={name: one.given for name, one in columns.items() if one.given is not None},
        unavailable=_names_of_columns(columns, "lacked"),
        unclear=_names_of_columns(columns, "unclear"),
        garbled=_names_of_columns(columns, "garbled"),
        doubted=_names_of_columns(columns, "doubted"),
        former=changed_key(event, former, values) if rules.own_key else "NULL",
        keyless="FALSE"
        if schema.from_binlog or rules.identity is None
        else lacks_key(event, schema, table.key, rules.identity),
        booleans=tuple(name for name, one in columns.items() if one.any_number),
    )


@dataclass(frozen=True)
class _ColumnSql:
    """Spark SQL for one column.

    A field that is described as "whether" is a condition. None stands for a condition that is never
    true.

    Args:
        value: The column's value in its lake type.
        lacked: Whether the connector did not have the value.
        unclear: Whether the change may have set a new value that the event lacks.
        garbled: Whether the text is not UTF-8.
        doubted: Whether the value in the event may differ from the source's value. Only for a key
            column.
        given: As in :class:`EventPlan`; None if the lake type can represent every value.
        former: The value before the change. Only for a key column.
        any_number: Whether TRUE in an event stands for any number other than 0. Not Spark SQL.
    """

    value: str
    lacked: str | None = None
    unclear: str | None = None
    garbled: str | None = None
    doubted: str | None = None
    given: str | None = None
    former: str | None = None
    any_number: bool = False


def _column_sql(
    event: str, column: Column, schema: DebeziumSchema, table: TableSchema, rules: EventRules
) -> _ColumnSql:
    """Return the Spark SQL expressions that read one column from the events of one schema.

    ``event`` is Spark SQL of the decoded event, a struct.
    """
    if column.read_by_key:
        has_row = f"{event}.after IS NOT NULL"
        return _ColumnSql("NULL", lacked=has_row, unclear=has_row)
    names = (column.name, *rules.former.get(column.name, ())) if column.live else ()
    found = next(filter(None, map(schema.field, names)), None)
    if found is None:
        return _ColumnSql(rules.absent.get(column.name, "NULL"))
    read = binlog_value if schema.from_binlog else lake_value
    is_key = column.name in table.key
    before, raw = (f"{event}.{image}.{quoted(found.name)}" for image in ("before", "after"))
    if is_key:
        raw = _key_of_either(raw, before, found, rules)
    value = read(raw, found, column, table.table)
    unclear = None if rules.nulls_are_kept else default_test(raw, found)
    if column.name in rules.nullable and not found.nullable and not is_key:
        unclear = _either_condition(unclear, replaces_null_test(raw, found))
    doubt, doubt_before = (
        doubt_test(image, found, column, table)
        if schema.from_binlog
        else doubtful_test(image, found, column)
        for image in (raw, before)
    )
    doubted = None
    if doubt is not None and is_key:
        # A query of the source by a doubted key may return another row. It cannot return a deleted
        # row.
        doubted = _either_condition(doubt, doubt_before)
    else:
        unclear = _either_condition(unclear, doubt)
    lacked = (
        None
        if is_key
        else _either_condition(placeholder_test(raw, found, rules.placeholder), unclear)
    )
    return _ColumnSql(
        value.sql if lacked is None else f"CASE WHEN {lacked} THEN NULL ELSE {value.sql} END",
        lacked=lacked,
        unclear=unclear,
        garbled=garbled_test(raw, found),
        doubted=doubted,
        given=None if value.total else _value_was_sent(raw, lacked, column),
        former=read(before, found, column, table.table).sql if is_key else None,
        any_number=schema.from_binlog and is_declared_boolean(found, column.lake_type),
    )


def _key_of_either(after: str, before: str, found: DebeziumField, rules: EventRules) -> str:
    """Return Spark SQL of a key column's value, from the row after or the row before the change.

    A delete has no row after the change. In an update, a key value that PostgreSQL stores out of
    line may be unavailable in the row after the change. The row before the change always has the
    key. ``after`` and ``before`` are Spark SQL of the two values.
    """
    if shown := placeholder_test(after, found, rules.placeholder):
        after = f"CASE WHEN {shown} THEN NULL ELSE {after} END"
    return f"coalesce({after}, {before})"


def _value_was_sent(raw: str, lacked: str | None, column: Column) -> str:
    """Return Spark SQL that shows whether an event has a value of a column.

    The SQL returns true if the event has a value. There is one exception: the settings chose the
    column's decimal type, and the column is not secret. Then the SQL returns the first 60
    characters of the value, or NULL if the event has no value. If the decimal type cannot represent
    the value, the error message shows these characters.

    ``raw`` is Spark SQL of the decoded value. ``lacked`` is Spark SQL that is true if the connector
    did not have the value; None if it always has the value.
    """
    real = f"{raw} IS NOT NULL" + (f" AND NOT {lacked}" if lacked is not None else "")
    if column.decimal and not column.secret:
        return f"CASE WHEN {real} THEN left({raw}, 60) END"
    return real


def _either_condition(one: str | None, other: str | None) -> str | None:
    """Return Spark SQL that is true for an event if at least one of two conditions is true.

    None stands for a condition that is never true.
    """
    if one is None or other is None:
        return one or other
    return f"({one} OR {other})"


def _names_of_columns(columns: Mapping[str, _ColumnSql], test: str) -> str:
    """Return Spark SQL of an array: names of an event's columns for which a condition is true.

    ``test`` is the field of `_ColumnSql` with the condition, for example ``lacked``.
    """
    tests = ((name, getattr(one, test)) for name, one in columns.items())
    return names_where([(name, sql) for name, sql in tests if sql is not None])
