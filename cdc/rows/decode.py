"""Decodes Kafka records in the JVM, by their schema id, into changes in one normal form.

The normal form has one row per record, or two rows for an update that changed the lake table's key
(see ``own_key`` of :class:`EventRules`). A row has the lake's meta columns, the table's columns in
lake types, and the columns of :data:`cdc.rows.columns.DECODED_ONLY`, which never reach the lake. If
a record has a ``PROBLEM``, its ``OP`` is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from cdc.errors import DecodeError
from cdc.rows.binlog_values import not_appendable, number_as_true
from cdc.rows.columns import (
    INGESTED_AT,
    OFFSET,
    OP,
    ORDER,
    PARTITION,
    POSITION,
    PROBLEM,
    SCHEMA_ID,
    SENT,
    SOURCE_TS,
    TRANSACTION,
    UNAVAILABLE,
    UNCLEAR,
    scratch,
)
from cdc.rows.event_plan import MARK_SQL, EventPlan, EventRules, event_plan
from cdc.rows.key_updates import FORMER, key_type, split
from cdc.rows.semantic_types import inexact, quoted
from cdc.runtime.java_calls import select_sql
from schemas.avro import WIRE_HEADER_BYTES, DebeziumSchema
from schemas.table import Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOMBSTONE = "tombstone"
"""``OP`` of a record without a value."""

UNKNOWN_SCHEMA = "unknown schema id"
"""``PROBLEM`` of a record whose schema was not given to :func:`decode`."""

TAGGED = "its GTID has a tag, and the connector sends such transactions again"
"""``PROBLEM`` of a readable MySQL record that could be a repetition of an older transaction."""

SCHEMA_ID_SQL = "TRY_CAST(conv(hex(substring(value, 2, 4)), 16, 10) AS INT)"
"""Spark SQL of the schema id in a record's ``value``."""

_SCHEMA, _FRAME, _OP = scratch("schema"), scratch("frame"), scratch("operation")
_WHOLE, _HAS_ROW, _TAGGED = scratch("whole"), scratch("has_row"), scratch("tagged")
_GARBLED, _DOUBTED, _KEYLESS = scratch("garbled"), scratch("doubted"), scratch("keyless")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ROW_OPS, _ROWLESS_OPS = ("c", "r", "u"), ("d", "t")


def decode(
    records: DataFrame,
    schemas: Mapping[int, DebeziumSchema],
    table: TableSchema,
    rules: EventRules,
    *,
    ingested_at: datetime,
) -> DataFrame:
    """Return Kafka records as Spark rows in normal form, decoded by their schema ids.

    No record is dropped, and no record raises an error. A record that cannot be read has a
    ``PROBLEM``. If ``schemas`` lacks the record's schema, the problem is :data:`UNKNOWN_SCHEMA`.
    Bytes after the Avro body are a problem, too, although Avro's decoders ignore them. Such bytes
    occur if the schema id now belongs to another schema.

    Args:
        records: Rows with Kafka's ``value``, ``partition`` and ``offset``.
        schemas: The writers' schemas by id.
        table: The lake's columns and key. Fields that are not among these columns are ignored.
        rules: The rules by which the table's events are decoded.
        ingested_at: Time of the run, for ``INGESTED_AT``.

    Raises:
        DecodeError: A schema is not the schema of a change event.
        SchemaChangeError: A field's type in an event's schema does not convert to the lake's type.
    """
    events = _events_by_schema(records, schemas)
    for schema_id, schema in schemas.items():
        marked = events.schema[_event_column(schema_id)].dataType
        if not (isinstance(marked, StructType) and schema.is_envelope):
            raise DecodeError(
                f"schema id {schema_id} of table {table.table} is not a change event",
                remedy="Check that only the Debezium connector writes to the topic.",
                table=table.table,
                schema_id=schema_id,
            )
    plans = {
        schema_id: event_plan(_event_column(schema_id), schema, table, rules)
        for schema_id, schema in schemas.items()
    }
    normal = _in_lake_columns(events, plans, table, ingested_at)
    return split(normal, table) if rules.own_key else normal.drop(FORMER)


def _events_by_schema(records: DataFrame, schemas: Mapping[int, DebeziumSchema]) -> DataFrame:
    """Return the Kafka records as Spark rows with one column for each schema.

    A record's decoded body is in the column of the record's schema.
    """
    headed = select_sql(
        records,
        f"`partition` AS {PARTITION}",
        f"`offset` AS {OFFSET}",
        f"unix_millis(`timestamp`) AS {SENT}",
        "value",
        f"{SCHEMA_ID_SQL} AS {SCHEMA_ID}",
        f"hex(substring(value, 2, 4)) AS {_SCHEMA}",
    )
    readable = f"length(value) >= {WIRE_HEADER_BYTES} AND hex(substring(value, 1, 1)) = '00'"
    frame = f"""CASE
        WHEN value IS NULL THEN '{TOMBSTONE}'
        WHEN length(value) < {WIRE_HEADER_BYTES} THEN 'shorter than {WIRE_HEADER_BYTES} bytes'
        WHEN NOT ({readable}) THEN 'does not start with a zero byte'
        WHEN {SCHEMA_ID} IS NULL THEN 'its schema id is larger than any registry\\'s' END"""
    body = F.expr(f"concat(substring(value, {WIRE_HEADER_BYTES + 1}), {MARK_SQL})")
    # Each record is one wide row, of which Spark evaluates only the branch of the record's schema.
    # Spark does not merge this projection with the next one. Merged projections would decode a
    # record once for each column.
    return headed.select(
        PARTITION,
        OFFSET,
        SENT,
        SCHEMA_ID,
        _SCHEMA,
        F.expr(frame).alias(_FRAME),
        *(
            F.when(
                F.expr(f"{readable} AND {_SCHEMA} = '{_schema_hex(schema_id)}'"),
                from_avro(
                    body,
                    schema.marked_writer_json,
                    {"mode": "PERMISSIVE", "avroSchema": schema.marked_reader_json},
                ),
            ).alias(_event_column(schema_id))
            for schema_id, schema in schemas.items()
        ),
    )


def _event_column(schema_id: int) -> str:
    """Return the name of the Spark column with the decoded events of one schema."""
    return f"_event_{schema_id}"


def _schema_hex(schema_id: int) -> str:
    """Return a schema id in hexadecimal, as Spark reads it from a record's bytes.

    The generated SQL compares ids as strings. Number literals would be part of the Java code that
    Spark generates, so tables with the same columns could not share compiled code.
    """
    return f"{schema_id:08X}"


def _in_lake_columns(
    events: DataFrame, plans: Mapping[int, EventPlan], table: TableSchema, ingested_at: datetime
) -> DataFrame:
    """Return the decoded records in normal form, plus ``FORMER``: the key before a key update."""
    # A separate column records whether a value was sent, so that no value is computed twice.
    checked = {
        column: scratch(f"given_{place}")
        for place, column in enumerate(table.columns)
        if any(column.name in plan.given for plan in plans.values())
    }
    flat = _event_values(events, plans, table, checked)
    judged = select_sql(flat, "*", f"{_problem_of_record(plans, table, checked)} AS {PROBLEM}")
    operation = (
        f"CASE WHEN {_FRAME} = '{TOMBSTONE}' THEN {_FRAME} WHEN {PROBLEM} IS NULL THEN {_OP} END"
    )
    micros = (ingested_at - _EPOCH) // timedelta(microseconds=1)
    return select_sql(
        judged,
        f"{operation} AS {OP}",
        SOURCE_TS,
        POSITION,
        OFFSET,
        SCHEMA_ID,
        f"{constant_sql(f'timestamp_micros({micros}L)')} AS {INGESTED_AT}",
        *(quoted(column.name) for column in table.columns),
        PARTITION,
        SENT,
        TRANSACTION,
        *(() if table.key else (ORDER,)),
        UNAVAILABLE,
        UNCLEAR,
        PROBLEM,
        FORMER,
    )


def _event_values(
    events: DataFrame,
    plans: Mapping[int, EventPlan],
    table: TableSchema,
    checked: Mapping[Column, str],
) -> DataFrame:
    """Return the values of each decoded event, read by the expressions for the event's schema.

    Args:
        events: The decoded events, as `_events_by_schema` returns them.
        plans: The expressions for the events of each schema, by the schema's id.
        table: The lake's columns and key.
        checked: The columns whose lake type cannot represent every value that a connector can send,
            each with the name of a further output column. This output column gets the result of the
            expression that ``EventPlan.given`` has for the column.
    """

    def pick(by_id: Mapping[int, str], kind: str) -> str:
        cases = " ".join(f"WHEN {_SCHEMA} = '{_schema_hex(n)}' THEN {e}" for n, e in by_id.items())
        return f"CAST(CASE {cases} END AS {kind})" if cases else f"CAST(NULL AS {kind})"

    def of(take: str, kind: str) -> str:
        return pick({n: str(getattr(plan, take)) for n, plan in plans.items()}, kind)

    return select_sql(
        events,
        PARTITION,
        OFFSET,
        SENT,
        SCHEMA_ID,
        _SCHEMA,
        _FRAME,
        f"{of('operation', 'STRING')} AS {_OP}",
        f"{of('whole', 'BOOLEAN')} AS {_WHOLE}",
        f"{of('has_row', 'BOOLEAN')} AS {_HAS_ROW}",
        f"{of('source_ts', 'TIMESTAMP')} AS {SOURCE_TS}",
        f"{of('position', 'STRING')} AS {POSITION}",
        f"{of('transaction', 'BIGINT')} AS {TRANSACTION}",
        f"{of('order', 'BIGINT')} AS {ORDER}",
        f"{of('tagged', 'BOOLEAN')} AS {_TAGGED}",
        f"{of('unavailable', 'ARRAY<STRING>')} AS {UNAVAILABLE}",
        f"{of('unclear', 'ARRAY<STRING>')} AS {UNCLEAR}",
        f"{of('garbled', 'ARRAY<STRING>')} AS {_GARBLED}",
        f"{of('doubted', 'ARRAY<STRING>')} AS {_DOUBTED}",
        f"{of('former', key_type(table))} AS {FORMER}",
        f"{of('keyless', 'BOOLEAN')} AS {_KEYLESS}",
        *(
            pick(
                {n: plan.given.get(column.name, "NULL") for n, plan in plans.items()},
                "STRING" if column.decimal and not column.secret else "BOOLEAN",
            )
            + f" AS {alias}"
            for column, alias in checked.items()
        ),
        *(
            pick({n: plan.values[column.name] for n, plan in plans.items()}, column.lake_type)
            + f" AS {quoted(column.name)}"
            for column in table.columns
        ),
    )


def _problem_of_record(
    plans: Mapping[int, EventPlan], table: TableSchema, checked: Mapping[Column, str]
) -> str:
    """Return Spark SQL that evaluates to the reason why a record cannot be applied, or to NULL."""
    known = ", ".join(f"'{_schema_hex(schema_id)}'" for schema_id in plans) or "NULL"
    without_key = " OR ".join(f"{quoted(name)} IS NULL" for name in table.key) or "FALSE"
    rows, rowless = (", ".join(f"'{op}'" for op in ops) for ops in (_ROW_OPS, _ROWLESS_OPS))
    lost = " ".join(inexact(column, alias) for column, alias in checked.items())
    from_binlog = any(plan.from_binlog for plan in plans.values())
    append = "" if table.key else not_appendable(_OP, UNAVAILABLE, from_binlog=from_binlog)
    booleans = {_schema_hex(schema_id): plan.booleans for schema_id, plan in plans.items()}
    inserted = f"CASE WHEN {_OP} IN ('c', 'r') THEN {UNAVAILABLE}[0] END"
    uncertain = f"{_DOUBTED}[0]" if table.key else inserted
    return f"""CASE
        WHEN {_FRAME} = '{TOMBSTONE}' THEN NULL
        WHEN {_FRAME} IS NOT NULL THEN {_FRAME}
        WHEN NOT coalesce({_SCHEMA} IN ({known}), FALSE) THEN '{UNKNOWN_SCHEMA}'
        WHEN {_OP} IS NULL THEN 'the body does not match its schema'
        WHEN NOT {_WHOLE} THEN 'the body is longer than its schema says'
        WHEN {_OP} NOT IN ({rows}, {rowless}) THEN concat('unknown operation ', left({_OP}, 20))
        WHEN {SOURCE_TS} IS NULL THEN 'its source block has no time'
        WHEN {POSITION} IS NULL THEN 'its source block has no position'
        WHEN {TRANSACTION} IS NULL THEN 'its source block has no transaction'
        WHEN {_TAGGED} THEN '{TAGGED}'
        WHEN {_OP} IN ({rows}) AND NOT {_HAS_ROW} THEN 'the row after the change is missing'
        WHEN {_OP} IN ({rowless}) AND {_HAS_ROW} THEN 'there is a row after a delete or TRUNCATE'
        WHEN {_GARBLED} IS NOT NULL THEN concat('text that is not UTF-8 in column ', {_GARBLED}[0])
        {number_as_true(uncertain, _SCHEMA, booleans)}
        WHEN {_DOUBTED} IS NOT NULL THEN concat('a value that may replace another one (a zero'
          ' date, a character that the connector does not know, or an interval of 0 for an'
          ' infinite one) in key column ', {_DOUBTED}[0])
        WHEN {_KEYLESS} THEN 'the row before the change lacks the key: the replica identity was an'
          ' index without the key'
        {lost}
        WHEN {_OP} <> 't' AND ({without_key}) THEN 'the key is missing'
        {append}
        END"""


def constant_sql(value: str) -> str:
    """Return Spark SQL that gives decoded rows a constant, without a literal in generated code.

    The constant is an element of an array. If the generated code contained the constant as a
    literal, Spark would compile each batch's projection again.

    Args:
        value: Spark SQL of the constant.
    """
    return f"array({value})[CAST({OFFSET} - {OFFSET} AS INT)]"
