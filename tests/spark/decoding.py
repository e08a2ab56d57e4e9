"""Helpers that decode the records of a topic as a run does."""

from __future__ import annotations

import io
from datetime import datetime, timezone
from typing import Any

import fastavro
from pyspark.sql import Row, SparkSession

from cdc.rows.decode import decode
from cdc.rows.event_plan import EventRules
from schemas.table import Column, TableId, TableSchema
from tests.spark.debezium import PLACEHOLDER, Topic

TEXTS: object = {"type": "array", "items": ["null", "string"]}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
TABLE = TableId("shop", "public", "orders")


def at(*parts: int) -> datetime:
    """A time as Spark's ``collect`` returns it: without a zone, in the session's zone (UTC)."""
    return datetime(*parts)  # noqa: DTZ001 - the session's zone is UTC


def write_long(out: io.BytesIO, number: int) -> None:
    """Avro's variable-length zig-zag encoding of a positive number."""
    fastavro.schemaless_writer(out, "long", number)


def table(*key: str, **columns: str) -> TableSchema:
    return TableSchema(
        TABLE, tuple(Column(name, kind, kind) for name, kind in columns.items()), key or ("id",)
    )


def rows(spark: SparkSession, topic: Topic, schema: TableSchema, **options: Any) -> list[Row]:
    frame = decode(
        topic.frame(spark),
        topic.parsed(),
        schema,
        EventRules(PLACEHOLDER, **options),
        ingested_at=NOW,
    )
    return frame.orderBy("_cdc_offset").collect()
