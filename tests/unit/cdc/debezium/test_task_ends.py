"""Where one task of a connector ends in a topic, and the next one begins."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.debezium.task_ends import TaskEnds, moves_key, task_of
from cdc.kafka import KafkaRecord

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
PLACE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": "lsn", "type": "long"}, {"name": "txId", "type": ["null", "long"]}],
}
VALUE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "op", "type": "string"},
        {"name": "source", "type": PLACE},
        {"name": "after", "type": ["null", "string"]},
    ],
}
SCHEMAS = [KEY, VALUE]


class Registry:
    """A registry with the schemas above."""

    def schema(self, schema_id: int) -> str:
        return json.dumps(SCHEMAS[schema_id])


def encoded(schema: dict[str, Any], value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + SCHEMAS.index(schema).to_bytes(4, "big") + out.getvalue()


def sent(offset: int, task: str | None, *more: str) -> KafkaRecord:
    named = () if task is None else (("__debezium.context.runId", task.encode()),)
    headers = (*named, *((name, b"") for name in more))
    return KafkaRecord("t", 0, offset, b"", b"", None, headers)


class Topic:
    """A topic's records; the offsets between them are those of Kafka's transactions."""

    def __init__(self, records: Mapping[int, KafkaRecord]) -> None:
        self.records, self.read_offsets = records, 0

    def require(self, offset: int) -> None:
        """Refuse to read what has expired, as Kafka does."""
        assert offset >= self.start_offsets("t")[0]

    def start_offsets(self, topic: str) -> dict[int, int]:
        return {0: min(self.records, default=0)}

    def last_record(self, topic: str, start: int, end: int) -> KafkaRecord | None:
        self.require(start)
        found = [offset for offset in self.records if start <= offset < end]
        self.read_offsets += 1
        return self.records[max(found)] if found else None

    def read(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float
    ) -> Iterator[KafkaRecord]:
        self.require(start)
        for offset in sorted(self.records):
            if start <= offset < end:
                self.read_offsets += 1
                yield self.records[offset]


def ends(topic: Topic, first: int, end: int, task: str) -> list[tuple[int, int | None]]:
    found = TaskEnds(cast("Any", topic), cast("Any", None)).between("t", first, end, task)
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
    found = ends(Topic(records), first, offset, str(len(tasks) - 1))
    assert found == [(last, following) for last, following in known if last >= before]


def test_a_task_that_has_sent_nothing_since_is_an_end_too() -> None:
    topic = Topic({offset: sent(offset, "a") for offset in range(3)})
    assert ends(topic, 3, 3, "a") == []
    assert ends(topic, 3, 3, "b") == [(2, None)]
    assert ends(Topic({}), 0, 0, "b") == []


def test_records_that_have_expired_are_not_read() -> None:
    topic = Topic({offset: sent(offset, "a" if offset < 50 else "b") for offset in range(40, 60)})
    assert ends(topic, 0, 60, "b") == [(49, 50)]
    assert ends(topic, 90, 60, "b") == []  # a topic that has begun again


def event(offset: int, transaction: int, op: str, key: int) -> KafkaRecord:
    place = {"lsn": 5, "txId": transaction}
    value = {"op": op, "source": place, "after": None}
    return KafkaRecord("t", 0, offset, encoded(KEY, {"id": key}), encoded(VALUE, value), None, ())


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
    topic = Topic({one.offset: one for one in records})
    found = TaskEnds(cast("Any", topic), cast("Any", Registry()))
    assert found.sends_later(records[2], ("2",), len(records), offsets=5) is sends


def test_a_long_topic_is_searched_in_halves() -> None:
    topic = Topic({n: sent(n, "a" if n < 70_000 else "b") for n in range(100_000)})
    assert ends(topic, 0, 100_000, "b") == [(69_999, 70_000)]
    assert topic.read_offsets < 300


@pytest.mark.parametrize(("headers", "moved"), [((), False), (("__debezium.newkey",), True)])
def test_the_delete_of_a_changed_key_is_told_by_its_header(
    headers: tuple[str, ...], moved: bool
) -> None:
    assert moves_key(sent(0, "a", *headers)) is moved
    assert task_of(sent(0, "a", *headers)) == "a"
    assert task_of(sent(0, None)) is None
