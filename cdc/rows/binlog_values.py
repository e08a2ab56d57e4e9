"""Converts values that the connectors of MySQL and MariaDB encode in their own way.

PostgreSQL's connector encodes these values differently.

The value alone does not show which connector has encoded it. Like `cdc.rows.semantic_types`, this
module returns Spark SQL that converts the values that ``from_avro`` has decoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc.rows.semantic_types import (
    DATE,
    TIMESTAMP_MILLIS,
    LakeValue,
    doubtful_test,
    lake_value,
    literal,
)
from schemas import json_text
from schemas.avro import DebeziumField, DebeziumSchema
from schemas.table import Column, TableId, TableSchema
from schemas.types_mysql import BOOLEANS

_JSON = "json"
"""The type json of MySQL. In MariaDB, a json column has the type longtext."""
_INTEGERS = ("int", "bigint")
"""The lake types of all integer types of MySQL and MariaDB, except unsigned types of 64 bits."""
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
"""The number of bits of each integer type, by the type's name in statements and in catalogs."""
_NO_SIGN = frozenset({"unsigned", "zerofill"})
_START_OF_1970 = "^1970-01-01T00:00:00([.]0+)?Z$"

NUMBER_AS_TRUE = (
    " is TRUE, which the connector sends for each number other than 0, since a statement declared"
    " the column as BOOLEAN"
)
"""The text after the column's name in ``PROBLEM``, if TRUE could stand for any number but 0."""


def binlog_value(raw: str, field: DebeziumField, column: Column, table: TableId) -> LakeValue:
    """Return Spark SQL that converts a field of a MySQL or MariaDB event to the lake's value.

    The arguments are those of `cdc.rows.semantic_types.lake_value`.

    Raises:
        SchemaChangeError: A field's type in an event's schema does not convert to the lake's type.
    """
    own = _own_binlog_value(raw, field, column.lake_type, column.source_type)
    if own is not None:
        return own
    if bits := _unsigned_bits(field, column.source_type):
        return _unsigned_value(raw, bits, field, column, table)
    return lake_value(raw, field, column, table)


def _words_of_event_type(field: DebeziumField, source_type: str) -> list[str]:
    """Return the words of a binlog event's type in lower case, such as ``int`` and ``unsigned``.

    This is the type by which the connector read the column's value.

    Args:
        field: The field in the writer's schema, which usually names this type.
        source_type: The column's type as the source prints it. The type is used if the field names
            no type.
    """
    return re.findall(r"[a-z0-9]+", (field.source_type or source_type).lower())


def _unsigned_bits(field: DebeziumField, source_type: str) -> int:
    """Return the number of bits of an unsigned integer type in binlog events; 0 for any other type.

    The arguments are those of `_words_of_event_type`.
    """
    words = _words_of_event_type(field, source_type)
    if field.avro_type not in ("int", "long") or field.connect_name or not words:
        return 0
    return _BITS.get(words[0], 0) if _NO_SIGN & set(words) else 0


def _unsigned_value(
    raw: str, bits: int, field: DebeziumField, column: Column, table: TableId
) -> LakeValue:
    """Return Spark SQL that converts an unsigned integer of a binlog event to the lake's value.

    The connectors send large values of some unsigned columns as negative numbers. Both connectors
    do so for ``bigint``. MariaDB's connector also does so for columns that a DDL statement declares
    as ``INTEGER UNSIGNED``, or as ZEROFILL without UNSIGNED.

    Args:
        raw: Spark SQL of the decoded value.
        bits: The type's number of bits.
        field: The field in the writer's schema.
        column: The lake's column.
        table: The table, for the error.

    Raises:
        SchemaChangeError: An unsigned integer does not convert to the lake's type.
    """
    if bits == 64:
        if column.lake_type == "decimal(20,0)":
            added = f"CASE WHEN {raw} < 0 THEN {2**bits} ELSE 0 END"
            return LakeValue(f"CAST(CAST({raw} AS DECIMAL(20,0)) + {added} AS DECIMAL(20,0))")
        # The source's column was narrowed after the event, so the lake's type may be too narrow.
        held = f"CASE WHEN {raw} >= 0 THEN {raw} END"
        return replace(lake_value(held, field, column, table), total=False)
    whole = f"CASE WHEN {raw} < 0 THEN CAST({raw} AS BIGINT) + {2**bits} ELSE {raw} END"
    read = field if bits < 32 else replace(field, avro_type="long")
    return lake_value(whole, read, column, table)


def _own_binlog_value(
    raw: str, field: DebeziumField, lake: str, source_type: str
) -> LakeValue | None:
    """Return Spark SQL that converts a value that PostgreSQL's connector would encode differently.

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema.
        lake: The lake column's Spark SQL type.
        source_type: The column's type as the source prints it.

    Returns:
        The SQL; None if PostgreSQL's connector encodes the value in the same way.
    """
    name, kind = field.connect_name or "", field.avro_type
    if name.endswith("time.Year") and lake == "int":
        # 1900 means the year 0000. It cannot be a real year, since the type begins at 1901.
        return LakeValue(f"CASE WHEN {raw} = 1900 THEN 0 ELSE {raw} END")
    if name.endswith("data.Bits") and lake in ("bigint", "decimal(20,0)"):
        # The connector sends the least significant byte first.
        places = range((int(field.parameters.get("length", "64")) + 7) // 8, 0, -1)
        digits = ", ".join(f"substring(hex({raw}), {2 * place - 1}, 2)" for place in places)
        return LakeValue(f"CAST(conv(concat({digits}), 16, 10) AS {lake.upper()})")
    if is_declared_boolean(field, lake):
        return LakeValue(f"CAST({raw} AS {lake.upper()})")
    if kind == "string" and lake == "string" and source_type.startswith("enum("):
        return LakeValue(f"replace({raw}, '\\\\,', ',')")
    if kind == "string" and lake == "string" and source_type == _JSON:
        return LakeValue(json_text.in_spark(raw))
    if kind == "record" and lake == "binary" and "data.geometry." in name:
        return _geometry_as_ewkb(raw)
    return None


def is_declared_boolean(field: DebeziumField, lake: str) -> bool:
    """Whether a binlog event's field is of an integer column that DDL declared as BOOL or BOOLEAN.

    The server's type of such a column is ``tinyint``. The connector sends true for each number
    other than 0.

    Args:
        field: The field in the writer's schema.
        lake: The lake column's Spark SQL type.
    """
    declared = field.source_type is None or field.source_type.lower() in BOOLEANS
    return field.avro_type == "boolean" and declared and lake in _INTEGERS


def _geometry_as_ewkb(raw: str) -> LakeValue:
    """Return Spark SQL that converts an event's geometry to WKB, or to EWKB if there is an SRID.

    Args:
        raw: Spark SQL of the decoded geometry, a struct with ``wkb`` and ``srid``.
    """
    number = f"right(concat('0000000', hex({raw}.srid)), 8)"
    srid = ", ".join(f"substring({number}, {place}, 2)" for place in (7, 5, 3, 1))
    head, rest = f"substring({raw}.wkb, 1, 4)", f"substring({raw}.wkb, 6)"
    return LakeValue(
        f"CASE WHEN coalesce({raw}.srid, 0) = 0 THEN {raw}.wkb"
        f" ELSE concat({head}, X'20', unhex(concat({srid})), {rest}) END",
        total=False,
    )


def doubt_test(raw: str, field: DebeziumField, column: Column, table: TableSchema) -> str | None:
    """Return Spark SQL that is true if an event's value could differ from the source's value.

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema.
        column: The lake's column.
        table: The lake's columns and key. An empty JSON object counts as uncertain only in a table
            with a key, since a row without a key cannot be read from the source.

    Returns:
        The expression; None if values of this type are always certain.
    """
    if column.source_type == _JSON and field.avro_type == "string":
        doubt = json_text.ambiguous(raw)
        # A row that is older than a NOT NULL column stores nothing for that column. The server
        # reads this as the document null, and the connector sends an empty object.
        return doubt if field.nullable or not table.key else f"({doubt} OR {raw} = '{{}}')"
    if is_declared_boolean(field, column.lake_type):
        return raw
    return doubtful_test(raw, field, column) or zero_date_test(raw, field)


def zero_date_test(raw: str, field: DebeziumField) -> str | None:
    """Return Spark SQL that is true if a binlog event's value could be a zero date in the source.

    A zero date, such as 0000-00-00, is in no calendar. For a zero date in a NOT NULL column, the
    connectors of MySQL and MariaDB send the start of 1970 or the column's default. MariaDB's
    connector also does so for a nullable timestamp column. The value of a timestamp column is a
    string with as many fractional digits as the column has. If one of these digits is not 0, the
    value is a real time, even in the first second of 1970.

    Args:
        raw: Spark SQL of the decoded value.
        field: The field in the writer's schema.

    Returns:
        The expression, or None if the value is neither a date nor a time with a date.
    """
    name = field.connect_name or ""
    if name.endswith("time.ZonedTimestamp"):
        start = f"{raw} RLIKE {literal(_START_OF_1970)}"
        return f"({start} OR {raw} = {literal(str(field.default))})" if field.default else start
    if name in (*DATE, *TIMESTAMP_MILLIS) or name.endswith(("MicroTimestamp", "NanoTimestamp")):
        moments = {0, *([int(field.default)] if field.default else [])}
        return f"{raw} IN ({', '.join(map(str, sorted(moments)))})"
    return None


def binlog_position(source: str) -> str:
    """Return Spark SQL that evaluates to an event's place in the binlog.

    The place is a string. The strings sort in the order of the binlog.

    Args:
        source: Spark SQL of the event's ``source``, a struct.
    """
    parts = (
        f"lpad(regexp_extract({source}.file, '[0-9]+$', 0), 10, '0')",
        f"lpad({source}.pos, 20, '0')",
        f"lpad({source}.row, 10, '0')",
    )
    return f"CASE WHEN {source}.file IS NOT NULL THEN concat_ws(':', {', '.join(parts)}) END"


def order_in_transaction(event: str, schema: DebeziumSchema) -> str:
    """Return Spark SQL of a number: an event's rank among the table's events of one transaction.

    The numbers begin at 1. The SQL returns 0 if the connector does not send the number.

    Args:
        event: Spark SQL of the decoded event, a struct.
        schema: The schema with which the event was written.
    """
    numbered = schema.from_binlog and "transaction" in schema.envelope
    return f"coalesce({event}.transaction.data_collection_order, 0L)" if numbered else "0L"


def is_tagged(source: str, schema: DebeziumSchema) -> str:
    """Return Spark SQL that is true for an event whose GTID has a tag (uuid:tag:3).

    After a lost connection, MySQL's connector with keep-alive can repeat a transaction if the
    transaction's GTID has a tag. The repeated events come after the events of later transactions,
    so an older row would replace a newer row.

    Args:
        source: Spark SQL of the event's ``source``, a struct.
        schema: The schema with which the event was written.
    """
    return f"coalesce({source}.gtid LIKE '%:%:%', FALSE)" if _events_have_gtid(schema) else "FALSE"


def transaction_number(source: str, schema: DebeziumSchema) -> str:
    """Return Spark SQL of a number that identifies an event's transaction.

    In a binlog without GTIDs, the number is 0 for every transaction.

    Args:
        source: Spark SQL of the event's ``source``, a struct.
        schema: The schema with which the event was written.
    """
    if not schema.from_binlog:
        return f"{source}.txId"
    return f"xxhash64({source}.gtid)" if _events_have_gtid(schema) else "0"


def _events_have_gtid(schema: DebeziumSchema) -> bool:
    """Return whether the decoded events of a schema have a GTID."""
    return any(field.name == "gtid" for field in schema.source)


def number_as_true(first: str, schema_id: str, booleans: Mapping[str, Sequence[str]]) -> str:
    """Return a WHEN branch of Spark SQL for a TRUE that could be any number but 0.

    The result of the branch is the text of the record's ``PROBLEM``.

    Args:
        first: Spark SQL of the name of a column whose value in the event is uncertain; NULL if
            there is none.
        schema_id: Spark SQL of the id of the event's schema, in the form of the keys of
            ``booleans``.
        booleans: For each schema id, the columns that DDL declared as BOOL or BOOLEAN.
    """
    tests = (
        f"({schema_id} = {literal(which)} AND {first} IN ({', '.join(map(literal, names))}))"
        for which, names in booleans.items()
        if names
    )
    either = " OR ".join(tests)
    return f"WHEN {either} THEN concat('column ', {first}, '{NUMBER_AS_TRUE}')" if either else ""


def not_appendable(operation: str, lacking: str, *, from_binlog: bool) -> str:
    """Return WHEN branches of Spark SQL with the reasons why an append table cannot apply an event.

    A row without a key cannot be found again. So an append table can neither apply an update or
    delete, nor read an uncertain value of an inserted row from the source.

    Args:
        operation: Spark SQL of the event's operation.
        lacking: Spark SQL of an array with the names of the columns for which the event has no
            value, or only an uncertain value; NULL if there are none.
        from_binlog: Whether a connector of MySQL or MariaDB sent the events. Such a connector sends
            all changes of a table. So the append table expects updates and deletes and leaves these
            events out: no branch gives a reason for an update or delete.
    """
    unclear = f"""WHEN {operation} IN ('c', 'r') AND {lacking} IS NOT NULL
        THEN concat('the value of column ', {lacking}[0], ' may be its default, a NULL, an'
          ' impossible date or an infinite interval, or has a character that replaces unknown'
          ' ones')"""
    other = (
        f"WHEN {operation} IN ('u', 'd')"
        " THEN 'an update or delete, which an append table cannot apply'"
    )
    return unclear if from_binlog else f"{other} {unclear}"
