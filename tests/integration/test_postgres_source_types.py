"""Each type has one value: in the snapshot, in the stream and in a lookup by key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.config import ColumnRules, TableSettings
from cdc.sources.postgres import lookup
from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.source import PostgresSource
from stack.roles import ADMIN, CAPTURE, SNAPSHOT
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import (
    capture_of,
    local_spark,
    on_replica,
    open_source,
    read,
    source_config,
    table_id,
)
from tests.integration.rigs.typed import TYPES, Stream, collected, create_types, rows_of_types


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def source(database: Database) -> PostgresSource:
    opened = open_source(database)
    capture_of(opened, "pub_test").prepare()
    return opened


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


def test_lookups_of_any_number_of_keys_are_few_statements(
    database: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's statistics have an entry of their own for each length of a list."""
    rows, texts = 50_000, dict[str, str]()
    execute = psycopg.Cursor.execute

    def noted(cursor: Any, query: Any, *values: Any, **named: Any) -> Any:
        text = query if isinstance(query, str) else query.as_string(cursor)
        texts[re.sub("'(?:[^']|'')*'", "$", text)] = text
        return execute(cursor, query, *values, **named)

    for key, numbers in (("id",), range(1, 501)), (("id", "v"), (1, 2, 3, 100, 257, 500)):
        database.execute(
            "DROP TABLE IF EXISTS t",
            f"CREATE TABLE t (id int, v text, PRIMARY KEY ({', '.join(key)}))",
            f"INSERT INTO t SELECT g, 'it''s ' || g FROM generate_series(1, {rows}) g",
            "ANALYZE t",
        )
        table = source.table(table_id(database, "t"))
        schema = source.schema(table, TableSettings())
        opened = Connections(database.name, source_config(database))
        with opened.open("snapshot") as session, monkeypatch.context() as patch:
            patch.setattr(psycopg.Cursor, "execute", noted)
            texts.clear()
            for number in numbers:
                wanted = [(row, f"it's {row}") for row in range(1, 90 * number, 90)]
                found = lookup.fetch_by_key(
                    session, table, schema, [one[: len(key)] for one in wanted], ["v"]
                )
                assert sorted((row["id"], row["v"]) for row in found) == wanted
            patch.undo()
            looked = [text for text in texts.values() if " IN (" in text]
            assert len(looked) == len({(number - 1).bit_length() for number in numbers})
            for text in looked:
                plan = "\n".join(line for (line,) in session.execute(f"EXPLAIN {text}".encode()))
                assert "t_pkey" in plan
                assert "Seq Scan" not in plan


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
