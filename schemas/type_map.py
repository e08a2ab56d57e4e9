"""Generates the page docs/types.md: the lake type of each PostgreSQL type, or why it is refused.

The lake types come from the rules of `schemas.types_postgres`, so the page cannot contradict the
code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.errors import UnsupportedTypeError
from schemas.types_postgres import PostgresType

OVERRIDE = "columns.as: {column: string}"
"""The setting by which the lake stores a column of any type as the text that the server prints."""

_DECIMAL = "columns.as: {column: decimal(p,s)}"
"""The setting that chooses precision and scale for a ``numeric`` that has neither."""

_CHOSEN = "decimal(18,4)"
_DEBEZIUM = "io.debezium."


@dataclass(frozen=True)
class TypeEntry:
    """One line of ``docs/types.md``: the lake type of a source type, or why it is refused.

    Args:
        type: Name of the type, or of a kind of types.
        debezium: The type's schema in the topic; None if the type is refused, and for all types of
            MySQL and MariaDB.
        lake: The type's Spark SQL type in the lake; None if the type is refused.
        notes: Notes for the reader of the lake, or the reason of the refusal.
    """

    type: str
    debezium: str | None
    lake: str | None
    notes: str = ""


def type_map() -> list[TypeEntry]:
    """Return an entry of ``docs/types.md`` for each type of PostgreSQL, accepted types first."""
    return [*_accepted_entries(), *_refused_entries()]


def as_markdown() -> str:
    """Return the Markdown of the page ``docs/types.md``."""
    lines = [
        "# Types",
        "",
        "Generated from the code by `tributary schema types --markdown`; a test compares. Snapshot",
        "and stream give the same lake value for the same cell, or stop and name the column.",
        "",
        "| PostgreSQL | in the topic | in the lake | notes |",
        "|---|---|---|---|",
    ]
    for entry in type_map():
        if entry.lake is not None:
            lines.append(f"| {entry.type} | {entry.debezium} | {entry.lake} | {entry.notes} |")
    lines += [
        "",
        "## Refused",
        "",
        "A table with such a column is refused at onboarding, unless its settings say what to do.",
        f"`{OVERRIDE}` brings it as the text that the server prints, unless that text has the",
        "names of other objects (below): the copy reads that text, and for each row that changes a",
        "run reads it from the primary by key. `columns.exclude: [column]` leaves it out.",
        "",
        "| PostgreSQL | why |",
        "|---|---|",
    ]
    lines += [f"| {one.type} | {one.notes} |" for one in type_map() if one.lake is None]
    return "\n".join(lines) + "\n"


def _accepted_entries() -> Iterator[TypeEntry]:
    """Yield the entries of the accepted PostgreSQL types for ``docs/types.md``."""
    for shown, kind, debezium, notes in _RULED:
        decimal = _CHOSEN if _DECIMAL in shown else ""
        lake = kind.rule(table="t", column="c", decimal=decimal).lake_type
        yield TypeEntry(shown, debezium, lake, notes)


def _refused_entries() -> Iterator[TypeEntry]:
    """Yield the entries of the refused PostgreSQL types for ``docs/types.md``."""
    for shown, kinds in _REFUSED:
        (why,) = {_why_refused(kind) for kind in kinds}
        yield TypeEntry(shown, None, None, why)


def _why_refused(kind: PostgresType) -> str:
    """Return why a PostgreSQL type is refused, from the error that its method ``rule`` raises."""
    try:
        kind.rule(table="t", column="c")
    except UnsupportedTypeError as error:
        return str(error.context["why"])
    raise AssertionError(f"{kind} has a rule and is listed as refused")


def _numeric_example(precision: int, scale: int) -> PostgresType:
    """Return a PostgreSQL ``numeric`` as an example for the page ``docs/types.md``."""
    return PostgresType("numeric", ((precision << 16) | (scale & 0x7FF)) + 4)


def _array_example(element: PostgresType) -> PostgresType:
    """Return a PostgreSQL array as an example for the page ``docs/types.md``."""
    return PostgresType(f"_{element.name}", element=element)


def _plain_examples(*names: str) -> tuple[PostgresType, ...]:
    """Return the PostgreSQL types with these names, as examples for the page ``docs/types.md``."""
    return tuple(PostgresType(name) for name in names)


_ENUM = PostgresType("mood", kind="e")
_YEARS = "years 1 to 9999; infinity and other years stop the table"
_WORDS = "text, digit for digit; NaN and infinities as NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY"

_NAMED = "refused where the connector can take it for another type, table or view of its name"

_RULED: tuple[tuple[str, PostgresType, str, str], ...] = (
    ("boolean", PostgresType("bool"), "boolean", ""),
    ("smallint", PostgresType("int2"), "int16", ""),
    ("integer", PostgresType("int4"), "int32", ""),
    ("bigint", PostgresType("int8"), "int64", ""),
    ("oid", PostgresType("oid"), "int64", ""),
    ("real", PostgresType("float4"), "float32", ""),
    ("double precision", PostgresType("float8"), "float64", ""),
    (
        "numeric(p,s), up to 38 digits",
        _numeric_example(10, 2),
        "string",
        "p and s as at the source; NaN stops the table",
    ),
    ("numeric(p,s), above 38 digits", _numeric_example(60, 2), "string", _WORDS),
    ("numeric", PostgresType("numeric"), "string", _WORDS),
    (
        f"any numeric with `{_DECIMAL}`",
        PostgresType("numeric"),
        "string",
        "p and s as set (here 18 and 4), p up to 38; a value that does not fit exactly, NaN and"
        " infinities stop the table",
    ),
    (
        "money",
        PostgresType("money"),
        "string",
        "text of the number, without currency, with two digits after the point; refused if"
        " `lc_monetary` has another number of digits",
    ),
    ("text, varchar(n), citext", PostgresType("text"), "string", ""),
    ("char(n)", PostgresType("bpchar"), "string", "padded, as the source prints it"),
    ('"char"', PostgresType("char"), "string", ""),
    ("bytea", PostgresType("bytea"), "bytes", ""),
    ("uuid", PostgresType("uuid"), f"{_DEBEZIUM}data.Uuid", ""),
    ("json, jsonb", PostgresType("json"), f"{_DEBEZIUM}data.Json", "text as the source prints it"),
    ("xml", PostgresType("xml"), f"{_DEBEZIUM}data.Xml", ""),
    ("ltree", PostgresType("ltree"), f"{_DEBEZIUM}data.Ltree", ""),
    ("tsvector", PostgresType("tsvector"), f"{_DEBEZIUM}data.Tsvector", ""),
    ("inet, cidr, macaddr, macaddr8", PostgresType("inet"), "string", ""),
    ("date", PostgresType("date"), f"{_DEBEZIUM}time.Date", _YEARS),
    ("time", PostgresType("time"), f"{_DEBEZIUM}time.MicroTime", "microseconds; 24:00 is kept"),
    (
        "timetz",
        PostgresType("timetz"),
        f"{_DEBEZIUM}time.ZonedTime",
        "in UTC; 24:00 of UTC is kept. An offset with seconds stops the connector, and with it"
        " every table",
    ),
    ("timestamp", PostgresType("timestamp"), f"{_DEBEZIUM}time.MicroTimestamp", _YEARS),
    ("timestamptz", PostgresType("timestamptz"), f"{_DEBEZIUM}time.ZonedTimestamp", _YEARS),
    (
        "interval",
        PostgresType("interval"),
        f"{_DEBEZIUM}time.Interval",
        "ISO 8601. At more than 2,147,483,647 hours, the connector tries again without end, and no"
        " table goes on. From version 17 on, the connector sends 0 for infinity, so an interval of"
        " 0 is read from the primary by key; infinity stops the table, and so does 0 in a key or"
        " with `mode: append`",
    ),
    ("bit(1)", PostgresType("bit", 1), "boolean", ""),
    (
        "int4range, int8range, numrange, daterange, tsrange",
        PostgresType("int4range", kind="r"),
        "string",
        "text as the source prints it",
    ),
    ("enums", _ENUM, f"{_DEBEZIUM}data.Enum", f"the label; {_NAMED}"),
    (
        "domains",
        PostgresType("d", kind="d", base=PostgresType("int4")),
        "of the base type",
        f"as their base type (here integer); {_NAMED}",
    ),
    (
        "arrays of boolean, smallint, integer, bigint, oid, real, double precision, numeric, bytea,"
        " text, varchar, char, citext, uuid, json, jsonb, inet, cidr, macaddr, macaddr8, numrange,"
        " timetz",
        _array_example(PostgresType("int4")),
        "array",
        "of one dimension, with NULLs (here integer[]); of more dimensions stop the table",
    ),
)

_REFUSED: tuple[tuple[str, tuple[PostgresType, ...]], ...] = (
    ("name", _plain_examples("name")),
    (
        "bit(n), bit varying",
        (PostgresType("bit", 8), PostgresType("varbit")),
    ),
    ("numeric of negative scale", (_numeric_example(5, -2),)),
    (
        "hstore, tstzrange",
        (*_plain_examples("hstore"), PostgresType("tstzrange", kind="r")),
    ),
    (
        "point, line, lseg, box, path, polygon, circle",
        _plain_examples("point", "line", "lseg", "box", "path", "polygon", "circle"),
    ),
    ("multiranges", (PostgresType("int4multirange", kind="m"),)),
    ("composite types", (PostgresType("pair", kind="c"),)),
    (
        "tsquery, pg_lsn, pg_snapshot, txid_snapshot, xid, xid8, cid, tid, jsonpath, refcursor,"
        " gtsvector, int2vector, oidvector, pg_node_tree and other types of the catalog",
        _plain_examples(
            "tsquery",
            "pg_lsn",
            "pg_snapshot",
            "txid_snapshot",
            "xid",
            "xid8",
            "cid",
            "tid",
            "jsonpath",
            "refcursor",
            "gtsvector",
            "int2vector",
            "oidvector",
        ),
    ),
    (
        "regclass, regtype and other reg types, aclitem",
        _plain_examples(
            "aclitem",
            "regclass",
            "regcollation",
            "regconfig",
            "regdatabase",
            "regdictionary",
            "regnamespace",
            "regoper",
            "regoperator",
            "regproc",
            "regprocedure",
            "regrole",
            "regtype",
        ),
    ),
    (
        "arrays of date, time, timestamp, timestamptz",
        tuple(
            _array_example(one)
            for one in _plain_examples("date", "time", "timestamp", "timestamptz")
        ),
    ),
    (
        "arrays of enums, ltree, tsvector, bit",
        (
            _array_example(_ENUM),
            *(_array_example(one) for one in _plain_examples("ltree", "tsvector", "bit", "varbit")),
        ),
    ),
    (
        "arrays of domains, interval, money, xml, ranges other than numrange, and of refused types",
        (
            *(
                _array_example(one)
                for one in _plain_examples("interval", "money", "xml", "name", "point")
            ),
            _array_example(PostgresType("int4range", kind="r")),
            _array_example(PostgresType("d", kind="d", base=PostgresType("int4"))),
        ),
    ),
    (
        "types of extensions that are not named above",
        _plain_examples("geometry", "vector"),
    ),
)
