"""How a look at a connector's tasks treats topics that it cannot read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from cdc.capture.task_look_scope import to_search
from cdc.store.kept_task_looks import KeptLooks, TaskLook
from cdc.store.state_store import Store
from tests.unit.cdc.capture.looks_in_memory import MOVED, asked, beat, looks_at, losses, record
from tests.unit.cdc.task_topics import NAMES, Topics, event

AT = datetime(2026, 1, 2, tzinfo=timezone.utc)
LATER = AT + timedelta(minutes=1)
RECORDS = [record("orders"), record("lines")]
ORDERS, LINES = (str(one.table) for one in RECORDS)


def follow(folder: Path, topics: Topics) -> TaskLook:
    looks_at(folder, topics).follow(NAMES, RECORDS, asked)
    kept = KeptLooks(Store(f"sqlite:///{folder / 'state.db'}")).of("c")
    assert kept is not None
    return kept.look


def ends_within_a_changed_key(
    topics: Topics, topic: str, tasks: list[str], offset: int, at: int
) -> None:
    """Let a task end between the two events of a changed key, and let the next task go on."""
    first, second = tasks
    topics.add(event(offset, at, "d", 1, topic=topic, task=first, at=at, headers=MOVED))
    topics.add(event(offset + 1, at + 1, "u", 2, topic=topic, task=second, at=at + 1))


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_cannot_be_read_keeps_no_other_from_being_judged(
    tmp_path: Path, again: bool
) -> None:
    """Once the topic can be read, it is searched from its former end, however many tasks ended."""
    topics = Topics()
    beat(topics, "a", at=10)
    assert follow(tmp_path, topics).behind == {}
    ends_within_a_changed_key(topics, "orders", ["a", "b"], 0, at=20)
    ends_within_a_changed_key(topics, "lines", ["a", "b"], 0, at=20)
    beat(topics, "b", at=30)
    topics.unread = {"lines"}
    look = follow(tmp_path, topics)
    assert losses(tmp_path) == {ORDERS: 1}
    assert (look.ends["orders"], look.ends["lines"], [*look.behind]) == (2, 0, ["lines"])

    beat(topics, "b", at=40)
    assert follow(tmp_path, topics) == look, "nothing to write"
    expected = {ORDERS: 1, LINES: 1}
    if again:
        ends_within_a_changed_key(topics, "orders", ["b", "c"], 2, at=50)
        beat(topics, "c", at=60)
        assert follow(tmp_path, topics).behind == look.behind
        assert losses(tmp_path) == {ORDERS: 2}
        expected = {ORDERS: 2, LINES: 1}
    topics.unread = set()
    beat(topics, "c" if again else "b", at=70)
    look = follow(tmp_path, topics)
    assert losses(tmp_path) == expected
    assert (look.ends["lines"], look.behind) == (2, {})
    beat(topics, "c" if again else "b", at=80)
    follow(tmp_path, topics)
    assert losses(tmp_path) == expected, "each loss counts once"


def test_a_topic_that_cannot_be_read_while_no_task_ends_is_searched_from_its_former_end(
    tmp_path: Path,
) -> None:
    topics = Topics()
    topics.add(event(0, 1, "c", 1, topic="lines", task="a", at=5))
    beat(topics, "a", at=10)
    follow(tmp_path, topics)
    topics.unread = {"lines"}
    beat(topics, "a", at=1000)
    look = follow(tmp_path, topics)
    assert (look.ends["lines"], look.behind) == (1, {})
    topics.unread = set()
    ends_within_a_changed_key(topics, "lines", ["a", "b"], 1, at=1010)
    beat(topics, "b", at=1020)
    follow(tmp_path, topics)
    assert losses(tmp_path) == {LINES: 1}


def test_what_is_searched_are_topics_with_records_since_the_look_that_searched_them() -> None:
    behind = {"quiet": LATER, "late": AT, "still": AT}
    known = TaskLook("a", LATER, {"idle": 1}, behind=behind)
    sent = {"idle": AT, "busy": LATER, "quiet": AT, "late": AT}
    same, next_task = TaskLook("a", LATER, {}), TaskLook("b", LATER, {})
    assert to_search(known, same, sent, {"still"}) == (["late"], {"still": AT})
    assert to_search(known, next_task, sent, {"still", "new"}) == (
        ["busy", "late"],
        {"still": AT, "new": LATER},
    )
