"""Which tables lack changes that are older than their freshness targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cdc.kafka import KafkaAdmin
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId


def overdue(
    kafka: KafkaAdmin, tables: Mapping[TableId, tuple[TableRecord, datetime]]
) -> dict[TableId, int]:
    """Return how many offsets each table lacks whose records were sent before a time.

    Tables that lack none are left out, as are tables without a commit or a topic: their runs report
    that. The times of records are those of Connect's clock, unless the topic's settings choose the
    broker's clock. So changes that Debezium has not sent yet do not count.

    Args:
        kafka: The cluster. It is not asked if there are no tables.
        tables: The tables' records, each with the time.

    Raises:
        KafkaError: The cluster does not answer.
    """
    asked = {record.topic: at for record, at in tables.values() if record.last_commit is not None}
    first = kafka.offsets_at(asked) if asked else {}
    found: dict[TableId, int] = {}
    for table, (record, _) in tables.items():
        if record.last_commit is None:
            continue
        done = record.last_commit.offsets
        ends = first.get(record.topic, {})
        missing = sum(max(0, end - done.get(partition, 0)) for partition, end in ends.items())
        if missing:
            found[table] = missing
    return found
