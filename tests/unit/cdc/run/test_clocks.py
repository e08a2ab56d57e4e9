"""The machines of several processes can have different clocks."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo

import pytest

from cdc.run import cycle, run_table, work_finder
from cdc.run import table as run_module
from cdc.run.plan import FIRST_RETRY
from cdc.store.table_state import State
from tests.unit.failing_command import TABLE, Command

AHEAD = timedelta(hours=2)


class FastClock(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> FastClock:
        return super().now(tz) + AHEAD


def test_a_failed_table_waits_by_the_clock_of_the_state_store(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "check_serving", command.fails)
    context, record = command.context(), command.put(State.INCREMENTAL)
    for module in (run_module, work_finder):
        monkeypatch.setattr(module, "datetime", FastClock)
    assert run_table(context, record).error is not None
    failed = command.services.store.get(TABLE)
    assert failed is not None
    assert failed.retry_at is not None
    assert timedelta() < failed.retry_at - datetime.now(timezone.utc) <= FIRST_RETRY
    assert cycle._runnable_tables(context, [failed]) == []
