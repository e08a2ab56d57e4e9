"""Looks at a connector's tasks after a topic was deleted and created again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cdc.store.kept_task_looks import Doubt, TaskLook
from tests.unit.cdc.capture.looks_in_memory import AT, MOVED, asked, beat, looks_at, losses, record
from tests.unit.cdc.task_topics import NAMES, Topics, event


@pytest.mark.parametrize("between", [True, False], ids=["seen between", "not seen between"])
def test_an_end_in_a_topic_that_began_again_is_searched_from_its_first_offset(
    tmp_path: Path, between: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The table was offboarded with its topic, and onboarded again while another table stayed."""
    former, other = record(topic_id="former"), record("lines", topic_id="lines")
    topics = Topics()
    beat(topics, "a", at=10)
    for offset in range(3):
        topics.add(event(offset, 1, "c", 1, topic="orders", task="a", at=5))
    looks_at(tmp_path, topics).follow(NAMES, [former, other], asked)

    topics.records["orders"].clear()
    again = record(topic_id="again")
    topics.add(event(0, 2, "d", 1, topic="orders", task="a", at=20, headers=MOVED))
    if between:
        beat(topics, "a", at=15)  # the topic's newest record can be of a later task
        looks_at(tmp_path, topics).follow(NAMES, [again, other], asked)
    topics.add(event(1, 3, "d", 1, topic="orders", task="b", at=30, headers=MOVED))
    topics.add(event(2, 4, "c", 1, topic="orders", task="c", at=40))
    topics.add(event(3, 4, "c", 2, topic="orders", task="c", at=40))
    beat(topics, "c", at=50)
    looks_at(tmp_path, topics).follow(NAMES, [again, other], asked)

    assert losses(tmp_path) == {str(again.table): 1}
    for offset in (0, 1):
        assert f"restarted after offset {offset} of topic orders" in caplog.text


def test_a_doubt_about_a_topic_is_none_about_the_next_one() -> None:
    look = TaskLook(
        "a", AT, {"orders": 9}, {str(record().table): Doubt(4, "why")}, {"orders": "former"}
    )
    assert look.doubt(record(topic_id="former")) == "why"
    assert look.doubt(record(topic_id="again")) is None
    assert replace(look, topic_ids={}).doubt(record(topic_id="again")) == "why"
