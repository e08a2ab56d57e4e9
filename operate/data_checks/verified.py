"""Executes checks of kind ``verify``: all rows, a sample, partitions, or a window of time."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from cdc.sources.source_facts import TimeRange
from cdc.store.checks import Reach
from operate.data_checks.findings import Finding
from operate.verify.scope import Scope
from operate.verify.table import reads_primary, verify_table

if TYPE_CHECKING:
    from cdc.config.checks import CheckSettings
    from cdc.run import RunContext
    from operate.context import Services
    from operate.verify.result import Verification
    from schemas.table import TableId

_TIME = "{:%Y-%m-%d %H:%M:%S}"


def scope_of(check: CheckSettings, *, now: datetime, seed: int) -> Scope:
    """Return which part of a table a data check of kind ``verify`` compares.

    Args:
        check: The check.
        now: The current time, aware UTC. If the check compares a window of time, the end of
            this window is ``now`` minus the check's ``settle``.
        seed: The seed of a sample.
    """
    window = None
    if check.window_s is not None and check.time_column is not None:
        end = now.astimezone(timezone.utc) - timedelta(seconds=check.settle_s)
        begin = end - timedelta(seconds=check.window_s)
        window = TimeRange(check.time_column, _TIME.format(begin), _TIME.format(end))
    return Scope(
        method=check.method,
        fraction=check.fraction,
        seed=seed,
        window=window,
        partition_by=check.columns,
        max_seconds=check.max_seconds,
        max_sessions=check.max_sessions,
        go_on=check.max_seconds is not None,
        from_primary=check.read_from == "primary",
    )


def check_verified(
    services: Services, context: RunContext, table: TableId, check: CheckSettings, now: datetime
) -> tuple[Finding, str]:
    """Execute a data check of kind ``verify``; return the finding and the lake commit's instant.

    Raises:
        TributaryError: Source, stream or lake cannot be read, or the table does not fit the check.
    """
    scope = scope_of(check, now=now, seed=secrets.randbelow(2**31))
    found = verify_table(services, context, table, scope)
    reach = reach_of(scope, found, primary=reads_primary(services, table, scope))
    finding = replace(judged(found), reach=reach)
    if scope.method == "sample":
        finding = replace(finding, counts={**finding.counts, "seed": scope.seed})
    return finding, found.instant


def reach_of(scope: Scope, found: Verification, *, primary: bool) -> Reach:
    """Return which rows a data check of kind ``verify`` has compared.

    Args:
        scope: The part of the table that the check had to compare.
        found: The result of the comparison.
        primary: Whether the source's rows were read from the primary.
    """
    if scope.method == "window" and scope.window is not None:
        window = scope.window
        return Reach("window", window.column, window.begin, window.end, primary=primary)
    if scope.method == "sample":
        return Reach("sample", primary=primary)
    if not scope.in_pieces or (found.equal and found.proven is None and not found.continued):
        return Reach("all", primary=primary)
    return Reach("pieces", to_end=found.proven is None, primary=primary)


def judged(found: Verification) -> Finding:
    """Return the finding of a data check of kind ``verify`` from the result of the comparison."""
    counts = {"rows": found.rows_compared, **found.counts}
    shown = f"{found.rows_compared:,} rows compared, up to source position {found.position}"
    if found.parts is not None:
        counts |= {"parts": found.parts[0], "compared_parts": found.parts[1]}
        shown += f"; {found.parts[1]:,} of {found.parts[0]:,} parts row by row"
    if found.proven is not None and found.equal:
        shown += f"; {found.proven.rows:,} rows are proven so far, and the next check goes on there"
    if found.equal:
        return Finding("passed", shown, counts)
    if not found.difference_count:
        return Finding("error", f"{found.unsettled_count:,} rows kept changing; {shown}", counts)
    listed = ", ".join(f"{number:,} {kind}" for kind, number in found.counts.items())
    return Finding("failed", f"{listed}; {shown}", counts)
