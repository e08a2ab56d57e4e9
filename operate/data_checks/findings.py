"""What one execution of a check has found, and the judgements that need no rows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from operate.render import seconds

if TYPE_CHECKING:
    from cdc.config.checks import CheckSettings
    from cdc.store.checks import CheckResult, Outcome, Reach

COUNTED = "counted"
"""Name, in `Finding.counts`, of a volume check's number of rows, compared with earlier numbers."""
PERIOD = "period_end"
"""Name, in `Finding.counts`, of the end of a volume check's period, in seconds since 1970."""


@dataclass(frozen=True)
class Finding:
    """What one execution of a check has found.

    Args:
        outcome: How the execution ended.
        detail: The result in words, without values of rows.
        counts: The numbers that the check has found, as a mapping from names such as ``rows``.
        reach: Which rows a check of kind ``verify`` has compared; None for other kinds.
    """

    outcome: Outcome
    detail: str
    counts: Mapping[str, int] = field(default_factory=dict)
    reach: Reach | None = None


def violations(counts: Mapping[str, int], what: str, *, rows: int) -> Finding:
    """Return the finding of a data check that counts violations in each of its columns.

    Args:
        counts: The number of violations, as a mapping from the column's name.
        what: What a violation is, in words that fit between a number and the name of a column, for
            example ``rows are NULL in``.
        rows: Number of rows that were checked.
    """
    found = {column: number for column, number in counts.items() if number}
    every = {"rows": rows, **counts}
    if not found:
        return Finding("passed", f"{rows:,} rows", every)
    listed = ", ".join(f"{number:,} {what} {column}" for column, number in sorted(found.items()))
    return Finding("failed", f"{listed}; {rows:,} rows", every)


def freshness(check: CheckSettings, age_s: float | None, target_s: int) -> Finding:
    """Return the finding of a data check of kind ``freshness``.

    Args:
        check: The check.
        age_s: The table's freshness in seconds, as `status` shows it; None if it is not known.
        target_s: The table's freshness target in seconds.
    """
    limit = target_s if check.max_age_s is None else check.max_age_s
    if age_s is None:
        return Finding("skipped", "the freshness of the table is not known")
    counts = {"age_s": int(age_s), "allowed_s": limit}
    shown = f"{seconds(age_s)} old, of {seconds(limit)} that are allowed"
    return Finding("failed" if age_s > limit else "passed", shown, counts)


def last_period(check: CheckSettings, now: datetime) -> tuple[datetime, datetime] | None:
    """Return the beginning and the end of the period whose rows a ``volume`` data check counts.

    The result is None if the check counts all rows. Otherwise, it is the last whole period that
    ended at least the check's ``settle`` ago. Periods are counted from 1970 in UTC.
    """
    if check.period_s is None:
        return None
    until = now - timedelta(seconds=check.settle_s)
    end = until.timestamp() // check.period_s * check.period_s
    return (
        datetime.fromtimestamp(end - check.period_s, tz=now.tzinfo),
        datetime.fromtimestamp(end, tz=now.tzinfo),
    )


def volume(check: CheckSettings, counts: Mapping[str, int], past: Sequence[CheckResult]) -> Finding:
    """Return the finding of a data check of kind ``volume``.

    A failed result counts as history, too. So if the number of rows stays at a new level, the check
    fails until most of its history has that level.

    Args:
        check: The check.
        counts: Under `COUNTED`, the number of rows. Under `PERIOD`, the end of the period whose
            rows are counted; without this entry, all rows are counted.
        past: Earlier results about the data, newest first. A result for the same period does
            not count. If another period has several results, only the newest counts.
    """
    numbers, seen = list[int](), {counts.get(PERIOD)}
    for result in past:
        period = result.counts.get(PERIOD)
        if COUNTED in result.counts and (period is None or period not in seen):
            numbers.append(result.counts[COUNTED])
            seen.add(period)
    numbers = numbers[: check.history]
    counted = counts[COUNTED]
    if not numbers:
        return Finding("passed", f"{counted:,} rows; there is no history yet", counts)
    usual = statistics.median(numbers)
    shown = f"{counted:,} rows; the median of {len(numbers)} earlier results is {usual:,.0f}"
    outside = not check.least * usual <= counted <= check.most * usual
    return Finding("failed" if usual and outside else "passed", shown, counts)
