"""The offset from which the stream is applied, found among records and Kafka's control records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.boundary import first_beyond, recorded
from bootstrap.capture_proof import Capture
from cdc.kafka import KafkaRecord
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from tests.records import NOW, ORDERS
from tests.unit.cdc.capture.capture_evidence import NAMES


def record(offset: int) -> KafkaRecord:
    return KafkaRecord("t", 0, offset, None, b"", None)


@given(
    start=st.integers(0, 50),
    records=st.sets(st.integers(0, 400), max_size=120),
    length=st.integers(0, 400),
    split=st.integers(0, 450),
)
def test_it_is_the_first_record_that_the_copy_lacks(
    start: int, records: set[int], length: int, split: int
) -> None:
    end = start + length
    offsets = sorted(offset for offset in records if start <= offset < end)
    asked: list[tuple[int, int]] = []

    def first(low: int, high: int) -> KafkaRecord | None:
        asked.append((low, high))
        return next((record(offset) for offset in offsets if low <= offset < high), None)

    found = first_beyond(start, end, first, lambda one: one.offset < split)
    assert found == next((offset for offset in offsets if offset >= split), end)
    assert len(asked) <= length.bit_length() + 1, "records are looked at one by one"


def test_each_place_in_a_topic_without_gaps_is_found() -> None:
    for end in range(40):
        for split in range(end + 1):

            def first(low: int, high: int) -> KafkaRecord | None:
                return record(low) if low < high else None

            def copied(one: KafkaRecord, split: int = split) -> bool:
                return one.offset < split

            assert first_beyond(0, end, first, copied) == split


def test_a_topic_without_records_begins_at_its_end() -> None:
    assert first_beyond(7, 7, lambda low, high: None, lambda one: True) == 7


@pytest.mark.parametrize(
    ("converter", "kept"),
    [("io.confluent.connect.avro.AvroConverter", True), ("another", False), (None, False)],
)
def test_an_attempt_records_whether_its_connector_sends_null(
    converter: str | None, kept: bool
) -> None:
    """The running connector's settings decide, not those that a new connector would have."""
    running = converter and {
        "value.converter": converter,
        "value.converter.ignore.default.for.nullables": "true",
    }
    kafka = SimpleNamespace(ends_many=lambda _: {"t.orders": {}}, topic_id=lambda _: "T")
    unused = cast("Any", None)
    capture = Capture(
        table=ORDERS,
        topic="t.orders",
        names=NAMES,
        source=unused,
        connect=cast("Any", SimpleNamespace(connector=lambda _: running)),
        kafka=cast("Any", kafka),
        definitions=unused,
        sent=unused,
        recovery=unused,
        progress=NullProgress(),
    )
    assert recorded(Attempt(UUID(int=1), NOW, "/lake"), capture).nulls_are_kept is kept
