"""Converts decoded values of events to lake values, as Spark SQL expressions over ``from_avro``.

The writer's schema has the meaning of a value (Debezium's semantic type). The table's schema has
the lake's type. If values with this meaning do not convert to the lake's type, the type of the
source's column has changed, and the table's run stops.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from cdc.errors import SchemaChangeError
from schemas.avro import DebeziumField
from schemas.table import Column, TableId

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_ARRAY = re.compile(r"array<(.+)>")
_JAVA_ARRAY = r"^\[+L?[A-Za-z.]+;?@[0-9a-f]+$"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
# The bounds of the years 1 to 9999, on which Parquet readers and Python agree. The integers that
# mean infinity, and the dates BC, are outside of these bounds.
_DAYS = (-719_162, 2_932_896)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)

DATE = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_TIME_MILLIS = ("io.debezium.time.Time", "org.apache.kafka.connect.data.Time")
TIMESTAMP_MILLIS = ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp")


@dataclass(frozen=True)
class LakeValue:
    """A Spark SQL expression that converts a field of an event to the lake's value.

    Args:
        sql: Spark SQL of the lake's value. It is null if the event's value is null.
        total: Whether the lake's type can represent every value exactly. If False, ``sql`` is also
            null for a value that the type cannot represent.
    """

    sql: str
    total: bool = True


def quoted(name: str) -> str:
    """Return a column's name in quotes for Spark SQL on rows. The name may have any characters."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a Spark SQL string literal with the value ``text``, for SQL that decodes events."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def lake_value(raw: str, field: DebeziumField, column: Column, table: TableId) -> LakeValue:
    """Return Spark SQL that converts a decoded event's field to the lake's value.

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema.
        column: The lake's column.
        table: The table, for the error.

    Raises:
        SchemaChangeError: A field's type in an event's schema does not convert to the lake's type.
    """
    value = _scalar_value(raw, field, column.lake_type) or _array_value(
        raw, field, column.lake_type
    )
    if value is None:
        written = field.connect_name or field.avro_type
        raise SchemaChangeError(
            f"column {column.name!r} of table {table} arrives as {written}, which does not"
            f" convert to {column.lake_type}: its type has changed",
            remedy=f"Copy the table again: `tributary bootstrap {table}`.",
            table=table,
            field=column.name,
        )
    return value


def placeholder_test(raw: str, field: DebeziumField, placeholder: str) -> str | None:
    """Return Spark SQL that is true for the placeholder of an unchanged value.

    The connector sends the placeholder in place of an unchanged value that the log does not have.
    The value is then taken from the lake or from the source. An event does not distinguish the
    placeholder from an equal value that the update itself has set, so the placeholder is a string
    that no application stores. Numbers, dates and booleans have no placeholder.

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema.
        placeholder: The capture's placeholder, which is not yet quoted.

    Returns:
        The expression, or None if the type does not have a placeholder.
    """
    data = placeholder.encode()
    if field.avro_type == "string":
        shown = f"{raw} = {literal(placeholder)}"
        if (field.connect_name or "").endswith("data.Json"):
            # The placeholder of an hstore.
            pair = json.dumps({placeholder: placeholder}, separators=(",", ":"))
            return f"({shown} OR {raw} = {literal(pair)})"
        return shown
    if field.avro_type == "bytes":
        return f"{raw} = X'{data.hex()}'"
    if field.avro_type == "map":
        return f"element_at({raw}, {literal(placeholder)}) = {literal(placeholder)}"
    if field.avro_type != "array" or field.element is None:
        return None
    numbers = ", ".join(str(byte) for byte in data)
    if field.element.avro_type == "string":
        texts = (literal(placeholder), literal(str(_placeholder_uuid(data))))
        return "(" + " OR ".join(f"{raw} = array({text})" for text in texts) + ")"
    if field.element.avro_type in ("int", "long"):
        kind = "INT" if field.element.avro_type == "int" else "BIGINT"
        return f"{raw} = CAST(array({numbers}) AS ARRAY<{kind}>)"
    if field.element.avro_type == "bytes":
        return f"{raw} = array(X'{data.hex()}')"
    return None


def default_test(raw: str, field: DebeziumField) -> str | None:
    """Return Spark SQL that is true if an event's value may be a default sent in place of NULL.

    The Avro converter of Kafka Connect can send the column's default in place of NULL.

    Source: https://github.com/confluentinc/schema-registry/issues/2314

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema.

    Returns:
        The expression, or None if the column is NOT NULL or has no default.
    """
    default = field.default
    if not field.nullable or default is None:
        return None
    if field.avro_type == "string":
        return f"{raw} = {literal(str(default))}"
    if field.avro_type == "bytes":
        return f"{raw} = X'{str(default).encode('latin-1').hex()}'"
    if field.avro_type in ("boolean", "int", "long"):
        return f"{raw} = {json.dumps(default)}"
    return f"{raw} IS NOT NULL"


def doubtful_test(raw: str, field: DebeziumField, column: Column) -> str | None:
    """Return Spark SQL that is true for a string that can mean several values of the source.

    For example, PostgreSQL's connector sends an infinite interval as an interval of 0.

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema.
        column: The lake's column.

    Returns:
        The expression, or None if the column has no such strings.
    """
    if not column.doubtful or field.avro_type != "string":
        return None
    return f"{raw} RLIKE {literal(column.doubtful)}"


def garbled_test(raw: str, field: DebeziumField) -> str | None:
    """Return Spark SQL that is true if a string in an event's value is not valid UTF-8.

    The lake's readers fail at such a string.

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema.

    Returns:
        The expression, or None if the value is neither a string nor an array of strings.
    """
    if field.avro_type == "string":
        return f"CAST({raw} AS BINARY) <> encode({raw}, 'UTF-8')"
    if field.avro_type == "array" and field.element is not None:
        element = garbled_test("x", field.element)
        return None if element is None else f"exists({raw}, x -> x IS NOT NULL AND {element})"
    return None


def inexact(column: Column, given: str) -> str:
    """Return a WHEN branch of Spark SQL for a sent value that the lake cannot hold exactly.

    The result of the branch is the text of the record's ``PROBLEM``.

    Args:
        column: The lake's column.
        given: Spark SQL that is true if a value was sent. For a column that is not secret and whose
            decimal type the settings chose, the SQL returns the beginning of the sent value
            instead. The text of the problem then quotes this beginning.
    """
    name, lost = literal(column.name), f"{quoted(column.name)} IS NULL"
    if not column.decimal:
        return f"WHEN {given} AND {lost} THEN concat('no exact value for column ', {name})"
    sent, shown = (given, "'***'") if column.secret else (f"{given} IS NOT NULL", given)
    why = f", which {column.lake_type} of columns.as cannot hold: choose another decimal, or string"
    return (
        f"WHEN {sent} AND {lost} THEN concat('column ', {name}, ' holds ', {shown}, {literal(why)})"
    )


def _placeholder_uuid(data: bytes) -> uuid.UUID:
    """Return Debezium's placeholder in an array of UUIDs, made from the placeholder's bytes.

    Java's ``UUID.nameUUIDFromBytes``, which Debezium calls, returns the same UUID.
    """
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    return uuid.UUID(bytes=digest, version=3)


def _scalar_value(raw: str, field: DebeziumField, lake: str) -> LakeValue | None:
    """Return Spark SQL that converts a field other than an array; None if no conversion exists.

    ``raw`` is Spark SQL of the decoded value, and ``lake`` is the lake column's Spark SQL type.
    """
    name, kind = field.connect_name or "", field.avro_type
    cast = f"TRY_CAST({raw} AS {lake.upper()})"
    if lake in _INTEGERS:
        if name.endswith("time.MicroTime") and lake == "bigint":
            return LakeValue(raw)
        if name in _TIME_MILLIS and lake == "bigint":
            return LakeValue(f"CAST({raw} AS BIGINT) * 1000")
        if name.endswith("time.NanoTime") and lake == "bigint":
            return LakeValue(f"{raw} DIV 1000")
        # If the source's column was narrowed after the event, the lake's type is narrower than the
        # event's, and the value must fit exactly.
        if kind in ("int", "long") and not name:
            exact = f"CASE WHEN CAST({cast} AS BIGINT) = {raw} THEN {cast} END"
            fits = (kind == "int" and lake in ("int", "bigint")) or lake == "bigint"
            return LakeValue(cast if fits else exact, total=fits)
        if kind == "int" and name.endswith("Int16"):
            return LakeValue(cast)
        return None
    if lake == "boolean":
        return LakeValue(raw) if kind == "boolean" else None
    if lake in ("float", "double"):
        return LakeValue(cast) if kind in ("float", "double") and not name else None
    if lake == "binary":
        return LakeValue(raw) if kind == "bytes" and not name else None
    if decimal := _DECIMAL.fullmatch(lake):
        return _decimal_value(raw, field, int(decimal[1]), int(decimal[2]))
    if lake == "string":
        value = _interval_value(raw) if name.endswith("time.Interval") else raw
        return LakeValue(value) if kind == "string" else None
    if lake == "date":
        if name not in DATE or kind != "int":
            return None
        within = f"{raw} BETWEEN {_DAYS[0]} AND {_DAYS[1]}"
        return LakeValue(f"CASE WHEN {within} THEN date_from_unix_date({raw}) END", total=False)
    if lake in ("timestamp", "timestamp_ntz"):
        return _timestamp_value(raw, field, lake)
    return None


def _interval_value(raw: str) -> str:
    """Return Spark SQL of an event's interval, its seconds rounded to six digits as in the source.

    The connector converts the seconds to a double and cuts them off after nine digits: 1.785319
    becomes 1.785318999.
    """
    seconds = f"CAST(regexp_extract({raw}, 'M(-?[0-9]+[.][0-9]+)S$', 1) AS DECIMAL(20,9))"
    rounded = f"regexp_replace(CAST(round({seconds}, 6) AS STRING), '[.]?0+$', '')"
    mended = f"concat(regexp_extract({raw}, '^(.*M)', 1), {rounded}, 'S')"
    return f"CASE WHEN {raw} RLIKE '[.][0-9]{{7,}}S$' THEN {mended} ELSE {raw} END"


def _decimal_value(raw: str, field: DebeziumField, precision: int, scale: int) -> LakeValue | None:
    """Return Spark SQL that converts a field to a lake decimal; None if no conversion exists.

    ``raw`` is Spark SQL of the decoded value.
    """
    kind = f"DECIMAL({precision},{scale})"
    if field.avro_type in ("int", "long") and not field.connect_name:
        return LakeValue(f"TRY_CAST({raw} AS {kind})", total=False)
    if field.avro_type != "string" or field.connect_name:
        return None
    # A cast would round silently, so digits past the scale must be refused. NaN and infinity become
    # null, which the caller treats as a value that the lake cannot hold exactly.
    # Zeros at the end do not count: a numeric without a declared scale keeps as many as were typed.
    digits = f"length(trim(TRAILING '0' FROM {raw})) - instr({raw}, '.')"
    # A cast would also skip control characters at both ends, and round a number with an exponent.
    plain = (
        f"left({raw}, 1) BETWEEN '+' AND '9' AND right({raw}, 1) BETWEEN '0' AND '9'"
        f" AND instr({raw}, 'E') = 0"
    )
    exact = f"{plain} AND (instr({raw}, '.') = 0 OR {digits} <= {scale})"
    return LakeValue(f"CASE WHEN {exact} THEN TRY_CAST({raw} AS {kind}) END", total=False)


def _timestamp_value(raw: str, field: DebeziumField, lake: str) -> LakeValue | None:
    """Return Spark SQL that converts a field to a timestamp; None if no conversion exists.

    ``raw`` is Spark SQL of the decoded value, and ``lake`` is the lake column's Spark SQL type.
    """
    name = field.connect_name or ""
    if name.endswith("time.ZonedTimestamp") and lake == "timestamp":
        # The value is always UTC, and a year of four digits is one of 1 to 9999. Without the zone's
        # letter, Spark uses the session's zone, which is also UTC. That saves a lookup per value.
        plain = (
            f"right({raw}, 1) = 'Z' AND substring({raw}, -2, 1) BETWEEN '0' AND '9'"
            f" AND substring({raw}, 5, 1) = '-' AND left({raw}, 4) <> '0000'"
        )
        instant = f"TRY_CAST(substring({raw}, 1, length({raw}) - 1) AS TIMESTAMP)"
        return LakeValue(f"CASE WHEN {plain} THEN {instant} END", total=False)
    if name.endswith("time.MicroTimestamp"):
        micros = raw
    elif name in TIMESTAMP_MILLIS:
        micros = f"{raw} * 1000"
    elif name.endswith("time.NanoTimestamp"):
        micros = f"{raw} DIV 1000"
    else:
        return None
    # The session's zone is UTC, so both lake types show the source's wall clock.
    value = f"CAST(timestamp_micros({micros}) AS {lake.upper()})"
    low, high = (bound if micros == raw else bound // 1000 for bound in _MICROS)
    if name.endswith("time.NanoTimestamp"):
        low, high = (bound * 1000 for bound in _MICROS)
    return LakeValue(f"CASE WHEN {raw} BETWEEN {low} AND {high} THEN {value} END", total=False)


def _array_value(raw: str, field: DebeziumField, lake: str) -> LakeValue | None:
    """Return Spark SQL that converts a field to a lake array; None if no conversion exists.

    ``raw`` is Spark SQL of the decoded value, and ``lake`` is the lake column's Spark SQL type.
    """
    match = _ARRAY.fullmatch(lake)
    if match is None or field.avro_type != "array" or field.element is None:
        return None
    element = _scalar_value("x", field.element, match[1])
    if element is None:
        return None
    changed = raw if element.sql == "x" else f"transform({raw}, x -> {element.sql})"
    # The connector turns an array of two dimensions into nulls or into Java's name of an array.
    lost = [f"size({raw}) > 0 AND forall({raw}, x -> x IS NULL)"]
    if field.element.avro_type == "string":
        lost.append(f"exists({raw}, x -> x IS NOT NULL AND x RLIKE {literal(_JAVA_ARRAY)})")
    if not element.total:
        lost.append(f"exists({raw}, x -> x IS NOT NULL AND {element.sql} IS NULL)")
    whole = f"CAST({changed} AS ARRAY<{match[1].upper()}>)"
    return LakeValue(f"CASE WHEN NOT ({' OR '.join(lost)}) THEN {whole} END", total=False)


def names_where(conditions: Sequence[tuple[str, str]]) -> str:
    """Return Spark SQL of an array: the names of the columns whose condition is true for an event.

    The SQL returns NULL if no condition is true.

    Args:
        conditions: Names of columns, each with a condition in Spark SQL.
    """
    if not conditions:
        return "NULL"
    anywhere = " OR ".join(condition for _, condition in conditions)
    names = ", ".join(f"CASE WHEN {test} THEN {literal(name)} END" for name, test in conditions)
    return f"CASE WHEN {anywhere} THEN array_compact(array({names})) END"


def position(sequence: str) -> str:
    """Return Spark SQL of an event's position in PostgreSQL's WAL.

    The position is a string. The strings sort in the order of the WAL.

    Args:
        sequence: Spark SQL of Debezium's ``source.sequence``, a JSON array of two LSNs as decimal
            strings. The first LSN is null until the connector has read a commit. The null becomes
            0, which sorts first.
    """
    plain = f"translate({sequence}, '[]\" ', '')"
    first, last = (
        f"coalesce(nullif(substring_index({plain}, ',', {side}), 'null'), '0')" for side in (1, -1)
    )
    parts = (f"lpad(hex(TRY_CAST({half} AS BIGINT)), 16, '0')" for half in (first, last))
    joined = ", ':', ".join(parts)
    return f"CASE WHEN {sequence} IS NOT NULL THEN concat({joined}) END"
