"""Facts on transactions, from the connector's transaction topic and from its events."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from cdc.debezium import TransactionReader
from cdc.errors import CaptureError, DecodeError
from cdc.kafka import KafkaRecord
from cdc.log.position import Lsn

BOUNDARY = {
    "type": "record",
    "name": "TransactionMetadataValue",
    "fields": [
        {"name": "status", "type": "string"},
        {"name": "id", "type": "string"},
        {"name": "event_count", "type": ["null", "long"], "default": None},
    ],
}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "txId", "type": ["null", "long"], "default": None},
                    {"name": "gtid", "type": ["null", "string"], "default": None},
                ],
            },
        },
        {"name": "op", "type": "string", "default": "c"},
    ],
}
SCHEMAS = {1: BOUNDARY, 2: EVENT}


class Registry:
    def schema(self, schema_id: int) -> str:
        return json.dumps(SCHEMAS[schema_id])


def encoded(schema_id: int, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMAS[schema_id]), value)
    return b"\x00" + schema_id.to_bytes(4, "big") + out.getvalue()


def record(offset: int, value: bytes) -> KafkaRecord:
    return KafkaRecord("shop_default_append.transaction", 0, offset, None, value, None)


class Topic:
    """A topic with the given records; it counts the records that were read."""

    def __init__(self, *values: bytes) -> None:
        self.values, self.taken = values, 0

    def read(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float
    ) -> Iterator[KafkaRecord]:
        for offset in range(start, min(end, len(self.values))):
            self.taken += 1
            yield record(offset, self.values[offset])


def told(status: str, xid: int, lsn: int) -> bytes:
    return encoded(1, {"status": status, "id": f"{xid}:{lsn}", "event_count": None})


def ended_by(topic: Topic, split: int, start: int = 0) -> frozenset[int]:
    reader = TransactionReader(topic, Registry())  # type: ignore[arg-type]
    end = {0: len(topic.values)}
    return reader.ended_by("transactions", Lsn(split), {0: start}, end, timeout_s=1)


def test_a_transaction_counts_by_where_it_ends() -> None:
    # 8 began first, and ended last: its rows lie before the end of 7.
    topic = Topic(
        told("BEGIN", 7, 90), told("END", 7, 100), told("BEGIN", 8, 50), told("END", 8, 120)
    )
    assert ended_by(topic, 99 + 20) == {7}
    assert ended_by(topic, 100) == {7}, "at the position is in the view"
    assert ended_by(topic, 99) == frozenset()


def test_no_more_is_read_than_to_the_first_end_beyond() -> None:
    topic = Topic(told("END", 1, 10), told("END", 2, 20), told("END", 3, 30), told("END", 4, 40))
    assert ended_by(topic, 15) == {1}
    assert topic.taken == 2


def test_a_topic_that_tells_of_nothing_beyond_proves_nothing() -> None:
    with pytest.raises(CaptureError, match=r"1 transactions that end at or before 0/F and none"):
        ended_by(Topic(told("END", 1, 10)), 15)


def test_a_record_of_something_else_is_named() -> None:
    with pytest.raises(DecodeError, match=r"offset 0 of topic shop_default_append\.transaction"):
        ended_by(Topic(b"\x01"), 15)


def test_an_event_names_its_transaction() -> None:
    reader = TransactionReader(Topic(), Registry())  # type: ignore[arg-type]
    assert reader.of(record(3, encoded(2, {"source": {"txId": 4711}}))) == 4711
    with pytest.raises(DecodeError, match="not a change event"):
        reader.of(record(3, encoded(2, {"source": {"txId": None}})))


def test_an_event_of_a_binlog_names_its_gtid() -> None:
    reader = TransactionReader(Topic(), Registry())  # type: ignore[arg-type]
    assert reader.gtid(record(3, encoded(2, {"source": {"gtid": "0-1-7"}}))) == "0-1-7"
    for lacking in (None, ""):
        with pytest.raises(DecodeError, match="not a change event with a GTID"):
            reader.gtid(record(3, encoded(2, {"source": {"gtid": lacking}})))


def test_a_truncate_names_its_transaction_and_nothing_else_is_one() -> None:
    reader = TransactionReader(Topic(), Registry())  # type: ignore[arg-type]
    truncate = record(3, encoded(2, {"source": {"txId": 4711}, "op": "t"}))
    row = encoded(2, {"source": {"txId": 4711}, "op": "d"})
    assert reader.truncates(truncate) == 4711
    assert reader.truncates(record(3, row)) is None
    assert reader.truncates(replace(truncate, key=b"k")) is None
    assert reader.truncates(replace(truncate, value=None)) is None
    with pytest.raises(DecodeError, match="not a change event"):
        reader.truncates(replace(truncate, value=encoded(1, {"status": "END", "id": "1:1"})))
