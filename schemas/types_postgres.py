"""The type map of PostgreSQL: a column's lake type, and its expression in the snapshot.

The snapshot runs `TypeRule.read_sql` on the source and `TypeRule.jdbc_cast` in Spark. Together they
give the value that the stream's decoder makes of the same source cell, or fail with a message that
names the column. They never give NULL or another value instead. A type has a rule only if tests
with a real connector have proven this. The connector had ``decimal.handling.mode=string``,
``time.precision.mode=microseconds``, ``interval.handling.mode=string`` and
``binary.handling.mode=bytes``. Spark's session time zone is UTC.

These types have no rule, because of what Debezium 3.7 does to their values:

- ``name`` arrives as NULL;
- ``time[]`` loses its microseconds;
- ``date[]`` changes BC to AD;
- ``bit(n)`` and ``varbit`` lose their length;
- arrays of ``bit``, enums, ``ltree`` and ``tsvector``: a NULL element (for some types any value)
  stops the connector, and with it every table;
- ``numeric`` of negative scale arrives with other digits than the source prints, and so do the
  floating-point numbers of geometric types;
- the string of a ``tstzrange`` depends on the time zone of the Connect worker, and the string of an
  ``hstore`` on the order of hashes;
- multiranges, composites, ``tsquery`` and ``pg_lsn`` are not sent at all, nor are arrays whose
  elements are domains, ``interval``, ``money`` or ``xml``;
- ``reg*`` and ``aclitem`` are not sent, either, and a rename of the object that a value names
  changes the value's text without an event.

In an event, an array of several dimensions looks like an array of one dimension. So the snapshot
refuses arrays of several dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from schemas import refusals
from schemas.errors import UnsupportedTypeError
from schemas.table import TableId
from schemas.type_rule import COLUMN, MAX_DIGITS, TypeRule, not_numeric, without_rule

PRINTED: Mapping[str, str] = {
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "IntervalStyle": "postgres",
    "lc_monetary": "C",
    "quote_all_identifiers": "off",
}
"""The session settings that change how PostgreSQL prints values other than dates and times.

Each session of this project has these settings. The connector's session has them, too, since an
event has the text that the server prints in that session. No settings other than these and `ZONED`
change the text.
"""
ZONED: Mapping[str, str] = {"DateStyle": "ISO", "TimeZone": "UTC"}
"""The session settings that change how PostgreSQL prints dates and times.

In the connector's session, the connector's driver sets both settings: ``DateStyle`` to ISO, and
``TimeZone`` to the zone of the worker. The connector reads the offset from UTC that is printed with
each time, so the zone does not matter.
"""

TypeKind = Literal["b", "e", "d", "c", "r", "m", "p"]

_FIRST, _LAST = "0001-01-01", "9999-12-31"
_EXACT_FROM, _EXACT_TO = "1900-01-01", "2040-01-01"
_SHOWN = 60
"""Number of characters to which errors cut a refused value, as they cut the values of events."""


@dataclass(frozen=True)
class PostgresType:
    """A parsed column type of PostgreSQL.

    Args:
        name: Name in ``pg_type``, without a schema, for example ``int4``, ``varchar`` or
            ``numeric``.
        typmod: ``atttypmod``; -1 without a modifier. For money, the number of digits after the
            point that the server's `lc_monetary` sets; -1 if this number is two.
        kind: ``typtype``, for example ``b`` for a base type and ``e`` for an enum.
        element: The type of an array's elements; None for other types.
        base: The type under a domain, with the domain's modifier; None for other types.
        display: The type as ``format_type`` prints it, for example ``numeric(10,2)``.
        infinite: Whether the type has infinite values that look finite in events. Intervals of
            PostgreSQL 17 and later have such values.
    """

    name: str
    typmod: int = -1
    kind: TypeKind = "b"
    element: PostgresType | None = None
    base: PostgresType | None = None
    display: str = ""
    infinite: bool = False

    def __str__(self) -> str:
        return self.display or self.name

    def rule(
        self,
        *,
        table: TableId | str,
        column: str,
        as_text: bool = False,
        decimal: str = "",
        hidden: bool = False,
    ) -> TypeRule:
        """Return the rule of a PostgreSQL type; see `schemas.type_rule.SourceType`."""
        if digits := self._other_money_digits:
            raise UnsupportedTypeError(
                f"column {column!r} of table {table} has type {self}, and this database's"
                f" lc_monetary gives it {digits} digits after the point, but the log has two",
                remedy=f"Leave it out with columns.exclude: [{column}]; or change its type to"
                " numeric on the source; or run ALTER DATABASE ... SET lc_monetary = 'C', if its"
                " values were written with that setting.",
                table=table,
                field=column,
                short=f"{self}: lc_monetary gives it {digits} digits",
                as_text=False,
            )
        if refusals.names_others(self):
            why = refusals.NAMES_OTHERS
            raise UnsupportedTypeError(
                f"column {column!r} of table {table} has type {self}, which cannot be replicated:"
                f" {why}",
                remedy=f"Leave it out with columns.exclude: [{column}]; or change its type to text"
                " on the source.",
                table=table,
                field=column,
                short=f"{self}: {why}",
                why=why,
                as_text=False,
            )
        if as_text:
            return _PRINTED
        place = _Place(f"column {_name_in_sql(column)} of {_name_in_sql(str(table))}", hidden)
        rule = _type_rule(self, place)
        if decimal and not self._is_numeric:
            raise not_numeric(self, decimal, table=table, column=column)
        if rule is None:
            raise without_rule(self, refusals.of_postgres(self), table=table, column=column)
        return _chosen_decimal_rule(decimal, place) if decimal else rule

    @property
    def has_field(self) -> bool:
        """Whether events have a field for a column of this type; False if this is not known."""
        return _type_rule(self, _Place("", hidden=False)) is not None or refusals.is_sent(self)

    @property
    def _other_money_digits(self) -> str:
        """The number of digits after the point of PostgreSQL's ``money``, in words for an error.

        Empty for other types. Also empty for two digits, since the connector sends two digits.
        """
        inner = self.base or self.element
        if inner is not None:
            return inner._other_money_digits
        return str(self.typmod) if self.name == "money" and self.typmod >= 0 else ""

    @property
    def _is_numeric(self) -> bool:
        """Whether the PostgreSQL type is ``numeric``, or a domain over it."""
        if self.kind == "d":
            return self.base is not None and self.base._is_numeric
        return self.name == "numeric" and self.element is None


class _Place(NamedTuple):
    """The column for which a rule is made, and whether errors must hide the column's values."""

    name: str
    hidden: bool


def _type_rule(kind: PostgresType, place: _Place) -> TypeRule | None:
    """Return the type rule of a PostgreSQL type; None if the type has no rule."""
    if kind.kind == "d":
        return _type_rule(kind.base, place) if kind.base is not None else None
    if kind.element is not None:
        return _array_rule(kind.element, place)
    if kind.kind == "e":
        return _TEXT
    if kind.kind not in ("b", "r"):
        return None
    if kind.name == "numeric":
        return _numeric_rule(kind.typmod, place)
    if kind.name == "bit":
        # the connector treats bit(1) as a boolean; its modifier is the length itself
        return _unconverted_rule("boolean", "{column} = B'1'") if kind.typmod == 1 else None
    if kind.name == "interval":
        return _interval_rule(place, infinite=kind.infinite)
    if kind.name in _PLACED:
        return _PLACED[kind.name](place)
    return _PLAIN.get(kind.name)


def _numeric_rule(typmod: int, place: _Place) -> TypeRule | None:
    """Return the rule of ``numeric``: its lake type is a decimal if the digits fit, else a string.

    The string is the same as in the connector's events. The result is None for a negative scale.
    """
    if typmod < 0:
        return _NUMERIC_TEXT
    precision, scale = numeric_modifier(typmod)
    if scale < 0:
        return None
    digits = max(precision, scale)
    if digits > MAX_DIGITS:
        return _NUMERIC_TEXT
    lake = f"decimal({digits},{scale})"
    return TypeRule(
        lake_type=lake,
        # pgjdbc would fail on NaN without naming the column; PostgreSQL names it
        read_sql=f"CASE WHEN {{column}} <> 'NaN' THEN {{column}} ELSE "
        f"{_failing_sql(place, f'which {lake} cannot hold', 'numeric')} END",
        read_type=lake,
        jdbc_cast=COLUMN,
    )


def _chosen_decimal_rule(lake: str, place: _Place) -> TypeRule:
    """Return the type rule of a ``numeric`` for which the settings choose a decimal type.

    For a value that does not fit exactly, the snapshot fails with an error that names the column.
    """
    precision, scale = (int(digits) for digits in re.findall(r"\d+", lake))
    why = f"which {lake} of columns.as cannot hold: choose another decimal, or string"
    return TypeRule(
        lake_type=lake,
        # NaN and the infinities are larger than any number, and equal themselves when rounded
        read_sql=f"CASE WHEN abs({{column}}) < 1e{precision - scale} "
        f"AND {{column}} = round({{column}}, {scale}) "
        f"THEN {{column}}::numeric({precision},{scale}) "
        f"ELSE {_failing_sql(place, why, 'numeric')} END",
        read_type=lake,
        jdbc_cast=COLUMN,
    )


def numeric_modifier(typmod: int) -> tuple[int, int]:
    """Return precision and scale for the type rule of a ``numeric``, from the type's modifier.

    The scale can be negative, or larger than the precision.
    """
    packed = typmod - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def _date_rule(place: _Place) -> TypeRule:
    """Return the type rule of PostgreSQL's ``date``."""
    return TypeRule(
        lake_type="date",
        read_sql=f"CASE WHEN {{column}} BETWEEN '{_FIRST}' AND '{_LAST}' "
        f"THEN {{column}} - '1970-01-01'::date ELSE {_failing_sql(place, _OUTSIDE, 'int4')} END",
        read_type="int",
        jdbc_cast="date_from_unix_date({column})",
    )


def _timestamp_rule(place: _Place) -> TypeRule:
    """Return the type rule of PostgreSQL's ``timestamp``."""
    return TypeRule(
        lake_type="timestamp_ntz",
        read_sql=_microseconds_sql(place),
        read_type="bigint",
        jdbc_cast="cast(timestamp_micros({column}) as timestamp_ntz)",
    )


def _timestamptz_rule(place: _Place) -> TypeRule:
    """Return the type rule of PostgreSQL's ``timestamptz``."""
    return TypeRule(
        lake_type="timestamp",
        read_sql=_microseconds_sql(place),
        read_type="bigint",
        jdbc_cast="timestamp_micros({column})",
    )


def _microseconds_sql(place: _Place) -> str:
    """Return the SQL by which a type rule reads a PostgreSQL timestamp as microseconds since 1970.

    The SQL fails for a timestamp outside the years 1 to 9999.
    """
    # date_part is a double. Multiplied by one million it is off by less than half a microsecond if
    # microseconds since 1970 stay below 2^51. Elsewhere it is exact for whole seconds and for the
    # microseconds of a minute, but not for both at once, so two calls are needed: twice the time.
    return (
        f"CASE WHEN {{column}} >= '{_EXACT_FROM} 00:00:00+00' "
        f"AND {{column}} < '{_EXACT_TO} 00:00:00+00' "
        "THEN (date_part('epoch', {column}) * 1000000)::int8 "
        f"WHEN {{column}} >= '{_FIRST} 00:00:00+00' "
        f"AND {{column}} <= '{_LAST} 23:59:59.999999+00' "
        "THEN date_part('epoch', date_trunc('second', {column}))::int8 * 1000000 "
        "+ date_part('microseconds', {column})::int8 % 1000000 "
        f"ELSE {_failing_sql(place, _OUTSIDE, 'int8')} END"
    )


def _interval_rule(place: _Place, *, infinite: bool) -> TypeRule:
    """Return the type rule of PostgreSQL's intervals.

    The connector sends an infinite interval as an interval of 0. So if the type has infinite values
    (``infinite``), an interval of 0 in an event is doubtful.
    """
    printed = (
        "'P' || extract(year FROM {column})::int4 || 'Y' || extract(month FROM {column})::int4 "
        "|| 'M' || extract(day FROM {column})::int4 || 'DT' || extract(hour FROM {column})::int8 "
        "|| 'H' || extract(minute FROM {column})::int4 || 'M' "
        "|| trim_scale(extract(second FROM {column})::numeric)::text || 'S'"
    )
    failure = _failing_sql(place, "which the lake cannot hold", "int4")
    rule = _unconverted_rule(
        "string", f"CASE WHEN isfinite({COLUMN}) THEN {printed} ELSE {failure}::text END"
    )
    return replace(rule, doubtful="^P0Y0M0DT0H0M0S$") if infinite else rule


def _array_rule(element: PostgresType, place: _Place) -> TypeRule | None:
    """Return the type rule of arrays of one dimension, which the snapshot reads as JSON arrays."""
    if element.name not in _ARRAY_ITEMS:
        return None
    inner = _type_rule(element, place)
    if inner is None:
        return None
    item_sql = f"({inner.read('item')})::text"
    item = inner.from_jdbc(f"cast(item as {inner.read_type})")
    if inner.lake_type == "binary":
        item_sql, item = "encode(item, 'hex')", "unhex(item)"
    failure = _failing_sql(place, "an array of more than one dimension", "int4")
    return TypeRule(
        lake_type=f"array<{inner.lake_type}>",
        read_sql=" ".join(
            (
                "CASE WHEN coalesce(array_ndims({column}), 1) = 1 THEN",
                f"(SELECT coalesce(json_agg({item_sql} ORDER BY place), '[]')",
                "FROM unnest({column}) WITH ORDINALITY AS items(item, place)",
                "WHERE {column} IS NOT NULL HAVING {column} IS NOT NULL)::text",
                f"ELSE {failure}::text END",
            )
        ),
        read_type="string",
        jdbc_cast=f"transform({_TEXTS}, item -> {item})",
        one_to_one=False,  # {1,2} and [2:3]={1,2} are two values
    )


def _failing_sql(place: _Place, why: str, as_type: str) -> str:
    """Return SQL of a type rule that fails in PostgreSQL for each value, and is NULL for a NULL.

    The SQL casts a string that contains ``why``, and the cast fails. Without a function that is
    installed in the source, PostgreSQL has no other way to raise an error. The string also depends
    on the value, so the planner cannot evaluate the cast too early. A long value is cut.

    Args:
        place: The column with the value.
        why: Why the value is refused, as the end of the error's message.
        as_type: The PostgreSQL type of the SQL's result.
    """
    shown = f"left({{column}}::text, {_SHOWN})"
    if place.hidden:
        shown = "'***' || left({column}::text, 0)"
    return f"('{place.name} holds ' || {shown} || ', {why}')::{as_type}"


def _name_in_sql(name: str) -> str:
    """Return a name for a literal in a type rule's SQL; ``_`` replaces unsuitable characters."""
    return re.sub(r"[\x00-\x1f'\\{}?]", "_", name)


def _unconverted_rule(lake: str, read_sql: str = "{column}") -> TypeRule:
    """Return a type rule by which the lake stores what ``read_sql`` reads, without a conversion."""
    return TypeRule(lake, read_sql, lake, COLUMN)


# The array of texts in a JSON text. By default, Spark returns NULL for JSON that it cannot read,
# and it cannot read an element of more than 20,000,000 characters.
_TEXTS = (
    f"from_json({COLUMN}, 'array<string>', map('mode', 'FAILFAST', 'maxStringLen', '{2**31 - 1}'))"
)
_OUTSIDE = f"outside {_FIRST} to {_LAST}"
_TEXT = _unconverted_rule("string", "{column}::text")
# The text of the type's output function, which a cast to text does not always give. A composite
# whose fields are all NULL is not NULL itself, although IS NULL is true for it.
_PRINTED = _unconverted_rule(
    "string", "CASE WHEN num_nulls({column}) = 0 THEN format('%s', {column}) END"
)
_NUMERIC_TEXT = _unconverted_rule(
    "string",
    "CASE {column}::text WHEN 'NaN' THEN 'NAN' WHEN 'Infinity' THEN 'POSITIVE_INFINITY' "
    "WHEN '-Infinity' THEN 'NEGATIVE_INFINITY' ELSE {column}::text END",
)

_PLAIN: dict[str, TypeRule] = {
    "bool": _unconverted_rule("boolean"),
    "int2": _unconverted_rule("int", "{column}::int4"),
    "int4": _unconverted_rule("int"),
    "int8": _unconverted_rule("bigint"),
    "oid": _unconverted_rule("bigint", "{column}::int8"),
    "float4": _unconverted_rule("float"),
    "float8": _unconverted_rule("double"),
    "bytea": _unconverted_rule("binary"),
    # a cast of char(n) to text drops the padding, and a cast of inet adds the netmask; the output
    # functions print the text that events have
    "bpchar": _unconverted_rule("string", "bpcharout({column})::text"),
    "inet": _unconverted_rule("string", "inet_out({column})::text"),
    # a cast of xml keeps the declaration of its encoding, which is not printed
    "xml": _unconverted_rule("string", "xml_out({column})::text"),
    "timetz": replace(
        _unconverted_rule(
            "string",
            # the connector keeps 24:00 of UTC, which the server would turn into 00:00
            "CASE WHEN {column} = '24:00+00' THEN '24:00:00Z' "
            "ELSE ({column} AT TIME ZONE 'UTC')::time::text || 'Z' END",
        ),
        one_to_one=False,  # 00:00+00 and 01:00+01 are two values
    ),
    "money": _unconverted_rule("string", "{column}::numeric::text"),
    "time": _unconverted_rule(
        "bigint",
        "date_part('epoch', date_trunc('second', {column}::interval))::int8 * 1000000 "
        "+ date_part('microseconds', {column})::int8 % 1000000",
    ),
    **dict.fromkeys(
        (
            "text",
            "varchar",
            "char",
            "citext",
            "ltree",
            "uuid",
            "json",
            "jsonb",
            "cidr",
            "macaddr",
            "macaddr8",
            "tsvector",
            "int4range",
            "int8range",
            "numrange",
            "daterange",
            "tsrange",
        ),
        _TEXT,
    ),
}

_PLACED: dict[str, Callable[[_Place], TypeRule]] = {
    "date": _date_rule,
    "timestamp": _timestamp_rule,
    "timestamptz": _timestamptz_rule,
}

# Without timestamps: the connector converts those in arrays through its worker's time zone and
# calendar, so the hours that a change to summer time skips, and old dates, come out shifted.
_ARRAY_ITEMS = frozenset(
    (
        "bool",
        "int2",
        "int4",
        "int8",
        "oid",
        "float4",
        "float8",
        "numeric",
        "bytea",
        "bpchar",
        "inet",
        "text",
        "varchar",
        "char",
        "citext",
        "uuid",
        "json",
        "jsonb",
        "cidr",
        "macaddr",
        "macaddr8",
        "numrange",
        "timetz",
    )
)
