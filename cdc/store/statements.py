"""Stores a connector's reported DDL statements; later processes need not read the topic for them.

Each record of the connector's topic has a row, unless no run can need the record any more. One more
row says how far the topic was read, and how many records have a row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.errors import StateError
from cdc.store.documents import Codec, Part
from cdc.store.table_state import STORE_REMEDY
from cdc.store.tables import statement_rows, statement_topic_rows, table_rows

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.state_store import Store


_log = logging.getLogger(__name__)

BATCH = 500
"""Maximum number of rows that one transaction deletes. While the transaction runs, no other process
can write to a SQLite store."""
PRUNED_BATCHES = 20
"""Maximum number of transactions of one `StatementRows.prune`, since a process waits for them."""
_EMPTYING = -1
"""Number of records of a topic some of whose rows are deleted. No number of rows is equal to it, so
nobody takes the other rows for the whole topic, also if the deletion was cut short."""
_LONG_AGO = 0.0


@dataclass(frozen=True)
class StoredColumn(Part):
    """A column of a table in a connector's definition; the fields are those of `KnownColumn`."""

    name: str
    type_name: str
    length: int | None
    scale: int | None
    charset: str | None
    nullable: bool
    labels: tuple[str, ...]


@dataclass(frozen=True)
class StoredColumns(Part):
    """The columns of a table in a connector's definition, in order.

    Args:
        columns: The columns.
        format: Version of this document.
    """

    columns: tuple[StoredColumn, ...]
    format: Literal[1] = 1


@dataclass(frozen=True)
class StoredChange(Part):
    """The change of one table by one DDL statement.

    The fields are those of `DefinitionChange`, with these differences. The row has the offset.
    ``table`` and ``beside`` are pairs of schema and name. ``statement`` has no passwords, and it is
    empty if no run can need the text. ``columns`` is the
    text of a `StoredColumns`, or empty if there are no columns: most processes need the columns of
    few tables, so each text is parsed only when it is needed.
    """

    kind: str | None
    table: tuple[str, str] | None
    statement: str
    gtid: str | None
    snapshot: bool
    place: str | None
    columns: str
    beside: tuple[str, str] | None


@dataclass(frozen=True)
class StoredRecord(Part):
    """One record of a topic of DDL statements.

    Args:
        changes: The changes that the record reports, one for each table.
        format: Version of this document.
    """

    changes: tuple[StoredChange, ...]
    format: Literal[1] = 1


STATEMENT_RECORDS = Codec(StoredRecord, error=StateError, remedy=STORE_REMEDY)
"""The codec of the records of topics of DDL statements (`StoredRecord`)."""

STATEMENT_COLUMNS = Codec(StoredColumns, error=StateError, remedy=STORE_REMEDY)
"""The codec of the columns in these records (`StoredColumns`)."""


@dataclass(frozen=True)
class StoredRead:
    """How far a topic of DDL statements was read.

    Args:
        topic_id: The topic's UUID.
        first: The first offset that the topic had.
        last: Offset of the last record that was read.
        sent_ms: Kafka's timestamp of that record, in milliseconds since 1970.
        records: Number of records that were read.
    """

    topic_id: str
    first: int
    last: int
    sent_ms: int
    records: int


@dataclass(frozen=True)
class StoredStatements:
    """What the state store has of a topic of DDL statements.

    Args:
        read: How far the topic was read.
        records: For each offset, the record; None if these records cannot be used.
    """

    read: StoredRead
    records: Mapping[int, StoredRecord] | None


class StatementRows:
    """The stored DDL statements; all processes of a state store read and extend them.

    Args:
        store: The state store.
        reader: Name of the way in which this process reads statements. Records that were stored
            under another name are not used: a statement's text is stored only if that way of
            reading could need the text.
    """

    def __init__(self, store: Store, reader: str = "") -> None:
        self._store = store
        self._reader = reader

    def of(self, topic: str) -> StoredStatements | None:
        """Return what is stored of a topic; None if nothing is stored.

        The records are None if rows are missing, if a row cannot be read, or if the records were
        stored with another ``reader``. The caller can then read the topic again: it still has all
        records.

        Raises:
            StateError: The state store cannot be used.
        """
        heads, rows = statement_topic_rows, statement_rows
        mine = sa.and_(
            rows.c.topic == heads.c.topic,
            rows.c.topic_id == heads.c.topic_id,
            rows.c.record_offset <= heads.c.last_offset,
        )
        # Other processes extend, replace and delete rows meanwhile. On a server, each statement
        # sees what they have committed by then, so one statement reads the topic and its rows.
        query = (
            sa.select(heads, rows.c.record_offset, rows.c.record)
            .select_from(heads.outerjoin(rows, mine))
            .where(heads.c.topic == topic)
            .order_by(rows.c.record_offset)
        )
        with self._store.transaction() as connection:
            joined = connection.execute(query).all()
        if not joined:
            return None
        head = joined[0]
        read = StoredRead(
            head.topic_id, head.first_offset, head.last_offset, head.sent_ms, head.records
        )
        found = [one for one in joined if one.record_offset is not None]
        if len(found) != head.kept or head.reader != self._reader:
            return StoredStatements(read, None)
        name = f"a stored statement of topic {topic}"
        try:
            records = {one.record_offset: STATEMENT_RECORDS.read(one.record, name) for one in found}
        except StateError as error:
            _log.warning("topic %s is read from its first offset again: %s", topic, error)
            return StoredStatements(read, None)
        return StoredStatements(read, records)

    def add(
        self,
        topic: str,
        before: StoredRead | None,
        now: StoredRead,
        records: Mapping[int, StoredRecord],
    ) -> bool:
        """Store further records of a topic, unless another process has stored some meanwhile.

        If ``now.records`` is the number of ``records``, the topic was read from its first offset
        again, and the new rows replace all rows of the topic.

        Args:
            topic: The topic.
            before: How far the stored records reach in the topic, as this process knows it from its
                last read or `add`; None if it knows of none.
            now: How far the topic was read, ``records`` included.
            records: The records by offset.

        Returns:
            Whether the records were stored. If not, what another process has stored is unchanged.

        Raises:
            StateError: The state store cannot be used.
        """
        replaced, heads = now.records == len(records), statement_topic_rows
        if replaced and before is not None:
            self._empty(topic, before)
        head = {
            "topic_id": now.topic_id,
            "first_offset": now.first,
            "last_offset": now.last,
            "sent_ms": now.sent_ms,
            "records": now.records,
            "kept": len(records) + (0 if replaced or before is None else heads.c.kept),
            "reader": self._reader,
            "noted_at": self._store.clock,
        }
        rows = _sql_rows(topic, now, records)
        try:
            with self._store.transaction() as connection:
                # The first statement locks the row of the topic, so no other process adds rows.
                is_known = self._is_known(topic, before, replaced=replaced)
                update = sa.update(heads).where(is_known).values(**head)
                if before is None or connection.execute(update).rowcount != 1:
                    if before is not None and not replaced:
                        return False
                    # A process that deletes old statements can have deleted the head meanwhile. A
                    # head that another process has stored makes this fail.
                    connection.execute(sa.insert(heads).values(topic=topic, **head))
                if replaced:
                    connection.execute(_rows_of(topic))
                connection.execute(sa.insert(statement_rows), rows)
        except IntegrityError:  # another process has stored other records of the topic
            return False
        return True

    def _is_known(
        self, topic: str, before: StoredRead | None, *, replaced: bool
    ) -> sa.ColumnElement[bool]:
        """Return the SQL condition that a topic's head is the one that `add` may change."""
        if before is None:
            return sa.false()
        if replaced:
            return _is_read(topic, replace(before, records=_EMPTYING))
        return _is_read(topic, before) & (statement_topic_rows.c.reader == self._reader)

    def _empty(self, topic: str, known: StoredRead) -> None:
        """Delete the rows of a topic that is about to be replaced, if its head is still ``known``.

        A head that another process has marked in the meantime counts as known, too.
        """
        marked = replace(known, records=_EMPTYING)
        is_known = _is_read(topic, known) | _is_read(topic, marked)
        with self._store.transaction() as connection:
            if not _mark(connection, is_known):
                return
        while _delete_batch(self._store, topic) == BATCH:
            pass

    def prune(self, topic: str, stored: StoredStatements, offsets: Sequence[int]) -> None:
        """Delete records that no run can need, unless another process has changed the rows.

        One call deletes some thousands of records. A process that loads the rows later goes on.

        Args:
            topic: The topic.
            stored: What `of` has returned for it.
            offsets: The offsets of the records, in order. They are deleted in this order, so
                whatever is left if this process dies still has the newest of them.

        Raises:
            StateError: The state store cannot be used.
        """
        left, heads, rows = len(stored.records or ()), statement_topic_rows, statement_rows
        for begin in range(0, min(len(offsets), PRUNED_BATCHES * BATCH), BATCH):
            some = offsets[begin : begin + BATCH]
            is_head = _is_read(topic, stored.read) & (heads.c.reader == self._reader)
            update = sa.update(heads).where(is_head, heads.c.kept == left)
            left -= len(some)
            mine = (rows.c.topic == topic) & (rows.c.topic_id == stored.read.topic_id)
            with self._store.transaction() as connection:
                if connection.execute(update.values(kept=left)).rowcount != 1:
                    return
                connection.execute(sa.delete(rows).where(mine, rows.c.record_offset.in_(some)))

    def tables_on_record(self) -> set[tuple[str, str]]:
        """Return schema and name of all tables with a record, of any source and in any state.

        Raises:
            StateError: The state store cannot be used.
        """
        query = sa.select(table_rows.c.schema_name, table_rows.c.table_name).distinct()
        with self._store.transaction() as connection:
            return {(row.schema_name, row.table_name) for row in connection.execute(query)}

    def forget(self, topic: str) -> None:
        """Delete what is stored of a topic whose capture is removed.

        Raises:
            StateError: The state store cannot be used.
        """
        with self._store.transaction() as connection:
            # If this process dies now, the next call of `forget_statements` goes on.
            is_head = statement_topic_rows.c.topic == topic
            if not _mark(connection, is_head, noted_at=_LONG_AGO):
                return
        while _delete_batch(self._store, topic, head=True) == BATCH:
            pass


def forget_statements(store: Store, keep_s: float, batches: int) -> int:
    """Delete the DDL statements of one topic that got no statement for a long time.

    Most of these topics are of captures that no longer exist. If a capture still exists, the next
    process reads its topic from the first offset again.

    Args:
        store: The state store.
        keep_s: For how long a topic has got no statement, in seconds, by the state store's clock.
        batches: Maximum number of transactions. The next call goes on.

    Returns:
        Number of deleted records.
    """
    heads = statement_topic_rows
    is_old = heads.c.noted_at < store.clock - keep_s
    with store.transaction() as connection:
        topic = connection.execute(sa.select(heads.c.topic).where(is_old).limit(1)).scalar()
        if topic is None or not _mark(connection, (heads.c.topic == topic) & is_old):
            return 0
    gone = 0
    for _ in range(batches):
        deleted = _delete_batch(store, topic, head=True)
        gone += deleted
        if deleted < BATCH:
            break
    return gone


def _mark(connection: Connection, is_head: sa.ColumnElement[bool], **further: float) -> bool:
    """Mark the head of a topic, so that the topic's rows count as incomplete from now on.

    If the deletion is cut short, the mark stays: the next process reads the topic again.

    Args:
        connection: The transaction's connection.
        is_head: The SQL condition on the head.
        further: Further values that the head gets.

    Returns:
        Whether there was such a head.
    """
    mark = (
        sa.update(statement_topic_rows)
        .where(is_head)
        .values(records=_EMPTYING, kept=_EMPTYING, **further)
    )
    return connection.execute(mark).rowcount == 1


def _delete_batch(store: Store, topic: str, *, head: bool = False) -> int:
    """Delete some rows of a marked topic of DDL statements; return their number.

    Nothing is deleted if the topic's head is not marked any more: another process has then read the
    topic again, and replaced its rows.

    Args:
        store: The state store.
        topic: The topic.
        head: Whether to delete the head, too, with the last rows.
    """
    heads, rows = statement_topic_rows, statement_rows
    is_marked = (heads.c.topic == topic) & (heads.c.records == _EMPTYING)
    of_topic = rows.c.topic == topic
    some = sa.select(rows.c.topic_id, rows.c.record_offset).where(of_topic).limit(BATCH)
    with store.transaction() as connection:
        # The lock on the head keeps other processes from replacing the rows meanwhile.
        query = sa.select(heads.c.topic).where(is_marked).with_for_update()
        if connection.execute(query).first() is None:
            return 0
        found: dict[str, list[int]] = {}
        for row in connection.execute(some):
            found.setdefault(row.topic_id, []).append(row.record_offset)
        for topic_id, offsets in found.items():
            mine = of_topic & (rows.c.topic_id == topic_id) & rows.c.record_offset.in_(offsets)
            connection.execute(sa.delete(rows).where(mine))
        deleted = sum(map(len, found.values()))
        if head and deleted < BATCH:
            connection.execute(sa.delete(heads).where(is_marked))
    return deleted


def _sql_rows(
    topic: str, read: StoredRead, records: Mapping[int, StoredRecord]
) -> list[dict[str, Any]]:
    """Return the SQL rows of records of a topic of DDL statements."""
    return [
        {
            "topic": topic,
            "topic_id": read.topic_id,
            "record_offset": offset,
            "record": STATEMENT_RECORDS.write(record),
        }
        for offset, record in records.items()
    ]


def _rows_of(topic: str) -> sa.Delete:
    """Return the SQL statement that deletes the stored DDL statements of a topic."""
    return sa.delete(statement_rows).where(statement_rows.c.topic == topic)


def _is_read(topic: str, read: StoredRead) -> sa.ColumnElement[bool]:
    """Return the SQL condition that the stored reading of a topic of DDL statements is ``read``."""
    row: Any = statement_topic_rows.c
    return sa.and_(
        row.topic == topic,
        row.topic_id == read.topic_id,
        row.first_offset == read.first,
        row.last_offset == read.last,
        row.sent_ms == read.sent_ms,
        row.records == read.records,
    )
