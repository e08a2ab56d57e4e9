"""Calls of Java with few round trips, on a real JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc.runtime.java_calls import items_of, select_sql
from cdc.runtime.spark import java_class

Trips = Callable[[Callable[[], object]], int]


@pytest.fixture
def trips(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Trips:
    """A function that counts the round trips between Python and the JVM during a call."""
    gateway: Any = spark.sparkContext._gateway
    client = gateway._gateway_client
    sent: list[str] = []
    send = client.send_command

    def counted(command: str, *rest: Any, **options: Any) -> Any:
        if not command.startswith("m\n"):  # Python's collector frees objects at any time
            sent.append(command)
        return send(command, *rest, **options)

    monkeypatch.setattr(client, "send_command", counted)

    def of(call: Callable[[], object]) -> int:
        sent.clear()
        call()
        return len(sent)

    return of


def test_a_name_is_looked_up_once(trips: Trips, spark: SparkSession) -> None:
    F.col("a")
    assert trips(lambda: F.col("b")) == 1
    level = lambda: spark._jvm.org.apache.spark.storage.StorageLevel.NONE()  # type: ignore[union-attr] # noqa: E731
    level()
    assert trips(level) == 1


def test_a_name_that_java_does_not_have_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="noSuchMethod"):
        java_class(spark, "java.lang.Math").noSuchMethod(1)


def test_the_items_of_a_list(trips: Trips, spark: SparkSession) -> None:
    listed = java_class(spark, "java.util.ArrayList")()
    assert items_of(listed) == []
    listed.extend(["a", None, "c"])
    found = list[list[Any]]()
    assert trips(lambda: found.append(items_of(listed))) == 4
    assert found == [["a", None, "c"]]


@pytest.mark.parametrize(
    "expressions",
    [
        ("a",),
        ("a", "'1\x1f2' AS x"),
        ("*", "a + 1 AS `b.c`"),
        ("'it\\'s, \"so\"\n' AS `é`", "CASE WHEN a > 0 THEN '' END AS x"),
    ],
)
def test_a_selection_by_texts(spark: SparkSession, expressions: tuple[str, ...]) -> None:
    frame = spark.range(3).withColumnRenamed("id", "a")
    wanted = frame.selectExpr(*expressions)
    found = select_sql(frame, *expressions)
    assert found.schema == wanted.schema
    assert found.collect() == wanted.collect()


def test_a_wide_selection_takes_as_few_round_trips_as_a_narrow_one(
    trips: Trips, spark: SparkSession
) -> None:
    frame = spark.range(1)
    select_sql(frame, "id")
    wide = [f"id + {n} AS c{n}" for n in range(200)]
    assert trips(lambda: select_sql(frame, *wide)) == trips(lambda: select_sql(frame, "id")) <= 3
