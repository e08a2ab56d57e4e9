"""What a run of a table costs, as learned from the table's last runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cdc.errors import StateError
from cdc.store.documents import Codec, Part
from cdc.store.table_state import STORE_REMEDY


@dataclass(frozen=True)
class TableCost(Part):
    """Weighted sums over the runs of a table, in which newer runs have more weight.

    `cdc.run.cost` updates the sums. From the sums, a linear regression finds how many seconds a run
    takes for each commit and for each event. In the descriptions below, "commits", "events" and
    "seconds" are the number of commits, the number of events and the duration of one run. Each sum
    is over the runs.

    Args:
        runs: Number of runs that the sums contain.
        commits_commits: Sum of squares of commits.
        commits_events: Sum of products of commits and events.
        events_events: Sum of squares of events.
        commits_seconds: Sum of products of commits and seconds.
        events_seconds: Sum of products of events and seconds.
        events_per_s: Number of events that arrive per second.
        observed_s: Seconds during which ``events_per_s`` was measured, at most half an hour.
        measured_at: When the newest of the runs began.
        clock_s: Sum of seconds.
        cpu_s: Sum of the runs' shares of the CPU time (`cdc.runtime.cpu_shares`), in seconds.
        cores: Number of cores that the process of the newest run may use; 0 if it is not known.
        commits: Sum of commits.
        written_bytes: Sum of the bytes that the runs wrote to the lake, rewritten rows included.
        format: Version of this document.
    """

    runs: int
    commits_commits: float
    commits_events: float
    events_events: float
    commits_seconds: float
    events_seconds: float
    events_per_s: float
    observed_s: float
    measured_at: datetime
    clock_s: float
    cpu_s: float
    cores: int
    commits: float
    written_bytes: float
    format: Literal[1] = 1


TABLE_COSTS = Codec(TableCost, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's costs."""
