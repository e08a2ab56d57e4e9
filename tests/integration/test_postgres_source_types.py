"""Each type has one value: in the snapshot, in the stream and in a lookup by key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from pyspark.sql import SparkSession

from cdc.config import ColumnRules, TableSettings
from cdc.sources.postgres.source import PostgresSource
from stack.roles import ADMIN, CAPTURE, SNAPSHOT
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import (
    capture_of,
    local_spark,
    on_replica,
    open_source,
    read,
    table_id,
)
from tests.integration.rigs.typed import Stream, collected


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def source(database: Database) -> PostgresSource:
    opened = open_source(database)
    capture_of(opened, "pub_test").prepare()
    return opened


# ---- types

# column, its type, values: each is read from the snapshot and from the stream
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


# All that changes the text of a type: the server prints what pgoutput sends.
SETTINGS = {
    "bytea_output": "escape",
    "DateStyle": "SQL, DMY",
    "extra_float_digits": "-3",
    "IntervalStyle": "sql_standard",
    "quote_all_identifiers": "on",
    "TimeZone": "America/St_Johns",
    "xmlbinary": "hex",
    "xmloption": "document",
}


def set_otherwise(database: Database) -> None:
    """Let every new session print values in formats that the connector cannot read.

    The settings are of a role in one database, which precede those of the database or the role.
    """
    for role in ADMIN, CAPTURE, SNAPSHOT:
        for name, value in SETTINGS.items():
            database.stack.psql(
                f"ALTER ROLE {role} IN DATABASE {database.name} SET {name} = '{value}'"
            )


def create_types(database: Database) -> None:
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


def test_each_type_has_one_value_in_snapshot_stream_and_lookup(
    database: Database, source: PostgresSource, spark: SparkSession
) -> None:
    create_types(database)
    set_otherwise(database)
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(TYPES))
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    table = source.table(table_id(database, "t"))
    schema = source.schema(table, TableSettings())
    count = 0
    with closing(Stream(database, source, spark)) as stream:
        stream.capture(table)
        for count, (given, values) in enumerate(rows_of_types(), 1):
            database.execute(
                f"INSERT INTO t (id, {', '.join(given)}) VALUES ({count}, {', '.join(values)})"
            )
        database.execute(f"INSERT INTO t (id) VALUES ({count + 1})")
        events = collected(stream.inserts(table, schema, count + 1), schema)
    on_replica(source)
    rows = collected(read(spark, source, table, schema), schema)
    kinds = {f"c{number}": kind for number, (kind, _) in enumerate(TYPES)}
    assert len(rows) == len(events) == count + 1
    different = [
        (kinds.get(name), row["id"], row[name], event[name])
        for row, event in zip(rows, events, strict=True)
        for name in row
        if row[name] != event[name]
    ]
    assert different == []
    # every value that was given is there
    for number, (kind, values) in enumerate(TYPES):
        present = [row[f"c{number}"] for row in rows if row[f"c{number}"] is not None]
        assert len(present) == len(values), kind
    names_ = [column.name for column in schema.columns]
    found = source.fetch_by_key(table, schema, [(row["id"],) for row in rows], names_)
    as_lake = spark.createDataFrame(
        [tuple(row[name] for name in names_) for row in sorted(found, key=lambda row: row["id"])],
        ", ".join(f"`{column.name}` {column.lake_type}" for column in schema.columns),
    )
    looked_up = collected(as_lake, schema)
    different = [
        (kinds.get(name), row["id"], row[name], other[name])
        for row, other in zip(rows, looked_up, strict=True)
        for name in row
        if row[name] != other[name]
    ]
    assert different == []


KEYS = {
    "bigint": ["-9223372036854775808", "7"],
    "numeric(20,5)": ["0.00001", "-7"],
    "numeric": ["NaN", "Infinity"],
    "as_number": ["-Infinity", "1.50"],
    "numeric(50,2)": ["NaN", "7"],
    "bit(1)": ["1", "0"],
    "boolean": ["true", "false"],
    "text": ["", "it''s \\"],
    "bytea": ["\\x00ff", "\\x"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "date": ["0001-01-01", "9999-12-31"],
    "time": ["00:00:00.000001", "24:00"],
    "timestamp": ["0001-01-01", "9999-12-31 23:59:59.999999"],
    "timestamptz": ["1969-12-31 23:59:59.999999+00", "2026-03-29 02:30+02"],
    # each is a domain over a domain
    "number_of_a_kind": ["NaN", "7"],
    "time_of_a_kind": ["24:00", "00:00:01"],
    "bit_of_a_kind": ["1", "0"],
}


def test_rows_are_found_by_keys_of_each_type(database: Database, source: PostgresSource) -> None:
    names = [f"k{number}" for number in range(len(KEYS))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, KEYS, strict=True))
    values = [", ".join(f"'{both[number]}'" for both in KEYS.values()) for number in range(2)]
    rows = f"(0, {values[0]}), (1, {values[1]})"
    database.execute(
        "CREATE DOMAIN as_number AS numeric",
        *(
            statement
            for name, base in (("number", "numeric"), ("time", "time"), ("bit", "bit(1)"))
            for statement in (
                f"CREATE DOMAIN plain_{name} AS {base}",
                f"CREATE DOMAIN {name}_of_a_kind AS plain_{name}",
            )
        ),
        f"CREATE TABLE t (id int PRIMARY KEY, {columns})",
        f"CREATE TABLE keyed (id int, {columns}, PRIMARY KEY (id, {', '.join(names)}))",
        *(f"INSERT INTO {table} VALUES {rows}" for table in ("t", "keyed")),
    )
    plain, keyed = (source.table(table_id(database, name)) for name in ("t", "keyed"))
    schema = source.schema(keyed, TableSettings())
    known = source.fetch_by_key(
        plain, source.schema(plain, TableSettings()), [(0,), (1,)], ["id", *names]
    )
    keys = [tuple(row[name] for name in schema.key) for row in known]
    found = source.fetch_by_key(keyed, schema, keys, ["id"])
    assert sorted(row["id"] for row in found) == [0, 1]


REFUSED = [
    ("numeric(10,2)", "'NaN'", "NaN"),
    ("date", "'infinity'", "infinity"),
    ("date", "'0044-03-15 BC'", "0044-03-15 BC"),
    ("date", "'10000-01-01'", "10000-01-01"),
    ("timestamp", "'-infinity'", "-infinity"),
    ("timestamptz", "'10000-01-01 00:00:00+00'", "10000-01-01"),
    ("int4[]", "'{{1,2},{3,4}}'", "more than one dimension"),
    ("numeric(10,2)[]", "'{NaN}'", "NaN"),
]


def test_a_value_that_the_lake_cannot_hold_fails_with_its_column(
    database: Database, source: PostgresSource, spark: SparkSession
) -> None:
    database.execute(
        *(
            f'CREATE TABLE t{number} (id int PRIMARY KEY, "Größe" {kind})'
            for number, (kind, _, _) in enumerate(REFUSED)
        ),
        *(f"INSERT INTO t{n} VALUES (1, {value})" for n, (_, value, _) in enumerate(REFUSED)),
    )
    on_replica(source)
    for number, (_, _, told) in enumerate(REFUSED):
        table = source.table(table_id(database, f"t{number}"))
        schema = source.schema(table, TableSettings())
        with pytest.raises(Exception, match="PSQLException") as caught:
            read(spark, source, table, schema).collect()
        error = source.read_failure(table.table, str(caught.value), None)
        assert "column Größe of" in error.message, error.message
        assert told in error.message
        assert "columns.exclude" in error.remedy
        # Values of a column that the lake hides are not in errors either.
        rules = ColumnRules(mask=(schema.columns[1].name,))
        hides = source.schema(table, TableSettings(columns=rules))
        with pytest.raises(Exception, match="PSQLException") as caught:
            read(spark, source, table, hides).collect()
        error = source.read_failure(table.table, str(caught.value), None)
        assert "column Größe of" in error.message, error.message
        assert " holds ***, " in error.message
