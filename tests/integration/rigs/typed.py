"""Types of PostgreSQL with values, and rows of snapshot and stream in a form to compare."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
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


TYPES: list[tuple[str, list[str]]] = [
    ("bool", ["true", "false"]),
    ("int2", ["-32768"]),
    ("int4", ["2147483647"]),
    ("int8", ["-9223372036854775808"]),
    ("oid", ["4294967295"]),
    ("float4", ["1.1", "'NaN'", "'-Infinity'", "3.4028235e38", "-0.0"]),
    ("float8", ["1.1", "'NaN'", "'Infinity'", "1e-300", "0.1"]),
    ("numeric", ["1.50", "'NaN'", "'Infinity'", "'-Infinity'", "1e-10", "0.00", "1e50", "-1e-7"]),
    ("numeric", ["repeat('9', 131072)::numeric", "('0.' || repeat('1', 16383))::numeric"]),
    ("numeric(10,2)", ["1.5", "0", "-0.01", "99999999.99"]),
    ("numeric(38,0)", ["12345678901234567890123456789012345678"]),
    ("numeric(38,38)", ["0.12345678901234567890123456789012345678"]),
    ("numeric(3,5)", ["0.00123", "-0.00001"]),
    ("numeric(45,10)", ["1e-10", "0", "'NaN'", "12345678901234567890123456789012345.5"]),
    ("money", ["1234.5", "-0.05"]),
    ("char(5)", ["'ab'", "''"]),
    ("varchar(10)", ["'ab '", "'é'"]),
    ('"char"', ["'x'"]),
    ("text", ["''", "'é😀 \\ '' \" {column} % ?'", "repeat('long', 5000)", "E'a\\nb\\r\\tc'"]),
    # one character of each plane that has any, the last one, and one made of several
    (
        "text",
        [
            r"E'\U00010348\U00020000\U00030000\U000E0041\U000F0000\U0010FFFD'",
            r"E'\U0001F468\u200D\U0001F469\u200D\U0001F467 e\u0301'",
        ],
    ),
    ("citext", ["'AbC'"]),
    ("ltree", ["'a.b'"]),
    ("uuid", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"]),
    ("json", ['\'{"a" :1, "a":2}\'']),
    ("jsonb", ['\'{"b":1,"a":  [1,2.50]}\'', "'\"x\"'", "'null'"]),
    (
        "xml",
        [
            "'<a>1</a>'",
            """('<?xml version="1.0" encoding="UTF-8"?>' || E'\\n' || '<a/>')::xml""",
            """'<?xml version="1.0" standalone="yes"?><a/>'""",
        ],
    ),
    ("mood", ["'o''k'"]),
    ("inet", ["'10.0.0.1'", "'10.0.0.1/24'", "'::1'"]),
    ("cidr", ["'10.0.0.0/8'"]),
    ("macaddr", ["'08:00:2b:01:02:03'"]),
    ("macaddr8", ["'08:00:2b:01:02:03:04:05'"]),
    ("bytea", ["'\\x00ff'", "''"]),
    ("date", ["'2020-02-29'", "'0001-01-01'", "'9999-12-31'", "'1582-10-10'", "'1969-12-31'"]),
    ("time", ["'10:11:12.123456'", "'24:00:00'", "'23:59:59.999999'", "'00:00'"]),
    ("time(3)", ["'10:11:12.123'"]),
    ("timetz", ["'10:11:12.12+02'", "'01:00+05:30'", "'23:30-03'", "'00:30:00.000001+02'"]),
    ("timetz", ["'24:00'", "'24:00+02'", "'24:00-05:30'"]),
    (
        "timestamp",
        [
            "'2020-01-01 00:00:00.123456'",
            "'0001-01-01'",
            "'9999-12-31 23:59:59.999999'",
            "'1582-10-10 01:02:03'",
            "'1969-12-31 23:59:59.999999'",
        ],
    ),
    ("timestamp(3)", ["'2020-01-01 00:00:00.123'"]),
    ("timestamp(0)", ["'2020-01-01 00:00:00'"]),
    (
        "timestamptz",
        [
            "'2020-01-01 00:00:00.123456+02'",
            "'0001-01-01 00:00+00'",
            "'9999-12-31 23:59:59.999999+00'",
            "'1582-10-10 01:02:03+00'",
            "'1900-01-01 00:00:00.5+00'",
        ],
    ),
    ("timestamptz(3)", ["'2020-01-01 00:00:00.120+00'"]),
    (
        "interval",
        [
            "'1 year 2 mons 3 days 04:05:06.789'",
            "'-1 year -2 mons +3 days -04:05:06.789'",
            "'0'",
            "'-00:00:00.000001'",
            "'400 days 100:00:10'",
        ],
    ),
    ("bit(1)", ["B'1'", "B'0'"]),
    ("tsvector", ["'a fat cat:3A'"]),
    ("int4range", ["'[1,5)'", "'empty'", "'(,)'"]),
    ("int8range", ["'[1,5]'"]),
    ("numrange", ["'[1.50,5)'", "'(,1e-10]'"]),
    ("daterange", ["'[2020-01-01,2020-02-01)'", "'[0044-03-15 BC,infinity)'"]),
    ("tsrange", ["'[2020-01-01 10:00:00.5,)'"]),
    ("posint", ["5"]),
    ("price", ["1.5"]),
    ("dmood", ["'bad'"]),
    ("darray", ["'{1,2}'"]),
    ("int4[]", ["'{1,NULL,3}'", "'{}'", "'[5:6]={1,2}'"]),
    ("int2[]", ["'{1,NULL}'"]),
    ("int8[]", ["'{9223372036854775807,NULL}'"]),
    ("text[]", ['\'{a,NULL,"x,y","\\"q\\\\"}\'', "array['é', E'\\n', '']"]),
    ("varchar(5)[]", ["'{a,NULL}'"]),
    ("char(3)[]", ["'{a,NULL}'"]),
    ("numeric(10,2)[]", ["'{1.5,2,NULL}'"]),
    ("numeric[]", ["'{1.50,1e-10,NULL}'"]),
    ("bool[]", ["'{t,f,NULL}'"]),
    ("float8[]", ["'{1.1,NaN,-Infinity,NULL}'"]),
    ("float4[]", ["'{1.1,NULL}'"]),
    ("timetz[]", ["'{10:00+02,NULL,24:00,24:00-03}'"]),
    ("uuid[]", ["'{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11,NULL}'"]),
    ("jsonb[]", ["array['{\"a\":1}'::jsonb, NULL]"]),
    ("bytea[]", ["array['\\x00ff'::bytea, NULL, '']"]),
    ("inet[]", ["'{10.0.0.1,NULL}'"]),
    ("oid[]", ["'{1,NULL}'"]),
    ("citext[]", ["'{A,NULL}'"]),
    ("json[]", ["array['{\"a\" :1}'::json, NULL]"]),
    ("cidr[]", ["'{10.0.0.0/8,NULL}'"]),
    ("macaddr[]", ["'{08:00:2b:01:02:03,NULL}'"]),
    ("macaddr8[]", ["'{08:00:2b:01:02:03:04:05}'"]),
    ("numrange[]", ["'{\"[1,2)\",NULL}'"]),
    ('"char"[]', ["'{a,NULL}'"]),
]
"""Each type with values, which are read from the snapshot and from the stream."""


def create_types(database: Database) -> None:
    """Create the extensions, enums and domains of `TYPES`."""
    for extension in ("citext", "ltree"):
        database.stack.psql(f"CREATE EXTENSION {extension}", database=database.name)
    database.execute(
        "CREATE TYPE mood AS ENUM ('o''k', 'bad')",
        "CREATE DOMAIN posint AS int CHECK (value > 0)",
        "CREATE DOMAIN price AS numeric(6,3)",
        "CREATE DOMAIN dmood AS mood",
        "CREATE DOMAIN darray AS int[]",
    )


def rows_of_types() -> Iterator[tuple[list[str], list[str]]]:
    """Rows as pairs of columns and values: the n-th value of each type that has so many."""
    for place in range(max(len(values) for _, values in TYPES)):
        given = [
            (f"c{number}", values[place])
            for number, (_, values) in enumerate(TYPES)
            if place < len(values)
        ]
        yield [name for name, _ in given], [value for _, value in given]
