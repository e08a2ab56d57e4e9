"""Reads the ends of transactions, which the connector of append tables reports in a topic.

A row's position does not show where its transaction ends. A transaction that was in progress when
a copy opened its view of the source can have rows before the view's position, and end after this
position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cdc.debezium.event_reader import EventReader
from cdc.errors import CaptureError
from cdc.log.position import Lsn

if TYPE_CHECKING:
    from cdc.kafka import KafkaAdmin, KafkaRecord
    from schemas.registry import SchemaRegistry

_CHANGE = "a change event"


class TransactionReader:
    """Finds an event's transaction, and the transactions that ended at or before a position.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
    """

    def __init__(self, kafka: KafkaAdmin, registry: SchemaRegistry) -> None:
        self._kafka = kafka
        self._events = EventReader(registry)

    def ended_by(
        self,
        topic: str,
        split: Lsn,
        start: Mapping[int, int],
        end: Mapping[int, int],
        *,
        timeout_s: float,
    ) -> frozenset[int]:
        """Return the ids of the transactions that ended at or before a position.

        The ends are in the order of the WAL, so the read stops at the first end after the position.

        Args:
            topic: The connector's topic of transactions.
            split: The position.
            start: The first offset to read, by partition. These offsets were recorded before the
                log reached the position.
            end: The offset after the last one to read, by partition. When these offsets were
                recorded, everything up to the position was captured.
            timeout_s: Limit for the read of one partition, in seconds.

        Raises:
            CaptureError: No transaction in these offsets ends after the position.
            RegistryError: The registry does not know a record's schema.
            DecodeError: A record is not the beginning or end of a transaction.
            KafkaError: The topic cannot be read in time.
        """
        found: set[int] = set()
        for record in self._records(topic, start, end, timeout_s):
            xid, ended_at = self._events.read(
                record, "the beginning or end of a transaction", _transaction_end
            )
            if ended_at is None:
                continue
            if ended_at > split:
                return frozenset(found)
            found.add(xid)
        raise CaptureError(
            f"topic {topic} has {len(found)} transactions that end at or before {split} and none"
            " that ends later, although a later one was captured",
            remedy="Check that the connector runs with provide.transaction.metadata=true and writes"
            " to that topic; `tributary check` compares its settings.",
            topic=topic,
        )

    def of(self, record: KafkaRecord) -> int:
        """Return the id of the transaction to which a change event belongs.

        Raises:
            RegistryError: The registry does not know the record's schema.
            DecodeError: The record is not a change event.
        """
        return self._events.read(record, _CHANGE, _transaction_id)

    def truncates(self, record: KafkaRecord) -> int | None:
        """Return the id of the transaction if a record is a TRUNCATE, else None.

        Raises:
            RegistryError: The registry does not know the record's schema.
            DecodeError: The record is not a change event.
        """
        if record.key is not None or record.value is None:
            return None
        return self._events.read(
            record, _CHANGE, lambda event: _transaction_id(event) if event["op"] == "t" else None
        )

    def gtid(self, record: KafkaRecord) -> str:
        """Return the GTID of the transaction to which a change event from a binlog belongs.

        Raises:
            RegistryError: The registry does not know the record's schema.
            DecodeError: The record is not a change event from a binlog, or it has no GTID.
        """
        return self._events.read(record, "a change event with a GTID", _gtid_of_event)

    def _records(
        self, topic: str, start: Mapping[int, int], end: Mapping[int, int], timeout_s: float
    ) -> Iterator[KafkaRecord]:
        for partition, first in start.items():
            last = end.get(partition, first)
            yield from self._kafka.read(topic, partition, first, last, timeout_s=timeout_s)


def _transaction_end(event: Any) -> tuple[int, Lsn | None]:
    """Return a transaction's id and end position from an event of a connector's transaction topic.

    The position is None if the event reports the beginning of the transaction.
    """
    xid, _, position = str(event["id"]).partition(":")
    return int(xid), Lsn(int(position)) if event["status"] == "END" else None


def _transaction_id(event: Any) -> int:
    """Return the id of the transaction of a change event from Debezium's PostgreSQL connector."""
    return int(event["source"]["txId"])


def _gtid_of_event(event: Any) -> str:
    """Return the GTID of the transaction of a change event from Debezium.

    Raises:
        ValueError: The event has no GTID.
    """
    found = event["source"]["gtid"]
    if not found:
        raise ValueError("its gtid is empty")
    return str(found)
