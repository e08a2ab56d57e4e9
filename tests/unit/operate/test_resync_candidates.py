"""When the resync of a candidate begins, by the clock that all machines share."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

from cdc.config import TableSettings
from cdc.run import plan
from cdc.store.table_state import State
from operate.resync_candidates import why_not_copied
from schemas.table import TableId
from tests.records import table_record


def test_a_failed_copy_is_tried_again_by_the_state_stores_clock() -> None:
    failed_at = datetime(2001, 1, 1, tzinfo=timezone.utc)
    record = table_record(
        table=TableId("shop", "public", "t"),
        state=State.FAILED,
        resume_to=State.BOOTSTRAPPING,
        generation=2,
        failures=1,
        updated_at=failed_at,
    )
    settings = TableSettings(on_incompatible="resync")

    def why(at: datetime) -> str | None:
        services = SimpleNamespace(store=SimpleNamespace(now=lambda: at))
        return why_not_copied(cast("Any", services), record, settings)

    again = plan.retry_at(1, failed_at)
    assert "its copy failed" in (why(again - timedelta(seconds=1)) or "")
    assert why(again) is None
