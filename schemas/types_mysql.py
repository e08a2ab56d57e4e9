"""The type map of MySQL and MariaDB: a column's lake type, and its expression in the snapshot.

As for PostgreSQL (`schemas.types_postgres`), the snapshot's `TypeRule.read_sql` and
`TypeRule.jdbc_cast` together give the value that the stream's decoder makes of the same cell. A
type has a rule only if tests with real connectors have proven this. The connectors had
``decimal.handling.mode=string``, ``time.precision.mode=adaptive_time_microseconds``,
``bigint.unsigned.handling.mode=long``, ``binary.handling.mode=bytes`` and
``enable.time.adjuster=false``. The snapshot's session has the time zone UTC. A date whose year,
month or day is zero, for example ``0000-00-00`` or ``2024-02-00``, is NULL in the lake. A copy also
stores NULL for a date such as ``2024-02-31``; an event with such a date stops the connectors.

Snapshot and stream store the same JSON for a JSON document of MySQL (`schemas.json_text`).
Geometries are EWKB: WKB with the SRID, or plain WKB if the SRID is 0. The snapshot reads the
server's stored bytes. It does not use ``ST_AsBinary``: this function swaps the axes of some SRIDs,
and the connector does not.

These types have no rule:

- ``uuid``, ``inet4`` and ``inet6`` of MariaDB, since Debezium 3.5 garbles them or stops at them;
- an enum or set with a backslash, newline, carriage return or NUL in a label, since the connector
  does not send these characters, but their escapes, as in an SQL literal;
- text in a character set that the connectors read differently (`schemas.charsets_mysql`);
- ``year(2)`` of MariaDB, since the copy has two digits of the year and the stream four.

A zero date of a NOT NULL column arrives as 1970, or as the column's default. A run reads such a
value from the source (`cdc.rows.binlog_values.doubt_test`). If the connector garbles a JSON
document, a run reads the document from the source, too.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from schemas import json_text, refusals
from schemas.charsets_mysql import DOUBTFUL
from schemas.table import TableId
from schemas.type_rule import COLUMN, MAX_DIGITS, TypeRule, not_numeric, without_rule

_SHAPE = re.compile(r"(?P<name>[a-z0-9]+)(?:\((?P<inside>.*)\))?(?P<rest>[a-z ]*)", re.DOTALL)
_LABEL = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)


@dataclass(frozen=True)
class MysqlType:
    """A parsed column type of MySQL or MariaDB.

    Args:
        name: The name alone, for example ``int``, ``varchar`` or ``enum``.
        sizes: The numbers after the name: length, or precision and scale.
        labels: The labels of an enum or a set.
        unsigned: Whether the type has no negative values.
        display: The type as the catalog prints it, for example ``bigint(20) unsigned``.
        charset: The character set of a text type; empty for other types.
    """

    name: str
    sizes: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    unsigned: bool = False
    display: str = ""
    charset: str = ""

    def __str__(self) -> str:
        return self.display or self.name

    @classmethod
    def parse(cls, column_type: str, charset: str = "") -> MysqlType:
        """Parse a MySQL or MariaDB type from ``information_schema.COLUMNS``.

        Any string can be parsed.

        Args:
            column_type: ``COLUMN_TYPE``.
            charset: ``CHARACTER_SET_NAME``; empty if it is NULL.
        """
        shape = _SHAPE.match(column_type)
        if shape is None:
            return cls(column_type, display=column_type, charset=charset)
        name, inside = shape["name"], shape["inside"] or ""
        labelled = name in ("enum", "set")
        return cls(
            name=name,
            sizes=() if labelled else tuple(int(n) for n in re.findall(r"\d+", inside)),
            labels=tuple(one.replace("''", "'") for one in _LABEL.findall(inside))
            if labelled
            else (),
            unsigned="unsigned" in shape["rest"],
            display=column_type,
            charset=charset,
        )

    def rule(
        self,
        *,
        table: TableId | str,
        column: str,
        as_text: bool = False,
        decimal: str = "",
        hidden: bool = False,
    ) -> TypeRule:
        """Return the rule of a MySQL or MariaDB type; see `schemas.type_rule.SourceType`.

        The snapshot can read every value of a type with a rule. So no error shows a value, and
        ``hidden`` has no effect.
        """
        if as_text:
            return _unconverted_rule("string", _PRINTED)
        if decimal:
            raise not_numeric(self, decimal, table=table, column=column)
        rule = _type_rule(self)
        if rule is None:
            raise without_rule(self, refusals.of_mysql(self), table=table, column=column)
        return rule


def _type_rule(kind: MysqlType) -> TypeRule | None:
    """Return the type rule of a type of MySQL or MariaDB; None if the type has no rule."""
    if kind.name in _BY_SHAPE:
        return _BY_SHAPE[kind.name](kind)
    return _PLAIN.get(kind.name)


def _integer_rule(kind: MysqlType) -> TypeRule:
    """Return the type rule of a MySQL integer; an unsigned ``int`` or ``bigint`` becomes wider."""
    if kind.name == "bigint":
        return _unconverted_rule("decimal(20,0)") if kind.unsigned else _unconverted_rule("bigint")
    return _unconverted_rule(
        "bigint" if kind.name in ("int", "integer") and kind.unsigned else "int"
    )


def _decimal_rule(kind: MysqlType) -> TypeRule:
    """Return the rule of a MySQL decimal, which becomes a string if Spark has no such decimal."""
    precision, scale = (*kind.sizes, 10, 0)[:2] if len(kind.sizes) != 1 else (kind.sizes[0], 0)
    if precision > MAX_DIGITS:
        # A column with ZEROFILL prints zeros before its digits, and the result of a cast does not.
        digits = f"CAST({COLUMN} AS DECIMAL({precision},{scale}))"
        return _unconverted_rule("string", f"CAST({digits} AS CHAR)")
    return _unconverted_rule(f"decimal({precision},{scale})")


def _bit_rule(kind: MysqlType) -> TypeRule:
    """Return the rule of MySQL's ``bit``, which becomes a number, or a boolean if it is one bit."""
    width = kind.sizes[0] if kind.sizes else 1
    if width == 1:
        return TypeRule("boolean", f"{COLUMN} + 0", "int", f"{COLUMN} = 1")
    lake = "decimal(20,0)" if width == 64 else "bigint"
    return _unconverted_rule(lake, f"CAST({COLUMN} AS UNSIGNED)")


def _labelled_rule(kind: MysqlType) -> TypeRule | None:
    """Return the rule of an enum or set; None if MySQL's catalog prints a label with a backslash.

    The catalog prints a backslash, newline, carriage return or NUL as an escape that begins with a
    backslash. The connector sends the escape.
    """
    return None if any("\\" in label for label in kind.labels) else _TEXT


def _year_rule(kind: MysqlType) -> TypeRule | None:
    """Return the rule of MySQL's ``year``; None for ``year(2)``, of which a copy has two digits."""
    return None if kind.sizes == (2,) else _unconverted_rule("int", f"{COLUMN} + 0")


def _text_rule(kind: MysqlType) -> TypeRule | None:
    """Return the rule of a MySQL text type; None if `DOUBTFUL` lacks the type's character set."""
    doubtful = DOUBTFUL.get(kind.charset or "utf8mb4")
    if doubtful is None:
        return None
    return replace(_TEXT, doubtful=f"[{doubtful}]") if doubtful else _TEXT


def _vector_floats(printed: str) -> list[float]:
    """Return the numbers of a MySQL vector; ``printed`` is its bytes as hexadecimal digits."""
    return [one for (one,) in struct.iter_unpack("<f", bytes.fromhex(printed))]


def _unconverted_rule(lake: str, read_sql: str = COLUMN) -> TypeRule:
    """Return a type rule by which the lake stores what ``read_sql`` reads, without a conversion.

    Args:
        lake: The Spark SQL type of the lake column.
        read_sql: The SQL expression that the snapshot selects at the source.
    """
    return TypeRule(lake, read_sql, lake, COLUMN)


TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
"""The names of text types.

The binlog has the values of these types as bytes in the column's character set.
"""

BOOLEANS = frozenset({"bool", "boolean"})
"""Names, in lower case, by which statements can mean ``tinyint(1)``.

If a connector derives a column's type from such a statement, it sends TRUE for each number other
than 0.
"""

CALENDAR = frozenset({"date", "datetime", "timestamp"})
"""Types whose values can be dates that no calendar has."""


FORMER_FORMAT = "/* mariadb-5.3 */"
"""What MariaDB's catalog prints after a column's type if the column is stored in the format from
before MariaDB 10.1."""


def on_calendar(column: str) -> str:
    """Return the SQL by which type rules ask MySQL whether a column's date exists in the calendar.

    With ALLOW_INVALID_DATES, the servers accept any day up to 31. The SQL converts the date to a
    number of days and back. For example, 2024-02-31 becomes 2024-03-02, whose day differs.
    """
    parts = [f"{part}({column}) > 0" for part in ("YEAR", "MONTH", "DAYOFMONTH")]
    counted = f"DAYOFMONTH(FROM_DAYS(TO_DAYS({column})))"
    return " AND ".join((*parts, f"COALESCE({counted} = DAYOFMONTH({column}), FALSE)"))


def _existing_moment(moment: str) -> str:
    """Return SQL for ``moment`` that gives NULL if the column's date is not in the calendar.

    Args:
        moment: MySQL's SQL expression for the column's value.
    """
    return f"CASE WHEN {on_calendar(COLUMN)} THEN {moment} END"


_TEXT = _unconverted_rule("string")
_PRINTED = f"CAST({COLUMN} AS CHAR)"
_BYTES = _unconverted_rule("binary")
_STORED = f"CAST({COLUMN} AS BINARY)"
# The server keeps the SRID, of four bytes, and then the WKB, least significant byte first. In EWKB
# the SRID follows the type, whose highest bits mark it.
_EWKB = _unconverted_rule(
    "binary",
    f"CASE WHEN SUBSTR({_STORED}, 1, 4) = x'00000000' THEN SUBSTR({_STORED}, 5)"
    f" ELSE CONCAT(SUBSTR({_STORED}, 5, 4), x'20', SUBSTR({_STORED}, 1, 4),"
    f" SUBSTR({_STORED}, 10)) END",
)
_BITS = ", ".join(f"substring({COLUMN}, 8 * i + {place}, 2)" for place in (7, 5, 3, 1))
_FRACTION, _EXPONENT = "(v & 8388607)", "CAST(shiftright(v, 23) & 255 AS INT)"
# Each float is four bytes, the least significant first. As text, floats have only six digits.
_FLOATS = (
    f"transform(transform(sequence(0, length({COLUMN}) DIV 8 - 1),"
    f" i -> CAST(conv(concat({_BITS}), 16, 10) AS BIGINT)),"
    f" v -> CAST(CASE WHEN v < 2147483648 THEN 1D ELSE -1D END"
    f" * CASE WHEN {_EXPONENT} = 0 THEN {_FRACTION} * pow(2D, -149)"
    f" ELSE ({_FRACTION} + 8388608) * pow(2D, {_EXPONENT} - 150) END AS FLOAT))"
)
_MICROS = _existing_moment(f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {COLUMN})")

_PLAIN: dict[str, TypeRule] = {
    # As text a float has only six digits.
    "float": TypeRule("float", f"CAST({COLUMN} AS DOUBLE)", "double", f"CAST({COLUMN} AS FLOAT)"),
    "double": _unconverted_rule("double"),
    "date": TypeRule(
        "date",
        _existing_moment(f"DATEDIFF({COLUMN}, '1970-01-01')"),
        "int",
        f"date_from_unix_date({COLUMN})",
    ),
    "datetime": TypeRule(
        "timestamp_ntz", _MICROS, "bigint", f"cast(timestamp_micros({COLUMN}) as timestamp_ntz)"
    ),
    "timestamp": TypeRule("timestamp", _MICROS, "bigint", f"timestamp_micros({COLUMN})"),
    # Up to 838 hours on either side of zero; TIME_TO_SEC has microseconds on MariaDB only.
    "time": _unconverted_rule(
        "bigint",
        f"CASE WHEN {COLUMN} < '00:00:00' THEN -1 ELSE 1 END"
        f" * (((HOUR({COLUMN}) * 60 + MINUTE({COLUMN})) * 60 + SECOND({COLUMN})) * 1000000"
        f" + MICROSECOND({COLUMN}))",
    ),
    **dict.fromkeys(("binary", "varbinary"), _BYTES),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon"), _EWKB),
    **dict.fromkeys(("multipoint", "multilinestring", "multipolygon"), _EWKB),
    **dict.fromkeys(("geometrycollection", "geomcollection"), _EWKB),
    "vector": TypeRule("array<float>", f"HEX({COLUMN})", "string", _FLOATS, _vector_floats),
    # MariaDB's JSON is a longtext.
    "json": TypeRule("string", _PRINTED, "string", json_text.in_spark(COLUMN), json_text.in_python),
}

_BY_SHAPE: dict[str, Callable[[MysqlType], TypeRule | None]] = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "integer", "bigint"), _integer_rule
    ),
    "decimal": _decimal_rule,
    "bit": _bit_rule,
    **dict.fromkeys(("enum", "set"), _labelled_rule),
    "year": _year_rule,
    **dict.fromkeys(TEXTS, _text_rule),
}

WITH_RULE = frozenset(_PLAIN) | frozenset(_BY_SHAPE)
"""The names of types that have a rule for at least some of their columns."""
