"""What the connectors of MySQL and MariaDB send otherwise than that of PostgreSQL, and do not tell.

As `cdc.rows.semantic_types`, in Spark SQL over ``from_avro``.
"""

from __future__ import annotations

from cdc.rows.semantic_types import DATE, TIMESTAMP_MILLIS, LakeValue, lake_value, literal
from schemas import json_text
from schemas.avro import DebeziumField, DebeziumSchema
from schemas.table import Column, TableId, TableSchema

_JSON = "json"
"""MySQL's type; MariaDB's of that name is a longtext."""
_START_OF_1970 = "^1970-01-01T00:00:00([.]0+)?Z$"


def binlog_value(raw: str, field: DebeziumField, column: Column, table: TableId) -> LakeValue:
    """The lake's value of a decoded field, as `cdc.rows.semantic_types.lake_value` gives it.

    Raises:
        SchemaChangeError: The writer's type cannot become the lake's type.
    """
    own = _own(raw, field, column.lake_type, column.source_type)
    return lake_value(raw, field, column, table) if own is None else own


def _own(raw: str, field: DebeziumField, lake: str, source_type: str) -> LakeValue | None:
    """What only the connectors of MySQL and MariaDB send; the source's type tells."""
    name, kind = field.connect_name or "", field.avro_type
    if name.endswith("time.Year") and lake == "int":
        # The year 0000; none is 1900, since the type begins at 1901.
        return LakeValue(f"CASE WHEN {raw} = 1900 THEN 0 ELSE {raw} END")
    if name.endswith("data.Bits") and lake in ("bigint", "decimal(20,0)"):
        # Least significant byte first.
        places = range((int(field.parameters.get("length", "64")) + 7) // 8, 0, -1)
        digits = ", ".join(f"substring(hex({raw}), {2 * place - 1}, 2)" for place in places)
        return LakeValue(f"CAST(conv(concat({digits}), 16, 10) AS {lake.upper()})")
    if kind == "boolean" and lake == "int" and source_type.startswith("tinyint"):
        # A column that was declared BOOLEAN while the connector looked on.
        return LakeValue(f"CAST({raw} AS INT)")
    if kind == "long" and lake == "decimal(20,0)" and "unsigned" in source_type:
        wrapped = f"CASE WHEN {raw} < 0 THEN 18446744073709551616 ELSE 0 END"
        return LakeValue(f"CAST(CAST({raw} AS DECIMAL(20,0)) + {wrapped} AS DECIMAL(20,0))")
    if kind == "string" and lake == "string" and source_type.startswith("enum("):
        return LakeValue(f"replace({raw}, '\\\\,', ',')")
    if kind == "string" and lake == "string" and source_type == _JSON:
        return LakeValue(json_text.in_spark(raw))
    if kind == "record" and lake == "binary" and "data.geometry." in name:
        return _ewkb(raw)
    return None


def _ewkb(raw: str) -> LakeValue:
    """A geometry with its SRID in it, where that is not 0."""
    number = f"right(concat('0000000', hex({raw}.srid)), 8)"
    srid = ", ".join(f"substring({number}, {place}, 2)" for place in (7, 5, 3, 1))
    head, rest = f"substring({raw}.wkb, 1, 4)", f"substring({raw}.wkb, 6)"
    return LakeValue(
        f"CASE WHEN coalesce({raw}.srid, 0) = 0 THEN {raw}.wkb"
        f" ELSE concat({head}, X'20', unhex(concat({srid})), {rest}) END",
        total=False,
    )


def doubt_test(raw: str, field: DebeziumField, column: Column, table: TableSchema) -> str | None:
    """Spark SQL that is true where a binlog's event may not tell what the source has.

    Args:
        raw: The field, in Spark SQL.
        field: As the writer declared it.
        column: The lake's column.
        table: The lake's columns and key. Of a log an empty object is taken for what it is: nobody
            could be asked, and rows of the other meaning are hardly ever inserted.

    Returns:
        The expression, or None when the type leaves no doubt.
    """
    if column.source_type == _JSON and field.avro_type == "string":
        doubt = json_text.untold(raw)
        # Rows from before a column that is NOT NULL was added have nothing stored: to the server
        # that is the document null, and to the connector an empty object.
        return doubt if field.nullable or not table.key else f"({doubt} OR {raw} = '{{}}')"
    return zero_date_test(raw, field)


def zero_date_test(raw: str, field: DebeziumField) -> str | None:
    """Spark SQL that is true where a binlog's date may be one that no calendar has.

    In a column that is NOT NULL the connectors of MySQL and MariaDB send the start of 1970 for it,
    or the column's default; MariaDB's does so in every timestamp, with as many digits behind the
    second as the column has. The rest of that second is real.

    Returns:
        The expression, or None when the value is no date.
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
    """Spark SQL of an event's place in the binlog, as text that sorts as the binlog does."""
    parts = (
        f"lpad(regexp_extract({source}.file, '[0-9]+$', 0), 10, '0')",
        f"lpad({source}.pos, 20, '0')",
        f"lpad({source}.row, 10, '0')",
    )
    return f"CASE WHEN {source}.file IS NOT NULL THEN concat_ws(':', {', '.join(parts)}) END"


def order_in_transaction(event: str, schema: DebeziumSchema) -> str:
    """Spark SQL of an event's number in its transaction as it was read, from 1; 0 if not told."""
    told = schema.from_binlog and "transaction" in schema.envelope
    return f"coalesce({event}.transaction.total_order, 0L)" if told else "0L"


def is_tagged(source: str, schema: DebeziumSchema) -> str:
    """Spark SQL that is true of an event whose transaction has a tag in its GTID (uuid:tag:3).

    MySQL's connector sends such transactions again once it lost its connection, behind later ones:
    an older row would come back.
    """
    return f"coalesce({source}.gtid LIKE '%:%:%', FALSE)" if _has_gtid(schema) else "FALSE"


def transaction_number(source: str, schema: DebeziumSchema) -> str:
    """Spark SQL of a number that tells transactions apart; of a binlog by GTID, if it has any."""
    if not schema.from_binlog:
        return f"{source}.txId"
    return f"xxhash64({source}.gtid)" if _has_gtid(schema) else "0"


def _has_gtid(schema: DebeziumSchema) -> bool:
    return any(field.name == "gtid" for field in schema.source)


def not_of_a_log(lacking: str, *, from_binlog: bool) -> str:
    """Cases of Spark SQL: why an event is not one of a table without a key.

    Its rows are not found again, neither to change them nor to ask the source for a value.

    Args:
        lacking: Names of the columns whose value is open, an array or NULL.
        from_binlog: Whether all changes of a table are sent; a log then takes what is its own.
    """
    unclear = f"""WHEN _op IN ('c', 'r') AND {lacking} IS NOT NULL
        THEN concat('the value of column ', {lacking}[0], ' looks the same as its default, a NULL'
          ' or a date that no calendar has')"""
    other = "WHEN _op IN ('u', 'd') THEN 'an update or delete, which a log does not hold'"
    return unclear if from_binlog else f"{other} {unclear}"
