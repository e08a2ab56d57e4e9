"""Reads the topic in which a connector of MySQL or MariaDB reports DDL statements.

- A statement has one record for each table that it changes. For example, a RENAME TABLE of two
  tables has two records. Each record names the statement's transaction.
- A TRUNCATE is reported in the table's own topic instead, because it changes rows. OPTIMIZE and
  ANALYZE are not reported.
- A connector that starts without a stored position first sends the definitions of all tables that
  it can see, as a snapshot.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from cdc.debezium.event_reader import EventReader
from cdc.debezium.known_columns import KnownColumn, known_columns, table_of
from cdc.debezium.schema_history import LearnedDefinition, learned_definitions
from cdc.errors import KafkaError, StateError
from cdc.runtime.waiting import wait_while
from schemas.ddl.mysql_named_table import NamedTable, swapped_table, unreported_table
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.debezium.names import CaptureNames
    from cdc.kafka import KafkaAdmin, KafkaRecord
    from schemas.registry import SchemaRegistry

_log = logging.getLogger(__name__)

_OPEN_S = 10.0
"""Limit of the wait until open Kafka transactions have ended, in seconds."""
_POLL_S = 0.1
_PART = 1000
"""Maximum number of offsets in one read of the topic."""


@dataclass(frozen=True)
class DefinitionChange:
    """The change of one table by one DDL statement, as Debezium reports it.

    Args:
        kind: CREATE, ALTER or DROP, where ALTER also stands for RENAME; None if the record names no
            table.
        table: The table; after a RENAME, by its new name. None if the record names no table.
        statement: The SQL of the statement.
        gtid: GTID of the statement's transaction; None in a snapshot, or if the server has no
            GTIDs.
        place: The binlog file of the statement's event, and the offset one byte after the event's
            beginning, as ``FILE:OFFSET``. So a position at the event's beginning is before this
            place, and a position at the event's end is after it. None if the record names no file.
        snapshot: Whether the record is from a snapshot: the connector had no stored position, and
            read the definition from the catalog.
        offset: Offset of the record in the topic.
        columns: The table's columns in the connector's definition after the statement; empty after
            a DROP.
        beside: A table that the statement changes although no record names it (see
            `schemas.ddl.mysql_named_table`); None if there is no such table. An empty schema stands
            for any schema, and an empty name for any table.
    """

    kind: str | None
    table: TableId | None
    statement: str
    gtid: str | None
    snapshot: bool
    offset: int
    place: str | None = None
    columns: Sequence[KnownColumn] = ()
    beside: TableId | None = None


class StatementsByTable:
    """The statements that a Debezium connector has reported, indexed by table.

    Args:
        changes: The statements, in the order of the binlog. Statements from a snapshot are ignored.
    """

    def __init__(self, changes: Iterable[DefinitionChange]) -> None:
        self._by_table: defaultdict[TableId, list[DefinitionChange]] = defaultdict(list)
        for change in changes:
            for table in dict.fromkeys((change.table, change.beside)):
                if table is not None and not change.snapshot:
                    self._by_table[table].append(change)

    def of(self, table: TableId) -> list[DefinitionChange]:
        """Return the statements that can have changed a table, in the order of the binlog."""
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
    """Yield the changes that Debezium has reported in its topic of DDL statements, in order.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
        capture: The names of the connector and of its topics.
        start: The first offset to read; None for the first one that the topic still has.
        end: The offset after the last one to read; None for the last stable offset.

    Raises:
        KafkaError: The topic does not exist or cannot be read.
        RegistryError: The registry does not know a record's schema.
        DecodeError: A record does not report a DDL statement.
    """
    topic = capture.schema_change_topic
    first = kafka.start_offsets(topic)[0] if start is None else start
    last = kafka.stable_offsets(topic)[0] if end is None else end
    events = EventReader(registry)
    for record in kafka.read(topic, 0, first, last):
        yield from _changes_of(events, record, capture.source)


@dataclass(frozen=True)
class ReportedStatements:
    """The DDL statements in one connector's topic, as of one read of the topic.

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
        """The DDL statements, indexed by table."""
        return StatementsByTable(self.changes)


@dataclass(frozen=True)
class TopicRead:
    """How far a topic of DDL statements was read.

    Args:
        topic_id: The topic's UUID.
        first: The first offset that the topic had when its read began.
        last: Offset of the last record that was read.
        sent_ms: Kafka's timestamp of that record, in milliseconds since 1970; 0 if it has none.
        records: Number of records that were read.
    """

    topic_id: str
    first: int
    last: int
    sent_ms: int
    records: int


class KeptStatements(Protocol):
    """Keeps, for later processes, the DDL statements that one process has read."""

    def load(
        self, capture: CaptureNames
    ) -> tuple[TopicRead, tuple[DefinitionChange, ...] | None] | None:
        """Return how far a connector's topic was read, and the changes of all records up to there.

        The result is None if nothing is kept. The changes are None if they are not complete.
        """
        ...

    def add(
        self,
        capture: CaptureNames,
        before: TopicRead | None,
        now: TopicRead,
        records: Mapping[int, Sequence[DefinitionChange]],
    ) -> None:
        """Keep further records; do nothing if another process has kept some meanwhile.

        Args:
            capture: The names of the connector and of its topics.
            before: How far the kept records reach in the topic; None if nothing is kept.
            now: How far they reach after ``records`` are added. If ``now`` counts only ``records``,
                these replace all kept records.
            records: The changes of each record, by offset.
        """
        ...


class Definitions:
    """Reads the topics of DDL statements. It caches all records, so each is read only once.

    Such a topic grows without end, and runs ask for its statements every few seconds. Safe to share
    among threads.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
        kept: Keeps the statements for later processes; None reads each topic from its first offset.
    """

    def __init__(
        self, kafka: KafkaAdmin, registry: SchemaRegistry, kept: KeptStatements | None = None
    ) -> None:
        self._kafka, self._events, self._kept = kafka, EventReader(registry), kept
        self._read: dict[CaptureNames, _Followed] = {}
        self._learned: dict[CaptureNames, _Learned] = {}
        self._lock = threading.Lock()

    def of(self, capture: CaptureNames) -> ReportedStatements:
        """Return all DDL statements that a connector has reported so far.

        Raises:
            KafkaError: The topic does not exist, or cannot be read in time, for example because a
                Kafka transaction stays open.
            RegistryError: The registry does not know a record's schema.
            DecodeError: A record does not report a DDL statement.
            StateError: The state store, which keeps the statements, cannot be used.
        """
        topic = capture.schema_change_topic
        with self._lock:
            topic_id = self._kafka.topic_id(topic)
            first = self._kafka.start_offsets(topic)[0]
            end = _readable_end(self._kafka, topic)
            known = self._read.get(capture)
            if known is None or not self._goes_on(topic, known, topic_id, first, end):
                known = self._begin(capture, topic_id, first, end)
            while known.reported.end < end:
                # Each part has its own time limit. Parts that were read are not read again.
                known = self._read_on(capture, known, min(known.reported.end + _PART, end))
                self._read[capture] = known
            if known.reported.first != first:
                known = replace(known, reported=replace(known.reported, first=first))
            self._read[capture] = known
            return known.reported

    def _goes_on(self, topic: str, known: _Followed, topic_id: str, first: int, end: int) -> bool:
        """Return whether a topic continues what this process has read of it.

        A topic can have lost records that were read, for example after the loss of a broker. Then
        it ends before these records, or has got other records in their place.
        """
        reported, read = known.reported, known.read
        if reported.topic_id != topic_id or reported.end > end:
            return False
        if reported.end == end or read is None:
            return first <= reported.end
        return first <= read.last and self._has(topic, read)

    def _begin(self, capture: CaptureNames, topic_id: str, first: int, end: int) -> _Followed:
        """Return the kept statements of a topic, or an empty result if they cannot be used.

        They can be used if they are complete, and the topic is still the same one, begins at the
        same offset, and still has the last kept record. So nothing of the topic is missing.
        """
        nothing = ReportedStatements(topic_id, first, first)
        found = None if self._kept is None else self._kept.load(capture)
        if found is None:
            return _Followed(nothing)
        read, changes = found
        same = (read.topic_id, read.first) == (topic_id, first) and first <= read.last < end
        if changes is None or not same or not self._has(capture.schema_change_topic, read):
            return _Followed(nothing, kept=read)
        # From the last record to the former end, there were only markers of Kafka transactions.
        # They are read again, since a topic that was cut off there can have got records.
        return _Followed(replace(nothing, end=read.last + 1, changes=changes), read, kept=read)

    def _has(self, topic: str, read: TopicRead) -> bool:
        """Return whether a topic still has the last record that was read from it.

        Raises:
            KafkaError: The topic cannot be read.
        """
        found = self._kafka.read(topic, 0, read.last, read.last + 1)
        return [_sent_ms(record) for record in found] == [read.sent_ms]

    def _read_on(self, capture: CaptureNames, known: _Followed, upto: int) -> _Followed:
        """Read a topic on, up to offset ``upto``, and keep the records for later processes."""
        topic, reported, read = capture.schema_change_topic, known.reported, known.read
        found: dict[int, list[DefinitionChange]] = {}
        sent_ms = 0
        for record in self._kafka.read(topic, 0, reported.end, upto):
            found[record.offset] = _changes_of(self._events, record, capture.source)
            sent_ms = _sent_ms(record)
        changes = (*reported.changes, *chain.from_iterable(found.values()))
        reported = replace(reported, end=upto, changes=changes)
        if not found:
            return replace(known, reported=reported)
        before = 0 if read is None else read.records
        first = reported.first if read is None else read.first
        read = TopicRead(reported.topic_id, first, max(found), sent_ms, before + len(found))
        if self._kept is None:
            return _Followed(reported, read)
        unkept = {**known.unkept, **found}
        try:
            self._kept.add(capture, known.kept, read, unkept)
        except StateError as error:
            _log.warning("the statements of topic %s are not stored: %s", topic, error)
            return _Followed(reported, read, kept=known.kept, unkept=unkept)
        return _Followed(reported, read, kept=read)

    def learned(self, capture: CaptureNames) -> tuple[LearnedDefinition, ...]:
        """Return the definitions of tables in the topic of a connector's schema history.

        Raises:
            KafkaError: The topic does not exist, or cannot be read in time.
            DecodeError: A record in the schema history's topic is malformed.
        """
        topic = capture.schema_history_topic
        with self._lock:
            topic_id, known = self._kafka.topic_id(topic), self._learned.get(capture)
            end = self._kafka.stable_offsets(topic)[0]
            if known is None or known.topic_id != topic_id or known.end > end:
                known = _Learned(topic_id, self._kafka.start_offsets(topic)[0])
            while known.end < end:
                upto = min(known.end + _PART, end)
                records = self._kafka.read(topic, 0, known.end, upto)
                more = learned_definitions(records, capture.source)
                known = replace(known, end=upto, definitions=(*known.definitions, *more))
                self._learned[capture] = known
            return known.definitions


@dataclass(frozen=True)
class _Followed:
    """What a process has read of one connector's topic of DDL statements.

    Args:
        reported: The statements.
        read: How far the topic was read; None if no record was read.
        kept: How far the records that are kept for later processes reach in the topic, as far as
            this process knows; None if it knows of none.
        unkept: By offset, the changes in records after ``kept``. They could not be stored, and are
            stored together with the next ones.
    """

    reported: ReportedStatements
    read: TopicRead | None = None
    kept: TopicRead | None = None
    unkept: Mapping[int, Sequence[DefinitionChange]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Learned:
    """The definitions of tables in one connector's schema history, as of one read of the topic.

    Args:
        topic_id: The topic's UUID.
        end: The offset after the last record that was read.
        definitions: The definitions of all records that were read, in order.
    """

    topic_id: str
    end: int
    definitions: tuple[LearnedDefinition, ...] = ()


def known_tables(changes: Iterable[DefinitionChange]) -> set[TableId]:
    """Return the tables whose definition Debezium's connector knows.

    Only such a table may be added to the connector's include list: the first change of an unknown
    table would stop the connector for all tables. A table is unknown if both conditions hold:

    - The capture role could not see the table when the connector first started.
    - No statement has created or altered the table since then.
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
    """Return an offset for each time that Debezium started without a stored position.

    The offset is that of the first record that the topic of DDL statements got after the start.
    More than one offset means that the connector's stored position was deleted. In that case, the
    changes between the deletion and the later start are not captured. No other check finds this
    loss: the newly stored position is after the lost changes, and no heartbeat is missing,
    because the connector wrote none in the meantime.
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


def _readable_end(kafka: KafkaAdmin, topic: str) -> int:
    """Wait until consumers can read all of Debezium's DDL statements in a topic; return its end.

    Consumers cannot read a statement while its Kafka transaction is open. The connector's stored
    position can already be after such a statement. The end is the last stable offset.

    Raises:
        KafkaError: A Kafka transaction stays open.
    """
    upto, end = kafka.high_watermarks(topic)[0], 0

    def held() -> bool:
        nonlocal end
        end = kafka.stable_offsets(topic)[0]
        return end < upto

    if wait_while(held, timeout_s=_OPEN_S, poll_s=_POLL_S):
        raise KafkaError(
            f"statements in topic {topic} from offset {end} on cannot be read, since a Kafka"
            " transaction stays open",
            remedy="Look for a hanging transaction with `kafka-transactions.sh find-hanging --topic"
            f" {topic} --partition 0`, if it does not end by itself. If you abort it, copy the"
            " tables of this connector again: statements on them can be lost.",
            topic=topic,
            partition=0,
            offset=end,
        )
    return end


def _changes_of(events: EventReader, record: KafkaRecord, source: str) -> list[DefinitionChange]:
    """Return the changes in a record of Debezium's topic of DDL statements."""
    take = partial(_changes_in_record, source=source, offset=record.offset)
    return events.read(record, "a changed definition", take)


def _sent_ms(record: KafkaRecord) -> int:
    """Return Kafka's timestamp of a DDL record, in milliseconds since 1970; 0 if it has none."""
    return 0 if record.timestamp is None else round(record.timestamp.timestamp() * 1000)


def _changes_in_record(event: Any, source: str, offset: int) -> list[DefinitionChange]:
    """Return the changes that a record of Debezium reports, one for each table in the record.

    For a record that names no table, the result has one change, whose ``table`` is None.

    Args:
        event: The decoded record.
        source: Key of the source.
        offset: Offset of the record.
    """
    found: list[DefinitionChange] = []
    origin = event["source"]
    statement, gtid = str(event["ddl"]), origin["gtid"]
    # The connector sends the place where the event begins.
    place = f"{origin['file']}:{origin['pos'] + 1}" if origin.get("file") else None
    snapshot = origin["snapshot"] not in (None, "false")
    if not event["tableChanges"]:
        # If the record names no table, its database is the session's.
        beside = _table_beside(unreported_table(statement), source, event.get("databaseName") or "")
        found.append(
            DefinitionChange(None, None, statement, gtid, snapshot, offset, place, beside=beside)
        )
    swapped = swapped_table(statement)
    for change in event["tableChanges"]:
        table = table_of(change["id"], source)
        columns = tuple(known_columns(change["table"])) if change["table"] else ()
        # If the record names a table, its database is the table's, and not the session's.
        session = table.schema if swapped is not None and swapped.beside else ""
        beside = _table_beside(swapped, source, session)
        found.append(
            DefinitionChange(
                change["type"], table, statement, gtid, snapshot, offset, place, columns, beside
            )
        )
    return found


def _table_beside(named: NamedTable | None, source: str, session: str) -> TableId | None:
    """Return `DefinitionChange.beside`, a changed table that Debezium's record does not name.

    Args:
        named: The table as the statement names it; None if there is no such table.
        source: Key of the source.
        session: The database to which a table name without a database refers; empty if it is not
            known.
    """
    if named is None:
        return None
    database = session if named.database is None else named.database
    return TableId(source, database if named.name else "", named.name)
