"""The UUIDs in descriptions of topics are freed, whether or not the library leaks a reference."""

from __future__ import annotations

import ctypes
import gc
import sys

import confluent_kafka as ck
import pytest

from cdc.kafka.topic_ids import topic_uuid


class Leaking:
    """A description as confluent-kafka 2.16 makes it."""

    def __init__(self, number: int) -> None:
        self.topic_id = ck.Uuid(number, number)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.topic_id))


class Correct:
    """A description of a library without the defect."""

    def __init__(self, number: int) -> None:
        self.topic_id = ck.Uuid(number, number)


class Keeping(Correct):
    """A description that refers to its UUID twice."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.other = self.topic_id


def alive() -> int:
    gc.collect()
    return sum(type(one) is ck.Uuid for one in gc.get_objects())


@pytest.mark.parametrize("kind", [Leaking, Correct, Keeping])
def test_no_uuid_outlives_its_description(kind: type) -> None:
    before = alive()
    for number in range(100):
        description = kind(number)
        text = str(description.topic_id)
        assert [topic_uuid(description) for _ in range(3)] == [text] * 3
        assert str(description.topic_id) == text, "the description can still be used"
    assert sys.getrefcount(description.topic_id) == sys.getrefcount(Correct(1).topic_id) + (
        kind is Keeping
    )
    del description
    assert alive() == before


def test_a_uuid_that_someone_else_holds_is_not_freed() -> None:
    held = [Correct(number) for number in range(3)]
    uuids = [one.topic_id for one in held]
    texts = [topic_uuid(one) for one in held]
    del held
    assert [str(one) for one in uuids] == texts
