"""The offset in a topic at which one task of a connector ends and the next task begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.debezium.task_ends import moves_key, takes_key, task_of
from cdc.kafka import KafkaRecord
from tests.unit.cdc.task_topics import Topics, event, in_binlog, sent


def ends(topic: Topics, first: int, end: int, task: str) -> list[tuple[int, int | None]]:
    found = topic.ends().between("t", first, end, task)
    return [
        (one.last.offset, None if one.following is None else one.following.offset) for one in found
    ]


@given(
    st.lists(st.tuples(st.integers(1, 2_000), st.integers(1, 4)), min_size=1, max_size=5),
    st.data(),
)
def test_each_end_of_a_task_is_found_wherever_the_search_begins(
    tasks: list[tuple[int, int]], data: st.DataObject
) -> None:
    records: dict[int, KafkaRecord] = {}
    offset, known = 0, []
    for number, (events, gap) in enumerate(tasks):
        if records:
            known.append((max(records), offset))
        for _ in range(events):
            records[offset] = sent(offset, str(number))
            offset += gap
    first = data.draw(st.integers(0, offset))
    before = max((at for at in records if at < first), default=-1)
    found = ends(Topics.of(records.values()), first, offset, str(len(tasks) - 1))
    assert found == [(last, following) for last, following in known if last >= before]


def test_a_task_that_has_sent_nothing_since_is_an_end_too() -> None:
    topic = Topics.of(sent(offset, "a") for offset in range(3))
    assert ends(topic, 3, 3, "a") == []
    assert ends(topic, 3, 3, "b") == [(2, None)]
    assert ends(Topics(), 0, 0, "b") == []


def test_records_that_have_expired_are_not_read() -> None:
    topic = Topics.of(sent(offset, "a" if offset < 50 else "b") for offset in range(40, 60))
    assert ends(topic, 0, 60, "b") == [(49, 50)]
    assert ends(topic, 90, 60, "b") == []  # a topic that has begun again


@pytest.mark.parametrize(
    ("later", "sends"),
    [
        ([(7, "c", 2)], True),
        ([(7, "c", 3), (7, "u", 2)], True),
        ([(7, "d", 2), (7, "c", 3), (8, "c", 2)], False),
        ([(7, "c", 3)], False),
        ([(7, "c", 3)] * 9, None),
    ],
)
def test_only_a_later_event_of_the_same_transaction_sends_a_row(
    later: list[tuple[int, str, int]], sends: bool | None
) -> None:
    earlier = [event(0, 6, "c", 2), event(1, 7, "d", 2), event(2, 7, "c", 1)]
    records = [*earlier, *(event(3 + n, *one) for n, one in enumerate(later))]
    found = Topics.of(records).ends()
    assert found.sends_later(records[2], ("2",), len(records), offsets=5) is sends


def test_a_position_in_a_binlog_has_the_number_of_the_row() -> None:
    found = Topics().ends().change(in_binlog(3, pos=154, row=2, op="c", key=5))
    assert (found.position, found.transaction) == ("binlog.000007:154:2", None)
    assert (found.op, found.key) == ("c", {"id": 5})


def test_a_long_topic_is_searched_in_halves() -> None:
    topic = Topics.of(sent(n, "a" if n < 70_000 else "b") for n in range(100_000))
    assert ends(topic, 0, 100_000, "b") == [(69_999, 70_000)]
    assert topic.reads < 300


@pytest.mark.parametrize(("headers", "moved"), [((), False), (("__debezium.newkey",), True)])
def test_the_delete_of_a_changed_key_is_told_by_its_header(
    headers: tuple[str, ...], moved: bool
) -> None:
    assert moves_key(sent(0, "a", *headers)) is moved
    assert task_of(sent(0, "a", *headers)) == "a"
    assert task_of(sent(0, None)) is None
    assert not takes_key(sent(0, "a", *headers))
    assert takes_key(sent(0, "a", "__debezium.oldkey"))
