"""Tables that wait for a run, as workers take them."""

from __future__ import annotations

import time
from typing import Any, cast

from cdc.capture.position_check import TopicFacts
from cdc.run.context import Turn
from cdc.run.lane import Entry
from cdc.run.workers import Work
from schemas.table import TableId
from tests.records import table_record

WAIT_S = 20.0
"""The limit for what a test waits for, in seconds."""


def work(
    name: str,
    *,
    found: bool = False,
    seconds: float = 1.0,
    end: int = 9,
    lake: str | None = None,
    tier: str = "default",
) -> Work:
    """A table that waits for a run."""
    table = TableId("shop", "public", name)
    facts = TopicFacts("T1", {0: 0}, {0: end})
    entry = Entry(table, tier, time.time() + 900.0, 900.0, seconds, lake)
    captures = cast("Any", None)
    return Work(table_record(table), facts, captures, entry, Turn(), time.time(), found)
