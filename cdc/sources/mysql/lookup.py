"""Reads single rows by key, as Python values of the lake's types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from cdc.errors import SourceError
from cdc.sources.mysql.catalog import read_table
from cdc.sources.mysql.connection import Session, quoted
from cdc.sources.mysql.keys import key_types, literal, relation
from cdc.sources.selection import rules
from cdc.sources.source_facts import SourceTable
from schemas.errors import SchemaError
from schemas.table import Column, TableSchema
from schemas.type_rule import TypeRule
from schemas.types_mysql import MysqlType

BATCH = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND = 1_000_000


def fetch_by_key(
    session: Session,
    table: SourceTable,
    schema: TableSchema,
    keys: Sequence[Sequence[object]],
    columns: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the MySQL or MariaDB rows with the given keys.

    A column's collation can treat ``a`` and ``A`` as equal. The lake does not. So a row is left out
    if its key equals a given key only by the collation.

    Args:
        session: A session on the primary or the replica.
        table: The table.
        schema: The table's lake schema.
        keys: Values of the lake's types, in the order of ``schema.key``.
        columns: Names of the columns to return besides the key columns.

    Raises:
        SchemaError: A column is not in the schema, or a key value is NULL.
        SourceError: A key column has a type whose values cannot be cut into ranges.
    """
    names = list(dict.fromkeys([*schema.key, *(schema.column(name).name for name in columns)]))
    rule = rules(table, schema)
    types = key_types(table, schema.key)
    selected = ", ".join(rule[name].read(quoted(name)) for name in names)
    texts = [name for name in schema.key if rule[name].lake_type == "string"]
    asked = {
        tuple(value for name, value in zip(schema.key, key, strict=True) if name in texts)
        for key in keys
    }
    found = []
    for batch in _key_batches(keys):
        wanted = " OR ".join(
            " AND ".join(
                f"{quoted(name)} = {constant(kind, value, table, name)}"
                for name, kind, value in zip(schema.key, types, key, strict=True)
            )
            for key in batch
        )
        query = f"SELECT {selected} FROM {relation(table)} WHERE {wanted}"  # noqa: S608 - quoted
        for row in session.rows(query):
            values = {
                name: lake_value(rule[name], value) for name, value in zip(names, row, strict=True)
            }
            if tuple(values[name] for name in texts) in asked:
                found.append(values)
    return found


def stored_value(
    session: Session, table: SourceTable, wanted: Column
) -> tuple[str | None, TypeRule]:
    """Return a new MySQL or MariaDB column's value in rows older than the column, as a string.

    The second item of the result is the column's type rule, which describes how the column's values
    are converted to the lake's type.

    Rows older than the column have the default with which the column was added. The server does not
    report that default. So the returned value is the column's current default. This value is wrong
    if the default was changed after the column was added. The returned value is None if the current
    default is NULL, or if the table has no row.

    Args:
        session: A session on the primary. The function leaves a transaction open in this session.
            The transaction locks the table's definition.
        table: The table as the run read it from the source's catalog, with the column's default.
        wanted: The column in the lake.

    Raises:
        SourceError: The column has no default, or was changed after ``table`` was read. Or the
            column's default is an expression, which can have a different value for each row.
    """
    column = next(one for one in table.columns if one.name == wanted.name)
    rule = column.type.rule(
        table=table.table, column=wanted.name, as_text=wanted.read_by_key, hidden=bool(wanted.hide)
    ).stored_as(wanted.plain or wanted.lake_type)
    shown = "HEX(value)" if rule.read_type == "binary" else "CAST(value AS CHAR)"
    query = (
        f"SELECT {shown} FROM (SELECT {rule.read('old')} AS value"  # noqa: S608 - quoted
        f" FROM (SELECT DEFAULT({quoted(wanted.name)}) AS old FROM {relation(table)} LIMIT 1)"
        " AS older) AS one"
    )
    # The query locks the definition until the transaction ends, so both queries read the same one.
    session.rows("START TRANSACTION READ ONLY")
    value = session.value(query)
    if column not in read_table(session, table.table).columns:
        raise SourceError(
            f"table {table.table} changed during the run, before its older rows were filled:"
            f" column {wanted.name} no longer has type {column.type} and default"
            f" {column.default_sql!r}",
            remedy="Nothing was written. Run the command again, which compares the table again.",
            table=table.table,
            field=wanted.name,
        )
    return (None if value is None else str(value)), rule


def lake_value(rule: TypeRule, value: Any) -> Any:
    """Convert a value in a MySQL or MariaDB query's result to a Python value of the lake's type.

    The value comes from a query that uses ``read_sql`` of the column's type rule.
    """
    if value is None:
        return None
    if rule.looked_up is not None:
        return rule.looked_up(value)
    kind = rule.lake_type
    if kind == "date":
        return _EPOCH.date() + timedelta(days=int(value))
    if kind in ("timestamp", "timestamp_ntz"):
        moment = _EPOCH + timedelta(microseconds=int(value))
        return moment if kind == "timestamp" else moment.replace(tzinfo=None)
    if kind == "boolean":
        return int(value) == 1
    if kind in ("int", "bigint"):
        return int(value)
    if kind in ("float", "double"):
        return float(value)
    return Decimal(value) if kind.startswith("decimal") else value


def constant(kind: MysqlType, value: object, table: SourceTable, name: str) -> str:
    """Convert a lake's key value to an SQL literal that equals the value in MySQL or MariaDB.

    Raises:
        SchemaError: The value is NULL.
    """
    if value is None:
        raise SchemaError(
            f"a row's key in table {table.table} has NULL in column {name!r}",
            remedy="Check the key of the table in the lake: key columns are NOT NULL on the"
            " source.",
            table=table.table,
            field=name,
        )
    if isinstance(value, (bytes, bytearray)):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        moment = aware.astimezone(timezone.utc).replace(tzinfo=None)
        return literal(kind, moment.isoformat(sep=" "))
    if isinstance(value, date):
        return literal(kind, value.isoformat())
    if kind.name == "time" and isinstance(value, int):
        return literal(kind, _time_text(value))
    if kind.name in ("enum", "set"):
        # Labels are compared for equality by their text, although they sort by their numbers.
        return literal(MysqlType("varchar"), str(value))
    return literal(kind, str(int(value) if isinstance(value, bool) else value))


def _time_text(micros: int) -> str:
    """Convert a key's duration from microseconds to the text of a MySQL or MariaDB TIME."""
    seconds, rest = divmod(abs(micros), _SECOND)
    hours, seconds = divmod(seconds, 3600)
    sign = "-" if micros < 0 else ""
    return f"{sign}{hours:02}:{seconds // 60:02}:{seconds % 60:02}.{rest:06}"


def _key_batches(keys: Sequence[Sequence[object]]) -> Iterator[Sequence[Sequence[object]]]:
    """Yield keys of MySQL or MariaDB rows in parts, each of which is looked up by one query."""
    for start in range(0, len(keys), BATCH):
        yield keys[start : start + BATCH]


def count(session: Session, table: SourceTable) -> int:
    """Count the rows of the MySQL or MariaDB table."""
    return int(session.value(f"SELECT count(*) FROM {relation(table)}"))  # noqa: S608 - quoted
