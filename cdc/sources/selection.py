"""Selects the replicated columns of a source table, their lake types, and the record key."""

from __future__ import annotations

import re

from cdc.config import TableSettings
from cdc.rows.columns import is_reserved
from cdc.sources.refused_columns import refusal
from cdc.sources.source_facts import SourceColumn, SourceTable
from schemas.errors import SchemaError, UnsupportedTypeError
from schemas.renames import related
from schemas.table import Column, TableSchema
from schemas.type_rule import TypeRule, without_rule

LAKE_NAME = re.compile(r"[^\W\d]\w*")
"""Names that a lake column can have: letters of any alphabet, ``_``, and digits after the start.

Avro, and with it Hudi, accepts these names.
"""


def lake_schema(table: SourceTable, settings: TableSettings) -> TableSchema:
    """Return the lake schema of a source table, with the columns that the settings select.

    Raises:
        UnsupportedTypeError: A replicated column has a type that cannot be converted, or a type
            that the connector can mistake for another type.
        SchemaError: The lake does not allow a column's name; the value of a virtual column depends
            on more than the row; or there is no usable key.
    """
    columns = lake_columns(table, settings)
    key = record_key(table, settings)
    for column in columns:
        if column.hide and column.name in key:
            raise SchemaError(
                f"key column {column.name!r} of table {table.table} is hidden"
                f" (columns.{column.hide}), but rows are found by their key",
                remedy="Take it out of columns.hash or mask, or name other columns in key_columns.",
                table=table.table,
                field=column.name,
            )
        if column.read_by_key and column.name in key:
            raise SchemaError(
                f"key column {column.name!r} of table {table.table} is in columns.as, but the"
                " text of such a column is read from the source by key",
                remedy="Take it out of columns.as; a key needs a type that events carry.",
                table=table.table,
                field=column.name,
            )
    schema = TableSchema(table.table, columns, key)
    _require_one_to_one(table, schema)
    return schema


def _require_one_to_one(table: SourceTable, schema: TableSchema) -> None:
    """Refuse a source table's key if two different key values can be equal in the lake."""
    rule = rules(table, schema)
    for column in map(schema.column, schema.key):
        if not rule[column.name].one_to_one:
            raise SchemaError(
                f"key column {column.name!r} of table {table.table} has type"
                f" {column.source_type}, and two keys that differ in the source can be equal in"
                " the lake",
                remedy="Name other columns in key_columns; or leave the table out.",
                table=table.table,
                field=column.name,
            )


def lake_columns(table: SourceTable, settings: TableSettings) -> tuple[Column, ...]:
    """Return a source table's replicated columns, even if the table has no usable key.

    Generated columns are left out, since the log does not contain them. The function ignores a name
    in the settings that no column of the table has; :func:`require_named` refuses such a name.

    Raises:
        UnsupportedTypeError: Replicated columns have types that cannot be converted, or types that
            the connector can mistake for other types. The error names all these columns.
        SchemaError: The lake does not allow a column's name, or the value of a virtual column
            depends on more than the row.
    """
    kept = replicated(table, settings)
    names = _columns_the_lake_cannot_name([column.name for column in kept])
    bound = {column.name: column.depends_on for column in kept if column.depends_on}
    columns, types = [], {}
    for column in kept:
        try:
            columns.append(_lake_column(table, column, settings))
        except UnsupportedTypeError as error:
            types[column.name] = error
    if names or types or bound:
        key = () if settings.appends else settings.key_columns or table.primary_key
        raise refusal(table.table, key, settings, types=types, names=names, bound=bound)
    return tuple(columns)


def misread(table: SourceTable, settings: TableSettings) -> tuple[SourceColumn, ...]:
    """Return a source table's selected columns for which events can lack the values.

    The connector can mistake the type of such a column for another type (see
    `SourceColumn.misread_as`). Columns whose values Tributary reads from the source by key are left
    out.
    """
    by_key = settings.columns.is_read_by_key
    return tuple(
        one for one in replicated(table, settings) if one.misread_as and not by_key(one.name)
    )


def replicated(table: SourceTable, settings: TableSettings) -> list[SourceColumn]:
    """Return a source table's columns that the log contains and that the settings select."""
    selects = settings.columns.selects
    return [one for one in table.columns if selects(one.name) and not one.generated]


def _misread_column_error(table: SourceTable, column: SourceColumn) -> UnsupportedTypeError:
    """Return the error for a source column whose type the connector can take for another."""
    why = (
        f"the connector can take it for {column.misread_as}, which has the same name, and then"
        " sends NULL, 0 or an empty text for its values"
    )
    error = without_rule(column.type, why, table=table.table, column=column.name)
    error.context["misread_as"] = column.misread_as
    return error


def _lake_column(table: SourceTable, column: SourceColumn, settings: TableSettings) -> Column:
    """Convert a source column to a column of the lake, by the table's settings."""
    rules = settings.columns
    read_by_key, decimal = rules.is_read_by_key(column.name), rules.decimal(column.name)
    hide = rules.hides(column.name)
    if column.misread_as and not read_by_key:
        raise _misread_column_error(table, column)
    rule = column.type.rule(
        table=table.table,
        column=column.name,
        as_text=read_by_key,
        decimal=decimal,
        hidden=bool(hide),
    ).stored_as(settings.timestamps_without_zone)
    return Column(
        name=column.name,
        source_type=str(column.type),
        lake_type="string" if hide else rule.lake_type,
        nullable=column.nullable,
        read_by_key=read_by_key,
        hide=hide,
        plain=rule.lake_type if hide else "",
        decimal=bool(decimal),
        doubtful=rule.doubtful,
    )


def not_there(table: SourceTable, settings: TableSettings) -> tuple[str, ...]:
    """Return the columns that are named in the settings and that the source table lacks.

    A setting can have both names of a column that `columns.renames` renames. If the table has the
    column under one of these names, neither name is returned.
    """
    rules = settings.columns
    there = {column.name for column in table.columns}
    return tuple(
        sorted(
            {
                name
                for rule in (rules.include, rules.exclude, rules.as_, rules.hash, rules.mask)
                for name in rule
                if not related(rules.renames, name) & there & {*rule}
            }
        )
    )


def require_named(table: SourceTable, settings: TableSettings) -> None:
    """Refuse to copy a source table that lacks a column which is named in the settings.

    If a name is misspelled, values that a setting should hide would reach the lake. Runs do not
    call this function: once a table is copied, its settings may name a column that is not added
    yet or is already dropped.

    Raises:
        SchemaError: The table lacks such a column. The error names the first one.
    """
    for name in not_there(table, settings):
        raise SchemaError(
            f"table {table.table} has no column {name!r}, but `columns` names it",
            remedy="Correct columns.include, exclude, as, hash or mask of the table.",
            table=table.table,
            field=name,
        )


def record_key(table: SourceTable, settings: TableSettings) -> tuple[str, ...]:
    """Return the columns of a source table's record key; no columns for an append table.

    The record key is the configured key or, without a configured key, the primary key.

    Raises:
        SchemaError: There is no key; a column of the key is missing, is generated or allows NULL;
            or the columns are not unique together.
    """
    if settings.appends:
        return ()
    key = tuple(settings.key_columns) or table.primary_key
    if not key:
        raise SchemaError(
            f"table {table.table} has no primary key",
            remedy="Add a primary key; or give the table a unique index on columns that are NOT "
            "NULL, run ALTER TABLE ... REPLICA IDENTITY USING INDEX with it, and name its columns "
            "in key_columns; or set mode: append, if its rows are only ever inserted.",
            table=table.table,
        )
    by_name = {column.name: column for column in table.columns}
    for name in key:
        column = by_name.get(name)
        problem = (
            "is not a column"
            if column is None
            else "is generated, so the log does not carry it"
            if column.generated
            else "allows NULL"
            if column.nullable
            else None
        )
        if problem:
            raise SchemaError(
                f"key column {name!r} of table {table.table} {problem}",
                remedy="Set key_columns to columns that are NOT NULL and unique together.",
                table=table.table,
                field=name,
            )
    if not any(set(unique) <= set(key) for unique in table.unique_indexes):
        raise SchemaError(
            f"no unique index of table {table.table} keeps ({', '.join(key)}) unique",
            remedy="Set key_columns to the columns of a unique index, or create one for them.",
            table=table.table,
        )
    return key


def rules(table: SourceTable, schema: TableSchema) -> dict[str, TypeRule]:
    """Return a mapping from each column of a source table's schema to the column's type rule.

    A type rule says how the column's values are converted from the source to the lake.

    Raises:
        SchemaError: The table lacks a column of the schema, or a column's type has no rule.
    """
    types = {column.name: column.type for column in table.columns}
    found = {}
    for column in schema.columns:
        if column.name not in types:
            raise SchemaError(
                f"table {table.table} no longer has column {column.name!r}",
                remedy=f"Run `tributary run {table.table}`, which follows what has changed.",
                table=table.table,
                field=column.name,
            )
        found[column.name] = (
            types[column.name]
            .rule(
                table=table.table,
                column=column.name,
                as_text=column.read_by_key,
                decimal=column.chosen,
                hidden=bool(column.hide) or column.secret,
            )
            .stored_as(column.plain or column.lake_type)
        )
    return found


def _columns_the_lake_cannot_name(names: list[str]) -> dict[str, str]:
    """Return a source table's columns whose name the lake does not allow, each with the reason."""
    by_folded: dict[str, str] = {}
    found = {}
    for name in names:
        other = by_folded.setdefault(name.lower(), name)
        if other != name:
            found[name] = f"differs from column {other!r} by case only, which the lake ignores"
        elif is_reserved(name):
            found[name] = "begins like the columns that Tributary or Hudi adds"
        elif not LAKE_NAME.fullmatch(name):
            found[name] = "has a name that Hudi does not allow: only letters, digits and _"
    return found
