"""SQL that converts key values to text, and SQL literals for these texts.

A table is read in ranges of its key, and each row is in exactly one range. A range ends at the
literal at which the next range begins. For the server, each row's key is either ``<`` this literal
or ``>=`` this literal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cdc.errors import SourceError
from cdc.sources.mysql.connection import quoted
from cdc.sources.source_facts import KeyRange, SourceTable
from schemas.table import TableId
from schemas.types_mysql import MysqlType

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "year"})
_BY_NUMBER = frozenset({"enum", "set", "bit"})
"""Types such as ENUM, whose values the server sorts by number but does not print as numbers."""
_REAL = frozenset({"float", "double"})
_TEXT = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_MOMENTS = frozenset({"date", "datetime", "timestamp", "time"})

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")
_MOMENT = re.compile(r"-?[0-9]+(?:[-:][0-9]{2}){2}(?: [0-9]{2}(?::[0-9]{2}){2})?(?:\.[0-9]{1,6})?")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")


def key_types(table: SourceTable, key: Sequence[str]) -> tuple[MysqlType, ...]:
    """Return the types of a MySQL or MariaDB key's columns.

    Raises:
        SourceError: There is no key, or a key column has a type whose values cannot be cut into
            ranges.
    """
    if not key:
        raise SourceError(
            f"table {table.table} has no key, and MySQL reads ranges of rows by a key only",
            remedy="Add a primary key, or name the columns of a unique index in key_columns.",
            table=table.table,
        )
    types = {column.name: column.type for column in table.columns}
    return tuple(_mysql_type(types.get(name), table, name) for name in key)


def range_key(table: SourceTable, key: Sequence[str]) -> tuple[str, ...]:
    """Return the columns by which ranges of a MySQL or MariaDB table are read.

    The columns are the record key or, for a table of ``mode: append``, the source's primary key.

    Args:
        table: The table.
        key: The table's key in the lake; empty for ``mode: append``.

    Returns:
        The columns. For ``mode: append``, the result is empty if there is no primary key, or if
        values of the primary key's types cannot be cut into ranges.
    """
    if key:
        return tuple(key)
    try:
        key_types(table, table.primary_key)
    except SourceError:
        return ()
    return table.primary_key


def _mysql_type(kind: object, table: SourceTable, name: str) -> MysqlType:
    """Return a MySQL or MariaDB key column's type; refuse a type that cannot be cut into ranges."""
    known = {*_INTEGERS, *_BY_NUMBER, *_REAL, *_TEXT, *_BYTES, *_MOMENTS, "decimal"}
    if not isinstance(kind, MysqlType) or kind.name not in known:
        raise SourceError(
            f"key column {name!r} of table {table.table} has type {kind}, which cannot be cut"
            " into ranges",
            remedy="Name other columns in key_columns: integers, decimals, dates, text or binary.",
            table=table.table,
            field=name,
        )
    return kind


def printed(kind: MysqlType, column: str) -> str:
    """Return SQL that MySQL or MariaDB evaluates to the text of a key value.

    The function :func:`literal` converts this text to a literal.

    Args:
        kind: The key column's type.
        column: The key column as SQL.
    """
    if kind.name in _BYTES:
        return f"HEX({column})"
    if kind.name in _BY_NUMBER:
        return f"CAST({column} + 0 AS CHAR)"
    if kind.name in _REAL:
        # A float as text has only six digits.
        return f"CAST(CAST({column} AS DOUBLE) AS CHAR)"
    if kind.name in _TEXT:
        return f"CONVERT({column} USING utf8mb4)"
    return f"CAST({column} AS CHAR)"


def literal(kind: MysqlType, text: str) -> str:
    """Return the SQL literal of a value, for comparisons with a MySQL or MariaDB column.

    The literal of a string has no explicit collation, so the server compares it in the column's
    collation. The literal has the string's bytes as hex digits, so no character of the string can
    end the literal.

    Args:
        kind: The column's type.
        text: The value, as the server returns it for the SQL of :func:`printed`.

    Raises:
        SourceError: The text is not a value of the type.
    """
    if kind.name in _TEXT:
        return f"_utf8mb4 x'{text.encode().hex()}'"
    if kind.name in _BYTES and _HEX.fullmatch(text):
        return f"x'{text}'"
    if kind.name in _MOMENTS and _MOMENT.fullmatch(text):
        return f"'{text}'"
    if kind.name not in {*_BYTES, *_MOMENTS} and _NUMBER.fullmatch(text):
        return text
    raise SourceError(
        f"{text!r} is not a bound of a range of type {kind}",
        remedy="Start the copy again: its stored plan was altered, or was made for another type.",
    )


def predicate(key_range: KeyRange, columns: Sequence[str], types: Sequence[MysqlType]) -> str:
    """Return the SQL condition that the key of a MySQL or MariaDB row is in a range.

    The SQL compares one column after another, since the servers do not use the index for
    comparisons of whole rows such as ``(a, b) >= (1, 2)``. If the key has several columns, further
    conditions bound the first column alone, so that a server can use the index at least for this
    column.

    Args:
        key_range: The range. If `KeyRange.within` is set, the SQL also bounds ``w0``, the time
            column of this limit.
        columns: The key's columns as SQL.
        types: The types of these columns.
    """
    clauses = []
    for bound, strictly, at_end in ((key_range.lower, ">", ">="), (key_range.upper, "<", "<")):
        if bound is None:
            continue
        ends = [literal(kind, text) for kind, text in zip(types, bound, strict=True)]
        if len(ends) > 1:
            clauses.append(f"{columns[0]} {strictly}= {ends[0]}")
        clauses.append(_after_key(list(zip(columns, ends, strict=True)), strictly, at_end))
    if (timed := key_range.within) is not None:
        clauses += [f"w0 >= '{timed.begin}'", f"w0 < '{timed.end}'"]
    return " AND ".join(clauses) if clauses else "1 = 1"


def _after_key(parts: Sequence[tuple[str, str]], strictly: str, at_end: str) -> str:
    """Return SQL that compares a MySQL or MariaDB key with a bound, column by column.

    Args:
        parts: Each key column and the bound's value for this column, both as SQL.
        strictly: The operator for each column except the last: ``<`` or ``>``.
        at_end: The operator for the last column.
    """
    (column, end), *rest = parts
    if not rest:
        return f"{column} {at_end} {end}"
    further = _after_key(rest, strictly, at_end)
    return f"({column} {strictly} {end} OR ({column} = {end} AND {further}))"


def relation(table: SourceTable) -> str:
    """Return the MySQL or MariaDB table as a quoted, qualified name."""
    return relation_of(table.table)


def relation_of(table: TableId) -> str:
    """Return a MySQL or MariaDB table's quoted, qualified name from its id."""
    return f"{quoted(table.schema)}.{quoted(table.name)}"


def zero_date(where: str) -> tuple[str, str]:
    """Return the problem of a MySQL or MariaDB key with a date such as 2024-02-31, and the remedy.

    Args:
        where: Words for the problem's text, for example ``in key column 'day'``.
    """
    return (
        f"a row has a date that no calendar has {where} (a zero or partial one, or one as"
        " 2024-02-31), which the lake cannot hold",
        "Give such rows real dates, or name other columns in key_columns; NO_ZERO_DATE and"
        " NO_ZERO_IN_DATE in a strict sql_mode without ALLOW_INVALID_DATES keep new ones out.",
    )
