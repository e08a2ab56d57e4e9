"""Tables run in threads, and every thread must see the Spark session's settings."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from threading import Barrier
from typing import Any, TypeVar, cast

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc.config import parse
from cdc.rows.decode import decode
from cdc.rows.event_plan import EventRules
from cdc.run import RunContext
from cdc.runtime.progress import NullProgress
from operate.context import Services
from schemas.table import Column, TableId, TableSchema
from tests.spark.debezium import DECIMAL, PLACEHOLDER, STRING, ZONED, Topic
from tests.unit.cdc.configuration import minimal

T = TypeVar("T")
TABLES = 4


@pytest.fixture(params=["run", "commands"])
def context(request: pytest.FixtureRequest, spark: SparkSession) -> Any:
    """The object that gives the Spark session to threads: a run's context, or services."""
    if request.param == "commands":
        return Services(parse(yaml.safe_dump(minimal())), NullProgress(), spark=spark)
    rest = dict.fromkeys(
        ("config", "store", "kafka", "registry", "sources", "leases", "progress", "run_id")
    )
    return RunContext(session=spark, **cast(Any, rest))


def in_new_threads(work: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(TABLES) as pool:
        return list(pool.map(work, range(TABLES)))


def test_a_value_that_does_not_fit_fails_in_every_thread(context: Any) -> None:
    def act(number: int) -> str:
        frame = context.spark.sql(f"SELECT 'a{number}' AS x").select(F.col("x").cast("int"))
        with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
            frame.collect()
        with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
            context.spark.sql("SELECT 'b' AS x").selectExpr("CAST(x AS INT)").collect()
        return "failed"

    assert in_new_threads(act) == ["failed"] * TABLES


def test_a_batch_that_is_held_is_decoded_once_in_every_thread(context: Any) -> None:
    """The records are made in the main thread, since `createDataFrame` would adopt the session."""
    table = TableSchema(
        TableId("shop", "public", "orders"),
        (
            Column("id", "bigint", "bigint"),
            Column("note", "string", "string"),
            Column("amount", "decimal(12,2)", "decimal(12,2)"),
            Column("placed_at", "timestamp", "timestamp"),
        ),
        ("id",),
    )
    topic = Topic()
    topic.register(7, {"id": "long", "note": STRING, "amount": DECIMAL, "placed_u005fat": ZONED})
    records = []
    for number in range(TABLES):
        when = "2026-01-01T00:00:00.000000Z"
        topic.insert(id=number, note="a", amount="0.10", placed_u005fat=when)
        records.append(topic.frame(context.spark))
    all_hold = Barrier(TABLES)

    def act(number: int) -> bool:
        assert context.spark.version
        now = datetime.now(timezone.utc)
        decoded: DataFrame = decode(
            records[number],
            topic.parsed(),
            table,
            EventRules(PLACEHOLDER),
            ingested_at=now,
        )
        held = decoded.persist()
        all_hold.wait(60)
        plan = held.filter("id >= 0")._jdf.queryExecution().withCachedData().toString()
        all_hold.wait(60)
        held.unpersist()
        return "InMemoryRelation" in plan

    assert in_new_threads(act) == [True] * TABLES
