"""Updates of a key that the settings chose instead of the connector's key; each is one event."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from pyspark.sql import SparkSession

from cdc.rows.decode import decode
from cdc.rows.event_plan import EventRules
from schemas.table import Column, TableId, TableSchema
from tests.spark.debezium import PLACEHOLDER, STRING, Topic


def test_the_former_key_goes_whatever_the_order_of_its_columns(spark: SparkSession) -> None:
    """The table has ``a`` before ``b``; the settings name them the other way round."""
    topic = Topic()
    topic.register(7, {"id": "long", "a": STRING, "b": STRING, "note": STRING})
    row: dict[str, Any] = {"id": 1, "a": "a1", "b": "b1", "note": "x"}
    topic.event("u", {**row, "a": "a2", "note": "y"}, row)
    topic.event("u", {**row, "a": "a2", "note": "z"}, {**row, "a": "a2", "note": "y"})
    columns = (
        Column("id", "bigint", "bigint"),
        *(Column(n, "text", "string") for n in row if n != "id"),
    )
    frame = decode(
        topic.frame(spark),
        topic.parsed(),
        TableSchema(TableId("shop", "public", "orders"), columns, ("b", "a")),
        EventRules(PLACEHOLDER, own_key=True),
        ingested_at=datetime.now(timezone.utc),
    )
    shown = frame.select("_cdc_op", "_cdc_offset", "a", "b", "note").collect()
    assert sorted(map(tuple, shown), key=repr) == [
        ("c", 100, "a2", "b1", "y"),
        ("d", 100, "a1", "b1", None),
        ("u", 101, "a2", "b1", "z"),
    ]
