"""Checks that rows of a table refer to rows of another table, as of one position of the source.

The two lake tables are never complete up to the same position, so their newest rows are not
compared. The check goes on in this order:

1. It reads the end E of the checked table's topic, and then a position P of the source's log. The
   transactions of all events before E have ended before P.
2. It brings the referenced table up to P by runs, and reads the referenced table as of its newest
   commit, C. Then it reads a position Q. All changes in C are from before Q.
3. It brings the checked table up to Q, and reads the rows whose last event is before E.

A row of step 3 has not changed from P to Q. If the source's foreign key holds, the referenced row
exists from P to Q. C has the referenced table as of a position from P to Q. So C has the referenced
row. Rows of the checked table that changed after E are left out; the next check examines them.

One transaction can delete the referenced row and insert it again, and a commit can end between
these two changes. So a check that finds rows without a counterpart repeats all steps once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from bootstrap.capture_proof import Capture
from cdc.lake.layout import column
from cdc.rows.columns import OFFSET, scratch
from operate.data_checks.findings import Finding
from operate.data_checks.lake_rows import lake_rows
from operate.verify.following import WAIT_S, Following
from operate.verify.table import require_published

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.config.checks import CheckSettings
    from cdc.lake.handoff import LakeColumn
    from cdc.log.position import LogPosition
    from cdc.run import RunContext
    from cdc.store.attempt import Attempt
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from schemas.table import TableId

_ROUNDS = 2
"""Number of comparisons that must all find a row without a counterpart before the check fails."""
_KEY, _COVERED = scratch("key"), scratch("covered")
_WHOLE, _FOUND = scratch("whole"), scratch("found")


@dataclass(frozen=True)
class _Side:
    """One of the two tables of a ``reference`` check: the checked or the referenced table."""

    record: TableRecord
    attempt: Attempt
    following: Following


def check_reference(
    services: Services, context: RunContext, table: TableId, check: CheckSettings
) -> tuple[Finding, str]:
    """Execute a ``reference`` data check; return the finding and the instant of the checked commit.

    Raises:
        StateError: One of the tables is not published.
        TributaryError: Source, stream or lake cannot be read.
    """
    referenced = check.references
    if referenced is None:
        raise AssertionError("the configuration refuses a reference without a table")
    other = services.config.table_id(
        referenced.table if ":" in referenced.table else f"{table.source}:{referenced.table}"
    )
    if other.source != table.source:
        reason = f"{other} is a table of another source, whose positions cannot be compared"
        return Finding("error", reason), ""
    ours, theirs = (_side_of_reference(services, context, one) for one in (table, other))
    for _ in range(_ROUNDS):
        finding, instant = _compare_tables_once(services, context, ours, theirs, check)
        if finding.outcome != "failed":
            break
    return finding, instant


def _side_of_reference(services: Services, context: RunContext, table: TableId) -> _Side:
    """Return the checked or the referenced table of a ``reference`` check, with its stream."""
    record, attempt = require_published(services, table)
    capture = Capture.of(context, services.connect, record)
    return _Side(record, attempt, Following(services, context, capture, attempt))


def _compare_tables_once(
    services: Services, context: RunContext, ours: _Side, theirs: _Side, check: CheckSettings
) -> tuple[Finding, str]:
    """Compare both tables of a ``reference`` check once.

    The result is the finding, and the instant of the commit as of which the checked table was read.
    """
    source = services.source(ours.record.table.source)
    ended = services.kafka.stable_offsets(ours.following.topic)
    _bring_up_to(theirs, source.write_marker().position)
    known = lake_rows(context, theirs.record, theirs.attempt)
    _bring_up_to(ours, source.write_marker().position)
    checked = lake_rows(context, ours.record, ours.attempt)
    names = () if check.references is None else check.references.columns
    if reason := _misfit_of_columns(checked.columns, check.columns, known.columns, names):
        return Finding("error", reason), checked.instant
    finding = _count_dangling_references(
        checked.rows, known.rows, check.columns, names, below=max(ended.values())
    )
    if finding.outcome == "failed":
        named = f"{finding.detail} of table {theirs.record.table}"
        finding = replace(finding, detail=named)
    return finding, checked.instant


def _count_dangling_references(
    checked: DataFrame,
    known: DataFrame,
    columns: tuple[str, ...],
    names: tuple[str, ...],
    *,
    below: int,
) -> Finding:
    """Count the checked rows whose references match no known row, and return the finding.

    A row with a NULL in one of the columns refers to nothing, and is not counted. A row that
    changed at offset ``below`` or later is not counted, either.

    Args:
        checked: Rows of the checked table, with the offsets of their last events.
        known: Rows of the referenced table.
        columns: The columns of the checked table that refer to the other table.
        names: The columns of the referenced table, in the same order.
        below: An offset in the checked table's topic.
    """
    whole = reduce(and_, (column(name).isNotNull() for name in columns))
    keys = [f"{_KEY}_{at}" for at in range(len(columns))]
    asked = checked.select(
        *(column(name).alias(key) for name, key in zip(columns, keys, strict=True)),
        (F.col(OFFSET) < below).alias(_COVERED),
        whole.alias(_WHOLE),
    )
    there = known.select(*(column(name).alias(key) for name, key in zip(names, keys, strict=True)))
    joined = asked.join(there.distinct().withColumn(_FOUND, F.lit(True)), on=keys, how="left")
    lost = F.col(_COVERED) & F.col(_WHOLE) & F.col(_FOUND).isNull()
    row = joined.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(F.when(~F.col(_COVERED), F.lit(1))).alias("left_out"),
        F.count(F.when(lost, F.lit(1))).alias("unmatched"),
    ).first()
    if row is None:
        raise AssertionError("an aggregate without groups has one row")
    counts = row.asDict()
    shown = f"{row['rows']:,} rows, of which {row['left_out']:,} were too new to be checked"
    if not row["unmatched"]:
        return Finding("passed", shown, counts)
    detail = f"{row['unmatched']:,} of {shown}, refer by {', '.join(columns)} to no row"
    return Finding("failed", detail, counts)


def _bring_up_to(side: _Side, position: LogPosition) -> None:
    """Bring a table of a ``reference`` check up to a position of the source's log."""
    side.following.capture.wait_until_captured(position, timeout_s=WAIT_S)
    side.following.advance()


def _misfit_of_columns(
    ours: Mapping[str, LakeColumn],
    columns: tuple[str, ...],
    theirs: Mapping[str, LakeColumn],
    names: tuple[str, ...],
) -> str | None:
    """Return why the columns of a ``reference`` check cannot be compared; None if they can."""
    for name, other in zip(columns, names, strict=True):
        if name not in ours:
            return f"the lake table has no column {name}"
        if other not in theirs:
            return f"the referenced lake table has no column {other}"
        one, two = ours[name], theirs[other]
        if one.hide != two.hide or one.hide == "mask":
            return f"columns {name} and {other} are hidden in the lake, in different ways or masked"
    return None
