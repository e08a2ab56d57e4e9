"""Each type of MySQL and MariaDB has one value in copy and stream."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from cdc.config import Config, MysqlSourceConfig
from cdc.kafka import KafkaAdmin
from cdc.rows.columns import PROBLEM, UNAVAILABLE, UNCLEAR
from cdc.rows.decode import decode
from cdc.rows.event_plan import EventRules
from cdc.rows.kafka_records import Range, read_changes
from cdc.runtime import spark as spark_module
from cdc.sources.mysql.source import MysqlSource
from cdc.sources.source_facts import KeyRange, SourceTable
from schemas.avro import DebeziumSchema
from schemas.charsets_mysql import DOUBTFUL
from schemas.json_text import in_python, in_spark
from schemas.registry import ConfluentRegistry, RegistryEndpoint
from schemas.table import Column, TableId, TableSchema
from schemas.types_mysql import MysqlType
from stack.local import LocalStack
from tests.integration.rigs.mysql import MysqlDatabase, capture
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_captured import mysql_capturing
from tests.integration.rigs.mysql_cells import ASKED, CASES, OWN, SAID, Asked, Cases
from tests.integration.rigs.servers import consume
from tests.integration.rigs.typed import comparable

pytestmark = pytest.mark.breadth

UTC = timezone.utc


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
    """The connector has read one table's definition from the server, one from a statement."""
    cases = (*CASES, *OWN[database.kind], *SAID)
    definitions = ", ".join(f"c_{n} {definition}" for n, (definition, _) in enumerate(cases))
    table = f"CREATE TABLE {{}} (id int PRIMARY KEY, {definitions}) CHARACTER SET utf8mb4"
    database.query("CREATE TABLE ready (id int AUTO_INCREMENT PRIMARY KEY)")
    database.query(table.format("typed"))
    topic = capture(
        database,
        "typed",
        **{
            "table.include.list": ",".join(
                f"{database.name}.{one}" for one in ("typed", "told", "ready")
            ),
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
    database.query(table.format("told"))
    turns = max(len(values) for _, values in cases)
    # A column with fewer values than others has its first again.
    grid = [
        [values[turn if turn < len(values) else 0] for _, values in cases] for turn in range(turns)
    ]
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', NAMES utf8mb4")
        for turn, row in enumerate(grid):
            values = ", ".join(text for text, _ in row)
            for name in ("typed", "told"):
                cursor.execute(f"INSERT INTO {name} VALUES ({turn}, {values})")
            if turn == turns // 2:
                # Rows come in two transactions of Kafka, however fast the connector polls.
                consume(database.stack, topic, turn + 1)
    for name in ("typed", "told"):
        schema = table_schema(database, name)
        written = topic.replace("typed", name)
        stream = from_stream(spark, config, database, written, schema, turns)
        copy = as_copied(spark, config, database, schema)
        found = looked_up(config, database, schema, turns)
        for turn in range(turns):
            rows = (
                next(row for row in side if row["id"] == turn) for side in (stream, copy, found)
            )
            assert_equal_cells(cases, turn, *rows, by_statement=name == "told")


def assert_equal_cells(
    cases: Cases,
    turn: int,
    streamed: dict[str, Any],
    copied: dict[str, Any],
    looked: dict[str, Any],
    *,
    by_statement: bool,
) -> None:
    """Assert that stream, copy and lookup give equal cells for one row.

    Args:
        cases: The columns, with their values and the expected cells.
        turn: The number of the value in each case.
        streamed: The row from the stream.
        copied: The row from the copy.
        looked: The row from a lookup by key.
        by_statement: Whether the connector has the columns from a statement.
    """
    asked = set(streamed[UNAVAILABLE] or ())
    assert set(streamed[UNCLEAR] or ()) == asked
    for number, (definition, cells) in enumerate(cases):
        text, expected = cells[turn if turn < len(cells) else 0]
        column, what = (
            f"c_{number}",
            f"{definition} of {text[:100]}, by a statement: {by_statement}",
        )
        value = expected.value if isinstance(expected, Asked) else expected
        # A statement's boolean arrives as true or false.
        any_number = by_statement and definition.startswith("bool") and bool(value)
        doubt = any_number or value is ASKED or isinstance(expected, Asked)
        assert (column in asked) == doubt, what
        assert comparable(copied[column]) == comparable(looked[column]), what
        if value is ASKED:
            continue
        assert comparable(copied[column]) == comparable(value), what
        if column not in asked:
            assert comparable(streamed[column]) == comparable(value), what


def test_text_of_each_character_set_is_the_servers_or_is_read_by_key(
    database: MysqlDatabase,
) -> None:
    """All characters of one or two bytes are tested, and a part of those of three or four bytes."""
    there = {name for name, *_ in database.query("SHOW CHARACTER SET")}
    sets = [name for name in DOUBTFUL if name in there]
    texts = {name: characters(database, name) for name in sets}
    definitions = ", ".join(f"c_{name} mediumtext CHARACTER SET {name}" for name in sets)
    database.query(f"CREATE TABLE texts (id int PRIMARY KEY, {definitions})")
    with mysql_capturing(database, "texts") as captured:
        with database.connect() as connection, connection.cursor() as cursor:
            for number in range(max(map(len, texts.values()))):
                row = [texts[name][number : number + 1] for name in sets]
                values = [piece[0] if piece else b"" for piece in row]
                read = ", ".join(f"CONVERT(%s USING {name})" for name in sets)
                cursor.execute(f"INSERT INTO texts VALUES ({number}, {read})", values)
            shown = ", ".join(f"CONVERT(c_{name} USING utf8mb4)" for name in sets)
            cursor.execute(f"SELECT {shown} FROM texts ORDER BY id")
            rows = list(cursor.fetchall())
        events = captured.events(captured.topic("texts"), len(rows))
    sent = [event.after for event in events if event.after]
    for name, column in zip(sets, zip(*rows, strict=True), strict=True):
        doubt = set(
            DOUBTFUL[name].replace("\ue000-\uf8ff", "".join(map(chr, range(0xE000, 0xF900))))
        )
        for row, text in zip(sent, column, strict=True):
            pairs = list(
                zip(re.split(r"\n+", row[f"c_{name}"]), re.split(r"\n+", text), strict=True)
            )
            wrong = [pair for pair in pairs if pair[0] != pair[1] and not doubt & {*pair[0]}]
            assert not wrong, f"{name}: {wrong[:5]}"


def characters(database: MysqlDatabase, charset: str) -> list[bytes]:
    """Texts with the characters of a character set, one character per line, with empty lines."""
    ((longest,),) = database.query(
        "SELECT MAXLEN FROM information_schema.CHARACTER_SETS"
        f" WHERE CHARACTER_SET_NAME = '{charset}'"
    )
    if charset.startswith("utf8"):
        made = ["".join(map(chr, (*range(0x20, 0xD800), *range(0xE000, 0x10000))))]
        if charset == "utf8mb4":
            made.append("".join(map(chr, range(0x1F000, 0x20000))))
        return [piece.encode() for piece in made]
    wide = charset == "utf16le"
    found = [] if wide else [bytes([one]) for one in range(256) if one != ord("\n")]
    if longest > 1:
        found += [bytes([one, two]) for one in range(0 if wide else 128, 256) for two in range(256)]
    if longest == 3:
        rest = range(0xA1, 0xFF)
        found += [bytes([0x8F, one, two]) for one in rest for two in rest]
    line = b"\n\0" if wide else b"\n"
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE pieces (piece varbinary(4))")
        for start in range(0, len(found), 5000):
            values = ", ".join(f"(x'{piece.hex()}')" for piece in found[start : start + 5000])
            cursor.execute(f"INSERT INTO pieces VALUES {values}")
        read = f"CONVERT(piece USING {charset})"
        cursor.execute("SET sql_mode = ''")
        cursor.execute(
            f"SELECT piece FROM pieces WHERE CAST({read} AS BINARY) = piece"
            f" AND CHAR_LENGTH({read}) = 1 AND {read} IS NOT NULL"
        )
        valid = [bytes(piece) for (piece,) in cursor.fetchall() if piece != line]
    return [(line * 2).join(valid[start : start + 500]) for start in range(0, len(valid), 500)]


def test_documents_have_one_text_in_spark_and_in_python(spark: SparkSession) -> None:
    """The documents have numbers of all sizes; server and connector print them differently."""
    seeded = random.Random(7)
    numbers = [1e10, 1e-7, 5e-324, 1e30, 9.999999999999999e29, 1234567890123456.5, 2.0**89]
    numbers += [seeded.uniform(-1, 1) * 10 ** seeded.randrange(-300, 308) for _ in range(2000)]
    numbers += [seeded.uniform(-1, 1) * 10 ** seeded.randrange(-9, 32) for _ in range(2000)]
    numbers += [seeded.randrange(2**53) / 2 ** seeded.randrange(60) for _ in range(1000)]
    texts = [(f'{{"a": [{one!r}, "{one!r}"]}}', f"{Decimal(one):f}") for one in numbers]
    decimals = [seeded.randrange(10 ** seeded.randrange(1, 66)) for _ in range(2000)]
    texts += [(f"{Decimal(one).scaleb(-seeded.randrange(31)):f}", "[]") for one in decimals]
    frame = spark.createDataFrame(texts, "printed string, sent string")
    rows = frame.selectExpr(
        "printed", "sent", f"{in_spark('printed')} AS one", f"{in_spark('sent')} AS other"
    ).collect()
    for row in rows:
        assert (row.one, row.other) == (in_python(row.printed), in_python(row.sent)), row
    for number, row in zip(numbers, rows, strict=False):
        assert row.one == f'{{"a":[{row.other},"{number!r}"]}}'
        assert float(row.other) == number


def wait_until_captured(database: MysqlDatabase, topic: str) -> None:
    """Write rows until one arrives in Kafka, which shows that the connector reads the binlog."""
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


def table_schema(database: MysqlDatabase, table: str) -> TableSchema:
    """The lake's schema of a table, derived from the server's ``information_schema``."""
    found = database.query(
        "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME FROM information_schema.COLUMNS"
        f" WHERE TABLE_SCHEMA = '{database.name}' AND TABLE_NAME = '{table}'"
        " ORDER BY ORDINAL_POSITION"
    )
    types = {name: MysqlType.parse(kind, charset or "") for name, kind, charset in found}
    rules = {name: kind.rule(table=table, column=name) for name, kind in types.items()}
    columns = tuple(
        Column(name, str(types[name]), rule.lake_type, doubtful=rule.doubtful)
        for name, rule in rules.items()
    )
    return TableSchema(TableId("shop", database.name, table), columns, ("id",))


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
    # Ends of Kafka's transactions take offsets, too.
    end = KafkaAdmin(config.kafka).stable_offsets(topic)
    frame = decode(
        read_changes(spark, config.kafka.java_config(), topic, Range({0: 0}, end)),
        written,
        schema,
        EventRules("none"),
        ingested_at=datetime.now(UTC),
    )
    rows = shown(frame, schema, PROBLEM, UNAVAILABLE, UNCLEAR, "_cdc_position", "_cdc_offset")
    assert [row[PROBLEM] for row in rows if row[PROBLEM]] == []
    in_order = sorted(rows, key=lambda row: row["_cdc_offset"])
    places = [row["_cdc_position"] for row in in_order]
    assert places == sorted(places), "positions sort as the log does"
    assert len(places) == len(set(places)) == count
    return rows


def as_copied(
    spark: SparkSession, config: Config, database: MysqlDatabase, schema: TableSchema
) -> list[Any]:
    """The rows as a copy reads them: from the replica, through Spark and its driver."""
    source, table = of_source(config, database, schema)
    database.catch_up()
    query = source.snapshot_query(table, schema, [KeyRange()], view=None)
    frame = spark.read.jdbc(
        query.url, query.table, predicates=list(query.predicates), properties=query.properties
    ).selectExpr(*query.select)
    cast = (f"CAST(`{column.name}` AS {column.lake_type})" for column in schema.columns)
    return shown(frame.selectExpr(*cast).toDF(*frame.columns), schema)


def looked_up(
    config: Config, database: MysqlDatabase, schema: TableSchema, count: int
) -> list[Any]:
    """The rows as a lookup by key reads them from the source."""
    source, table = of_source(config, database, schema)
    names = [column.name for column in schema.columns]
    return source.fetch_by_key(table, schema, [(number,) for number in range(count)], names)


def of_source(
    config: Config, database: MysqlDatabase, schema: TableSchema
) -> tuple[MysqlSource, SourceTable]:
    name = f"shop_{database.kind}"
    section = config.source(name)
    assert isinstance(section, MysqlSourceConfig)
    source = MysqlSource(name, section)
    return source, source.table(TableId(name, database.name, schema.table.name))


def shown(frame: DataFrame, schema: TableSchema, *more: str) -> list[Any]:
    """The rows of a frame; times with a zone, which Spark returns in local time, are made UTC."""
    rows = [
        row.asDict() for row in frame.select(*(c.name for c in schema.columns), *more).collect()
    ]
    instants = [column.name for column in schema.columns if column.lake_type == "timestamp"]
    for row in rows:
        for name in instants:
            if row[name] is not None:
                row[name] = row[name].astimezone(UTC)
    return rows
