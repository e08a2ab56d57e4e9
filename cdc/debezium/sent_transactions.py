"""Reads from heartbeats and markers which transactions of a binlog a connector has sent."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import fastavro

from cdc.errors import DecodeError
from cdc.log.binlog_position import BinlogPosition
from cdc.log.continuity import SentTransaction
from schemas.avro import split_wire
from schemas.errors import SchemaError

if TYPE_CHECKING:
    from cdc.debezium.names import CaptureNames
    from cdc.kafka import KafkaAdmin, KafkaRecord
    from schemas.registry import SchemaRegistry

_FIRST, _GROWTH, _LAST = 512, 8, 262_144
"""Records of the first read, the factor of each further read, and records of the last one."""


class _Schemas:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._parsed: dict[int, Any] = {}

    def event(self, record: KafkaRecord) -> Any:
        schema_id, body = split_wire(record.value or b"")
        if schema_id not in self._parsed:
            self._parsed[schema_id] = fastavro.parse_schema(
                json.loads(self._registry.schema(schema_id))
            )
        return fastavro.schemaless_reader(io.BytesIO(body), self._parsed[schema_id])


def sent_since(
    kafka: KafkaAdmin, registry: SchemaRegistry, capture: CaptureNames, file: str
) -> list[SentTransaction]:
    """Return the heartbeats and markers that a connector has sent from a file and later ones.

    Earlier ones may be among them. At most the last 262,144 records of each topic are read.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
        capture: The connector's names.
        file: The file of the binlog.

    Raises:
        KafkaError: A topic cannot be read in time.
        RegistryError: The registry does not know a record's schema.
        DecodeError: A record is not of the connector.
    """
    schemas, number = _Schemas(registry), BinlogPosition(file, 0).number
    found: list[SentTransaction] = []
    for topic in kafka.topics((capture.heartbeat_topic, capture.marker_topic)):
        start = min(kafka.start_offsets(topic).values(), default=0)
        end = max(kafka.stable_offsets(topic).values(), default=0)
        sent: list[SentTransaction] = []
        for first in tails(start, end):
            sent = since_last_reset(_sent(schemas, kafka.read(topic, 0, first, end)))
            if sent and BinlogPosition(sent[0].file, 0).number <= number:
                break
        found += sent
    return found


def since_last_reset(sent: Iterable[SentTransaction]) -> list[SentTransaction]:
    """Return the transactions without those from before their server's files began again.

    A server that is restored to an earlier state, or whose binlog is reset, writes files with the
    same names again. What it has sent from the former files says nothing about the new ones. A
    connector without exactly-once delivery sends transactions again; these are left out.

    Args:
        sent: The transactions in the order in which they were sent.
    """
    found: dict[SentTransaction, None] = {}
    newest: dict[str, int] = {}
    for one in sent:
        if one in found:
            continue
        number = BinlogPosition(one.file, 0).number
        if number < newest.get(one.server, 0):
            found = {other: None for other in found if other.server != one.server}
        newest[one.server] = number
        found[one] = None
    return [*found]


def tails(start: int, end: int) -> Iterator[int]:
    """Yield where ever longer ends of a topic begin, up to the whole topic or 262,144 records.

    Args:
        start: The topic's first offset.
        end: The offset after its last one.
    """
    length = _FIRST
    while True:
        yield max(start, end - length)
        if end - length <= start or length >= _LAST:
            return
        length *= _GROWTH


def _sent(schemas: _Schemas, records: Iterator[KafkaRecord]) -> Iterator[SentTransaction]:
    for record in records:
        if record.value is None:
            continue
        try:
            event = schemas.event(record)
            row, place = event["after"], event["source"]
            if row is not None and place["gtid"]:
                yield SentTransaction(row["server"], place["file"], place["gtid"])
        except (SchemaError, KeyError, TypeError, ValueError, EOFError) as error:
            raise DecodeError(
                f"record at offset {record.offset} of topic {record.topic} partition"
                f" {record.partition} is neither a heartbeat nor a marker: {error}",
                remedy="Check that only this source's connector writes to the topic.",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            ) from error
