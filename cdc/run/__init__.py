"""The incremental run: it applies the records of a table's topic to its lake table."""

from __future__ import annotations

from cdc.capture.topic_retention import Expiring, expiring
from cdc.capture.watch import Silence, silences
from cdc.run.complete_periods import announce_periods, note_beats
from cdc.run.context import RunContext, RunResult, Unchecked
from cdc.run.cycle import run_continuously, run_tables
from cdc.run.metastore_name import drop_name, keep_name
from cdc.run.overdue import overdue
from cdc.run.replay import replay_table
from cdc.run.table import run_table

__all__ = [
    "Expiring",
    "RunContext",
    "RunResult",
    "Silence",
    "Unchecked",
    "announce_periods",
    "drop_name",
    "expiring",
    "keep_name",
    "note_beats",
    "overdue",
    "replay_table",
    "run_continuously",
    "run_table",
    "run_tables",
    "silences",
]
