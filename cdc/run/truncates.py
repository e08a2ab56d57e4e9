"""Finds the TRUNCATE events of a partitioned table.

A TRUNCATE of the table and a TRUNCATE that names all of its partitions write the same catalog rows.
Only the TRUNCATE of the table sends an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc.debezium import TransactionReader, stored_position
from cdc.errors import CaptureError, ConnectError
from cdc.log.position import shortfall
from cdc.runtime.progress import shown_as
from cdc.runtime.waiting import wait_while

if TYPE_CHECKING:
    from cdc.log.position import LogPosition
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord

_WAIT_S = 120.0
_READ_S = 600.0
"""Bound of reading one partition, in seconds. Records with a key are skipped quickly, but there can
be many of them.
"""
_POLL_S = 0.5


class Truncates:
    """Finds the TRUNCATE events of a table's topic that runs have not applied yet.

    Args:
        context: The runs' context.
        record: The table.
        applied: Next offset to read per partition, from the lake's newest commit.
    """

    def __init__(
        self, context: RunContext, record: TableRecord, applied: Mapping[int, int]
    ) -> None:
        self._context = context
        self._record = record
        self._applied = applied

    def has(self, transaction: int) -> bool:
        """Whether the topic has a TRUNCATE event of this transaction after the applied offsets.

        Raises:
            CaptureError: The connector does not capture the transaction in time.
            DecodeError: A record is not a change event.
            KafkaError: The topic cannot be read in time.
            RegistryError: The registry does not know a record's schema.
        """
        stable = self._context.kafka.stable_offsets(self._record.topic)
        if self._is_truncate(transaction, self._applied, stable):
            return True
        return self._is_truncate(transaction, stable, self._captured())

    def _is_truncate(
        self, transaction: int, start: Mapping[int, int], end: Mapping[int, int]
    ) -> bool:
        """Whether a range of the table's topic has a TRUNCATE event of this transaction."""
        kafka, topic = self._context.kafka, self._record.topic
        reader = TransactionReader(kafka, self._context.registry)
        return any(
            reader.truncates(record) == transaction
            for partition, first in start.items()
            for record in kafka.read(topic, partition, first, end[partition], timeout_s=_READ_S)
        )

    def _captured(self) -> dict[int, int]:
        """Wait until the topic has all changes that the source has committed before this call.

        Return the topic's end offsets by partition.
        """
        context, record = self._context, self._record
        source, kafka = context.sources[record.table.source], context.kafka
        upto, ends = source.current_position(), dict[int, int]()

        def behind() -> str:
            if not ends:
                if ahead := shortfall(self._captured_position(), upto):
                    return ahead
                # The end is read once. In a topic with steady writes, readers never reach the
                # current end.
                ends.update(kafka.high_watermarks(record.topic))
            stable = kafka.stable_offsets(record.topic)
            lacking = any(stable[partition] < end for partition, end in ends.items())
            return f"topic {record.topic} has an open Kafka transaction" if lacking else ""

        with shown_as(f"wait for a TRUNCATE of {record.table}", context.progress) as task:
            if lacking := wait_while(behind, timeout_s=_WAIT_S, poll_s=_POLL_S, task=task):
                raise CaptureError(
                    f"all partitions of table {record.table} were truncated, and within"
                    f" {_WAIT_S:.0f} s the connector has not sent how: {lacking}",
                    remedy="Check that the connector runs (`tributary status`); the next run tries"
                    " again.",
                    table=record.table,
                    topic=record.topic,
                )
        return ends

    def _captured_position(self) -> LogPosition | None:
        """Return the log position up to which Kafka has all changes; None if it is not known."""
        context, names = self._context, self._context.capture(self._record)
        log = context.sources[names.source].capture(names).log_health()

        def stored() -> LogPosition | None:
            if context.connect is None:
                raise ConnectError(
                    "Kafka Connect is not asked", remedy="Give the run a client of Kafka Connect."
                )
            return stored_position(context.connect, names)

        return log.captured(stored, exactly_once=context.config.connect.exactly_once)
