"""Reads the schema history of a MySQL or MariaDB connector: the definitions that it starts with.

Debezium writes each definition to the schema history as soon as it has read the DDL statement in
the binlog. At that time, the events of earlier changes can still be in the connector's queue. At
its start, a task reads the schema history, and takes the definitions up to its stored position. In
two cases the task takes wrong definitions:

- Without GTIDs, the task takes all definitions, even those of statements after its stored position.
  So the task decodes rows from before such a statement by the statement's definition
  (debezium/dbz#1541).
- On MariaDB, each definition has the GTID of the transaction before the statement. The task skips a
  definition if the stored GTID of the same domain has another server id than this GTID.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cdc.debezium.known_columns import KnownColumn, known_columns, table_of
from cdc.errors import DecodeError
from cdc.log.binlog_position import BinlogPosition
from cdc.log.gtid import MariadbGtidSet, mariadb_numbers

if TYPE_CHECKING:
    from cdc.debezium.task_ends import SentChange
    from cdc.kafka import KafkaRecord
    from schemas.table import TableId


@dataclass(frozen=True)
class LearnedDefinition:
    """A definition of a table in a connector's schema history.

    Args:
        table: The table.
        columns: The table's columns in the definition; empty after a DROP.
        place: The end of the DDL statement's event in the binlog; None for a definition from a
            snapshot.
        gtids: The set of GTIDs up to the transaction before the DDL statement; empty if the server
            has no GTIDs.
        learned_at: When Kafka got the definition; None if the record has no time.
        snapshot: Whether the definition is from the snapshot of a connector that had no stored
            position.
    """

    table: TableId
    columns: tuple[KnownColumn, ...]
    place: BinlogPosition | None
    gtids: str
    learned_at: datetime | None
    snapshot: bool


def learned_definitions(records: Iterable[KafkaRecord], source: str) -> Iterator[LearnedDefinition]:
    """Yield the definitions in the records of Debezium's schema history.

    A definition that repeats the previous one of its table is left out, except in a snapshot.

    Args:
        records: All records of the schema history, in order.
        source: Key of the source.

    Raises:
        DecodeError: A record in the schema history's topic is malformed.
    """
    known: dict[TableId, tuple[KnownColumn, ...]] = {}
    for record in records:
        for one in _read_definitions(record, source):
            if one.snapshot or known.get(one.table) != one.columns:
                yield one
            known[one.table] = one.columns


def later_definition(
    change: SentChange, table: TableId, learned: Iterable[LearnedDefinition], since: datetime
) -> LearnedDefinition | None:
    """Return the first definition later than a change, if Debezium used it or a later one for it.

    This happens only without GTIDs. The definition's DDL statement follows the change in the
    binlog. But the definition was in the schema history before the connector decoded the change. A
    task reads a statement only after it has decoded all earlier changes, so an earlier task has
    read this statement.

    Args:
        change: The change.
        table: The change's table.
        learned: The definitions in the schema history.
        since: A time before the copy recorded O, the offset from which on runs apply the topic.
            Definitions that Kafka got before this time are ignored, because the copy waited until
            the connector had passed the statements of these definitions.

    Returns:
        The first such definition; None if there is none, or if the change has a GTID.
    """
    if change.gtid is not None or change.decoded_at is None:
        return None
    place = BinlogPosition.parse(change.position.rpartition(":")[0])
    # A definition from before `since` can have a place in a former binlog. GTIDs in definitions do
    # not count: if the server had GTIDs before, all definitions have the same outdated ones.
    for one in learned:
        if one.table != table or one.place is None or one.learned_at is None:
            continue
        before = one.place.base == place.base and not place.reaches(one.place)
        if before and since <= one.learned_at < change.decoded_at:
            return one
    return None


def skipped_definition(
    learned: Sequence[LearnedDefinition], stored: MariadbGtidSet, tables: Collection[TableId]
) -> LearnedDefinition | None:
    """Return the first definition that Debezium skips if it starts at a position in MariaDB's log.

    Args:
        learned: The definitions in the schema history. Definitions from before the last snapshot
            are ignored, since the snapshot defines all tables.
        stored: The position at which the connector starts.
        tables: The tables whose rows the connector reads.

    Returns:
        The definition; None if the connector skips none.
    """
    start = 0
    for place, one in enumerate(learned):
        before = learned[place - 1] if place else one
        # All definitions of one snapshot have its position.
        if one.snapshot and (not before.snapshot or before.gtids != one.gtids):
            start = place
    for one in learned[start:]:
        servers = {domain: server for domain, server, _ in mariadb_numbers(one.gtids)}
        if one.table in tables and any(
            domain in stored.last and stored.last[domain][0] != server
            for domain, server in servers.items()
        ):
            return one
    return None


def _read_definitions(record: KafkaRecord, source: str) -> Iterator[LearnedDefinition]:
    """Yield the definitions in one record of Debezium's schema history."""
    try:
        event: Mapping[str, Any] = json.loads(record.value or b"{}")
        position = event.get("position") or {}
        snapshot = bool(position.get("snapshot"))
        located = bool(position.get("file")) and not snapshot
        place = BinlogPosition(str(position["file"]), int(position["pos"])) if located else None
        for change in event.get("tableChanges") or ():
            definition = change.get("table")
            yield LearnedDefinition(
                table=table_of(change["id"], source),
                columns=tuple(known_columns(definition)) if definition else (),
                place=place,
                gtids=str(position.get("gtids") or ""),
                learned_at=record.timestamp,
                snapshot=snapshot,
            )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DecodeError(
            f"the record at offset {record.offset} of topic {record.topic} partition"
            f" {record.partition} is not one of a schema history: {error}",
            remedy="Check that only this source's connector writes to the topic.",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        ) from error
