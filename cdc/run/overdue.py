"""Finds the tables that lack changes from before a given time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.kafka import KafkaAdmin, Since
    from cdc.run.predictions import Predictions
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId


@dataclass(frozen=True)
class Held:
    """An open Kafka transaction that hides records from all consumers.

    Args:
        topic: The topic.
        partition: The partition's number.
        offset: The transaction's first offset. No later record can be read.
    """

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Missing:
    """Records from before a given time, which a lake table lacks.

    Args:
        changes: Number of these records, counted by their offsets.
        held: The open Kafka transactions that hide such records.
    """

    changes: int
    held: tuple[Held, ...] = ()


def held_back(topic: str, ends: Mapping[int, Since]) -> tuple[Held, ...]:
    """Return the open Kafka transactions that hide a topic's older records from runs.

    Args:
        topic: The topic.
        ends: For each partition, the first offset at or after the given time, and the last stable
            offset, up to which runs can read.
    """
    return tuple(
        Held(topic, partition, end.stable)
        for partition, end in ends.items()
        if end.stable < end.offset
    )


def overdue(
    kafka: KafkaAdmin, tables: Mapping[TableId, tuple[TableRecord, datetime]]
) -> dict[TableId, Missing]:
    """Return, for each table, which records from before a given time the lake lacks.

    Records of open Kafka transactions count. A table that lacks no such record is left out. A table
    without a copy or without a topic is left out, too: the table's run reports this. Changes that
    Debezium has not sent yet do not count. A record's time is by Connect's clock, or by the
    broker's clock if the topic's settings choose the broker's clock.

    Args:
        kafka: The Kafka cluster. The cluster is not queried if there are no tables.
        tables: For each table, its record and the given time.

    Raises:
        KafkaError: The cluster does not answer.
    """
    asked = {
        record.topic: at for record, at in tables.values() if record.applied_offsets is not None
    }
    first = kafka.since(asked) if asked else {}
    found: dict[TableId, Missing] = {}
    for table, (record, _) in tables.items():
        done = record.applied_offsets
        if done is None:
            continue
        ends = first.get(record.topic, {})
        missing = sum(max(0, end.offset - done.get(one, 0)) for one, end in ends.items())
        if missing:
            found[table] = Missing(missing, held_back(record.topic, ends))
    return found


def note_freshness(
    kafka: KafkaAdmin,
    predictions: Predictions,
    tables: Mapping[TableId, tuple[TableRecord, float]],
    now: float,
) -> None:
    """Find out which tables with work are fresh although their last commits are old.

    A table without changes makes no commit, so its watermark can be hours old when its next change
    arrives. Only a process that looked at the table before this change knows that the lake had all
    earlier changes. So a new process asks Kafka once for each table: is a record that the lake
    lacks older than half of the freshness target, and if so, older than the whole target?

    Args:
        kafka: The Kafka cluster.
        predictions: Keeps the time up to which the lake has all events of a table.
        tables: For each table with work, its record and its freshness target in seconds.
        now: The time, in seconds since 1970.

    Raises:
        KafkaError: The cluster does not answer.
    """
    unknown = {
        table: (record, target)
        for table, (record, target) in tables.items()
        if record.applied_offsets
        and not predictions.knows(table)
        and predictions.fresh_at(record) + target < now
    }
    for part in (0.5, 1.0):
        if not unknown:
            return
        ages = {table: part * target for table, (_, target) in unknown.items()}
        times = {
            record.topic: datetime.fromtimestamp(now - ages[table], timezone.utc)
            for table, (record, _) in unknown.items()
        }
        first = kafka.since(times)
        for table, (record, _) in [*unknown.items()]:
            done, ends = record.applied_offsets or {}, first.get(record.topic, {})
            if not done or not ends.keys() >= done.keys():
                del unknown[table]  # no answer: the next round asks again
            elif all(end.offset <= done.get(partition, 0) for partition, end in ends.items()):
                predictions.note_whole(table, now - ages[table])
                del unknown[table]
    for table, (record, _) in unknown.items():
        predictions.note_whole(table, predictions.fresh_at(record))
