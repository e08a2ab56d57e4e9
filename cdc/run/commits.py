"""Who may commit to a lake table, and what the state store remembers of a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.errors import FencedError
from cdc.state import CommitSummary

if TYPE_CHECKING:
    from cdc.lake.commit import CommitRecord
    from cdc.lake.timeline import Timeline
    from cdc.lease import Lease
    from schemas.table import TableId


def commit_guard(
    table: TableId, lease: Lease, start: Mapping[int, int]
) -> Callable[[Timeline], None]:
    """Refuses a commit unless the table is still ours and where it was when we read."""

    def guard(timeline: Timeline) -> None:
        latest = timeline.latest_offsets()
        found = dict(latest.record.offsets) if latest is not None else None
        if found != dict(start):
            raise FencedError(
                f"table {table} was at offsets {dict(start)} when this run began and is at"
                f" {found} now: another run has committed",
                remedy="Nothing was committed. Run again; it starts from the newest commit.",
                table=table,
            )
        lease.check()

    return guard


def commit_summary(instant: str, record: CommitRecord) -> CommitSummary:
    """What the state store remembers of a commit."""
    return CommitSummary(
        offsets=dict(record.offsets),
        position=record.position,
        watermark=record.watermark,
        instant=instant,
        committed_at=_instant_time(instant),
    )


def _instant_time(instant: str) -> datetime:
    """The time in a Hudi instant, ``yyyyMMddHHmmssSSS`` in UTC."""
    return datetime.strptime(f"{instant[:17]}000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)
