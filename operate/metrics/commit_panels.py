"""The dashboard's panels about the cost of the newest commits, and about rounds."""

from __future__ import annotations

from operate.metrics import metric_definitions as m
from operate.metrics.panel import Panel, of, total, worst

__all__ = ["COMMITS", "ROUNDS"]

COMMITS = (
    worst("Duration of commits", of(m.COMMIT_SECONDS), "s", "The newest commit of each table."),
    worst(
        "Written bytes of commits",
        of(m.COMMIT_BYTES),
        "bytes",
        "Data files that the newest commit of each table wrote.",
    ),
    worst(
        "Written bytes per changed row",
        of(m.COMMIT_BYTES_PER_ROW),
        "bytes",
        "Hudi rewrites each file in which a row changed. Shown: the newest commits. Fewer,"
        " larger commits (min_commit_interval) lower it.",
    ),
    Panel(
        "Rows of commits",
        "timeseries",
        ((total(m.COMMIT_ROWS, by="operation"), "{{operation}}"),),
        "short",
        "Rows of the newest commits by what Hudi did.",
        stacked=True,
    ),
)
ROUNDS = (
    Panel(
        "Rounds of run --continuous",
        "timeseries",
        (
            (f"max({of(m.ROUND_SECONDS)})", "time of a round"),
            (f"time() - max({of(m.ROUND_AT)})", "since the newest round"),
        ),
        "s",
        "A round finds the tables that have work. Empty where `metrics serve` is a process of its"
        " own.",
        runbook="TributaryStale",
    ),
)
