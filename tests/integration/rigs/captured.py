"""A database whose changes a real connector writes to Kafka, and a reader of what arrives."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import fastavro

from cdc.config import Config, parse
from cdc.connect import ConnectClient
from cdc.debezium import CaptureNames, connector_config, names
from cdc.kafka import KafkaAdmin, KafkaRecord
from cdc.sources import open_source
from cdc.sources.base import Source
from schemas.avro import DebeziumSchema, split_wire
from schemas.registry import ConfluentRegistry, RegistryEndpoint, SchemaRegistry
from schemas.table import TableId
from tests.integration.rigs.postgres import Database

WAIT_S = 60.0


@dataclass(frozen=True)
class Event:
    """One record of a topic, decoded with its writer's schema."""

    record: KafkaRecord
    key: dict[str, Any] | None
    value: dict[str, Any] | None
    schema: DebeziumSchema | None
    key_schema: DebeziumSchema | None

    @property
    def op(self) -> str | None:
        return None if self.value is None else str(self.value["op"])

    def image(self, side: str) -> dict[str, Any] | None:
        """The row before or after the change, by the column names of the source."""
        if self.value is None or self.schema is None or self.value[side] is None:
            return None
        return {field.column: self.value[side][field.name] for field in self.schema.after}

    @property
    def after(self) -> dict[str, Any] | None:
        return self.image("after")

    @property
    def before(self) -> dict[str, Any] | None:
        return self.image("before")

    @property
    def headers(self) -> dict[str, bytes | None]:
        return dict(self.record.headers)


class CapturedSource:
    """A source of any kind, its connector, and what the connector has written to Kafka."""

    def __init__(self, config: Config, source: str) -> None:
        self.config = config
        self.name = source
        self.names: CaptureNames = names(source, config.sources[source])
        self.kafka = KafkaAdmin(config.kafka)
        self.connect = ConnectClient(config.connect)
        self.registry = ConfluentRegistry(RegistryEndpoint(config.kafka.registry.url))

    def close(self) -> None:
        self.connect.close()
        self.registry.close()

    def settings(self, tables: Sequence[TableId] = (), **overrides: str) -> dict[str, str]:
        """The connector's configuration.

        Args:
            tables: The tables to capture, if the connector's configuration lists them.
            overrides: Settings with other values. A dot in a setting's name is written ``__``.
        """
        source, config = self.config.sources[self.name], self.config
        made = connector_config(self.name, source, "default", config.kafka, config.connect, tables)
        return made | {key.replace("__", "."): value for key, value in overrides.items()}

    def events(self, topic: str, count: int, *, timeout_s: float = WAIT_S) -> list[Event]:
        """Wait until the topic has ``count`` records, and return all records of the topic."""
        found: list[Event] = []

        def arrived() -> bool:
            found[:] = self.read(topic)
            return len(found) >= count

        wait_until(arrived, f"{count} records in {topic}", timeout_s, self.describe)
        return found

    def read(self, topic: str) -> list[Event]:
        """All committed records of a topic."""
        start, end = self.kafka.start_offsets(topic)[0], self.kafka.stable_offsets(topic)[0]
        return [self.decode(record) for record in self.kafka.read(topic, 0, start, end)]

    def decode(self, record: KafkaRecord) -> Event:
        return decode(record, self.registry)

    def describe(self) -> str:
        return describe(self.connect, self.names.connector)


class Captured(CapturedSource):
    """One test's capture: publication, slot, connector and topics of its database."""

    def __init__(self, database: Database) -> None:
        text = database.stack.config_text(source=database.name, database=database.name)
        super().__init__(parse(text), database.name)
        self.database = database
        self.source: Source = open_source(self.name, self.config.sources[self.name])

    def start(self) -> None:
        """Start the capture, without any table yet."""
        for topic in (self.names.heartbeat_topic, self.names.marker_topic):
            self.kafka.ensure_topic(topic)
        self.source.capture(self.names).prepare()
        self.source.capture(self.names).kept_log.create()
        self.connect.put_connector(self.names.connector, self.settings())
        self.connect.wait_running(self.names.connector, timeout_s=WAIT_S)

    def table(self, name: str, schema: str = "public") -> TableId:
        return TableId(self.name, schema, name)

    def add(self, name: str, schema: str = "public") -> str:
        """Add a table to the publication; returns the table's topic."""
        table = self.table(name, schema)
        topic = self.names.topic(table)
        self.kafka.ensure_topic(topic)
        self.source.capture(self.names).sent_tables.add([table])
        return topic


def decode(record: KafkaRecord, registry: SchemaRegistry) -> Event:
    """A record, decoded by the schemas that it was written with."""
    key, key_schema = _decoded(record.key, registry)
    value, schema = _decoded(record.value, registry)
    return Event(record, key, value, schema, key_schema)


def _decoded(data: bytes | None, registry: SchemaRegistry) -> tuple[Any, DebeziumSchema | None]:
    if data is None:
        return None, None
    schema_id, body = split_wire(data)
    text = registry.schema(schema_id)
    writer = fastavro.parse_schema(json.loads(text))
    return fastavro.schemaless_reader(io.BytesIO(body), writer), DebeziumSchema.parse(text)


def describe(connect: ConnectClient, name: str) -> str:
    """The state of a connector, for the error message of a wait that runs out of time."""
    status = connect.status(name)
    return "" if status is None else f"{status}: {status.failure}"


@contextmanager
def capturing(database: Database) -> Iterator[Captured]:
    """A started capture, whose clients are closed after the block.

    The database's fixture removes connector and slot.
    """
    captured = Captured(database)
    try:
        captured.start()
        yield captured
    finally:
        captured.close()


def wait_until(
    ready: Callable[[], bool],
    what: str,
    timeout_s: float = WAIT_S,
    describe: Callable[[], str] = str,
) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline, (
            f"not seen within {timeout_s:.0f} s: {what}; {describe()}"
        )
        time.sleep(0.1)
