"""The dashboard's panels of readers that record what they have read."""

from __future__ import annotations

from operate.metrics import metric_definitions as m
from operate.metrics.panel import Panel, of

__all__ = ["READERS"]

READERS = (
    Panel(
        "Lag of readers",
        "timeseries",
        ((f"topk(20, {of(m.READER_LAG)})", "{{table}} {{reader}}"),),
        "s",
        "Since the commit that each reader has read; 0 if it has read the newest one.",
        runbook="TributaryReaderLag",
    ),
    Panel(
        "Unread commits, and the limits",
        "timeseries",
        (
            (f"topk(10, {of(m.READER_UNREAD)})", "{{table}} {{reader}}"),
            (f"topk(10, {of(m.READER_TARGET)})", "limit of {{table}} {{reader}}"),
        ),
        "s",
        "How long the oldest commit that each reader has not read has been there.",
        runbook="TributaryReaderLag",
    ),
    Panel(
        "Readers that must read the whole table",
        "table",
        ((f"{of(m.READER_LOST)} == 1", "{{table}} {{reader}}"),),
        "short",
        "Readers that may have missed changes, or whose file cannot be read.",
        runbook="TributaryReaderLag",
    ),
)
