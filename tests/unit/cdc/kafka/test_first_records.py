"""How the first record of a range is found among the messages of the client library."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import confluent_kafka as ck
import pytest

from cdc.kafka import first_records as module
from cdc.kafka.client import KafkaClient

END, GONE, SLOW = (
    ck.KafkaError._PARTITION_EOF,
    ck.KafkaError._AUTO_OFFSET_RESET,
    ck.KafkaError._TRANSPORT,
)


@dataclass(frozen=True)
class Message:
    """A record of a topic at an offset, or an error of its partition with the given code."""

    of: str
    at: int
    code: int | None = None

    def topic(self) -> str:
        return self.of

    def offset(self) -> int:
        return self.at

    def error(self) -> ck.KafkaError | None:
        return None if self.code is None else ck.KafkaError(self.code)

    def timestamp(self) -> tuple[int, int]:
        return ck.TIMESTAMP_CREATE_TIME, 1_767_225_600_500

    def key(self) -> bytes:
        return b"k"

    value = key

    def headers(self) -> None:
        return None


class Consumer:
    """Returns the given messages, and nothing after them."""

    messages: Iterable[Message] = ()

    def __init__(self, settings: dict[str, Any]) -> None:
        self.left = list(self.messages)
        assert settings["isolation.level"] == "read_uncommitted"

    def assign(self, places: list[ck.TopicPartition]) -> None:
        self.assigned = {one.topic: one.offset for one in places}

    def incremental_unassign(self, places: list[ck.TopicPartition]) -> None:
        for one in places:
            del self.assigned[one.topic]

    def poll(self, _timeout: float) -> Message | None:
        return self.left.pop(0) if self.left else None

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([Message("t", 7), Message("t", 8)], 7),
        ([Message("t", 9)], 9),  # before it are a transaction's marker or deleted records
        ([Message("t", 12)], None),
        ([Message("t", 12, END)], None),
        ([Message("t", 7, END), Message("t", 8)], 8),  # a new leader lacks the end for a moment
        ([Message("t", 7, SLOW), Message("t", 8)], 8),
        ([Message("t", 7, GONE), Message("t", 8)], None),
        ([], None),
    ],
    ids=["first", "gap", "later", "empty", "early end", "transient", "gone", "no answer"],
)
def test_the_first_record_of_a_range(
    messages: list[Message], found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Consumer, "messages", [*messages, Message("other", 3)])
    monkeypatch.setattr(ck, "Consumer", Consumer)
    client = cast("KafkaClient", type("Client", (), {"settings": {}})())
    seen = module.first_records(
        client, {"t": (7, 12), "other": (3, 4), "none": (5, 5)}, deadline=time.monotonic() + 0.2
    )
    offsets = {topic: record.offset for topic, record in seen.items()}
    assert offsets == {"other": 3} | ({} if found is None else {"t": found})
