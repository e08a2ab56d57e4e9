"""Reads the DDL statements that a connector of MySQL or MariaDB reports in a topic of their own.

- A statement has one record for each table that it changes: a RENAME TABLE of two tables has two
  records. Each record names the statement's transaction.
- TRUNCATE is a change of rows, so it is in the table's own topic. OPTIMIZE and ANALYZE are in no
  topic.
- A connector that starts without a stored position first sends the definitions of all tables that
  it can see, as a snapshot.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from cdc.debezium.event_reader import EventReader
from schemas.ddl.mysql_named_table import NamedTable, swapped_table, unreported_table
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.debezium.names import CaptureNames
    from cdc.kafka import KafkaAdmin
    from schemas.registry import SchemaRegistry

_PART = 1000
"""Number of offsets in one read of the topic."""
_ID = re.compile(r'"((?:[^"]|"")*)"\."((?:[^"]|"")*)"')


@dataclass(frozen=True)
class KnownColumn:
    """A column in the definition by which Debezium reads a table's rows.

    Args:
        name: The column's name.
        type_name: The column's type as in the statement, for example ``INT UNSIGNED``.
        length: Length or precision; None if the statement has none.
        scale: Scale; None if the statement has none.
        charset: Character set of the column's text; None if the connector knows none.
        nullable: Whether the column may be NULL.
        labels: The labels of an enum or a set, in quotes, as the statement writes them.
    """

    name: str
    type_name: str
    length: int | None
    scale: int | None
    charset: str | None
    nullable: bool
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class DefinitionChange:
    """The change of one table by one DDL statement that Debezium has reported.

    Args:
        kind: CREATE, ALTER or DROP; None if the statement names no table. ALTER also stands for
            RENAME.
        table: The table, after a RENAME by its new name; None if the statement names no table.
        statement: The statement, as the connector sends it.
        gtid: GTID of the statement's transaction; None in a snapshot, or if the server has no
            GTIDs.
        place: The place in the binlog one byte after the beginning of the statement's event, as
            text. A position after the statement reaches this place. A position at the beginning of
            the event does not. None if the record names no file.
        snapshot: Whether the connector read the definition from the catalog, since the connector
            had no stored position.
        offset: Offset of the record in the topic.
        columns: The table's columns in the connector's definition after the statement; empty after
            a DROP.
        beside: Another table, which the statement changes although no record names it (see
            `schemas.ddl.mysql_named_table`); None if the statement changes no other table. An empty
            schema stands for any schema, and an empty name for any table.
    """

    kind: str | None
    table: TableId | None
    statement: str
    gtid: str | None
    snapshot: bool
    offset: int
    place: str | None = None
    columns: tuple[KnownColumn, ...] = ()
    beside: TableId | None = None


class StatementsByTable:
    """The statements that a Debezium connector has reported, indexed by table.

    Args:
        changes: The statements, in the order of the binlog. The index leaves out the definitions
            that a snapshot sent.
    """

    def __init__(self, changes: Iterable[DefinitionChange]) -> None:
        self._by_table: defaultdict[TableId, list[DefinitionChange]] = defaultdict(list)
        for change in changes:
            for table in dict.fromkeys((change.table, change.beside)):
                if table is not None and not change.snapshot:
                    self._by_table[table].append(change)

    def of(self, table: TableId) -> list[DefinitionChange]:
        """Return the reported DDL statements on a table, in the order of the binlog."""
        source = table.source
        names = (table, TableId(source, "", table.name), TableId(source, "", ""))
        found = {id(one): one for name in names for one in self._by_table.get(name, ())}
        return sorted(found.values(), key=lambda one: one.offset)


def definition_changes(
    kafka: KafkaAdmin,
    registry: SchemaRegistry,
    capture: CaptureNames,
    start: int | None = None,
    end: int | None = None,
) -> Iterator[DefinitionChange]:
    """Yield the changes of definitions that a connector has reported, in the binlog's order.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
        capture: The connector's names.
        start: The first offset to read; by default the first one that the topic still has.
        end: The offset to stop before; by default the last stable offset.

    Raises:
        KafkaError: The topic does not exist or cannot be read.
        RegistryError: The registry does not know a record's schema.
        DecodeError: A record is not a changed definition.
    """
    topic = capture.schema_change_topic
    first = kafka.start_offsets(topic)[0] if start is None else start
    last = kafka.stable_offsets(topic)[0] if end is None else end
    yield from _read(kafka, EventReader(registry), capture, first, last)


@dataclass(frozen=True)
class ReportedStatements:
    """The DDL statements in one Debezium connector's topic, as of one read of the topic.

    Args:
        topic_id: The topic's UUID.
        first: The first offset that is still in the topic.
        end: The offset after the last record that was read.
        changes: The changes of all records that were read, in the order of the binlog.
    """

    topic_id: str
    first: int
    end: int
    changes: tuple[DefinitionChange, ...] = ()

    @cached_property
    def by_table(self) -> StatementsByTable:
        """The changes that Debezium has reported, indexed by table."""
        return StatementsByTable(self.changes)


class Definitions:
    """The DDL statements that Debezium reports. An instance reads each record only once.

    A topic of statements grows without end, and runs read it every few seconds. Safe to share among
    threads.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
    """

    def __init__(self, kafka: KafkaAdmin, registry: SchemaRegistry) -> None:
        self._kafka, self._events = kafka, EventReader(registry)
        self._read: dict[CaptureNames, ReportedStatements] = {}
        self._lock = threading.Lock()

    def of(self, capture: CaptureNames) -> ReportedStatements:
        """Return all statements that a Debezium connector has reported so far.

        Raises:
            KafkaError: The topic does not exist, or a part of it cannot be read in time.
            RegistryError: The registry does not know a record's schema.
            DecodeError: A record is not a changed definition.
        """
        topic = capture.schema_change_topic
        with self._lock:
            topic_id, known = self._kafka.topic_id(topic), self._read.get(capture)
            first = self._kafka.start_offsets(topic)[0]
            end = self._kafka.stable_offsets(topic)[0]
            # A topic can end before what was read, for example after the loss of a broker.
            if known is None or known.topic_id != topic_id or known.end > end:
                known = ReportedStatements(topic_id, first, first)
            while known.end < end:
                # Each part has its own time limit. Parts that were read are not read again.
                upto = min(known.end + _PART, end)
                more = _read(self._kafka, self._events, capture, known.end, upto)
                known = replace(known, end=upto, changes=(*known.changes, *more))
                self._read[capture] = known
            if known.first != first:
                known = self._read[capture] = replace(known, first=first)
            return known


def known_tables(changes: Iterable[DefinitionChange]) -> set[TableId]:
    """Return the tables whose definition Debezium's connector knows.

    No other table may be added to the connector's include list: the first change of an unknown
    table would stop the connector for all tables. A table is unknown if two things are true:

    - The capture role could not see the table when the connector first started.
    - No statement has altered the table since then.
    """
    found: set[TableId] = set()
    for change in changes:
        if change.table is None:
            continue
        if change.kind == "DROP":
            found.discard(change.table)
        else:
            found.add(change.table)
    return found


def fresh_starts(changes: Iterable[DefinitionChange]) -> list[int]:
    """Return the first offset of each start of Debezium's connector without a stored position.

    This is the offset of the first record that this start wrote to the topic of DDL statements.
    More than one offset means that the connector's stored position was deleted. The changes between
    the deletion and the next start are not captured. No other fact shows the loss: the new stored
    position is after the lost changes, and the numbers of the heartbeats have no gap, since the
    connector wrote no heartbeat in the meantime.
    """
    found: list[int] = []
    before = False
    for change in changes:
        # Each snapshot begins with the settings of the server.
        opens = change.table is None and change.statement.startswith("SET character_set_server")
        if change.snapshot and (opens or not before):
            found.append(change.offset)
        before = change.snapshot
    return found


def _read(
    kafka: KafkaAdmin, events: EventReader, capture: CaptureNames, start: int, end: int
) -> Iterator[DefinitionChange]:
    """Yield the changes of definitions that Debezium's records between two offsets report."""
    for record in kafka.read(capture.schema_change_topic, 0, start, end):
        take = partial(_definition_changes, source=capture.source, offset=record.offset)
        yield from events.read(record, "a changed definition", take)


def _definition_changes(event: Any, source: str, offset: int) -> list[DefinitionChange]:
    """Return the changes in a Debezium record, one for each table that the record names.

    For a record that names no table, the result has one change without a table.
    """
    found: list[DefinitionChange] = []
    origin = event["source"]
    statement, gtid = str(event["ddl"]), origin["gtid"]
    # The connector sends the place where the event begins.
    place = f"{origin['file']}:{origin['pos'] + 1}" if origin.get("file") else None
    snapshot = origin["snapshot"] not in (None, "false")
    if not event["tableChanges"]:
        # If the record names no table, its database is the session's.
        beside = _beside(unreported_table(statement), source, event.get("databaseName") or "")
        found.append(
            DefinitionChange(None, None, statement, gtid, snapshot, offset, place, beside=beside)
        )
    swapped = swapped_table(statement)
    for change in event["tableChanges"]:
        match = _ID.fullmatch(change["id"])
        if match is None:
            raise ValueError(f"{change['id']} names no table")
        table = TableId(source, *(name.replace('""', '"') for name in match.groups()))
        columns = tuple(_known_columns(change["table"])) if change["table"] else ()
        # If the record names a table, its database is the table's, and not the session's.
        session = table.schema if swapped is not None and swapped.beside else ""
        beside = _beside(swapped, source, session)
        found.append(
            DefinitionChange(
                change["type"], table, statement, gtid, snapshot, offset, place, columns, beside
            )
        )
    return found


def _beside(named: NamedTable | None, source: str, session: str) -> TableId | None:
    """Return the table that a statement changes beside the table of its Debezium record.

    The result is None if the statement changes no such table.

    Args:
        named: The table as the statement names it; None if the statement changes no such table.
        source: Key of the source.
        session: The session's database, which a table name without a database refers to; empty if
            it is not known.
    """
    if named is None:
        return None
    database = session if named.database is None else named.database
    return TableId(source, database if named.name else "", named.name)


def _known_columns(table: Any) -> Iterator[KnownColumn]:
    """Yield the columns of a table in a Debezium event, in the order of the table."""
    for column in sorted(table["columns"], key=lambda one: int(one["position"])):
        yield KnownColumn(
            name=column["name"],
            type_name=column["typeName"],
            length=column["length"],
            scale=column["scale"],
            charset=column["charsetName"],
            nullable=bool(column["optional"]),
            labels=tuple(column["enumValues"] or ()),
        )
