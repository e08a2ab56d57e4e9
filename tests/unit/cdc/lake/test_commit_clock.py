"""Warnings for readers that query by time, if commits are ahead of this machine's clock."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from cdc.lake.instants import clock_warnings
from schemas.table import TableId

TABLE = TableId("shop", "public", "orders")


def committed(ahead: timedelta) -> str:
    return f"{datetime.now(timezone.utc) + ahead:%Y%m%d%H%M%S%f}"[:17]


def test_a_commit_that_lies_ahead_is_told_with_a_remedy() -> None:
    (warning,) = clock_warnings(TABLE, committed(timedelta(hours=2)))
    assert "is 2:00:00 ahead of this machine's clock" in warning
    assert "`tributary resync shop:public.orders`" in warning


def test_a_commit_of_the_past_or_of_clocks_that_differ_a_little_is_not() -> None:
    assert clock_warnings(TABLE, committed(timedelta(seconds=-1))) == ()
    assert clock_warnings(TABLE, committed(timedelta(seconds=3))) == ()
