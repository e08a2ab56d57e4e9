"""Who may commit to a lake table, and what the state store remembers of a commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from cdc.errors import FencedError
from cdc.lake.instants import lead
from cdc.state import CommitSummary

if TYPE_CHECKING:
    from cdc.lake.timeline import Committed, Timeline
    from cdc.lease import Lease
    from schemas.table import TableId

_TOLD_FROM = timedelta(seconds=5)
"""Clocks that differ by less are not worth a warning."""


def commit_guard(table: TableId, lease: Lease, newest: Committed) -> Callable[[Timeline], None]:
    """Refuses a commit unless the table is still ours, and as it was when we read.

    Offsets alone would not tell that another run has followed a change of the schema.
    """

    def guard(timeline: Timeline) -> None:
        latest = timeline.latest_offsets()
        if latest is None or latest.instant != newest.instant:
            found = "no commit" if latest is None else f"commit {latest.instant}"
            raise FencedError(
                f"table {table} was at commit {newest.instant} when this run began and is at"
                f" {found} now: another run has committed",
                remedy="Nothing was committed. Run again; it starts from the newest commit.",
                table=table,
            )
        lease.check()

    return guard


def clock_warnings(table: TableId, newest: Committed) -> tuple[str, ...]:
    """What readers who ask by time are to know of a table that is ahead of this machine's clock."""
    ahead = lead(newest.instant)
    if ahead < _TOLD_FROM:
        return ()
    return (
        f"the newest commit of table {table} is {ahead} ahead of this machine's clock, since it"
        " was made by a machine whose clock was: commits go on in order, readers by time find them"
        f" there, and `tributary resync {table}` begins anew",
    )


def commit_summary(committed: Committed) -> CommitSummary:
    """What the state store remembers of a commit."""
    record = committed.record
    return CommitSummary(
        offsets=dict(record.offsets),
        epochs=dict(record.epochs),
        position=record.position,
        watermark=record.watermark,
        instant=committed.instant,
        committed_at=committed.at,
    )
