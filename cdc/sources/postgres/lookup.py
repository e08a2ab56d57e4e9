"""Reads single rows by key, as Python values of the lake's types."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from psycopg import sql

from cdc.sources.postgres.column_type import plain_type_of
from cdc.sources.postgres.connection import Session, reading
from cdc.sources.postgres.reader import identifier, relation
from cdc.sources.selection import rules
from cdc.sources.source_facts import SourceTable
from schemas.errors import SchemaError
from schemas.table import Column, TableSchema
from schemas.type_rule import TypeRule

_BATCH = 512
"""The most keys of one query: a power of two, so that a full list is not padded."""
_NUMBERS = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
"""A mapping from the connector's names of NaN and the infinities to the server's names."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def fetch_by_key(
    session: Session,
    table: SourceTable,
    schema: TableSchema,
    keys: Sequence[Sequence[object]],
    columns: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the PostgreSQL rows with the given keys, each as a mapping from column to value.

    Args:
        session: A session on the primary or the replica.
        table: The table.
        schema: The table's lake schema.
        keys: For each key, its values of the lake's types, in the order of ``schema.key``.
        columns: Names of the columns to return besides the key columns.

    Raises:
        SchemaError: A column is not in the schema, or a key value is NULL.
    """
    names = list(dict.fromkeys([*schema.key, *(schema.column(name).name for name in columns)]))
    rule = rules(table, schema)
    kinds = {
        column.name: plain_type_of(column).name
        for column in table.columns
        if column.name in schema.key
    }
    selected = sql.SQL(", ").join(sql.SQL(rule[name].read(identifier(name))) for name in names)
    key_columns = sql.SQL(", ").join(sql.Identifier(name) for name in schema.key)
    found: list[dict[str, Any]] = []
    for batch in key_lists(keys):
        wanted = sql.SQL(", ").join(
            sql.SQL("({})").format(
                sql.SQL(", ").join(
                    sql.Literal(_key_text(value, kinds[name], table, name))
                    for name, value in zip(schema.key, key, strict=True)
                )
            )
            for key in batch
        )
        query = sql.SQL("SELECT {} FROM {} WHERE ({}) IN ({})").format(
            selected, relation(table), key_columns, wanted
        )
        with reading(session):
            rows = session.execute(query).fetchall()
        found += [
            {name: lake_value(rule[name], value) for name, value in zip(names, row, strict=True)}
            for row in rows
        ]
    return found


def stored_value(
    session: Session, table: SourceTable, wanted: Column, stored: str
) -> tuple[str, TypeRule]:
    """Return a new PostgreSQL column's value in rows older than the column, as a string.

    A binary value is returned as hex digits. The second item of the result is the column's type
    rule.

    Args:
        session: A session on the primary.
        table: The table.
        wanted: The column in the lake.
        stored: One of the column's values in `SourceColumn.old_values`: an array literal with one
            element, such as ``{5}``.
    """
    column = next(one for one in table.columns if one.name == wanted.name)
    rule = column.type.rule(
        table=table.table,
        column=wanted.name,
        as_text=wanted.read_by_key,
        decimal=wanted.chosen,
        hidden=bool(wanted.hide),
    ).stored_as(wanted.plain or wanted.lake_type)
    # The type reads the element's own text, since the one element can be an array itself.
    value = sql.SQL("(({}::text[])[1])::{}").format(sql.Literal(stored), sql.SQL(str(column.type)))
    read = sql.SQL("SELECT {} AS value FROM (SELECT {} AS old) AS stored").format(
        sql.SQL(rule.read("old")), value
    )
    shown = "encode(value, 'hex')" if rule.read_type == "binary" else "value::text"
    query = sql.SQL("SELECT {} FROM ({}) AS one").format(sql.SQL(shown), read)
    with reading(session):
        row = session.execute(query).fetchone()
    return (str(row[0]) if row is not None else ""), rule


def lake_value(rule: TypeRule, value: Any) -> Any:
    """Convert a value in a PostgreSQL query's result to a Python value of the lake's type.

    The value comes from a query that uses ``read_sql`` of the column's type rule.
    """
    if value is None:
        return None
    if rule.lake_type.startswith("array<"):
        item = rule.lake_type[len("array<") : -1]
        return [
            None if text is None else _lake_value_of_element(item, text)
            for text in json.loads(value)
        ]
    return _lake_value(rule.lake_type, value)


def _lake_value(lake_type: str, value: Any) -> Any:
    """Convert a value from PostgreSQL's driver to a number, a date or a timestamp of the lake."""
    if lake_type == "date":
        return _EPOCH.date() + timedelta(days=value)
    if lake_type == "timestamp":
        return _EPOCH + timedelta(microseconds=value)
    if lake_type == "timestamp_ntz":
        return (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=None)
    if lake_type in ("float", "double") and math.isnan(value):
        return math.nan  # one object, so that keys with it are equal
    if lake_type == "float":
        # The server prints fewer digits than the number has as a double.
        return struct.unpack("f", struct.pack("f", value))[0]
    return value


def _lake_value_of_element(lake_type: str, text: str) -> Any:
    """Convert the text of an array's element in a PostgreSQL query's result to the lake's value."""
    if lake_type == "boolean":
        return text == "true"
    if lake_type in ("int", "bigint", "date", "timestamp", "timestamp_ntz"):
        return _lake_value(lake_type, int(text))
    if lake_type in ("float", "double"):
        return float(text)
    if lake_type == "binary":
        return bytes.fromhex(text)
    return Decimal(text) if lake_type.startswith("decimal") else text


def _key_text(value: object, kind: str, table: SourceTable, name: str) -> str:
    """Return a key value as text that a PostgreSQL query reads as a value of the column's type."""
    if value is None:
        raise SchemaError(
            f"a row's key in table {table.table} has NULL in column {name!r}",
            remedy="Check the key of the table in the lake: key columns are NOT NULL on the"
            " source.",
            table=table.table,
            field=name,
        )
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + value.hex()
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return aware.astimezone(timezone.utc).isoformat(sep=" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if kind == "time" and isinstance(value, int):
        return _time_of_day(value)
    if kind == "bit" and isinstance(value, bool):
        return str(int(value))
    if kind == "numeric":
        return _NUMBERS.get(str(value), str(value))
    return str(value)


def _time_of_day(microseconds: int) -> str:
    """Convert a key's time of day from microseconds to PostgreSQL's text, up to 24:00:00."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"


def key_lists(keys: Sequence[Sequence[object]]) -> Iterator[Sequence[Sequence[object]]]:
    """Yield keys of PostgreSQL rows in lists, one list for each query.

    The last key of a list is repeated until the length is a power of two. A row is found once,
    however often the list has its key. The server's statistics (`pg_stat_statements`) have an entry
    for each length. They keep 5,000 entries by default, so hundreds for each table would drive out
    the application's.
    """
    for start in range(0, len(keys), _BATCH):
        some = keys[start : start + _BATCH]
        length = 1 << (len(some) - 1).bit_length()
        yield [*some, *[some[-1]] * (length - len(some))]


def count(session: Session, table: SourceTable) -> int:
    """Count the rows of the PostgreSQL table."""
    row = session.execute(sql.SQL("SELECT count(*) FROM {}").format(relation(table))).fetchone()
    return int(row[0]) if row else 0
