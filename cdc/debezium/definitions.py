"""What a binlog's connector tells of changed definitions, in the topic named by its prefix.

Each statement is one record per table that it changes, with the transaction that it is: RENAME
TABLE of two is two. TRUNCATE is a change of rows and comes in the table's own topic; OPTIMIZE and
ANALYZE come nowhere. A connector that starts without a stored position first tells the definitions
of all tables that it can see, as a snapshot.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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

_ID = re.compile(r'"((?:[^"]|"")*)"\."((?:[^"]|"")*)"')


@dataclass(frozen=True)
class DefinitionChange:
    """One statement, as far as it concerns one table.

    Args:
        kind: CREATE, ALTER (also RENAME, with the new name) or DROP; None where it names no table.
        table: The table.
        statement: The statement, as the connector tells it.
        gtid: The transaction; None in a snapshot, and where the server has no GTIDs.
        place: Its first byte in the binlog, as text of a place that covers it.
        snapshot: Whether it was read from the catalog, since the connector had no position.
        offset: Offset of the record in the topic.
    """

    kind: str | None
    table: TableId | None
    statement: str
    gtid: str | None
    snapshot: bool
    offset: int
    place: str | None = None


def definition_changes(
    kafka: KafkaAdmin,
    registry: SchemaRegistry,
    capture: CaptureNames,
    start: int | None = None,
    end: int | None = None,
) -> Iterator[DefinitionChange]:
    """The changes in the order of the binlog.

    Args:
        kafka: The cluster.
        registry: The writers' schemas.
        capture: The connector's names.
        start: First offset; the first that there is when None.
        end: The offset after the last; the end of what is committed when None.

    Raises:
        KafkaError: The topic does not exist or cannot be read.
        RegistryError: The registry does not know a record's schema.
        DecodeError: A record is not of that form.
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
            found = list(_changes(event, capture.source, record.offset))
        except (SchemaError, KeyError, TypeError, ValueError, EOFError) as error:
            raise DecodeError(
                f"record at offset {record.offset} of topic {topic} is no changed definition:"
                f" {error}",
                remedy="Check that only this source's connector writes to the topic.",
                topic=topic,
                partition=0,
                offset=record.offset,
            ) from error
        yield from found


def known_tables(changes: Iterable[DefinitionChange]) -> set[TableId]:
    """The tables whose definition the connector knows.

    Another one must not come into its include list: the first change of it would stop the
    connector for all. It is one that the capture role could not see when the connector first
    started, and that nobody altered since.
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
    """Offsets at which the connector began without a stored position.

    More than one means that its position was deleted: what was written until it began again was
    never captured, and nothing else shows that. Its stored position is that of now, and contains
    what was lost; heartbeats go on without a gap, since none was written meanwhile.
    """
    found: list[int] = []
    before = False
    for change in changes:
        # The settings of the server come first in each snapshot, whatever came before it.
        opens = change.table is None and change.statement.startswith("SET character_set_server")
        if change.snapshot and (opens or not before):
            found.append(change.offset)
        before = change.snapshot
    return found


def _changes(event: Any, source: str, offset: int) -> Iterator[DefinitionChange]:
    origin = event["source"]
    statement, gtid = str(event["ddl"]), origin["gtid"]
    # The connector gives the place where the event begins.
    place = f"{origin['file']}:{origin['pos'] + 1}" if origin.get("file") else None
    snapshot = origin["snapshot"] not in (None, "false")
    if not event["tableChanges"]:
        yield DefinitionChange(None, None, statement, gtid, snapshot, offset, place)
    for change in event["tableChanges"]:
        match = _ID.fullmatch(change["id"])
        if match is None:
            raise ValueError(f"{change['id']} names no table")
        table = TableId(source, *(name.replace('""', '"') for name in match.groups()))
        yield DefinitionChange(change["type"], table, statement, gtid, snapshot, offset, place)
