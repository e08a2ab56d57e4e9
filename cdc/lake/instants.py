"""Converts instants of a lake table to times, and compares them with this machine's clock."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc.errors import LakeError

if TYPE_CHECKING:
    from schemas.table import TableId

_TOLD_FROM = timedelta(seconds=5)
"""Smallest difference between clocks that causes a warning."""

_PRINTED = re.compile(r"\[(?:==>)?(\d+)__(?:\d+__)?([a-z]+)__([A-Z]+)\]")
"""Pattern of an action of a timeline, as Hudi prints the action. A completed action can also have
its completion time."""


class TimelineAction(NamedTuple):
    """One action of a Hudi timeline: its instant, name and state, such as COMPLETED."""

    instant: str
    action: str
    state: str


def actions_of(listed: Any) -> list[TimelineAction]:
    """Return the actions of Hudi's list of a timeline, in order, by one call to Java.

    Raises:
        LakeError: Hudi prints an action in another form.
    """
    printed = str(listed.toString())[1:-1]
    found = [_PRINTED.fullmatch(one) for one in printed.split(", ")] if printed else []
    actions = [TimelineAction(*one.groups()) for one in found if one is not None]
    if len(actions) < len(found):
        raise LakeError(
            f"a timeline of Hudi has an action of unknown form: {printed[:500]}",
            remedy="Use the version of Hudi that this version of Tributary brings.",
        )
    return actions


def time_of(instant: str) -> datetime:
    """Return the time of a Hudi instant, which is ``yyyyMMddHHmmssSSS`` in UTC."""
    # `strptime` takes ten times as long, and a scrape of metrics calls this once per table.
    year, month, day = int(instant[:4]), int(instant[4:6]), int(instant[6:8])
    hour, minute, second = int(instant[8:10]), int(instant[10:12]), int(instant[12:14])
    microsecond = int(instant[14:17]) * 1000
    return datetime(year, month, day, hour, minute, second, microsecond, tzinfo=timezone.utc)


def ahead_of_clock(newest: str | None) -> timedelta:
    """Return how far a Hudi instant is ahead of this machine's clock; zero if it is not ahead.

    Args:
        newest: The newest instant of a table; None if the table has no commit.
    """
    if newest is None:
        return timedelta()
    seconds = (time_of(newest) - datetime.now(timezone.utc)).total_seconds()
    return timedelta(seconds=max(0, math.ceil(seconds)))


def clock_warnings(table: TableId, newest: str) -> tuple[str, ...]:
    """Return a warning if a lake table's newest commit is later than now; else an empty tuple.

    Args:
        table: The table.
        newest: The instant of the table's newest commit.
    """
    ahead = ahead_of_clock(newest)
    if ahead < _TOLD_FROM:
        return ()
    return (
        f"the newest commit of table {table} is {ahead} ahead of this machine's clock, since the"
        " clock of the machine that wrote it was ahead, or was set back since: new commits get"
        " later times than it, readers by time find them there, upkeep waits until then, and"
        f" `tributary resync {table}` starts again at the present time",
    )
