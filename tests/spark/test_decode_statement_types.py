"""Integers and booleans of columns that MySQL's or MariaDB's connector knows from a statement."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.rows.binlog_values import NUMBER_AS_TRUE
from cdc.rows.columns import PROBLEM, UNAVAILABLE, UNCLEAR
from schemas.table import Column, TableSchema
from schemas.types_mysql import MysqlType
from tests.spark.debezium import Binlog
from tests.spark.decoding import TABLE, rows


def known_as(kind: str, source_type: str) -> Any:
    """An Avro type whose parameters have the connector's name for the column's source type."""
    return {"type": kind, "connect.parameters": {"__debezium.source.column.type": source_type}}


def holding(source_type: str, *key: str, lake: str = "") -> TableSchema:
    kind = lake or MysqlType.parse(source_type).rule(table=TABLE, column="v").lake_type
    columns = (Column("id", "int", "int"), Column("v", source_type, kind))
    return TableSchema(TABLE, columns, key)


def sent(field: Any, *values: Any) -> Binlog:
    topic = Binlog()
    topic.register(7, {"id": "int", "v": field}, required=("id", "v"))
    for number, value in enumerate(values):
        topic.insert(id=number, v=value)
    return topic


@pytest.mark.parametrize(
    ("field", "source_type", "value", "exact"),
    [
        (known_as("int", "INTEGER UNSIGNED"), "int(10) unsigned", -1062731519, 3232235777),
        (known_as("int", "INT ZEROFILL"), "int(10) unsigned zerofill", -1, 2**32 - 1),
        (known_as("int", "MEDIUMINT ZEROFILL"), "mediumint(8) unsigned zerofill", -1, 2**24 - 1),
        (known_as("int", "SMALLINT ZEROFILL"), "smallint(5) unsigned zerofill", -25536, 40000),
        (known_as("int", "TINYINT ZEROFILL"), "tinyint(3) unsigned zerofill", -1, 255),
        (known_as("long", "BIGINT ZEROFILL"), "bigint unsigned zerofill", -1, Decimal(2**64 - 1)),
        (known_as("long", "BIGINT UNSIGNED"), "bigint(20) unsigned", -2, Decimal(2**64 - 2)),
        (known_as("long", "INT UNSIGNED"), "int(10) unsigned", 3232235777, 3232235777),
        (known_as("int", "INT"), "int(11)", -5, -5),
        # A schema without the name leaves the type of the catalog.
        ("long", "bigint(20) unsigned", -1, Decimal(2**64 - 1)),
        # The column was widened, or lost its sign, after the event.
        (known_as("int", "INTEGER UNSIGNED"), "bigint(20) unsigned", -1, Decimal(2**32 - 1)),
        (known_as("int", "SMALLINT ZEROFILL"), "int(10) unsigned", -1, 65535),
        (known_as("int", "INT"), "int(10) unsigned", -5, -5),
    ],
)
@pytest.mark.parametrize("key", ["id", "v"])
def test_an_unsigned_integer_that_arrives_with_a_sign_is_the_servers(
    spark: SparkSession, field: Any, source_type: str, value: int, exact: object, key: str
) -> None:
    found = rows(spark, sent(field, value, 7), holding(source_type, key))
    assert [row[PROBLEM] for row in found] == [None, None]
    assert [row["v"] for row in found] == [exact, 7]


@pytest.mark.parametrize(
    ("field", "lake", "value"),
    [
        (known_as("int", "INTEGER UNSIGNED"), "int", -1),
        (known_as("long", "INT UNSIGNED"), "int", 2**32 - 1),
        (known_as("long", "BIGINT UNSIGNED"), "bigint", -1),
    ],
)
def test_an_unsigned_integer_that_the_narrower_column_cannot_hold_is_a_problem(
    spark: SparkSession, field: Any, lake: str, value: int
) -> None:
    found = rows(spark, sent(field, value, 7), holding("smallint unsigned", "id", lake=lake))
    assert [row[PROBLEM] for row in found] == ["no exact value for column v", None]
    assert found[1]["v"] == 7


@pytest.mark.parametrize("source_type", ["tinyint(1)", "bigint(20)"])
@pytest.mark.parametrize("name", ["BOOL", "BOOLEAN"])
def test_true_of_a_declared_boolean_may_be_any_number(
    spark: SparkSession, name: str, source_type: str
) -> None:
    events = sent(known_as("boolean", name), True, False)
    true, false = rows(spark, events, holding(source_type, "id"))
    assert (true["v"], true[UNAVAILABLE], true[UNCLEAR]) == (None, ["v"], ["v"])
    assert (false["v"], false[UNAVAILABLE], false[PROBLEM]) == (0, None, None)
    for key in (("id", "v"), ()):
        true, false = rows(spark, events, holding(source_type, *key))
        assert true[PROBLEM] == f"column v{NUMBER_AS_TRUE}"
        assert (false["v"], false[PROBLEM]) == (0, None)


def test_true_in_an_update_is_no_matter_of_an_append_table(spark: SparkSession) -> None:
    events = sent(known_as("boolean", "BOOL"), False)
    events.update(id=1, v=True)
    assert [row[PROBLEM] for row in rows(spark, events, holding("tinyint(1)"))] == [None, None]


def test_each_schema_has_its_own_declaration(spark: SparkSession) -> None:
    """One event is from before MODIFY ... tinyint(1), one from after it.

    The later schema has a default, so a value of the column may stand for NULL.
    """
    events = sent(known_as("boolean", "BOOL"), True)
    events.register(8, {"id": "int", "v": "int"}, required=("id",), defaults={"v": 1})
    events.insert(id=2, v=1)
    true, default = rows(spark, events, holding("tinyint(1)"), nulls_are_kept=False)
    assert true[PROBLEM] == f"column v{NUMBER_AS_TRUE}"
    assert default[PROBLEM].startswith("the value of column v may be its default")


def test_a_bit_is_certain(spark: SparkSession) -> None:
    found = rows(spark, sent(known_as("boolean", "BIT"), True, False), holding("bit(1)", "id"))
    assert [(row["v"], row[UNAVAILABLE]) for row in found] == [(True, None), (False, None)]
