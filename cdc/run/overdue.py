"""Finds the tables that lack changes from before a given time."""

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
    """Return, by table, the number of missing offsets whose records were sent before a given time.

    A table that lacks no such offset is left out. A table without a commit or without a topic is
    left out, too: its run reports this. Changes that Debezium has not sent yet do not count. A
    record's time is by Connect's clock, or by the broker's clock if the topic's settings choose the
    broker's clock.

    Args:
        kafka: The cluster. It is not queried if there are no tables.
        tables: By table, the table's record and the given time.

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
