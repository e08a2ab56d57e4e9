"""The panels of the dashboard that show the checks of tables."""

from __future__ import annotations

from operate.metrics import metric_definitions as m
from operate.metrics.panel import ONE, SOME, Panel, of

CHECKS = (
    Panel(
        "Failed checks",
        "timeseries",
        ((f"topk(20, {of(m.CHECK_FAILED)} == 1)", "{{table}} {{check}}"),),
        "short",
        "Checks with a failure that nothing has ended. `tributary checks list` has the counts.",
        steps=ONE,
        runbook="TributaryDataCheckFailed",
    ),
    Panel(
        "Outcomes of checks",
        "timeseries",
        (
            (
                "sum by (outcome) (max by (source, table, tier, check, outcome)"
                f" ({of(m.CHECK_OUTCOME)}))",
                "{{outcome}}",
            ),
        ),
        "short",
        "Checks by the outcome of their newest execution. skipped and error say nothing about the"
        " data.",
        runbook="TributaryDataCheckFailed",
        stacked=True,
    ),
    Panel(
        "Overdue checks",
        "timeseries",
        ((f"topk(20, {of(m.CHECK_DUE)} == 1)", "{{table}} {{check}}"),),
        "short",
        "Checks that are due by their schedule, and were not executed since or did not work.",
        steps=SOME,
        runbook="TributaryDataCheckOverdue",
    ),
    Panel(
        "Age of checks",
        "timeseries",
        (
            (f"topk(10, time() - {of(m.CHECK_PASSED_AT)})", "{{table}} {{check}} passed"),
            (f"topk(10, time() - {of(m.CHECK_AT)})", "{{table}} {{check}} ended"),
        ),
        "s",
        "Time since each check last ended, and since it last passed.",
        runbook="TributaryDataCheckOverdue",
    ),
)
"""The panels of checks."""
