"""Which last event of a connector's task shows that the next task can skip too much."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from cdc.capture.task_looks import TaskLook, begins_group, is_doubled
from cdc.debezium.task_ends import SentChange


def change(position: str, op: str = "c", row: int = 1) -> SentChange:
    return SentChange(op, position, 7, {"id": row}, {"id": row})


@pytest.mark.parametrize(
    ("last", "before", "after", "begins"),
    [
        (change("9"), None, None, True),
        (change("9"), change("8"), change("10"), True),
        (change("9"), change("9", row=0), change("10"), False),
        (change("9"), change("8"), change("9", row=2), False),
        (change("9", "u"), change("8"), change("10"), False),
    ],
)
def test_a_group_begins_with_an_insert_at_a_position_of_its_own(
    last: SentChange, before: SentChange | None, after: SentChange | None, begins: bool
) -> None:
    assert begins_group(last, before, after) is begins


def test_a_row_is_doubled_if_it_comes_again_at_its_position() -> None:
    assert is_doubled(change("9"), change("9"))
    assert not is_doubled(change("9"), change("9", row=2))
    assert not is_doubled(change("9"), change("10"))
    assert not is_doubled(change("9"), None)


def test_a_look_is_kept_as_a_mark() -> None:
    look = TaskLook("a", datetime(2026, 1, 2, 3, 4, 5, 678000, timezone.utc), {"t": 12})
    assert TaskLook.of(look.mark()) == look


def test_a_topic_whose_newest_record_can_be_of_a_later_task_keeps_its_former_end() -> None:
    at = datetime(2026, 1, 2, tzinfo=timezone.utc)
    look = TaskLook("a", at, {"idle": 5, "settled": 7, "busy": 9, "new": 3})
    sent = {"settled": at, "busy": at + timedelta(seconds=1), "new": at + timedelta(seconds=1)}
    kept = look.only_settled(sent, {"busy": 4, "settled": 6})
    assert kept.ends == {"idle": 5, "settled": 7, "busy": 4}
