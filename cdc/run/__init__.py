"""The incremental run: from a table's topic to its lake table, one commit at a time."""

from __future__ import annotations

from cdc.run.context import RunContext, RunResult
from cdc.run.cycle import run_continuously, run_tables
from cdc.run.expiring import Expiring, expiring
from cdc.run.naming import drop_name, keep_name
from cdc.run.replay import replay_table
from cdc.run.table import run_table
from cdc.run.watch import Silence, silences

__all__ = [
    "Expiring",
    "RunContext",
    "RunResult",
    "Silence",
    "drop_name",
    "expiring",
    "keep_name",
    "replay_table",
    "run_continuously",
    "run_table",
    "run_tables",
    "silences",
]
