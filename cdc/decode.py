"""From Kafka records to changes in one normal form, decoded in the JVM by the writer's schema id.

Normal form is one row per record (two where an update changed a key; see :func:`decode`): the
lake's meta columns, the table's columns in lake types, and columns that never reach the lake
(:data:`cdc.rows.columns.DECODED_ONLY`). A record with a ``PROBLEM`` has no ``OP``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from cdc.binlog_values import (
    binlog_position,
    binlog_value,
    doubt_test,
    not_of_a_log,
    order_in_transaction,
    transaction_number,
    zero_date_test,
)
from cdc.errors import DecodeError
from cdc.own_key import FORMER, changed_key, key_type, split
from cdc.rows.columns import (
    INGESTED_AT,
    OFFSET,
    OP,
    ORDER,
    PARTITION,
    POSITION,
    PROBLEM,
    SCHEMA_ID,
    SOURCE_TS,
    TRANSACTION,
    UNAVAILABLE,
    UNCLEAR,
)
from cdc.semantic_types import (
    default_test,
    garbled_test,
    inexact,
    lake_value,
    names_where,
    placeholder_test,
    position,
    quoted,
)
from schemas.avro import END_MARK, WIRE_HEADER_BYTES, DebeziumSchema
from schemas.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

TOMBSTONE = "tombstone"
"""``OP`` of a record without a value."""

UNKNOWN_SCHEMA = "unknown schema id"
"""``PROBLEM`` of a record whose schema was not given to :func:`decode`."""

SCHEMA_ID_SQL = "TRY_CAST(conv(hex(substring(value, 2, 4)), 16, 10) AS INT)"
"""Spark SQL of the schema id in a record's ``value``."""

_ROW_OPS, _ROWLESS_OPS = ("c", "r", "u"), ("d", "t")
_MARK = f"X'{END_MARK.hex()}'"
_LAST_MICROS = 253_402_300_799_999_999
"""The end of the year 9999, after which Python and most readers know no time."""


def decode(
    records: DataFrame,
    schemas: Mapping[int, DebeziumSchema],
    table: TableSchema,
    *,
    placeholder: str,
    ingested_at: datetime,
    absent: Mapping[str, str] | None = None,
    former: Mapping[str, Sequence[str]] | None = None,
    nulls_are_kept: bool = True,
    own_key: bool = False,
) -> DataFrame:
    """Bring records into normal form, each by the schema it was written with.

    Nothing is dropped and nothing raises here: a record that cannot be read has a ``PROBLEM``,
    and a record of a schema that is not in ``schemas`` says :data:`UNKNOWN_SCHEMA`. Avro's own
    decoders do not mind bytes behind the body; here they are a problem, since they are what a
    record looks like whose id has come to mean another schema.

    Args:
        records: Rows with Kafka's ``value``, ``partition`` and ``offset``.
        schemas: The writers' schemas by id.
        table: The lake's columns and key. Fields that are not columns of it are ignored.
        placeholder: What the connector sends for an unchanged value it does not have.
        ingested_at: Time of the run, for ``INGESTED_AT``.
        absent: By column, Spark SQL of what a row has there whose event lacks it; else NULL.
        former: By column, names that an event may have it under instead of its own.
        nulls_are_kept: Whether the converter sends a NULL as NULL. Else a value that equals its
            column's default may be one: it is taken as unavailable, and ``UNCLEAR`` is set.
        own_key: Whether the table's key may be another than the connector's. An update of such a
            key is one event; it becomes two rows, as the connector itself makes of its own key:
            the delete of the former key and an insert.

    Raises:
        SchemaChangeError: A writer's type cannot become the lake's type of that column.
    """
    value = F.col("value")
    headed = records.select(
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        value,
        F.expr(SCHEMA_ID_SQL).alias(SCHEMA_ID),
        F.expr("hex(substring(value, 2, 4))").alias("_schema"),
    )
    readable = F.expr(
        f"length(value) >= {WIRE_HEADER_BYTES} AND hex(substring(value, 1, 1)) = '00'"
    )
    body = F.expr(f"concat(substring(value, {WIRE_HEADER_BYTES + 1}), {_MARK})")
    # One wide row per record: Spark evaluates only the branch of the record's own schema, and
    # does not merge this projection with the next, which would decode once per column.
    events = headed.select(
        PARTITION,
        OFFSET,
        SCHEMA_ID,
        "_schema",
        F.when(value.isNull(), TOMBSTONE)
        .when(F.length(value) < WIRE_HEADER_BYTES, f"shorter than {WIRE_HEADER_BYTES} bytes")
        .when(~readable, "does not start with a zero byte")
        .when(F.col(SCHEMA_ID).isNull(), "its schema id is larger than any registry's")
        .alias("_frame"),
        *(
            F.when(
                readable & (F.col("_schema") == _hex(schema_id)),
                from_avro(
                    body,
                    schema.marked_writer_json,
                    {"mode": "PERMISSIVE", "avroSchema": schema.marked_reader_json},
                ),
            ).alias(_event(schema_id))
            for schema_id, schema in schemas.items()
        ),
    )
    late = (absent or {}, former or {})
    plans = {
        schema_id: _plan(
            events, schema_id, schema, table, placeholder, *late, nulls_are_kept, own_key
        )
        for schema_id, schema in schemas.items()
    }
    normal = _normal(events, plans, table, ingested_at)
    return split(normal, table) if own_key else normal.drop(FORMER)


@dataclass(frozen=True)
class _Plan:
    """Spark SQL expressions over the decoded events of one schema."""

    from_binlog: bool
    operation: str
    whole: str
    has_row: str
    source_ts: str
    position: str
    transaction: str
    order: str
    values: Mapping[str, str]
    given: Mapping[str, str]
    unavailable: str
    unclear: str
    garbled: str
    zeroed: str
    former: str


def _plan(
    events: DataFrame,
    schema_id: int,
    schema: DebeziumSchema,
    table: TableSchema,
    placeholder: str,
    absent: Mapping[str, str],
    renamed: Mapping[str, Sequence[str]],
    nulls_are_kept: bool,
    own_key: bool,
) -> _Plan:
    record = _event(schema_id)
    event = f"{record}.event"
    marked = events.schema[record].dataType
    if not (isinstance(marked, StructType) and schema.is_envelope):
        raise DecodeError(
            f"schema id {schema_id} of table {table.table} is not a change event",
            remedy="Check that only the Debezium connector writes to the topic.",
            table=table.table,
            schema_id=schema_id,
        )
    values: dict[str, str] = {}
    flags: list[tuple[str, str]] = []
    unclear: list[str] = []
    garbled: list[tuple[str, str]] = []
    zeroed: list[tuple[str, str]] = []
    given: dict[str, str] = {}
    former: dict[str, str] = {}
    read = binlog_value if schema.from_binlog else lake_value
    for column in table.columns:
        if column.asked:
            lacked = f"{event}.after IS NOT NULL"
            values[column.name] = "NULL"
            flags.append((column.name, lacked))
            unclear.append(lacked)
            continue
        names = (column.name, *renamed.get(column.name, ())) if column.live else ()
        field = next(filter(None, map(schema.field, names)), None)
        if field is None:
            values[column.name] = absent.get(column.name, "NULL")
            continue
        raw = f"{event}.after.{quoted(field.name)}"
        if column.name in table.key:
            # A delete has no row after it, and a key stored out of line may be unavailable in it;
            # before it, at least the key is known.
            after = raw
            if shown := placeholder_test(raw, field, placeholder):
                after = f"CASE WHEN {shown} THEN NULL ELSE {raw} END"
            before = f"{event}.before.{quoted(field.name)}"
            raw = f"coalesce({after}, {before})"
            former[column.name] = read(before, field, column, table.table).sql
        value = read(raw, field, column, table.table)
        if (test := garbled_test(raw, field)) is not None:
            garbled.append((column.name, test))
        real = f"{raw} IS NOT NULL"
        expression = value.sql
        shown = placeholder_test(raw, field, placeholder)
        maybe_null = None if nulls_are_kept else default_test(raw, field)
        doubt = doubt_test(raw, field, column, table) if schema.from_binlog else None
        if doubt is not None and column.name in table.key:
            # By that key the source would show another row, and none that is gone.
            former_zero = zero_date_test(f"{event}.before.{quoted(field.name)}", field)
            zeroed.append((column.name, f"({doubt} OR {former_zero})"))
        elif doubt is not None:
            maybe_null = doubt if maybe_null is None else f"({maybe_null} OR {doubt})"
        if maybe_null is not None:
            unclear.append(maybe_null)
            shown = maybe_null if shown is None else f"({shown} OR {maybe_null})"
        if shown is not None and column.name not in table.key:
            flags.append((column.name, shown))
            expression = f"CASE WHEN {shown} THEN NULL ELSE {expression} END"
            real = f"{real} AND NOT {shown}"
        if not value.total:
            # Of a value that the settings' own choice does not hold, a person must see which it is.
            told = column.decimal and not column.secret
            given[column.name] = f"CASE WHEN {real} THEN left({raw}, 60) END" if told else real
        values[column.name] = expression
    micros = f"try_multiply({event}.source.ts_ms, 1000L)"
    if any(inner.name == "ts_us" for inner in schema.source):
        micros = f"coalesce({event}.source.ts_us, {micros})"
    return _Plan(
        from_binlog=schema.from_binlog,
        operation=f"{event}.op",
        whole=f"{record}.mark = {_MARK}",
        has_row=f"{event}.after IS NOT NULL",
        source_ts=f"CASE WHEN {micros} BETWEEN 0 AND {_LAST_MICROS}"
        f" THEN timestamp_micros({micros}) END",
        position=binlog_position(f"{event}.source")
        if schema.from_binlog
        else position(f"{event}.source.sequence"),
        transaction=transaction_number(f"{event}.source", schema),
        order=order_in_transaction(event, schema),
        values=values,
        given=given,
        unavailable=names_where(flags),
        unclear=f"coalesce({' OR '.join(unclear)}, FALSE)" if unclear else "FALSE",
        garbled=names_where(garbled),
        zeroed=names_where(zeroed),
        former=changed_key(event, _of_key(former, table), values) if own_key else "NULL",
    )


def _of_key(former: Mapping[str, str], table: TableSchema) -> dict[str, str]:
    """The parts in the order of the key, which need not be that of the columns."""
    return {name: former.get(name, "NULL") for name in table.key}


def _event(schema_id: int) -> str:
    return f"_event_{schema_id}"


def _hex(schema_id: int) -> str:
    """The id as a record has it, in hexadecimal.

    As text: a number would be part of the code that Spark generates, and no two tables of the same
    columns could share what the JVM has compiled of it.
    """
    return f"{schema_id:08X}"


def _normal(
    events: DataFrame, plans: Mapping[int, _Plan], table: TableSchema, ingested_at: datetime
) -> DataFrame:
    def pick(expressions: Mapping[int, str], kind: str) -> str:
        """The expression of the record's own schema."""
        cases = " ".join(f"WHEN _schema = '{_hex(n)}' THEN {e}" for n, e in expressions.items())
        return f"CAST(CASE {cases} END AS {kind})" if cases else f"CAST(NULL AS {kind})"

    def of(take: str, kind: str) -> str:
        return pick({n: str(getattr(plan, take)) for n, plan in plans.items()}, kind)

    # Whether a value was sent travels beside what became of it, so that neither is computed twice.
    checked = {
        column: f"_given_{place}"
        for place, column in enumerate(table.columns)
        if any(column.name in plan.given for plan in plans.values())
    }
    flat = events.selectExpr(
        PARTITION,
        OFFSET,
        SCHEMA_ID,
        "_schema",
        "_frame",
        f"{of('operation', 'STRING')} AS _op",
        f"{of('whole', 'BOOLEAN')} AS _whole",
        f"{of('has_row', 'BOOLEAN')} AS _has_row",
        f"{of('source_ts', 'TIMESTAMP')} AS {SOURCE_TS}",
        f"{of('position', 'STRING')} AS {POSITION}",
        f"{of('transaction', 'BIGINT')} AS {TRANSACTION}",
        f"{of('order', 'BIGINT')} AS {ORDER}",
        f"{of('unavailable', 'ARRAY<STRING>')} AS {UNAVAILABLE}",
        f"{of('unclear', 'BOOLEAN')} AS {UNCLEAR}",
        f"{of('garbled', 'ARRAY<STRING>')} AS _garbled",
        f"{of('zeroed', 'ARRAY<STRING>')} AS _zeroed",
        f"{of('former', key_type(table))} AS {FORMER}",
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
    known = ", ".join(f"'{_hex(schema_id)}'" for schema_id in plans) or "NULL"
    without_key = " OR ".join(f"{quoted(name)} IS NULL" for name in table.key) or "FALSE"
    rows, rowless = (", ".join(f"'{op}'" for op in ops) for ops in (_ROW_OPS, _ROWLESS_OPS))
    lost = " ".join(inexact(column, alias) for column, alias in checked.items())
    from_binlog = any(plan.from_binlog for plan in plans.values())
    of_a_log = "" if table.key else not_of_a_log(UNAVAILABLE, from_binlog=from_binlog)
    problem = f"""CASE
        WHEN _frame = '{TOMBSTONE}' THEN NULL
        WHEN _frame IS NOT NULL THEN _frame
        WHEN NOT coalesce(_schema IN ({known}), FALSE) THEN '{UNKNOWN_SCHEMA}'
        WHEN _op IS NULL THEN 'the body does not match its schema'
        WHEN NOT _whole THEN 'the body is longer than its schema says'
        WHEN _op NOT IN ({rows}, {rowless}) THEN concat('unknown operation ', left(_op, 20))
        WHEN {SOURCE_TS} IS NULL THEN 'its source block has no time'
        WHEN {POSITION} IS NULL THEN 'its source block has no position'
        WHEN {TRANSACTION} IS NULL THEN 'its source block has no transaction'
        WHEN _op IN ({rows}) AND NOT _has_row THEN 'the row after the change is missing'
        WHEN _op IN ({rowless}) AND _has_row THEN 'there is a row after a delete or TRUNCATE'
        WHEN _garbled IS NOT NULL THEN concat('text that is not UTF-8 in column ', _garbled[0])
        WHEN _zeroed IS NOT NULL THEN concat('a zero date, or what stands for one, in key column ',
          _zeroed[0])
        {lost}
        WHEN _op <> 't' AND ({without_key}) THEN 'the key is missing'
        {of_a_log}
        END"""
    judged = flat.select("*", F.expr(problem).alias(PROBLEM))
    operation = f"CASE WHEN _frame = '{TOMBSTONE}' THEN _frame WHEN {PROBLEM} IS NULL THEN _op END"
    return judged.select(
        F.expr(operation).alias(OP),
        SOURCE_TS,
        POSITION,
        OFFSET,
        SCHEMA_ID,
        _constant(ingested_at).alias(INGESTED_AT),
        *(F.col(quoted(column.name)) for column in table.columns),
        PARTITION,
        TRANSACTION,
        *(() if table.key else (ORDER,)),
        UNAVAILABLE,
        UNCLEAR,
        PROBLEM,
        FORMER,
    )


def _constant(moment: datetime) -> SparkColumn:
    """A time as an array's element, which is not part of the code that Spark generates.

    Of a literal, each batch would compile the same projection again and run it cold.
    """
    first = F.expr(f"CAST({OFFSET} - {OFFSET} AS INT)")
    return F.array(F.lit(moment).cast("timestamp"))[first]
