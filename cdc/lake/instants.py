"""Converts instants of a lake table to times, and compares them with this machine's clock."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone


def time_of(instant: str) -> datetime:
    """Return the time of an instant. An instant is ``yyyyMMddHHmmssSSS`` in UTC."""
    return datetime.strptime(f"{instant[:17]}000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)


def ahead_of_clock(newest: str | None) -> timedelta:
    """Return how far an instant is ahead of this machine's clock; zero if it is not.

    Args:
        newest: The newest instant of a table; None if the table has no commit.
    """
    if newest is None:
        return timedelta()
    seconds = (time_of(newest) - datetime.now(timezone.utc)).total_seconds()
    return timedelta(seconds=max(0, math.ceil(seconds)))
