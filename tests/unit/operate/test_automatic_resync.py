from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from cdc.config.tables import ResyncLimits, TableSettings
from cdc.errors import KafkaError, LostHistoryError, SchemaChangeError
from cdc.store.attempt import Attempt
from cdc.store.table_state import Cause, State, TableRecord, transition
from operate.resync_candidates import is_candidate, waits_for
from schemas.errors import TributaryError
from tests.records import table_record

NOW = datetime(2026, 1, 2, 23, 4, 5, tzinfo=timezone.utc)
CHANGED = SchemaChangeError("column 'v' was renamed", remedy="Copy it again.")
LOST = LostHistoryError("the slot is gone", remedy="Copy it again.")
ASKS = TableSettings(on_incompatible="resync")


def table() -> TableRecord:
    return table_record(
        base_path="/lake",
        updated_at=NOW,
        attempt=Attempt(UUID(int=1), NOW, "/lake/a", start_offsets={0: 1}, handoff_offsets={0: 2}),
    )


def stopped(error: TributaryError) -> TableRecord:
    return transition(table(), State.NEEDS_BOOTSTRAP, at=NOW, cause=Cause(error.message, error))


def copying() -> TableRecord:
    attempt = Attempt(UUID(int=2), NOW, "/lake/b")
    return transition(stopped(CHANGED), State.BOOTSTRAPPING, at=NOW, attempt=attempt)


def failed() -> TableRecord:
    error = KafkaError("no broker", remedy="Start it.")
    return transition(copying(), State.FAILED, at=NOW, cause=Cause(error=error))


@pytest.mark.parametrize("record", [stopped(CHANGED), copying(), failed()])
def test_a_schema_change_asks_for_a_resync_where_settings_do(record: TableRecord) -> None:
    assert is_candidate(record, ASKS)
    assert not is_candidate(record, TableSettings())


@pytest.mark.parametrize("record", [table(), stopped(LOST)])
def test_what_works_and_what_was_lost_does_not(record: TableRecord) -> None:
    assert not is_candidate(record, ASKS)


def test_a_first_copy_is_finished_by_who_asked_for_it() -> None:
    first = replace(table(), state=State.REGISTERED)
    begun = transition(first, State.BOOTSTRAPPING, at=NOW, attempt=Attempt(UUID(int=3), NOW, "/x"))
    assert not is_candidate(begun, ASKS)


@pytest.mark.parametrize(
    ("limits", "rows", "reason"),
    [
        ({}, None, None),
        ({"max_rows": 10}, 10, None),
        ({"max_rows": 10}, 11, "about 11 rows"),
        ({"max_rows": 10}, None, "an unknown number of rows"),
        ({"window": "22:00-05:00"}, None, None),
        (
            {"window": "05:00-22:00"},
            None,
            "resync.window is 05:00-22:00 UTC, and the time is 23:04",
        ),
    ],
)
def test_limits(limits: dict[str, Any], rows: int | None, reason: str | None) -> None:
    settings = TableSettings(on_incompatible="resync", resync=ResyncLimits(**limits))
    why = waits_for(stopped(CHANGED), settings, rows, NOW)
    assert (why is None) == (reason is None)
    assert (reason or "") in (why or "")


def test_a_copy_that_failed_is_tried_again_after_a_pause() -> None:
    assert "failed, and the next try is after" in (waits_for(failed(), ASKS, None, NOW) or "")
    assert waits_for(failed(), ASKS, None, NOW + timedelta(seconds=31)) is None


@pytest.mark.parametrize(
    ("window", "open_at", "shut_at"),
    [
        ("22:00-05:00", ("22:00", "23:59", "00:00", "04:59"), ("05:00", "12:00", "21:59")),
        ("09:30-10:00", ("09:30", "09:59"), ("10:00", "09:29", "00:00")),
        ("00:00-00:00", (), ("00:00", "12:00")),
    ],
)
def test_windows(window: str, open_at: tuple[str, ...], shut_at: tuple[str, ...]) -> None:
    limits = ResyncLimits(window=window)

    def at(text: str) -> datetime:
        hour, minute = map(int, text.split(":"))
        return NOW.replace(hour=hour, minute=minute)

    assert [limits.allows(at(text)) for text in open_at] == [True] * len(open_at)
    assert [limits.allows(at(text)) for text in shut_at] == [False] * len(shut_at)


def test_a_window_is_in_utc() -> None:
    limits = ResyncLimits(window="22:00-23:00")
    east = datetime(2026, 1, 3, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    assert limits.allows(east)


@pytest.mark.parametrize("window", ["22-05", "24:00-05:00", "22:00", "22:00-05:60", "9:00-10:00"])
def test_other_windows_are_refused(window: str) -> None:
    with pytest.raises(ValueError, match="window"):
        ResyncLimits(window=window)
