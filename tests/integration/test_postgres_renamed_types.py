"""Columns of a type whose name belonged to another type when the connector started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from cdc.capture.type_looks import TypeLooks
from cdc.store.state_store import Store
from cdc.store.table_state import State
from tests.integration.rigs.bootstrapping import Bootstrapping
from tests.integration.rigs.captured import capturing
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark


class Case(NamedTuple):
    """A type name ``N`` that another type gets while the connector runs.

    Args:
        before: Statements before the connector starts.
        after: Statements while the connector runs, before table ``T`` gets its column.
        value: A value of the column, in SQL.
        arrives: The value that the event must have.
        type: The column's type.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    value: str
    arrives: object
    type: str = "N"


ENUM = "CREATE TYPE N AS ENUM ('a', 'b')"
MISTAKEN = {
    "a_table": Case(("CREATE TABLE N (id int)",), ("DROP TABLE N", ENUM), "'a'", "a"),
    "an_int": Case(
        ("CREATE DOMAIN N AS int", "CREATE DOMAIN N_2 AS text"),
        ("DROP DOMAIN N", "ALTER DOMAIN N_2 RENAME TO N"),
        "'007'",
        "007",
    ),
    "a_text": Case(
        ("CREATE DOMAIN N AS text",),
        ("DROP DOMAIN N", "CREATE DOMAIN N AS date"),
        "'2024-02-29'",
        19782,
    ),
    "a_word": Case(
        ("CREATE DOMAIN N AS text",),
        ("DROP DOMAIN N", "CREATE DOMAIN N AS bytea"),
        r"'\x6162'",
        b"ab",
    ),
    "swapped": Case(
        ("CREATE DOMAIN N AS int", "CREATE DOMAIN N_2 AS text"),
        (
            "ALTER DOMAIN N RENAME TO N_3",
            "ALTER DOMAIN N_2 RENAME TO N",
            "ALTER DOMAIN N_3 RENAME TO N_2",
        ),
        "'007'",
        "007",
    ),
    "moved": Case(
        ("CREATE DOMAIN N AS int", "CREATE DOMAIN other.N AS text"),
        ("DROP DOMAIN N", "ALTER DOMAIN other.N SET SCHEMA public"),
        "'007'",
        "007",
    ),
    "renamed_beside_another": Case(
        ("CREATE DOMAIN other.N AS int", "CREATE DOMAIN N_2 AS text"),
        ("ALTER DOMAIN N_2 RENAME TO N",),
        "'007'",
        "007",
    ),
    "elsewhere": Case(
        ("CREATE DOMAIN N AS int",),
        ("DROP DOMAIN N", "CREATE DOMAIN other.N AS text"),
        "'007'",
        "007",
        "other.N",
    ),
    "of_another_schema": Case(
        ("CREATE DOMAIN other.N AS text", "CREATE TABLE N (id int)"),
        ("DROP TABLE N",),
        "'a'",
        "a",
        "other.N",
    ),
}
# The values arrive, but the connector may read the table again at each of them.
REREAD = {
    "another_enum": Case(
        (ENUM,), ("ALTER TYPE N RENAME TO N_2", "CREATE TYPE N AS ENUM ('a', 'd')"), "'d'", "d"
    ),
    "enum_of_text": Case(("CREATE DOMAIN N AS text",), ("DROP DOMAIN N", ENUM), "'a'", "a"),
    "text_of_enum": Case((ENUM,), ("DROP TYPE N", "CREATE DOMAIN N AS varchar"), "'c'", "c"),
}
RIGHT = {
    "new": Case((), ("CREATE DOMAIN N AS text",), "'a'", "a"),
    "new_enum": Case((), (ENUM,), "'a'", "a"),
    "labelled": Case((ENUM,), ("ALTER TYPE N ADD VALUE 'c'",), "'c'", "c"),
    "relabelled": Case((ENUM,), ("ALTER TYPE N RENAME VALUE 'b' TO 'c'",), "'c'", "c"),
    "renamed": Case(("CREATE DOMAIN N AS int",), ("ALTER DOMAIN N RENAME TO N_2",), "7", 7, "N_2"),
    "enum_again": Case((ENUM,), ("DROP TYPE N", ENUM), "'a'", "a"),
    "longer": Case(
        ("CREATE DOMAIN N AS numeric(10, 2)",),
        ("DROP DOMAIN N", "CREATE DOMAIN N AS numeric(12, 4)"),
        "1.2345",
        "1.2345",
    ),
    "above": Case(
        ("CREATE DOMAIN N AS int",),
        ("DROP DOMAIN N", "CREATE DOMAIN N AS text", "CREATE DOMAIN N_2 AS N"),
        "'007'",
        "007",
        "N_2",
    ),
    "of_its_own_schema": Case(
        ("CREATE DOMAIN other.N AS int",),
        ("DROP DOMAIN other.N", "CREATE DOMAIN N AS text"),
        "'007'",
        "007",
    ),
}


@pytest.mark.breadth
def test_what_arrives_for_types_of_a_name_that_another_one_had(
    database: Database, tmp_path: Path
) -> None:
    cases = {**MISTAKEN, **REREAD, **RIGHT}

    def named(name: str, text: str) -> str:
        return re.sub(r"\bN(?=\b|_)", f"n_{name}", text)

    def execute(name: str, *statements: str) -> None:
        database.execute(*(named(name, one) for one in statements))

    database.execute("CREATE SCHEMA other")
    for name, case in cases.items():
        execute(name, *case.before)
        database.execute(f"CREATE TABLE t_{name} (id int PRIMARY KEY)")
    with (
        capturing(database) as captured,
        closing(Store(f"sqlite:///{tmp_path / 'state.db'}")) as store,
    ):
        looks = TypeLooks(store, captured.kafka)
        assert looks.follow(captured.names, captured.source) is not None
        topics = {name: captured.add(f"t_{name}") for name in cases}
        for name in cases:
            database.execute(f"INSERT INTO t_{name} VALUES (1)")
            captured.events(topics[name], 1)
        for name, case in cases.items():
            execute(name, *case.after, f"ALTER TABLE t_{name} ADD COLUMN c {case.type}")
            database.execute(f"INSERT INTO t_{name} VALUES (2, {case.value})")
        arrived = {name: captured.events(topics[name], 2)[-1].after for name in cases}
        found = looks.follow(captured.names, captured.source)
    wrong = {
        name
        for name, case in cases.items()
        if (arrived[name] or {}).get("c") not in (case.arrives, str(case.arrives))
    }
    assert wrong == {*MISTAKEN}, arrived
    assert found is not None
    columns = {f"{database.name}:public.t_{name}": {"c"} for name in (*MISTAKEN, *REREAD)}
    assert {table: {*of} for table, of in found.mistaken.items()} == columns


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, spark, tmp_path)) as opened:
        yield opened


def errors(shop: Bootstrapping) -> dict[str, str]:
    """Run all tables once; returns the errors by table."""
    return {one.table.name: one.error.error for one in shop.run() if one.error is not None}


@pytest.mark.breadth
def test_a_name_that_gets_another_meaning_stops_the_tables_that_use_it(
    shop: Bootstrapping,
) -> None:
    execute = shop.database.execute
    execute(
        "CREATE TABLE mood (id int PRIMARY KEY)",
        "CREATE TYPE size AS ENUM ('s', 'm')",
        "CREATE TABLE users (id int PRIMARY KEY, size size)",
        "CREATE TABLE others (id int PRIMARY KEY, size size)",
    )
    shop.add("users", "others")
    for name in ("users", "others"):
        shop.bootstrap(name)
    execute("INSERT INTO users VALUES (1, 's')", "INSERT INTO others VALUES (1, 's')")
    assert errors(shop) == {}
    shop.assert_equal("users", ("id", "size"))

    # A lookup table becomes an enum; one table uses it at once. Other types come and go.
    execute(
        "DROP TABLE mood",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "ALTER TABLE users ADD COLUMN mood mood",
        "INSERT INTO users VALUES (2, 'm', 'ok')",
        "CREATE DOMAIN fresh AS text",
        "CREATE TABLE lines (id int)",
        "DROP TABLE lines",
        "CREATE DOMAIN lines AS int",
        "ALTER TYPE size ADD VALUE 'l'",
        "ALTER TABLE others ADD COLUMN fresh fresh",
        "INSERT INTO others VALUES (2, 'l', 'new')",
    )
    assert errors(shop) == {"users": "SchemaChangeError"}
    stopped = shop.record("users")
    assert stopped.state is State.NEEDS_BOOTSTRAP
    assert "'mood' (public.mood)" in str(stopped.reason)
    assert shop.lake("users", "id", "size") == [(1, "s")]
    shop.assert_equal("others", ("id", "size", "fresh"))

    # The copy restarts the connector.
    former = shop.source.capture(shop.capture).kept_log.reader()
    shop.bootstrap("users")
    assert shop.source.capture(shop.capture).kept_log.reader() != former
    execute(
        "INSERT INTO users VALUES (3, 'l', 'sad')",
        "UPDATE users SET mood = 'ok' WHERE id = 1",
        "INSERT INTO others VALUES (3, 's', 'newer')",
    )
    assert errors(shop) == {}
    shop.assert_equal("users", ("id", "size", "mood"))
    shop.assert_equal("others", ("id", "size", "fresh"))


def test_the_events_after_a_copy_have_the_type_that_a_rewrite_has_given(
    shop: Bootstrapping,
) -> None:
    execute = shop.database.execute
    execute("CREATE DOMAIN day AS text", "CREATE TABLE days (id int PRIMARY KEY, day day)")
    shop.add("days")
    shop.bootstrap("days")
    execute("INSERT INTO days VALUES (1, 'first')")
    assert errors(shop) == {}
    execute(
        "ALTER TABLE days ALTER day TYPE text",
        "DROP DOMAIN day",
        "CREATE DOMAIN day AS date",
        "ALTER TABLE days ALTER day TYPE day USING NULL",
        "INSERT INTO days VALUES (2, '2024-02-29')",
    )
    assert errors(shop) == {"days": "SchemaChangeError"}
    shop.bootstrap("days")
    execute("INSERT INTO days VALUES (3, '2024-03-01')")
    assert errors(shop) == {}
    shop.assert_equal("days", ("id", "day"))
