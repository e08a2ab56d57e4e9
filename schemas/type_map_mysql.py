"""Generates the page docs/types_mysql.md: each type's lake type, or why the type is refused.

The types are those of MySQL and MariaDB. The lake types and the reasons come from the rules of
`schemas.types_mysql` and `schemas.refusals`.
"""

from __future__ import annotations

from schemas.errors import UnsupportedTypeError
from schemas.type_map import OVERRIDE, TypeEntry
from schemas.types_mysql import MysqlType

_IN = " character set "
_NO_CALENDAR = "dates that no calendar has are NULL: docs/mysql.md"
_EWKB = "EWKB: WKB with the SRID, least significant byte first"

# The shown text, a type as the catalog prints it, notes, and the server if only one of the two has
# the type.
_RULED: tuple[tuple[str, str, str, str], ...] = (
    ("tinyint, smallint, mediumint, signed or not", "mediumint unsigned", "", ""),
    ("int", "int", "", ""),
    ("int unsigned", "int unsigned", "", ""),
    ("bigint", "bigint", "", ""),
    ("bigint unsigned", "bigint unsigned", "", ""),
    ("float", "float", "", ""),
    ("double", "double", "", ""),
    ("decimal(p,s), up to 38 digits", "decimal(10,2)", "p and s as at the source", ""),
    ("decimal(p,s), above 38 digits", "decimal(60,2)", "text, digit for digit", ""),
    ("bit(1)", "bit(1)", "", ""),
    ("bit(2) to bit(63)", "bit(8)", "the bits as a number", ""),
    ("bit(64)", "bit(64)", "the bits as a number", ""),
    ("char, varchar, tinytext, text, mediumtext, longtext", "varchar(10)", "", ""),
    ("binary, varbinary, tinyblob, blob, mediumblob, longblob", "blob", "", ""),
    ("enum whose labels need no escape", "enum('a','b')", "the label", ""),
    ("set whose labels need no escape", "set('a','b')", "the labels, with commas", ""),
    ("date", "date", _NO_CALENDAR, ""),
    ("datetime(n)", "datetime(6)", _NO_CALENDAR, ""),
    ("timestamp(n)", "timestamp(6)", f"{_NO_CALENDAR}; in UTC", ""),
    ("time(n)", "time(6)", "microseconds, up to 838 hours on either side of zero", ""),
    ("year", "year", "", ""),
    ("json", "json", "one form for all servers: docs/mysql.md", "mysql"),
    ("json", "longtext", "the text as it was written", "mariadb"),
    (
        "geometry, point, linestring, polygon, multipoint, multilinestring, multipolygon,"
        " geometrycollection",
        "geometry",
        _EWKB,
        "",
    ),
    ("vector", "vector(3)", "", ""),
)
_REFUSED: tuple[tuple[str, str, str], ...] = (
    (
        "text in swe7, and likewise in armscii8, cp932, dec8, eucjpms, gb18030, geostd8, hp8,"
        " keybcs2, ucs2, utf16 and utf32",
        f"varchar(10){_IN}swe7",
        "",
    ),
    (
        "enum or set with a backslash, newline, carriage return or NUL in a label",
        "set('a\\b')",
        "",
    ),
    ("year(2)", "year(2)", "mariadb"),
    ("uuid", "uuid", "mariadb"),
    ("inet4, inet6", "inet6", "mariadb"),
    ("all others", "made_up", ""),
)


def type_map(kind: str) -> list[TypeEntry]:
    """Return an entry for each type of MySQL or of MariaDB, accepted types first.

    Args:
        kind: ``mysql`` or ``mariadb``.
    """
    return [
        *(_accepted_entry(*one) for *one, only in _RULED if only in ("", kind)),
        *(_refused_entry(*one) for *one, only in _REFUSED if only in ("", kind)),
    ]


def as_markdown() -> str:
    """Return the Markdown of the page ``docs/types_mysql.md``."""
    lines = [
        "# Types of MySQL and MariaDB",
        "",
        "Generated from the code by `tributary schema types --kind mysql --markdown`; a test",
        "compares. Snapshot and stream give the same lake value for the same cell, or stop and",
        "name the column, if the connector knows the table as the server has it, which is checked",
        "(docs/mysql.md). docs/types.md has the types of PostgreSQL.",
        "",
        "| type | in the lake | notes |",
        "|---|---|---|",
    ]
    lines += [
        f"| {shown}{_shown_server(only)} | {entry.lake} | {entry.notes} |"
        for shown, parsed, notes, only in _RULED
        for entry in (_accepted_entry(shown, parsed, notes),)
    ]
    lines += [
        "",
        "## Refused",
        "",
        "A table with such a column is refused at onboarding, unless its settings say what to do:",
        f"`{OVERRIDE}` brings the text that the server prints, read from the primary by",
        "key for each row that changes; `columns.exclude: [column]` leaves it out. At a type where",
        "the connector itself stops, neither helps: such a table cannot be captured.",
        "",
        "| type | why |",
        "|---|---|",
    ]
    lines += [
        f"| {shown}{_shown_server(only)} | {_refused_entry(shown, parsed).notes} |"
        for shown, parsed, only in _REFUSED
    ]
    return "\n".join(lines) + "\n"


def _shown_server(only: str) -> str:
    """Return what ``docs/types_mysql.md`` adds to a type that only MySQL or only MariaDB has."""
    return {"mysql": " of MySQL", "mariadb": " of MariaDB"}.get(only, "")


def _accepted_entry(shown: str, parsed: str, notes: str) -> TypeEntry:
    """Return the entry of ``docs/types_mysql.md`` for an accepted type."""
    rule = MysqlType.parse(parsed).rule(table="t", column="c")
    return TypeEntry(shown, None, rule.lake_type, notes)


def _refused_entry(shown: str, parsed: str) -> TypeEntry:
    """Return the entry of ``docs/types_mysql.md`` for a refused type, with the reason."""
    try:
        MysqlType.parse(*parsed.split(_IN)).rule(table="t", column="c")
    except UnsupportedTypeError as error:
        return TypeEntry(shown, None, None, str(error.context["why"]))
    raise AssertionError(f"{parsed} has a rule and is listed as refused")
