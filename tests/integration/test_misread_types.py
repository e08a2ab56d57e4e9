"""Columns whose type Debezium takes for another type of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.store.table_state import State
from schemas.errors import UnsupportedTypeError
from tests.integration.rigs.bootstrapping import Bootstrapping
from tests.integration.rigs.captured import Captured, capturing, wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark

pytestmark = pytest.mark.breadth

TYPES = (
    "CREATE SCHEMA app",
    "CREATE SCHEMA other",
    "CREATE DOMAIN public.email AS text",
    "CREATE DOMAIN public.hidden AS text",
    "CREATE DOMAIN public.quantity AS int",
    "CREATE TYPE public.mood AS ENUM ('sad', 'ok')",
    "CREATE TYPE public.state AS ENUM ('on', 'off')",
    "CREATE DOMAIN public.plain AS text",
    "CREATE DOMAIN app.own AS text",
)
OF_THE_NAMES = (
    "CREATE TABLE app.email (id int PRIMARY KEY)",
    "CREATE TABLE app.quantity (id int PRIMARY KEY)",
    "CREATE TABLE app.date (id int PRIMARY KEY)",
    "CREATE VIEW app.mood AS SELECT 1 AS one",
    "CREATE TABLE other.own (id int PRIMARY KEY)",
    "CREATE TABLE other.hidden (id int PRIMARY KEY)",
    "CREATE TABLE other.int4 (id int PRIMARY KEY)",
    "CREATE DOMAIN other.state AS text",
)
COLUMNS = {
    # wrong: found in the schema of the table
    "email": ("public.email", "'a@b'", "a@b"),
    "quantity": ("public.quantity NOT NULL", "7", 7),
    "mood": ("public.mood", "'sad'", "sad"),
    # wrong: a domain, which the row type of a table precedes
    "hidden": ("public.hidden", "'b'", "b"),
    # right: read by the name alone; of the table's schema; of the server, or before any domain; the
    # only one apart from a temporary table
    "date": ("date", "'2024-02-29'", 19782),
    "own": ("app.own", "'c'", "c"),
    "number": ("int4", "4", 4),
    "state": ("public.state", "'on'", "on"),
    "plain": ("public.plain", "'d'", "d"),
}
MISREAD = ("email", "quantity", "mood", "hidden")


def test_what_arrives_for_types_of_a_name_that_another_one_has(database: Database) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, _, _) in COLUMNS.items())
    database.execute(*TYPES, *OF_THE_NAMES, f"CREATE TABLE app.t (id int PRIMARY KEY, {columns})")
    # The session keeps its table until the connector runs.
    with database.connect() as keeping:
        keeping.execute("CREATE TEMP TABLE plain (id int)")
        with capturing(database) as captured:
            topic = captured.add("t", "app")
            values = ", ".join(value for _, value, _ in COLUMNS.values())
            database.execute(f"INSERT INTO app.t VALUES (1, {values})")
            (event,) = captured.events(topic, 1)
            table = captured.source.table(captured.table("t", "app"))
    assert event.after is not None
    wrong = {name for name, (_, _, value) in COLUMNS.items() if event.after[name] != value}
    assert wrong == set(MISREAD), event.after
    found = {one.name: one.misread_as for one in table.columns if one.misread_as}
    assert found == {name: f"app.{name}" for name in MISREAD[:3]} | {"hidden": "other.hidden"}


def test_types_that_can_be_taken_for_each_other(database: Database) -> None:
    """Which of them the connector takes depends on the order in which it has read them."""
    captured = Captured(database)
    database.execute(
        *TYPES,
        "CREATE SCHEMA third",
        "CREATE TYPE other.mood AS ENUM ('sad')",
        "CREATE DOMAIN other.email AS text",
        "CREATE TABLE other.plain (id int PRIMARY KEY)",
        "CREATE DOMAIN third.uuid AS text",
        "CREATE TYPE third.int8 AS ENUM ('a')",
        "CREATE TABLE third._int4 (id int PRIMARY KEY)",
        "CREATE TABLE third.int4 (id int PRIMARY KEY)",
        "CREATE TABLE third.t (id int PRIMARY KEY, mood public.mood, email public.email,"
        " plain public.plain, state public.state, of_server uuid, large int8, many int4[],"
        " number int4)",
        "CREATE TABLE other.t (id int PRIMARY KEY, mood public.mood, of_server uuid, many int4[])",
    )

    def found(schema: str) -> dict[str, str]:
        columns = captured.source.table(captured.table("t", schema)).columns
        return {one.name: one.misread_as for one in columns if one.misread_as}

    assert found("third") == {
        "mood": "other.mood",
        "email": "other.email",
        "plain": "other.plain",
        "of_server": "third.uuid",
        "large": "third.int8",
        "many": "third._int4",
    }
    assert found("other") == {"mood": "other.mood", "many": "third._int4"}
    captured.close()


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, spark, tmp_path)) as opened:
        yield opened


def test_a_name_that_a_table_gets_later_asks_for_a_copy(
    shop: Bootstrapping,
) -> None:
    def restart() -> None:
        shop.settle()
        former = shop.source.capture(shop.capture).kept_log.reader()
        shop.connect.restart(shop.capture.connector, only_failed=False)
        wait_until(
            lambda: shop.source.capture(shop.capture).kept_log.reader() not in (None, former),
            "another session of the connector",
        )

    execute = shop.database.execute
    execute(
        "CREATE SCHEMA types",
        "CREATE DOMAIN types.email AS text",
        "CREATE TABLE users (id int PRIMARY KEY, email types.email)",
    )
    shop.add("users")
    shop.bootstrap("users")
    execute("INSERT INTO users VALUES (1, 'a@b')")
    assert shop.run_one().error is None
    shop.assert_equal("users", ("id", "email"))

    execute("CREATE TABLE email (id int PRIMARY KEY)")
    restart()
    execute("INSERT INTO users VALUES (2, 'c@d')")
    stopped = shop.run_one()
    assert stopped.error is not None
    assert stopped.error.error == "SchemaChangeError"
    assert "'email' (types.email) for public.email" in stopped.error.message
    assert shop.record("users").state is State.NEEDS_BOOTSTRAP
    assert shop.lake("users", "id", "email") == [(1, "a@b")]
    users = shop.source.table(shop.table("users"))
    with pytest.raises(UnsupportedTypeError, match=r"can take it for public\.email") as refused:
        shop.source.schema(users, TableSettings())
    for remedy in (stopped.error.remedy, refused.value.remedy):
        assert "ename public.email" in remedy
        assert "restart the connector" in remedy

    execute("ALTER TABLE email RENAME TO emails")
    restart()
    shop.bootstrap("users")
    execute("INSERT INTO users VALUES (3, 'e@f')")
    assert shop.run_one().error is None
    shop.assert_equal("users", ("id", "email"))

    execute("ALTER TABLE emails RENAME TO email")
    restart()
    shop.configure(public__users={"columns": {"as": {"email": "string"}}})
    execute("INSERT INTO users VALUES (4, 'g@h')")
    assert shop.run_one().error is not None
    shop.bootstrap("users")
    execute("INSERT INTO users VALUES (5, 'i@j')", "UPDATE users SET email = 'k' WHERE id = 1")
    assert shop.run_one().error is None
    shop.assert_equal("users", ("id", "email"))
