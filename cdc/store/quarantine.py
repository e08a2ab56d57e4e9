"""The quarantine: the state store keeps the raw bytes of records that could not be applied.

The records are in the state store and not in the lake: commands can read the store without Spark,
and a single SQL statement lists the records of thousands of tables. A record is stored whole or not
at all. The number of records (``max_quarantined``) and the size of each record are limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from cdc.store.tables import quarantine
from schemas.table import TableId

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.state_store import Store

    Transaction = Callable[[], AbstractContextManager[Connection]]

MAX_BYTES = 1024 * 1024
"""Maximum size of a record's key and value together, in bytes; a larger record stops its table."""
_AT_ONCE = 32
"""Number of records that one transaction stores, so that it does not outlast the lease's term."""

_RAW = (quarantine.c.key_bytes, quarantine.c.value_bytes)


@dataclass(frozen=True)
class Quarantined:
    """A Kafka record that the state store keeps because no run could apply it to a lake table.

    Args:
        table: The table.
        attempt: UUID of the bootstrap attempt whose lake table lacks the record.
        topic: The record's topic.
        topic_id: UUID of the topic.
        partition: The record's partition.
        offset: The record's offset.
        schema_id: Id of the schema that the record names; None if the record names no schema.
        reason: Why the record could not be applied.
        timestamp: The record's Kafka timestamp.
        size: Number of bytes in key and value together.
        run_id: Id of the run that left the record out.
        quarantined_at: When the run ``run_id`` left the record out.
        key: The raw key; None if the record has no key, or the bytes were not read.
        value: The raw value; None if the record has no value, or the bytes were not read.
    """

    table: TableId
    attempt: str
    topic: str
    topic_id: str | None
    partition: int
    offset: int
    schema_id: int | None
    reason: str
    timestamp: datetime | None
    size: int
    run_id: str
    quarantined_at: datetime
    key: bytes | None = None
    value: bytes | None = None


class Quarantine:
    """The state store's quarantine: Kafka records that could not be applied to lake tables.

    Attempt, partition and offset identify a record.

    Args:
        store: The state store.
        changing: Opens the transactions that keep records and forget ranges. A run changes the
            quarantine in transactions that are valid only under the table's lease
            (`Lease.transaction`). By default, these are transactions like all others.
    """

    def __init__(self, store: Store, *, changing: Transaction | None = None) -> None:
        self._store = store
        self._changing = changing or store.transaction

    def keep(self, records: Sequence[Quarantined]) -> None:
        """Store quarantined records; a record that is already stored is not changed.

        Raises:
            FencedError: The transaction is not possible, since another process has the lease.
            StateError: The state store cannot be used.
        """
        for begin in range(0, len(records), _AT_ONCE):
            with self._changing() as connection:
                for record in records[begin : begin + _AT_ONCE]:
                    _keep(connection, record)

    def forget_range(
        self,
        attempt: str,
        start: Mapping[int, int],
        end: Mapping[int, int],
        lacking: Iterable[tuple[int, int]],
    ) -> None:
        """Delete an attempt's quarantined records in a range of offsets that a run has applied.

        The lake table now contains the changes of the deleted records. The records in ``lacking``
        stay in quarantine.

        Args:
            attempt: The attempt to whose lake table the range has been applied.
            start: First offset of the range, per partition.
            end: Offset after the range's last record, per partition.
            lacking: Partition and offset of each record in the range that the run has left out
                again.

        Raises:
            FencedError: The transaction is not possible, since another process has the lease.
            StateError: The state store cannot be used.
        """
        left_out = list(lacking)
        with self._changing() as connection:
            for partition, at in start.items():
                where = (
                    _records_of_attempt(attempt)
                    & (quarantine.c.partition_no == partition)
                    & (quarantine.c.record_offset >= at)
                    & (quarantine.c.record_offset < end[partition])
                    & quarantine.c.record_offset.not_in(
                        [offset for place, offset in left_out if place == partition]
                    )
                )
                connection.execute(sa.delete(quarantine).where(where))

    def offsets(self, attempt: str) -> set[tuple[int, int]]:
        """Return partition and offset of each record that an attempt has in quarantine."""
        with self._store.transaction() as connection:
            return offsets_within(connection, attempt)

    def counts(self) -> dict[str, int]:
        """Return a mapping from each attempt with quarantined records to their number."""
        query = sa.select(quarantine.c.attempt, sa.func.count().label("records"))
        with self._store.transaction() as connection:
            rows = connection.execute(query.group_by(quarantine.c.attempt)).all()
        return {row.attempt: row.records for row in rows}

    def list(self, attempts: Iterable[str]) -> list[Quarantined]:
        """Return the quarantined records of the given attempts, without the records' bytes.

        The records are ordered by table, partition and offset.
        """
        columns = [column for column in quarantine.c if column not in _RAW]
        order = (
            quarantine.c.source,
            quarantine.c.schema_name,
            quarantine.c.table_name,
            quarantine.c.partition_no,
            quarantine.c.record_offset,
        )
        query = sa.select(*columns).where(quarantine.c.attempt.in_(list(attempts)))
        with self._store.transaction() as connection:
            rows = connection.execute(query.order_by(*order)).all()
        return [_quarantined_record(row._mapping) for row in rows]

    def get(self, attempt: str, offset: int, *, partition: int = 0) -> Quarantined | None:
        """Return one quarantined record with its bytes, or None if there is none."""
        query = sa.select(quarantine).where(
            _records_of_attempt(attempt) & _record_at_offset(partition, offset)
        )
        with self._store.transaction() as connection:
            row = connection.execute(query).first()
        return None if row is None else _quarantined_record(row._mapping)

    def forget(self, table: TableId, *, but: str | None = None) -> None:
        """Delete the quarantined records of a table, except the records of attempt ``but``."""
        where = (
            (quarantine.c.source == table.source)
            & (quarantine.c.schema_name == table.schema)
            & (quarantine.c.table_name == table.name)
        )
        if but is not None:
            where &= quarantine.c.attempt != but
        with self._store.transaction() as connection:
            connection.execute(sa.delete(quarantine).where(where))


def _keep(connection: Connection, record: Quarantined) -> None:
    """Store a quarantined record in a transaction, unless it is stored."""
    where = _records_of_attempt(record.attempt) & _record_at_offset(record.partition, record.offset)
    known = sa.select(quarantine.c.record_offset).where(where)
    if connection.execute(known).first() is None:
        connection.execute(sa.insert(quarantine).values(**_quarantine_row(record)))


def offsets_within(connection: Connection, attempt: str) -> set[tuple[int, int]]:
    """Return what `Quarantine.offsets` returns, within a transaction."""
    columns = (quarantine.c.partition_no, quarantine.c.record_offset)
    rows = connection.execute(sa.select(*columns).where(_records_of_attempt(attempt))).all()
    return {(row.partition_no, row.record_offset) for row in rows}


def _records_of_attempt(attempt: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition on the quarantined records of an attempt."""
    return quarantine.c.attempt == attempt


def _record_at_offset(partition: int, offset: int) -> sa.ColumnElement[bool]:
    """Return the SQL condition on the quarantined record at an offset of a partition."""
    return (quarantine.c.partition_no == partition) & (quarantine.c.record_offset == offset)


def _quarantine_row(record: Quarantined) -> dict[str, Any]:
    """Return the SQL row that keeps a quarantined record."""
    return {
        "attempt": record.attempt,
        "partition_no": record.partition,
        "record_offset": record.offset,
        "source": record.table.source,
        "schema_name": record.table.schema,
        "table_name": record.table.name,
        "topic": record.topic,
        "topic_id": record.topic_id,
        "schema_id": record.schema_id,
        "reason": record.reason,
        "record_millis": None if record.timestamp is None else _stored_millis(record.timestamp),
        "size_bytes": record.size,
        "run_id": record.run_id,
        "quarantined_millis": _stored_millis(record.quarantined_at),
        "key_bytes": record.key,
        "value_bytes": record.value,
    }


def _quarantined_record(row: Mapping[Any, Any]) -> Quarantined:
    """Return a quarantined record from an SQL row, which can lack the columns of key and value."""
    millis = row["record_millis"]
    return Quarantined(
        table=TableId(row["source"], row["schema_name"], row["table_name"]),
        attempt=row["attempt"],
        topic=row["topic"],
        topic_id=row["topic_id"],
        partition=row["partition_no"],
        offset=row["record_offset"],
        schema_id=row["schema_id"],
        reason=row["reason"],
        timestamp=None if millis is None else _stored_time(millis),
        size=row["size_bytes"],
        run_id=row["run_id"],
        quarantined_at=_stored_time(row["quarantined_millis"]),
        key=row.get("key_bytes"),
        value=row.get("value_bytes"),
    )


def _stored_millis(moment: datetime) -> int:
    """Return a quarantined record's time as its SQL row has it: in milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


def _stored_time(millis: int) -> datetime:
    """Return a quarantined record's time from the milliseconds in its SQL row."""
    return datetime.fromtimestamp(millis / 1000, tz=timezone.utc)
