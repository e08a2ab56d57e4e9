"""Each type of MySQL and MariaDB has one value in copy and stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from cdc import spark as spark_module
from cdc.config import Config, MysqlSourceConfig
from cdc.decode import decode
from cdc.own_key import PROBLEM, UNAVAILABLE, UNCLEAR
from cdc.records import read_changes
from cdc.sources.mysql.source import MysqlSource
from cdc.sources.values import KeyRange
from schemas.avro import DebeziumSchema
from schemas.registry import ConfluentRegistry, RegistryEndpoint
from schemas.table import Column, TableId, TableSchema
from schemas.types_mysql import MysqlType
from stack.local import LocalStack
from tests.integration.mysql import MysqlDatabase, capture
from tests.integration.mysql import database as database
from tests.integration.mysql import mysql_stack as mysql_stack
from tests.integration.servers import consume
from tests.integration.typed import comparable

pytestmark = pytest.mark.breadth

ASKED = object()
"""What the stream leaves to the source: it cannot tell a zero date from the start of 1970."""

UTC = timezone.utc
at = datetime.fromisoformat
CASES: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = (
    ("tinyint", (("-128", -128), ("127", 127), ("null", None))),
    ("tinyint unsigned", (("255", 255),)),
    ("tinyint(1)", (("5", 5), ("0", 0), ("-1", -1))),
    ("boolean", (("true", 1), ("false", 0), ("7", 7))),
    ("smallint unsigned", (("65535", 65535),)),
    ("mediumint", (("-8388608", -8388608),)),
    ("mediumint unsigned", (("16777215", 16777215),)),
    ("int", (("-2147483648", -(2**31)),)),
    ("int unsigned", (("4294967295", 2**32 - 1),)),
    ("int(5) zerofill", (("42", 42),)),
    ("bigint", (("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1))),
    (
        "bigint unsigned",
        (
            ("0", Decimal(0)),
            ("9223372036854775807", Decimal(2**63 - 1)),
            ("9223372036854775808", Decimal(2**63)),
            ("18446744073709551615", Decimal(2**64 - 1)),
            ("null", None),
        ),
    ),
    ("float", (("0.1", 0.10000000149011612), ("16777216", 16777216.0), ("null", None))),
    ("float(7,3)", (("1234.567", 1234.5670166015625),)),
    ("double", (("0.1", 0.1), ("-1.7976931348623157e308", -1.7976931348623157e308))),
    ("decimal(10,2)", (("12345678.9", Decimal("12345678.90")), ("null", None))),
    ("decimal(38,10)", (("-0.0000000001", Decimal("-1E-10")),)),
    ("decimal(65,30)", (("1.5", "1.500000000000000000000000000000"), ("null", None))),
    ("decimal(20,0) unsigned", (("12345678901234567890", Decimal(12345678901234567890)),)),
    (
        "date",
        (
            ("'0001-01-01'", date(1, 1, 1)),
            ("'9999-12-31'", date(9999, 12, 31)),
            ("'0000-00-00'", None),
            ("'2024-02-00'", None),
            ("null", None),
            ("'1970-01-01'", ASKED),
        ),
    ),
    ("date NOT NULL", (("'2024-02-29'", date(2024, 2, 29)), ("'0000-00-00'", ASKED))),
    (
        "datetime",
        (
            ("'1000-01-01 00:00:00'", at("1000-01-01 00:00:00")),
            ("'2024-03-31 02:30:00'", at("2024-03-31 02:30:00")),
            ("'0000-00-00 00:00:00'", None),
            ("'2024-00-10 01:02:03'", None),
        ),
    ),
    ("datetime NOT NULL", (("'0000-00-00 00:00:00'", ASKED),)),
    ("datetime NOT NULL DEFAULT '2001-02-03 04:05:06'", (("'2001-02-03 04:05:06'", ASKED),)),
    ("datetime(3)", (("'2024-03-31 02:30:00.123'", at("2024-03-31 02:30:00.123000")),)),
    (
        "datetime(6)",
        (
            ("'0001-01-01 00:00:00.000001'", at("0001-01-01 00:00:00.000001")),
            ("'9999-12-31 23:59:59.999999'", at("9999-12-31 23:59:59.999999")),
        ),
    ),
    (
        "timestamp NULL",
        (
            ("'1970-01-01 00:00:01'", at("1970-01-01 00:00:01+00:00")),
            ("'2038-01-19 03:14:07'", at("2038-01-19 03:14:07+00:00")),
            ("null", None),
        ),
    ),
    (
        "timestamp(6) NULL",
        (("'2024-03-31 01:30:00.123456'", at("2024-03-31 01:30:00.123456+00:00")),),
    ),
    (
        "timestamp NOT NULL DEFAULT '2020-01-01 00:00:00'",
        (
            ("'0000-00-00 00:00:00'", ASKED),
            ("'2024-01-01 00:00:00'", at("2024-01-01 00:00:00+00:00")),
        ),
    ),
    (
        "time",
        (
            ("'-838:59:59'", -3020399000000),
            ("'838:59:59'", 3020399000000),
            ("'24:00:00'", 86400000000),
        ),
    ),
    (
        "time(6)",
        (
            ("'-00:00:00.000001'", -1),
            ("'12:34:56.000001'", 45296000001),
            ("'-01:00:00.5'", -3600500000),
        ),
    ),
    ("year", (("1901", 1901), ("2155", 2155), ("0", 0), ("null", None))),
    ("char(5)", (("'ab'", "ab"), ("''", ""), ("' x '", " x"), ("null", None))),
    ("varchar(20)", (("'ä€😀'", "ä€😀"), ("''", ""))),
    ("varchar(20) character set latin1", (("'äöü€'", "äöü€"),)),
    ("varchar(20) character set gbk", (("'中文'", "中文"),)),
    ("varchar(20) character set utf16", (("'ä😀'", "ä😀"),)),
    ("varchar(20) character set cp1251", (("'привет'", "привет"),)),
    ("longtext", (("repeat('x', 100)", "x" * 100), ("''", ""))),
    ("binary(5)", (("x'010000'", b"\x01\0\0\0\0"), ("x'ff'", b"\xff\0\0\0\0"))),
    ("varbinary(10)", (("x'00ff00'", b"\0\xff\0"), ("''", b""))),
    ("mediumblob", (("x'00ff'", b"\0\xff"), ("null", None))),
    ("bit(1)", (("b'0'", False), ("b'1'", True), ("null", None))),
    ("bit(12)", (("b'000000000001'", 1), ("b'111111110000'", 4080), ("b'0'", 0), ("null", None))),
    ("bit(64)", (("b'1'", Decimal(1)), ("~0", Decimal(2**64 - 1)))),
    ("enum('a','b,c','')", (("'a'", "a"), ("'b,c'", "b,c"), ("''", ""), ("null", None))),
    ("set('a','b','c')", (("'a,c'", "a,c"), ("''", ""), ("null", None))),
)
"""A column's definition, and values with what the lake gets."""


@pytest.fixture(scope="module")
def config(mysql_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("lake")
    document = yaml.safe_load(mysql_stack.config_text(folder=folder))
    scratch = {"spark.local.dir": str(folder / "scratch")}
    document["spark"] = {"master": "local[2]", "driver_memory": "2g", "conf": scratch}
    return Config.model_validate(document)


@pytest.fixture(scope="module")
def spark(config: Config) -> Iterator[SparkSession]:
    yield spark_module.session(config, "tributary-tests")
    spark_module.stop()


def test_each_type_has_one_value_in_copy_and_stream(
    database: MysqlDatabase, config: Config, spark: SparkSession
) -> None:
    definitions = ", ".join(f"c{n} {definition}" for n, (definition, _) in enumerate(CASES))
    database.query("CREATE TABLE ready (id int AUTO_INCREMENT PRIMARY KEY)")
    database.query(f"CREATE TABLE typed (id int PRIMARY KEY, {definitions}) CHARACTER SET utf8mb4")
    topic = capture(
        database,
        "typed",
        **{
            "table.include.list": f"{database.name}.typed,{database.name}.ready",
            "snapshot.mode": "no_data",
            "decimal.handling.mode": "string",
            "time.precision.mode": "adaptive_time_microseconds",
            "bigint.unsigned.handling.mode": "long",
            "binary.handling.mode": "bytes",
            "enable.time.adjuster": "false",
            "event.converting.failure.handling.mode": "fail",
            "column.propagate.source.type": ".*",
            "schema.name.adjustment.mode": "avro_unicode",
            "field.name.adjustment.mode": "avro_unicode",
        },
    )
    wait_until_captured(database, topic.replace("typed", "ready"))
    turns = max(len(values) for _, values in CASES)
    # A column with fewer values than others has its first again.
    grid = [
        [values[turn if turn < len(values) else 0] for _, values in CASES] for turn in range(turns)
    ]
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', NAMES utf8mb4")
        for turn, row in enumerate(grid):
            values = ", ".join(text for text, _ in row)
            cursor.execute(f"INSERT INTO typed VALUES ({turn}, {values})")
    schema = table_schema(database)
    stream = {row["id"]: row for row in from_stream(spark, config, database, topic, schema, turns)}
    copy = {row["id"]: row for row in as_copied(spark, config, database, schema)}
    for turn, row in enumerate(grid):
        asked = set(stream[turn][UNAVAILABLE] or ())
        assert stream[turn][UNCLEAR] == bool(asked)
        for number, (text, expected) in enumerate(row):
            name, told = f"c{number}", f"{CASES[number][0]} of {text}"
            if expected is ASKED:
                assert name in asked, told
                continue
            assert name not in asked, told
            assert comparable(stream[turn][name]) == comparable(expected), told
            assert comparable(copy[turn][name]) == comparable(expected), told


def wait_until_captured(database: MysqlDatabase, topic: str) -> None:
    """Write until a row has come: from then on the connector reads the binlog."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.5):
            database.query("INSERT INTO ready VALUES ()")

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            consume(database.stack, topic, 1)
        finally:
            stop.set()
        writer.result(30)


def table_schema(database: MysqlDatabase) -> TableSchema:
    """The lake's columns by the server's own words."""
    found = database.query(
        "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS"
        f" WHERE TABLE_SCHEMA = '{database.name}' AND TABLE_NAME = 'typed'"
        " ORDER BY ORDINAL_POSITION"
    )
    types = {str(name): MysqlType.parse(str(kind)) for name, kind in found}
    columns = tuple(
        Column(name, str(kind), kind.rule(table="typed", column=name).lake_type)
        for name, kind in types.items()
    )
    return TableSchema(TableId("shop", database.name, "typed"), columns, ("id",))


def from_stream(
    spark: SparkSession,
    config: Config,
    database: MysqlDatabase,
    topic: str,
    schema: TableSchema,
    count: int,
) -> list[Any]:
    messages = consume(database.stack, topic, count)
    registry = ConfluentRegistry(RegistryEndpoint(url=config.kafka.registry.url))
    ids = {int.from_bytes(value[1:5], "big") for _, value in messages}
    written = {number: DebeziumSchema.parse(registry.schema(number)) for number in ids}
    registry.close()
    assert {one.mismatch(topic) for one in written.values()} == {None}
    frame = decode(
        read_changes(spark, config.kafka.java_config(), topic, {0: 0}, {0: count}),
        written,
        schema,
        placeholder="none",
        ingested_at=datetime.now(UTC),
    )
    rows = shown(frame, schema, PROBLEM, UNAVAILABLE, UNCLEAR, "_cdc_position", "_cdc_offset")
    assert [row[PROBLEM] for row in rows if row[PROBLEM]] == []
    in_order = sorted(rows, key=lambda row: row["_cdc_offset"])
    places = [row["_cdc_position"] for row in in_order]
    assert places == sorted(places), "positions sort as the log does"
    assert len(set(places)) == count
    return rows


def as_copied(
    spark: SparkSession, config: Config, database: MysqlDatabase, schema: TableSchema
) -> list[Any]:
    """The rows as a copy reads them: from the replica, through Spark and its driver."""
    name = f"shop_{database.kind}"
    section = config.source(name)
    assert isinstance(section, MysqlSourceConfig)
    source = MysqlSource(name, section)
    database.catch_up()
    query = source.snapshot_query(
        source.table(TableId(name, database.name, "typed")), schema, [KeyRange()], view=None
    )
    frame = spark.read.jdbc(
        query.url, query.table, predicates=list(query.predicates), properties=query.properties
    ).selectExpr(*query.select)
    cast = (f"CAST(`{column.name}` AS {column.lake_type})" for column in schema.columns)
    return shown(frame.selectExpr(*cast).toDF(*frame.columns), schema)


def shown(frame: DataFrame, schema: TableSchema, *more: str) -> list[Any]:
    """The rows; instants come to Python in its local zone, so they are made UTC."""
    rows = [
        row.asDict() for row in frame.select(*(c.name for c in schema.columns), *more).collect()
    ]
    instants = [column.name for column in schema.columns if column.lake_type == "timestamp"]
    for row in rows:
        for name in instants:
            if row[name] is not None:
                row[name] = row[name].astimezone(UTC)
    return rows
