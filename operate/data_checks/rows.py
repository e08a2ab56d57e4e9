"""Checks the rows of a lake table in Spark: all checks of the table together, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc.lake.layout import column
from cdc.rows.semantic_types import literal
from operate.data_checks.findings import COUNTED, PERIOD, Finding, last_period, violations

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from cdc.config.checks import CheckSettings
    from schemas.table import TableSchema

ROW_KINDS = frozenset({"not_null", "unique", "accepted_values", "range", "volume"})
"""The kinds of checks that this module executes."""

_ROWS = "rows"
_TIMES = {"timestamp": "{:%Y-%m-%d %H:%M:%S}Z", "timestamp_ntz": "{:%Y-%m-%d %H:%M:%S}"}
_TIMES["date"] = "{:%Y-%m-%d}"
"""By lake type, the format that writes a time as text. A cast of this text to the lake type gives
the time in UTC."""


@dataclass(frozen=True)
class Aggregates:
    """What one check needs from the pass over all rows.

    Args:
        columns: Expressions that aggregate all rows, as a mapping from names that are unique in the
            check.
        judged: Returns the finding from the values of the expressions and the number of rows.
    """

    columns: Mapping[str, SparkColumn]
    judged: Callable[[Mapping[str, Any], int], Finding]


class _Refused(Exception):
    """A check that does not fit the table; the text gives the reason."""


def check_rows(
    rows: DataFrame, schema: TableSchema, checks: Mapping[str, CheckSettings], *, now: datetime
) -> dict[str, Finding]:
    """Execute data checks of one table's rows in one pass; return a mapping from name to finding.

    The finding of a volume check has the number of rows, which is not judged yet.

    Args:
        rows: The table's rows, with the columns of the schema.
        schema: The lake's columns.
        checks: Checks of the kinds in `ROW_KINDS`, by name.
        now: The current time, aware UTC, from which a volume check finds its last period.
    """
    found: dict[str, Finding] = {}
    asked: dict[str, Aggregates] = {}
    for name, check in checks.items():
        try:
            asked[name] = _PLANS[check.kind](check, _Table(schema), now)
        except _Refused as refused:
            found[name] = Finding("error", str(refused))
    wanted = [F.count(F.lit(1)).alias(_ROWS)]
    places: dict[tuple[str, str], str] = {}
    for name, plan in asked.items():
        for what, value in plan.columns.items():
            place = places[name, what] = f"c{len(places)}"
            wanted.append(value.alias(place))
    if asked:
        values = rows.agg(*wanted).first()
        if values is None:
            raise AssertionError("an aggregate without groups has one row")
        for name, plan in asked.items():
            own = {what: values[places[name, what]] for what in plan.columns}
            found[name] = plan.judged(own, values[_ROWS])
    return found


@dataclass(frozen=True)
class _Table:
    """The lake's columns of a checked table."""

    schema: TableSchema

    def type_of(self, name: str) -> str:
        """Return a column's lake type.

        Raises:
            _Refused: The lake table has no such column.
        """
        types = {column.name: column.lake_type for column in self.schema.columns}
        if name not in types:
            raise _Refused(f"the lake table has no column {name}")
        return types[name]

    def column(self, name: str) -> SparkColumn:
        """Return a column as an expression."""
        self.type_of(name)
        return column(name)

    def value(self, text: str, column: str) -> SparkColumn:
        """Return a configured value, cast to a column's type; NULL if the cast is not possible."""
        return F.expr(f"try_cast({literal(text)} AS {self.type_of(column)})")


def _count_rows_where(wrong: SparkColumn) -> SparkColumn:
    """Return an expression that counts, for a data check, the rows for which a condition holds."""
    return F.count(F.when(wrong, F.lit(1)))


def _any_configured_null(values: Iterable[SparkColumn]) -> SparkColumn:
    """Return an expression that is true if one of a check's configured values is NULL.

    Without rows, the expression's result is NULL.
    """
    return F.max(reduce(or_, (value.isNull() for value in values)))


def _judge_by_column(
    what: str, columns: Sequence[str]
) -> Callable[[Mapping[str, Any], int], Finding]:
    """Return a function that makes a data check's finding from the violations in each column.

    If a configured value is not of its column's type, the finding is an error.
    """

    def judged(values: Mapping[str, Any], rows: int) -> Finding:
        misfits = [name.removeprefix("?") for name in values if name[:1] == "?" and values[name]]
        if misfits:
            reason = f"a configured value is no value of the type of column {', '.join(misfits)}"
            return Finding("error", reason)
        counts = {name: values[f"={name}"] for name in columns}
        return violations(counts, what, rows=rows)

    return judged


def _not_null(check: CheckSettings, table: _Table, now: datetime) -> Aggregates:
    """Count the rows that are NULL in each column, for a data check of kind ``not_null``."""
    columns = {f"={name}": _count_rows_where(table.column(name).isNull()) for name in check.columns}
    return Aggregates(columns, _judge_by_column("rows are NULL in", check.columns))


def _accepted_values(check: CheckSettings, table: _Table, now: datetime) -> Aggregates:
    """Count the rows whose value is not accepted, for a data check of kind ``accepted_values``."""
    columns = {}
    for name in check.columns:
        values = [table.value(text, name) for text in check.values]
        columns[f"={name}"] = _count_rows_where(~table.column(name).isin(*values))
        columns[f"?{name}"] = _any_configured_null(values)
    return Aggregates(columns, _judge_by_column("rows have another value in", check.columns))


def _range(check: CheckSettings, table: _Table, now: datetime) -> Aggregates:
    """Count the rows that are out of range, for a data check of kind ``range``."""
    columns = {}
    for name in check.columns:
        outside, bounds = [], []
        if check.min is not None:
            bounds.append(low := table.value(check.min, name))
            outside.append(table.column(name) < low)
        if check.max is not None:
            bounds.append(high := table.value(check.max, name))
            outside.append(table.column(name) > high)
        columns[f"={name}"] = _count_rows_where(reduce(or_, outside))
        columns[f"?{name}"] = _any_configured_null(bounds)
    return Aggregates(columns, _judge_by_column("rows are out of range in", check.columns))


def _unique(check: CheckSettings, table: _Table, now: datetime) -> Aggregates:
    """Count the rows that repeat the values of another row; a row with a NULL repeats none."""
    key = [table.column(name) for name in check.columns]
    whole = reduce(and_, (column.isNotNull() for column in key))
    columns = {
        "whole": _count_rows_where(whole),
        # A distinct count leaves out rows that have a NULL in one of the columns.
        "distinct": F.count_distinct(*key),
    }
    shown = ", ".join(check.columns)

    def judged(values: Mapping[str, Any], rows: int) -> Finding:
        twice = values["whole"] - values["distinct"]
        counts = {_ROWS: rows, "repeated": twice}
        if not twice:
            return Finding("passed", f"{rows:,} rows", counts)
        return Finding("failed", f"{twice:,} rows repeat the values of {shown}", counts)

    return Aggregates(columns, judged)


def _volume(check: CheckSettings, table: _Table, now: datetime) -> Aggregates:
    """Count the rows of the last period, or all rows, for a data check of kind ``volume``."""
    period = last_period(check, now)
    if period is None or check.time_column is None:
        return Aggregates({}, lambda values, rows: Finding("passed", "", {COUNTED: rows}))
    begin, end = (moment(one, table, check.time_column) for one in period)
    column = table.column(check.time_column)
    inside = _count_rows_where((column >= begin) & (column < end))
    ended = int(period[1].timestamp())

    def judged(values: Mapping[str, Any], rows: int) -> Finding:
        return Finding("passed", "", {COUNTED: values["inside"], PERIOD: ended, _ROWS: rows})

    return Aggregates({"inside": inside}, judged)


def moment(at: datetime, table: _Table, column: str) -> SparkColumn:
    """Return a time as a Spark value of a column's type, for a data check.

    Raises:
        _Refused: The column has no times.
    """
    lake_type = table.type_of(column)
    if lake_type not in _TIMES:
        raise _Refused(f"column {column} is of type {lake_type}, which has no times")
    return F.lit(_TIMES[lake_type].format(at.astimezone(timezone.utc))).cast(lake_type)


_PLANS: Mapping[str, Callable[[CheckSettings, _Table, datetime], Aggregates]] = {
    "not_null": _not_null,
    "unique": _unique,
    "accepted_values": _accepted_values,
    "range": _range,
    "volume": _volume,
}
