"""The one offset from which on the stream is applied, found among records and Kafka's markers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bootstrap.boundary import first_beyond
from cdc.kafka import KafkaRecord


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
