"""Rows of one table from the snapshot and from the stream, in a form that tests can compare."""

from __future__ import annotations

import math
import time
from datetime import datetime, timezone
from typing import Any

import yaml
from pyspark.sql import DataFrame, SparkSession

from cdc.config import Config
from cdc.connect import ConnectClient
from cdc.debezium import connector_config, names
from cdc.kafka import KafkaAdmin
from cdc.rows.columns import PROBLEM
from cdc.rows.decode import decode
from cdc.rows.event_plan import EventRules
from cdc.rows.kafka_records import Range, read_changes
from cdc.runtime.progress import NullProgress
from cdc.sources.postgres.source import PostgresSource
from cdc.sources.source_facts import SourceTable
from schemas.avro import DebeziumSchema
from schemas.registry import ConfluentRegistry, RegistryEndpoint
from schemas.table import TableSchema
from tests.integration.rigs.postgres import Database

QUIET = NullProgress()


def comparable(value: Any) -> Any:
    """A form of a value for comparisons: NaN equals NaN, and 0.0 differs from -0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def collected(frame: DataFrame, schema: TableSchema) -> list[dict[str, Any]]:
    # instants come to Python in its local zone, which year 1 does not survive
    columns = [
        f"date_format(`{column.name}`, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS `{column.name}`"
        if column.lake_type == "timestamp"
        else f"transform(`{column.name}`, x -> date_format(x, 'yyyy-MM-dd HH:mm:ss.SSSSSS'))"
        f" AS `{column.name}`"
        if column.lake_type == "array<timestamp>"
        else f"`{column.name}`"
        for column in schema.columns
    ]
    rows = [row.asDict() for row in frame.selectExpr(*columns).collect()]
    return sorted(
        ({name: comparable(value) for name, value in row.items()} for row in rows),
        key=lambda row: row["id"],
    )


class Stream:
    """A connector that captures one table, and its decoded events."""

    def __init__(self, database: Database, source: PostgresSource, spark: SparkSession) -> None:
        document = yaml.safe_load(database.stack.config_text())
        section = document["sources"].pop("shop")
        for endpoint in ("primary", "replica"):
            section[endpoint]["database"] = database.name
        document["sources"][database.name] = section
        self._config = Config.model_validate(document)
        self._source, self._spark = source, spark
        self._names = names(database.name, self._config.sources[database.name])
        self._kafka = KafkaAdmin(self._config.kafka)
        self._connect = ConnectClient(self._config.connect)
        self._registry = ConfluentRegistry(RegistryEndpoint(url=self._config.kafka.registry.url))

    def close(self) -> None:
        self._connect.close()
        self._registry.close()

    def capture(self, table: SourceTable) -> None:
        captured = self._names
        for topic in (captured.topic(table.table), captured.marker_topic, captured.heartbeat_topic):
            self._kafka.ensure_topic(topic)
        self._source.capture(captured).prepare()
        self._source.capture(captured).sent_tables.add([table.table])
        self._source.capture(captured).kept_log.create()
        section = self._config.sources[table.table.source]
        self._connect.put_connector(
            captured.connector,
            connector_config(
                table.table.source, section, "default", self._config.kafka, self._config.connect
            ),
        )
        self._connect.wait_running(captured.connector, timeout_s=120, progress=QUIET)

    def inserts(self, table: SourceTable, schema: TableSchema, count: int) -> DataFrame:
        """Wait for ``count`` events; returns the decoded rows of the inserts."""
        topic = self._names.topic(table.table)
        start = self._kafka.start_offsets(topic)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            end = self._kafka.stable_offsets(topic)
            records = list(self._kafka.read(topic, 0, start[0], end[0]))
            if sum(record.value is not None for record in records) >= count:
                ids = {int.from_bytes((r.value or b"")[1:5], "big") for r in records if r.value}
                schemas = {
                    number: DebeziumSchema.parse(self._registry.schema(number)) for number in ids
                }
                frame = decode(
                    read_changes(
                        self._spark, self._config.kafka.java_config(), topic, Range(start, end)
                    ),
                    schemas,
                    schema,
                    EventRules(self._names.placeholder),
                    ingested_at=datetime.now(timezone.utc),
                )
                problems = [row[0] for row in frame.select(PROBLEM).collect() if row[0]]
                assert problems == [], problems[:10]
                return frame.where("_cdc_op = 'c'").selectExpr(
                    *(f"`{column.name}`" for column in schema.columns)
                )
            # a value that the connector cannot convert ends it
            self._connect.wait_running(self._names.connector, timeout_s=60, progress=QUIET)
            time.sleep(0.5)
        raise AssertionError("the events did not arrive")
