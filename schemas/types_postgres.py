"""The type map of PostgreSQL: one rule per type, for the snapshot and for the stream alike.

A rule holds three expressions. The snapshot path runs `TypeRule.read_sql` on the source and
`TypeRule.jdbc_cast` in Spark; the stream path runs `TypeRule.stream` in Spark on what Debezium
sends. Both give the same lake value for the same source cell, or fail with a message that names
the column: never NULL or another value instead.

Debezium is configured with ``decimal.handling.mode=string``,
``time.precision.mode=microseconds``, ``interval.handling.mode=string`` and
``binary.handling.mode=bytes``. Spark runs with the session time zone UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from schemas.errors import UnsupportedTypeError
from schemas.table import TableId

TypeKind = Literal["b", "e", "d", "c", "r", "m", "p"]

MAX_DIGITS = 38
"""Digits of the widest decimal that the lake has."""

_PLACEHOLDER = "{column}"
_FIRST, _LAST = "0001-01-01", "9999-12-31"
_DAY_MIN, _DAY_MAX = -719162, 2932896
_MICROS_MIN, _MICROS_MAX = -62135596800000000, 253402300799999999


@dataclass(frozen=True)
class PostgresType:
    """A column's type, taken apart.

    Args:
        name: Name in ``pg_type``, without a schema: ``int4``, ``varchar``, ``numeric``.
        typmod: ``atttypmod``; -1 without a modifier.
        kind: ``typtype``: base, enum, domain, composite, range, multirange, pseudo.
        element: The element's type of an array.
        base: The type under a domain, with the domain's modifier.
        display: As ``format_type`` prints it, for example ``numeric(10,2)``.
    """

    name: str
    typmod: int = -1
    kind: TypeKind = "b"
    element: PostgresType | None = None
    base: PostgresType | None = None
    display: str = ""

    def __str__(self) -> str:
        return self.display or self.name


@dataclass(frozen=True)
class TypeRule:
    """How values of one column reach the lake. Templates hold ``{column}``.

    Args:
        lake_type: Spark SQL type of the lake column.
        read_sql: PostgreSQL expression that the snapshot path selects.
        read_type: Spark SQL type as which ``read_sql`` arrives over JDBC.
        jdbc_cast: Spark SQL expression from that to the lake value.
        stream: Spark SQL expression from what ``from_avro`` gives to the lake value. It must not
            see Debezium's placeholder for an unavailable value.
    """

    lake_type: str
    read_sql: str
    read_type: str
    jdbc_cast: str
    stream: str

    def read(self, column: str) -> str:
        """``read_sql`` of a column that is already quoted for PostgreSQL."""
        return self.read_sql.replace(_PLACEHOLDER, column)

    def from_jdbc(self, column: str) -> str:
        """``jdbc_cast`` of a Spark SQL expression."""
        return self.jdbc_cast.replace(_PLACEHOLDER, column)

    def from_stream(self, column: str) -> str:
        """``stream`` of a Spark SQL expression."""
        return self.stream.replace(_PLACEHOLDER, column)


def rule_for(column_type: PostgresType, *, table: TableId | str, column: str) -> TypeRule:
    """The rule of a column's type. Total: every type has one or raises.

    Args:
        column_type: The type.
        table: Named in messages.
        column: Named in messages.

    Raises:
        UnsupportedTypeError: There is no rule under which snapshot and stream are known to agree.
    """
    place = f"column {_plain(column)} of {_plain(str(table))}"
    rule = _rule(column_type, place)
    if rule is None:
        raise UnsupportedTypeError(
            f"column {column!r} of table {table} has type {column_type}, which has no rule",
            remedy=f"Leave it out with columns.exclude: [{column}], or change its type.",
            table=table,
            field=column,
        )
    return rule


def _rule(kind: PostgresType, place: str) -> TypeRule | None:
    if kind.kind == "d":
        return _rule(kind.base, place) if kind.base is not None else None
    if kind.element is not None:
        return _array(kind.element, place)
    if kind.kind == "e":
        return _TEXT
    if kind.kind not in ("b", "r"):
        return None
    if kind.name == "numeric":
        return _numeric(kind.typmod, place)
    if kind.name in _PLACED:
        return _PLACED[kind.name](place)
    return _PLAIN.get(kind.name)


def _numeric(typmod: int, place: str) -> TypeRule:
    """Decimal where the digits are bounded and fit, else text as PostgreSQL prints it."""
    if typmod < 0:
        return _TEXT
    precision, scale = numeric_modifier(typmod)
    digits, places = (precision - scale, 0) if scale < 0 else (max(precision, scale), scale)
    if digits > MAX_DIGITS:
        return _TEXT
    lake = f"decimal({digits},{places})"
    fraction = "if(instr({column}, '.') > 0, length({column}) - instr({column}, '.'), 0)"
    return TypeRule(
        lake_type=lake,
        # pgjdbc would fail on NaN without naming the column; PostgreSQL fails naming it
        read_sql=f"CASE WHEN {{column}} <> 'NaN' THEN {{column}} ELSE "
        f"{_pg_failure(place, f'which {lake} cannot hold', 'numeric')} END",
        read_type=lake,
        jdbc_cast=_PLACEHOLDER,
        stream=_checked(
            f"if({fraction} <= {places}, cast({{column}} as {lake}), null)",
            place,
            f"which {lake} cannot hold",
        ),
    )


def numeric_modifier(typmod: int) -> tuple[int, int]:
    """Precision and scale in a ``numeric`` modifier; scale may be negative or above precision."""
    packed = typmod - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def _date(place: str) -> TypeRule:
    return TypeRule(
        lake_type="date",
        read_sql=f"CASE WHEN {{column}} BETWEEN '{_FIRST}' AND '{_LAST}' "
        f"THEN {{column}} - '1970-01-01'::date "
        f"ELSE {_pg_failure(place, _OUTSIDE, 'int4')} END",
        read_type="int",
        jdbc_cast="date_from_unix_date({column})",
        stream=_checked(
            f"if({{column}} between {_DAY_MIN} and {_DAY_MAX}, "
            "date_from_unix_date({column}), null)",
            place,
            _OUTSIDE,
        ),
    )


def _timestamp(place: str) -> TypeRule:
    value = "cast(timestamp_micros({column}) as timestamp_ntz)"
    return TypeRule(
        lake_type="timestamp_ntz",
        read_sql=_read_micros(place),
        read_type="bigint",
        jdbc_cast=value,
        stream=_checked(
            f"if({{column}} between {_MICROS_MIN} and {_MICROS_MAX}, {value}, null)",
            place,
            _OUTSIDE,
        ),
    )


def _timestamptz(place: str) -> TypeRule:
    value = "cast({column} as timestamp)"
    return TypeRule(
        lake_type="timestamp",
        read_sql=_read_micros(place),
        read_type="bigint",
        jdbc_cast="timestamp_micros({column})",
        stream=_checked(
            f"if(unix_micros({value}) between {_MICROS_MIN} and {_MICROS_MAX}, {value}, null)",
            place,
            _OUTSIDE,
        ),
    )


def _read_micros(place: str) -> str:
    # date_part is a double: exact for whole seconds and for the microseconds of a minute, but
    # not for both at once
    return (
        f"CASE WHEN {{column}} >= '{_FIRST} 00:00:00+00' "
        f"AND {{column}} <= '{_LAST} 23:59:59.999999+00' "
        "THEN date_part('epoch', date_trunc('second', {column}))::int8 * 1000000 "
        "+ date_part('microseconds', {column})::int8 % 1000000 "
        f"ELSE {_pg_failure(place, _OUTSIDE, 'int8')} END"
    )


def _array(element: PostgresType, place: str) -> TypeRule | None:
    """One-dimensional arrays of types whose value survives being printed as text."""
    if element.element is not None or element.kind == "d":
        return None
    inner = _rule(element, place)
    if inner is None or inner.lake_type == "binary":
        return None
    items = "from_json({column}, 'array<string>')"
    item = inner.from_jdbc(f"cast(item as {inner.read_type})")
    return TypeRule(
        lake_type=f"array<{inner.lake_type}>",
        read_sql=" ".join(
            (
                "CASE WHEN coalesce(array_ndims({column}), 1) = 1 THEN",
                f"(SELECT coalesce(json_agg(({inner.read('item')})::text ORDER BY place), '[]')",
                "FROM unnest({column}) WITH ORDINALITY AS items(item, place)",
                "WHERE {column} IS NOT NULL HAVING {column} IS NOT NULL)::text",
                f"ELSE {_pg_failure(place, 'an array of more than one dimension', 'int4')}::text",
                "END",
            )
        ),
        read_type="string",
        jdbc_cast=f"transform({items}, item -> {item})",
        stream=f"transform({{column}}, item -> {inner.from_stream('item')})",
    )


def _pg_failure(place: str, why: str, as_type: str) -> str:
    """NULL for NULL; for any other value an error of PostgreSQL that carries our sentence.

    A cast that must fail is the only way to raise in plain SQL. It depends on the column, so the
    planner cannot evaluate it early.
    """
    return f"('{place} holds ' || {{column}}::text || ', {why}')::{as_type}"


def _checked(value: str, place: str, why: str) -> str:
    """``value``, but an error where it is NULL although the input is not."""
    message = f"concat('{place} holds ', {{column}}, ', {why}')"
    return f"if({{column}} is null, null, coalesce({value}, raise_error({message})))"


def _plain(name: str) -> str:
    """The name without the characters that would end a literal, a template or a parameter."""
    return re.sub(r"[\x00-\x1f'\\{}?]", "_", name)


def _same(lake: str, read_sql: str = _PLACEHOLDER) -> TypeRule:
    return TypeRule(lake, read_sql, lake, _PLACEHOLDER, _PLACEHOLDER)


_OUTSIDE = f"outside {_FIRST} to {_LAST}"
_TEXT = _same("string", "{column}::text")

_PLAIN: dict[str, TypeRule] = {
    "bool": _same("boolean"),
    "int2": TypeRule("int", "{column}::int4", "int", _PLACEHOLDER, "cast({column} as int)"),
    "int4": _same("int"),
    "int8": _same("bigint"),
    "oid": _same("bigint", "{column}::int8"),
    "float4": _same("float"),
    "float8": _same("double"),
    "bytea": _same("binary"),
    # a cast of char(n) to text drops the padding, one of inet adds the netmask; the output
    # functions print what the log carries
    "bpchar": _same("string", "bpcharout({column})::text"),
    "inet": _same("string", "inet_out({column})::text"),
    "time": _same(
        "bigint",
        "date_part('epoch', date_trunc('second', {column}::interval))::int8 * 1000000 "
        "+ date_part('microseconds', {column})::int8 % 1000000",
    ),
    "timetz": _same("string", "({column} AT TIME ZONE 'UTC')::time::text || 'Z'"),
    **dict.fromkeys(
        (
            "text",
            "varchar",
            "name",
            "char",
            "citext",
            "uuid",
            "json",
            "jsonb",
            "xml",
            "cidr",
            "macaddr",
            "macaddr8",
        ),
        _TEXT,
    ),
}

_PLACED: dict[str, Callable[[str], TypeRule]] = {
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
}
