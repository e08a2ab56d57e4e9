"""Reads the DDL statements that the connector of a binlog reports in a topic of their own.

- Each statement is one record per table that it changes, with its transaction: a RENAME TABLE of
  two tables is two records.
- TRUNCATE is a change of rows, so it is in the table's own topic. OPTIMIZE and ANALYZE are in no
  topic.
- A connector that starts without a stored position first sends the definitions of all tables that
  it can see, as a snapshot.
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import fastavro

from cdc.errors import DecodeError
from schemas.avro import split_wire
from schemas.errors import SchemaError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.debezium.names import CaptureNames
    from cdc.kafka import KafkaAdmin
    from schemas.registry import SchemaRegistry

_PART = 1000
"""Offsets that are read at once."""
_DROPS_INDEX = re.compile(r"\s*(?:DROP|CREATE\s+OR\s+REPLACE)\b.*\bINDEX\b", re.I | re.DOTALL)
_ID = re.compile(r'"((?:[^"]|"")*)"\."((?:[^"]|"")*)"')


@dataclass(frozen=True)
class KnownColumn:
    """A column in the definition by which the connector reads a table's rows.

    Args:
        name: The column's name.
        type_name: The column's type in the statement: ``INT UNSIGNED``.
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
    """One statement's change of one table.

    Args:
        kind: CREATE, ALTER (also RENAME, with the new name) or DROP; None if the statement names no
            table.
        table: The table; None if the statement names no table.
        statement: The statement, as the connector sends it.
        gtid: GTID of its transaction; None in a snapshot, or if the server has no GTIDs.
        place: The binlog place, as text, that covers the first byte of the statement's event.
        snapshot: Whether the connector read the definition from the catalog, since it had no stored
            position.
        offset: Offset of the record in the topic.
        columns: The connector's columns of the table after the statement; none after a DROP.
    """

    kind: str | None
    table: TableId | None
    statement: str
    gtid: str | None
    snapshot: bool
    offset: int
    place: str | None = None
    columns: tuple[KnownColumn, ...] = ()


class StatementsByTable:
    """The statements that a connector has reported, found by table without a search of all.

    Args:
        changes: The statements, in the order of the log. Those of a snapshot are left out.
    """

    def __init__(self, changes: Iterable[DefinitionChange]) -> None:
        self._by_table: defaultdict[TableId | None, list[DefinitionChange]] = defaultdict(list)
        self._swaps: list[DefinitionChange] = []
        self._indexes: list[DefinitionChange] = []
        for change in changes:
            if not change.snapshot:
                self._by_table[change.table].append(change)
                if "exchange" in change.statement.lower():
                    self._swaps.append(change)
                if change.table is None and _DROPS_INDEX.match(change.statement):
                    self._indexes.append(change)

    def of(self, table: TableId) -> list[DefinitionChange]:
        """Return the statements on a table, in the order of the log.

        EXCHANGE PARTITION swaps the rows of two tables. The connector reports that statement for
        only one of the tables. The connector reports DROP INDEX without a table. A statement that
        names no database counts for the tables of that name in all databases.
        """
        swapped = re.compile(
            rf"exchange\s+partition\b.*\btable\b.*(?<!\w){re.escape(table.name)}(?!\w)",
            re.IGNORECASE | re.DOTALL,
        )
        own = self._by_table.get(table, [])
        others = [
            one for one in self._swaps if one.table != table and swapped.search(one.statement)
        ]
        name, database = re.escape(table.name), re.escape(table.schema)
        indexed = re.compile(
            rf"\bindex\b.*\bon\s+(?:`?{database}`?\s*\.\s*)?`?{name}`?(?![\w.`])",
            re.IGNORECASE | re.DOTALL,
        )
        others += [one for one in self._indexes if indexed.search(one.statement)]
        return sorted([*own, *others], key=lambda one: one.offset)


def definition_changes(
    kafka: KafkaAdmin,
    registry: SchemaRegistry,
    capture: CaptureNames,
    start: int | None = None,
    end: int | None = None,
) -> Iterator[DefinitionChange]:
    """Yield the changes in the order of the binlog.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
        capture: The connector's names.
        start: First offset; by default the first that is in the topic.
        end: Offset after the last one; by default the last stable offset.

    Raises:
        KafkaError: The topic does not exist or cannot be read.
        RegistryError: The registry does not know a record's schema.
        DecodeError: A record is not a changed definition.
    """
    topic, known = capture.schema_change_topic, dict[int, Any]()
    first = kafka.start_offsets(topic)[0] if start is None else start
    last = kafka.stable_offsets(topic)[0] if end is None else end
    for record in kafka.read(topic, 0, first, last):
        try:
            schema_id, body = split_wire(record.value or b"")
            if schema_id not in known:
                known[schema_id] = fastavro.parse_schema(json.loads(registry.schema(schema_id)))
            event: Any = fastavro.schemaless_reader(io.BytesIO(body), known[schema_id])
            found = list(_definition_changes(event, capture.source, record.offset))
        except (SchemaError, KeyError, TypeError, ValueError, EOFError) as error:
            raise DecodeError(
                f"record at offset {record.offset} of topic {topic} is not a changed definition:"
                f" {error}",
                remedy="Check that only this source's connector writes to the topic.",
                topic=topic,
                partition=0,
                offset=record.offset,
            ) from error
        yield from found


@dataclass(frozen=True)
class ReportedStatements:
    """The content of one connector's topic of DDL statements when it was read.

    Args:
        topic_id: The topic's UUID.
        first: The first offset that is still in the topic.
        end: The offset after the last record that was read.
        changes: The changes of all records that this process has read, in the order of the binlog.
    """

    topic_id: str
    first: int
    end: int
    changes: tuple[DefinitionChange, ...] = ()


class Definitions:
    """The statements that connectors report. This process reads each record only once.

    Records of these topics never expire, and runs read the topics every few seconds. Safe to share
    among threads.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
    """

    def __init__(self, kafka: KafkaAdmin, registry: SchemaRegistry) -> None:
        self._kafka, self._registry = kafka, registry
        self._read: dict[CaptureNames, ReportedStatements] = {}
        self._lock = threading.Lock()

    def of(self, capture: CaptureNames) -> ReportedStatements:
        """Return all that a connector has reported so far.

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
            # A topic may end before what was read: after the loss of a broker, for one.
            if known is None or known.topic_id != topic_id or known.end > end:
                known = ReportedStatements(topic_id, first, first)
            while known.end < end:
                # Each part has its own time limit. Parts that were read are not read again.
                upto = min(known.end + _PART, end)
                more = definition_changes(self._kafka, self._registry, capture, known.end, upto)
                known = replace(known, end=upto, changes=(*known.changes, *more))
                self._read[capture] = known
            return replace(known, first=first)


def known_tables(changes: Iterable[DefinitionChange]) -> set[TableId]:
    """Return the tables whose definition the connector knows.

    Any other table must not be added to its include list, since its first change would stop the
    connector for all tables. The connector does not know a table that the capture role could not
    see when the connector first started, and that was not altered since.
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
    """Return the offsets at which the connector started without a stored position.

    More than one means that its stored position was deleted. Changes between the deletion and the
    new start were never captured, and nothing else shows the loss. The new stored position covers
    the lost changes, and the count of the heartbeats has no gap, since none was written meanwhile.
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


def _definition_changes(event: Any, source: str, offset: int) -> Iterator[DefinitionChange]:
    origin = event["source"]
    statement, gtid = str(event["ddl"]), origin["gtid"]
    # The connector sends the place where the event begins.
    place = f"{origin['file']}:{origin['pos'] + 1}" if origin.get("file") else None
    snapshot = origin["snapshot"] not in (None, "false")
    if not event["tableChanges"]:
        yield DefinitionChange(None, None, statement, gtid, snapshot, offset, place)
    for change in event["tableChanges"]:
        match = _ID.fullmatch(change["id"])
        if match is None:
            raise ValueError(f"{change['id']} names no table")
        table = TableId(source, *(name.replace('""', '"') for name in match.groups()))
        columns = tuple(_known_columns(change["table"])) if change["table"] else ()
        yield DefinitionChange(
            change["type"], table, statement, gtid, snapshot, offset, place, columns
        )


def _known_columns(table: Any) -> Iterator[KnownColumn]:
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
