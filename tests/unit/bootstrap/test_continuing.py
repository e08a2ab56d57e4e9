"""When readers of changes can go on from the former generation to that of a resync."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from bootstrap.resync import _continuing_generation
from cdc.store.attempt import Attempt
from cdc.store.table_state import State, TableRecord
from tests.records import table_record

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
FORMER, BUILD = uuid.UUID(int=1), uuid.UUID(int=2)


def record(of: uuid.UUID, state: State, **facts: Any) -> TableRecord:
    made = {"losses": 3, "settings_digest": "same"} | facts
    return table_record(state=state, attempt=Attempt(of, NOW, f"/lake/attempt={of}", **made))


@pytest.mark.parametrize(
    ("state", "facts", "continues"),
    [
        (State.INCREMENTAL, {}, FORMER),
        (State.INCREMENTAL, {"losses": 2}, None),
        (State.INCREMENTAL, {"settings_digest": "other"}, None),
        (State.FAILED, {}, None),
        (State.NEEDS_BOOTSTRAP, {}, None),
    ],
)
def test_only_a_followed_table_without_a_loss_is_continued(
    state: State, facts: dict[str, Any], continues: uuid.UUID | None
) -> None:
    found = _continuing_generation(record(BUILD, State.CATCHING_UP), record(FORMER, state, **facts))
    assert found.attempt is not None
    assert (found.attempt.id, found.attempt.continues) == (BUILD, continues)


def test_a_table_that_moved_to_another_topic_is_not_continued() -> None:
    """Readers find changes by their offsets, and offsets of two topics cannot be compared."""
    build = replace(record(BUILD, State.CATCHING_UP), topic="of_another_tier")
    found = _continuing_generation(build, record(FORMER, State.INCREMENTAL))
    assert found.attempt is not None
    assert found.attempt.continues is None
