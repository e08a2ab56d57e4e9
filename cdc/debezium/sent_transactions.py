"""Reads from Kafka which transactions wrote heartbeat rows and the marker rows of copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cdc.debezium.event_reader import EventReader
from cdc.log.binlog_position import BinlogPosition
from cdc.log.continuity import SentTransaction

if TYPE_CHECKING:
    from cdc.debezium.names import CaptureNames
    from cdc.kafka import KafkaAdmin, KafkaRecord
    from schemas.registry import SchemaRegistry

_FIRST, _GROWTH, _LAST = 512, 8, 262_144
"""Number of offsets in the first read, factor for each further read, and maximum for one read."""


def sent_since(
    kafka: KafkaAdmin, registry: SchemaRegistry, capture: CaptureNames, file: str
) -> list[SentTransaction]:
    """Return transactions of heartbeats and markers that Debezium sent since a binlog file began.

    The result can also have transactions of earlier binlog files, but no transaction from before
    the last reset of the server's binlog. At most the last 262,144 records of each topic are read.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
        capture: The names of the connector and of its topics.
        file: The name of the binlog file.

    Raises:
        KafkaError: A topic cannot be read in time.
        RegistryError: The registry does not know a record's schema.
        DecodeError: A record is not a heartbeat or a marker.
    """
    events, number = EventReader(registry), BinlogPosition(file, 0).number
    found: list[SentTransaction] = []
    for topic in kafka.topics((capture.heartbeat_topic, capture.marker_topic)):
        start = min(kafka.start_offsets(topic).values(), default=0)
        end = max(kafka.stable_offsets(topic).values(), default=0)
        sent: list[SentTransaction] = []
        for first in tails(start, end):
            sent = since_last_reset(_sent_transactions(events, kafka.read(topic, 0, first, end)))
            if sent and BinlogPosition(sent[0].file, 0).number <= number:
                break
        found += sent
    return found


def since_last_reset(sent: Iterable[SentTransaction]) -> list[SentTransaction]:
    """Return the transactions that Debezium sent since the last reset of each server's binlog.

    Duplicates are left out.

    A server writes files with the same names again after its binlog was reset, or after the server
    was restored to an earlier state. Then the file of a transaction has a lower number than the
    file of the previous transaction. The transactions from before the reset say nothing about the
    new files, so they are left out.

    MariaDB's GTIDs identify a server by its server id. If another server takes over this id, the
    server's name in the sent rows can change within a file. Then the transactions of the former
    server are left out, too.

    Duplicates come from connectors without exactly-once delivery.

    Args:
        sent: The transactions in the order in which the connector sent them.
    """
    found: dict[SentTransaction, None] = {}
    newest: dict[str, tuple[int, str]] = {}
    for one in sent:
        if one in found:
            continue
        number = BinlogPosition(one.file, 0).number
        last, named = newest.get(one.server, (0, ""))
        if number < last or (number == last and one.named != named):
            found = {other: None for other in found if other.server != one.server}
        newest[one.server] = number, one.named
        found[one] = None
    return [*found]


def tails(start: int, end: int) -> Iterator[int]:
    """Yield offsets from which to read Debezium's heartbeats and markers, in descending order.

    The last yielded offset is the topic's first offset, or ``end`` minus 262,144 if the topic has
    more offsets than that.

    Args:
        start: The topic's first offset.
        end: The offset after the topic's last record.
    """
    length = _FIRST
    while True:
        yield max(start, end - length)
        if end - length <= start or length >= _LAST:
            return
        length *= _GROWTH


def _sent_transactions(
    events: EventReader, records: Iterator[KafkaRecord]
) -> Iterator[SentTransaction]:
    """Yield the transactions of heartbeats and markers in records that Debezium sent."""
    for record in records:
        if record.value is None:
            continue
        found = events.read(record, "a heartbeat or marker", _transaction_of_event)
        if found is not None:
            yield found


def _transaction_of_event(event: Any) -> SentTransaction | None:
    """Return the transaction of a Debezium event; None if the event has no row or no GTID."""
    row, place = event["after"], event["source"]
    if row is None or not (gtid := place["gtid"]):
        return None
    named = str(row["server"])
    # Heartbeats and markers have different names of a MariaDB server. Its GTIDs have its number.
    server = named if place["connector"] == "mysql" else gtid.partition("-")[2].partition("-")[0]
    return SentTransaction(server, place["file"], gtid, named)
