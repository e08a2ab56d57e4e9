"""When the resync of a candidate begins, and how often the source is asked for that."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.config import TableSettings
from cdc.errors import SchemaChangeError, SourceError
from cdc.run import plan
from cdc.sources.source_facts import TableSize
from cdc.store.error_record import ErrorRecord
from cdc.store.table_state import State, TableRecord
from operate.resync_candidates import why_not_copied
from operate.row_estimates import RowEstimates
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


NIGHT, NOON = (datetime(2026, 3, 1, hour, tzinfo=timezone.utc) for hour in (23, 12))
LIMITED = TableSettings.model_validate(
    {"on_incompatible": "resync", "resync": {"max_rows": 1_000, "window": "22:00-05:00"}}
)
STOPPED = table_record(
    state=State.NEEDS_BOOTSTRAP,
    error=ErrorRecord(SchemaChangeError.__name__, "a type has changed", "Copy it.", {}),
)


class Judged:
    """Judges a candidate's resync with a source that counts how often it is asked for a size."""

    def __init__(self, *, rows: int = 10) -> None:
        self.rows, self.asked, self.seconds, self.away = rows, 0, 0.0, False
        self._estimates = RowEstimates(clock=lambda: self.seconds)

    def why(
        self, at: datetime, record: TableRecord = STOPPED, *, for_person: bool = False
    ) -> str | None:
        services = SimpleNamespace(
            store=SimpleNamespace(now=lambda: at),
            row_estimates=self._estimates,
            source=lambda _: SimpleNamespace(table=lambda table: table, size=self._size),
        )
        return why_not_copied(cast("Any", services), record, LIMITED, for_person=for_person)

    def _size(self, _table: object) -> TableSize:
        self.asked += 1
        if self.away:
            raise SourceError("the source is away", remedy="Start it.")
        return TableSize(rows=self.rows, heap_bytes=0)


def test_no_size_is_asked_for_while_the_retry_or_the_window_keeps_a_resync_back() -> None:
    judged = Judged()
    failed = replace(
        STOPPED, state=State.FAILED, resume_to=State.BOOTSTRAPPING, generation=2, failures=1
    )
    again = plan.retry_at(1, failed.updated_at)
    early = again - timedelta(seconds=1)
    for for_person in (False, True):
        assert "its copy failed" in (judged.why(early, failed, for_person=for_person) or "")
    for _ in range(3):
        assert "resync.window" in (judged.why(NOON) or "")
    assert judged.asked == 0
    assert judged.why(NIGHT) is None
    assert judged.asked == 1


def test_a_table_that_is_too_large_is_measured_once_in_ten_minutes() -> None:
    judged = Judged(rows=2_000)
    for seconds in (0.0, 10.0, 599.0):
        judged.seconds = seconds
        assert judged.why(NIGHT) == "it has about 2,000 rows, and resync.max_rows is 1,000"
    assert judged.asked == 1
    judged.rows, judged.seconds = 500, 600.0
    assert judged.why(NIGHT) is None
    assert judged.asked == 2


def test_the_reason_on_which_a_person_must_act_is_shown_before_the_window() -> None:
    judged = Judged(rows=2_000)
    assert "resync.window" in (judged.why(NOON) or "")
    assert "resync.max_rows" in (judged.why(NOON, for_person=True) or "")
    judged.seconds = 80_000.0
    assert "resync.max_rows" in (judged.why(NOON) or ""), "the last estimate is known"
    assert judged.asked == 1


def test_a_source_that_does_not_answer_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    judged = Judged()
    judged.away = True
    assert judged.why(NIGHT) == "it has an unknown number of rows, and resync.max_rows is 1,000"
    assert "the source is away" in caplog.text
    judged.away = False
    assert judged.why(NIGHT) is None
    assert judged.asked == 2
