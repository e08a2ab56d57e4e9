"""Turns changes into rows: summarizes a batch, takes each key's last image, fills missing values.

The functions work on the normal form of :mod:`cdc.rows.decode`. Kafka's offsets give the order of
the changes. :func:`summarize` and :func:`problems` run a Spark job. The other functions return lazy
frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from cdc.rows.columns import (
    META_NAMES,
    MISSING,
    MOVED,
    OFFSET,
    OP,
    PARTITION,
    POSITION,
    PROBLEM,
    SCHEMA_ID,
    SENT,
    SOURCE_TS,
    STALE,
    TRANSACTION,
    UNAVAILABLE,
    UNCLEAR,
    scratch,
)
from cdc.rows.decode import TOMBSTONE, UNKNOWN_SCHEMA
from cdc.rows.semantic_types import quoted
from cdc.rows.visibility import Reading, not_visible_sql
from cdc.runtime.java_calls import select_sql
from schemas.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_LIFE, _RANK, _FOUND = scratch("life"), scratch("rank"), scratch("found")
_CLEAR, _MOMENT = scratch("clear"), scratch("moment")
_FINE = f"{PROBLEM} IS NULL"
FEW = 1_000
"""Maximum number of records whose facts a summary collects one by one."""


@dataclass(frozen=True)
class RecordProblem:
    """A Kafka record that cannot be applied, and the reason, as Spark found them in a batch."""

    partition: int
    offset: int
    schema_id: int | None
    reason: str


@dataclass(frozen=True)
class Summary:
    """What Spark found in a batch of decoded records.

    Args:
        counts: Number of records by operation. Tombstones count as operation ``tombstone``. Records
            that cannot be applied are not counted here.
        schema_ids: Ids of the schemas of the records that can be applied.
        unknown_schemas: Ids of schemas that records name, but that the caller of
            :func:`cdc.rows.decode.decode` did not pass.
        problems: Number of records that cannot be applied, including records of unknown schemas.
        unavailable: Columns whose value at least one record lacks.
        moved: Number of inserts and snapshot reads that lack a value, for example because an update
            moved the row to another key.
        source_ts: Latest source time per partition.
        position: The last event's position in the log.
        newest: By partition, the offset of the last record, and its Kafka timestamp in milliseconds
            since 1970. Partitions without records are missing.
        first_truncate: Offset of the first TRUNCATE; None without a TRUNCATE.
        last_truncate: Offset of the last TRUNCATE; None without a TRUNCATE.
        first_unseen: Offset of the first record of a transaction in ``unseen``; None if ``unseen``
            is empty.
        unseen: Transactions of the batch that were not yet visible when the catalog was read.
        moments: Earliest and latest time of the changes with a row, in microseconds since 1970;
            None if the caller asked for no times, or if no such change has a time.
    """

    counts: Mapping[str, int]
    schema_ids: tuple[int, ...]
    unknown_schemas: tuple[int, ...]
    problems: int
    unavailable: tuple[str, ...]
    moved: int
    source_ts: Mapping[int, datetime]
    position: str | None
    newest: Mapping[int, tuple[int, int]]
    first_truncate: int | None
    last_truncate: int | None
    first_unseen: int | None
    unseen: tuple[int, ...]
    moments: tuple[int, int] | None = None

    @property
    def events(self) -> int:
        """The number of changes in the batch; tombstones do not count."""
        return sum(count for op, count in self.counts.items() if op != TOMBSTONE)


def summarize(
    changes: DataFrame,
    reading: Reading | None = None,
    moment: SparkColumn | None = None,
    *,
    most: int | None = None,
) -> Summary:
    """Return the summary of a whole batch of decoded changes, computed in one job.

    Args:
        changes: The batch in the normal form of `cdc.rows.decode`. A caller that reads the batch
            again should persist it first.
        reading: The transactions that were visible when the source's catalog was read; None if all
            transactions of the batch were visible then, as in a replay.
        moment: The time of a change in microseconds since 1970, as a Spark column. This time
            decides to which hour or day the row belongs. None leaves the times out.
        most: Upper bound of the number of records, if it is known. A batch of at most ``FEW``
            records is summarized here, since Spark takes longer to plan its aggregation than to
            compute it.
    """
    at = "CAST(NULL AS BIGINT)" if moment is None else _MOMENT
    if moment is not None:
        # Other records can have values for which the expression fails.
        timed = F.expr(f"{_FINE} AND {OP} IN ('c', 'r', 'u')")
        changes = changes.withColumn(_MOMENT, F.when(timed, moment))
    facts = _facts(not_visible_sql(reading or Reading()), at)
    one_by_one = most is not None and most <= FEW
    # One struct takes one call to Java. A column for each figure would take hundreds.
    fields = ", ".join(
        f"{value if one_by_one else f'{function}({value})'} AS {name}"
        for name, value, function in facts
    )
    found = f"struct({fields}) AS {_FOUND}"
    if one_by_one:
        groups = select_sql(changes, OP, PARTITION, found)
    else:
        groups = changes.groupBy(OP, PARTITION).agg(F.expr(found))
    rows = [
        {OP: op, PARTITION: partition, **one.asDict()} for op, partition, one in groups.collect()
    ]
    if one_by_one:
        sets = [name for name, _, function in facts if function == "collect_set"]
        for row in rows:
            row |= {name: [] if row[name] is None else [row[name]] for name in sets}
    return _summary_of_groups(rows)


def _facts(early: str, at: str) -> tuple[tuple[str, str, str], ...]:
    """Return the facts that a summary needs of the decoded changes.

    Each has a name, its SQL for one change, and the function that joins it for a group of changes.
    The changes for which the SQL is NULL do not count.

    Args:
        early: SQL that is true for a change of a transaction that was not visible.
        at: SQL of the change's time in microseconds since 1970.
    """
    truncate, unseen = f"IF({OP} = 't', {OFFSET}, NULL)", f"IF({early}, {OFFSET}, NULL)"
    lost = f"{UNAVAILABLE} IS NOT NULL AND {OP} IN ('c', 'r')"
    return (
        ("events", "1L", "sum"),
        ("schema_ids", f"IF({_FINE}, {SCHEMA_ID}, NULL)", "collect_set"),
        ("unknown", f"IF({PROBLEM} = '{UNKNOWN_SCHEMA}', {SCHEMA_ID}, NULL)", "collect_set"),
        ("problems", f"IF({_FINE}, 0L, 1L)", "sum"),
        ("unavailable", UNAVAILABLE, "collect_set"),
        ("moved", f"IF({lost}, 1L, 0L)", "sum"),
        ("source_ts", f"IF({_FINE}, unix_micros({SOURCE_TS}), NULL)", "max"),
        ("last", f"IF({_FINE}, struct({OFFSET}, {POSITION}), NULL)", "max"),
        ("newest", f"struct({OFFSET}, {SENT})", "max"),
        ("first_truncate", truncate, "min"),
        ("last_truncate", truncate, "max"),
        ("first_unseen", unseen, "min"),
        ("unseen", f"IF({early}, {TRANSACTION}, NULL)", "collect_set"),
        ("earliest", at, "min"),
        ("latest", at, "max"),
    )


def _summary_of_groups(rows: Sequence[Mapping[str, Any]]) -> Summary:
    """Return the summary of decoded changes from groups, each of one operation and partition."""
    counts: dict[str, int] = {}
    times: dict[int, int] = {}
    newest: dict[int, tuple[int, int]] = {}
    for row in rows:
        place = (row["newest"][OFFSET], row["newest"][SENT])
        newest[row[PARTITION]] = max(newest.get(row[PARTITION], place), place)
        if row[OP] is not None:
            counts[row[OP]] = counts.get(row[OP], 0) + row["events"]
        if row["source_ts"] is not None:
            partition = row[PARTITION]
            times[partition] = max(times.get(partition, row["source_ts"]), row["source_ts"])
    last = max(
        (place for row in rows if (place := row["last"]) and place[POSITION] is not None),
        key=lambda place: place[OFFSET],
        default=None,
    )
    return Summary(
        counts=dict(sorted(counts.items())),
        schema_ids=tuple(sorted({n for row in rows for n in row["schema_ids"]})),
        unknown_schemas=tuple(sorted({n for row in rows for n in row["unknown"]})),
        problems=sum(row["problems"] for row in rows),
        unavailable=tuple(
            sorted({name for row in rows for names in row["unavailable"] for name in names})
        ),
        moved=sum(row["moved"] for row in rows),
        source_ts={
            partition: datetime.fromtimestamp(micros // 1_000_000, timezone.utc).replace(
                microsecond=micros % 1_000_000
            )
            for partition, micros in times.items()
        },
        position=last[POSITION] if last is not None else None,
        newest=newest,
        first_truncate=min(_known_offsets(row["first_truncate"] for row in rows), default=None),
        last_truncate=max(_known_offsets(row["last_truncate"] for row in rows), default=None),
        first_unseen=min(_known_offsets(row["first_unseen"] for row in rows), default=None),
        unseen=tuple(sorted({xid for row in rows for xid in row["unseen"]})),
        moments=_first_and_last_moment(rows),
    )


def _first_and_last_moment(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Return the first and the last time of a batch of decoded changes; None if it has no time."""
    known = [row for row in rows if row["earliest"] is not None]
    if not known:
        return None
    return min(row["earliest"] for row in known), max(row["latest"] for row in known)


def _known_offsets(values: Iterable[int | None]) -> list[int]:
    """Return the offsets of decoded changes, without the values that are NULL."""
    return [value for value in values if value is not None]


def problems(
    changes: DataFrame, limit: int, *, schema_id: int | None = None
) -> list[RecordProblem]:
    """Return a batch's first records with a ``PROBLEM``, in the order of partition and offset.

    Args:
        changes: The batch in the normal form of `cdc.rows.decode`.
        limit: Maximum number of records to return.
        schema_id: The schema whose records are returned; None for the records of all schemas.
    """
    found = changes.filter(F.col(PROBLEM).isNotNull())
    if schema_id is not None:
        found = found.filter(F.col(SCHEMA_ID) == schema_id)
    place = [PARTITION, OFFSET]
    rows = found.select(*place, SCHEMA_ID, PROBLEM).orderBy(*place).limit(limit).collect()
    return [RecordProblem(*row) for row in rows]


def fold(
    changes: DataFrame,
    table: TableSchema,
    *,
    unavailable: Sequence[str] = (),
    soft_delete: bool = False,
    after_offset: int | None = None,
    gaps: bool = False,
) -> DataFrame:
    """Return the last image of each key in a batch of decoded changes.

    If the last event lacks a value, the value is taken from an earlier event of the same life. A
    life of a key starts with an insert and ends with a delete. Values are never taken from an
    earlier life, which may belong to another row.

    A value is unclear if it may have changed and the new value was not sent. After an event with an
    unclear value of a column, the column's values in earlier events of the row may be outdated. So
    these earlier values are not used: the value must be read from the source's row. A deleted row,
    which the source no longer has, gets NULL.

    Args:
        changes: The batch in the normal form of `cdc.rows.decode`; records with a problem are left
            out.
        table: The table.
        unavailable: Columns whose value at least one record lacks; see :class:`Summary`.
        soft_delete: Whether a deleted row keeps its values. A delete event has no values, so all
            its columns count as lacking.
        after_offset: Offset of a TRUNCATE. Changes up to this offset are left out.
        gaps: Whether the batch or the lake may lack events. If so, only deleted rows take values
            from earlier events. For the other rows, the values must be read from the source.

    Returns:
        One row per key: the lake's columns, and the columns ``TRANSACTION``, ``MISSING``, ``STALE``
        and ``MOVED``, which never reach the lake.
    """
    rows = changes.filter(f"{OP} IN ('c', 'r', 'u', 'd')")
    if after_offset is not None:
        rows = rows.filter(F.col(OFFSET) > after_offset)
    values = [column.name for column in table.columns if column.name not in table.key]
    lacking = values if soft_delete else [name for name in values if name in unavailable]
    if not lacking:
        # Spark keeps one row per key in its sort, before the shuffle.
        parts = ", ".join(map(quoted, table.key))
        rank = f"row_number() OVER (PARTITION BY {parts} ORDER BY {OFFSET} DESC) AS {_RANK}"
        return select_sql(
            select_sql(rows, "*", rank).filter(f"{_RANK} = 1"),
            *META_NAMES,
            TRANSACTION,
            *(quoted(column.name) for column in table.columns),
            f"CAST(NULL AS ARRAY<STRING>) AS {MISSING}",
            f"CAST(NULL AS ARRAY<STRING>) AS {STALE}",
            f"FALSE AS {MOVED}",
        )
    keys = [F.col(quoted(name)) for name in table.key]
    return _fold_lives(rows, table, keys, lacking, soft_delete=soft_delete, gaps=gaps)


def _fold_lives(
    rows: DataFrame,
    table: TableSchema,
    keys: Sequence[SparkColumn],
    lacking: Sequence[str],
    *,
    soft_delete: bool,
    gaps: bool,
) -> DataFrame:
    """Return the last image of each key, with values from earlier events of the same life."""
    order = Window.partitionBy(*keys).orderBy(OFFSET)
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    starts = F.col(OP).isin("c", "r")
    ends = F.col(OP) == "d"
    # A delete belongs to the life that ends with it.
    life = F.count(F.when(starts, 1)).over(until_here) + F.count(F.when(ends, 1)).over(before)
    lives = rows.withColumn(_LIFE, life)

    def known(name: str) -> SparkColumn:
        # The value of an unclear column is NULL.
        unclear = _lists_column(UNCLEAR, name)
        value = F.struct(F.col(_LIFE), F.col(quoted(name)).alias("value"), (~unclear).alias(_CLEAR))
        shown = F.when((~_lacks_value(name, soft_delete=soft_delete) | unclear) & ~ends, value)
        return F.last(shown, ignorenulls=True).over(until_here)

    found = {name: scratch(f"known_{number}") for number, name in enumerate(lacking)}
    last = lives.select(
        "*",
        F.lead(F.lit(1)).over(order).isNull().alias(_RANK),
        (F.max(F.when(starts, F.col(_LIFE))).over(until_here) == F.col(_LIFE)).alias(MOVED),
        *(known(name).alias(alias) for name, alias in found.items()),
    ).filter(_RANK)
    return _last_images(last, table, found, soft_delete=soft_delete, gaps=gaps)


def _last_images(
    last: DataFrame,
    table: TableSchema,
    found: Mapping[str, str],
    *,
    soft_delete: bool,
    gaps: bool,
) -> DataFrame:
    """Return each key's last event as a lake row, completed with values from earlier events.

    Args:
        last: The last event of each key.
        table: The table.
        found: By table column, the name of a struct column of ``last``. The struct describes the
            key's newest event in which the column's value is known or unclear (see :func:`fold`).
            It has three fields: the value, the event's life, and whether the value is clear.
        soft_delete: Whether a deleted row keeps its values.
        gaps: See :func:`fold`.
    """
    ends = F.col(OP) == "d"

    def in_life(name: str) -> SparkColumn:
        return F.coalesce(F.col(f"{found[name]}.{_LIFE}") == F.col(_LIFE), F.lit(False))

    def given(name: str) -> SparkColumn:
        # A deleted row takes the NULL of an unclear value.
        clear = F.lit(False) if gaps else F.col(f"{found[name]}.{_CLEAR}")
        return in_life(name) & (ends | clear)

    def stale(name: str) -> SparkColumn:
        return ~ends & (F.lit(True) if gaps else in_life(name))

    def lacked(name: str) -> SparkColumn:
        return _lacks_value(name, soft_delete=soft_delete)

    def names(test: Callable[[str], SparkColumn]) -> SparkColumn:
        left_out = [F.when(lacked(one) & ~given(one) & test(one), F.lit(one)) for one in found]
        listed = F.array_compact(F.array(*left_out))
        return F.when(F.size(listed) > 0, listed)

    columns = {
        name: F.when(lacked(name), F.when(given(name), F.col(f"{alias}.value"))).otherwise(
            F.col(quoted(name))
        )
        for name, alias in found.items()
    }
    return last.select(
        *META_NAMES,
        TRANSACTION,
        *(
            columns.get(column.name, F.col(quoted(column.name))).alias(column.name)
            for column in table.columns
        ),
        names(lambda name: ~stale(name)).alias(MISSING),
        names(stale).alias(STALE),
        F.coalesce(F.col(MOVED), F.lit(False)).alias(MOVED),
    )


def _lacks_value(name: str, *, soft_delete: bool) -> SparkColumn:
    """Return a Spark condition that is true if an event lacks a value that the lake's row needs.

    A delete event lacks all values. The row needs them only in soft delete mode, in which the
    deleted row stays in the lake.
    """
    deletes = F.col(OP) == "d"
    lacked = _lists_column(UNAVAILABLE, name)
    return (deletes | lacked) if soft_delete else (lacked & ~deletes)


def _lists_column(names: str, name: str) -> SparkColumn:
    """Return a Spark condition that is true if an event's array ``names`` contains ``name``.

    The condition is false if the array is NULL.
    """
    return F.coalesce(F.array_contains(names, name), F.lit(False))


def fill(
    folded: DataFrame,
    rows: DataFrame,
    table: TableSchema,
    columns: Sequence[str],
    *,
    moved: bool,
    absent_is_deleted: bool,
) -> DataFrame:
    """Return the folded rows, with missing values filled from rows that have the same keys.

    Args:
        folded: The result of :func:`fold`.
        rows: Rows of the lake, or rows that were read from the source. They have the key columns
            and ``columns``, one row per key.
        table: The table.
        columns: Columns whose values ``rows`` has.
        moved: Whether ``rows`` may also fill a row that got its key within this batch. False for
            rows of the lake, since the lake's row with that key may be another row.
        absent_is_deleted: Whether to mark a folded row as deleted if ``rows`` lacks the row's key.
    """
    wanted = F.col(MISSING).isNotNull()
    if not moved:
        wanted = wanted & ~F.col(MOVED)
    known = rows.select(
        *(F.col(quoted(name)).alias(scratch(f"key_{n}")) for n, name in enumerate(table.key)),
        *(F.col(quoted(name)).alias(scratch(f"value_{n}")) for n, name in enumerate(columns)),
        F.lit(True).alias(_FOUND),
    )
    on = [F.col(quoted(name)) == F.col(scratch(f"key_{n}")) for n, name in enumerate(table.key)]
    joined = folded.filter(wanted).join(known, on, "left")
    found = F.coalesce(F.col(_FOUND), F.lit(False))
    given = {
        name: F.when(
            found & F.array_contains(MISSING, name),
            F.col(scratch(f"value_{n}")).cast(table.column(name).lake_type),
        ).otherwise(F.col(quoted(name)))
        for n, name in enumerate(columns)
    }
    rest = F.array_except(
        MISSING, F.array(*(F.lit(name) for name in columns)).cast("array<string>")
    )
    left = F.when(found & (F.size(rest) > 0), rest).when(~found, F.col(MISSING))
    operation = F.col(OP)
    if absent_is_deleted:
        left = F.when(found, left)
        operation = F.when(found, operation).otherwise(F.lit("d"))
    changed = {**given, OP: operation, MISSING: left}
    filled = joined.select(
        *(changed.get(name, F.col(quoted(name))).alias(name) for name in folded.columns)
    )
    return folded.filter(~wanted).unionByName(filled)
