"""Statements after which the connector has another key or table definition than the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.capture.judgement import of_capture
from cdc.errors import ConnectError
from cdc.lake.pointer import local_folder
from cdc.lake.publish import current_path
from cdc.store.table_state import State
from operate.lifecycle import offboard, retry
from operate.onboard import bootstrap
from operate.schema import check
from schemas.ddl.mysql_statements import read_statements
from schemas.errors import SchemaError
from stack.mysql_software import MARIADB, PRODUCTS
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.mysql import MysqlDatabase, mysql_of
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_captured import mysql_capturing
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

pytestmark = pytest.mark.breadth

on_mariadb = pytest.mark.parametrize("database", [MARIADB], indirect=True)

PLAIN = "(id int PRIMARY KEY, v varchar(20))"
REPLACED = {
    # Table, and what replaces it: the rows of before are gone, and no event reports it.
    "same": f"CREATE OR REPLACE TABLE same {PLAIN}",
    "wider": "CREATE OR REPLACE TABLE wider (id int PRIMARY KEY, v varchar(40))",
    "picked": "CREATE OR REPLACE TABLE picked (PRIMARY KEY (id)) AS SELECT 7 AS id,"
    " CAST('new' AS char(20)) AS v",
    "hurried": f"SET STATEMENT max_statement_time=9 FOR CREATE OR REPLACE TABLE hurried {PLAIN}",
    "swapped": "SET STATEMENT max_statement_time=9 FOR"
    " ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE swapped",
    "logged": "CREATE OR REPLACE TABLE logged (id int, v varchar(20))",
}


@on_mariadb
def test_a_table_that_another_one_replaces_asks_for_a_copy(shop: Shop) -> None:
    database = mysql_of(shop.database)
    database.let_pause()
    database.execute(
        *(f"CREATE TABLE {name} {PLAIN}" for name in REPLACED if name != "logged"),
        "CREATE TABLE logged (id int, v varchar(20))",
        "CREATE TABLE beside (id int PRIMARY KEY)",
        f"CREATE TABLE parts {PLAIN} PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))",
        *(f"INSERT INTO {name} VALUES (1, 'old'), (2, 'old')" for name in REPLACED),
        "INSERT INTO beside VALUES (1)",
        "INSERT INTO parts VALUES (3, 'part')",
    )
    database.catch_up()
    shop.tables[database.label("logged")] = {"mode": "append"}
    shop.reconfigure()
    succeeded(shop.onboard(*REPLACED, "beside"))
    database.execute(*REPLACED.values(), "CREATE OR REPLACE TEMPORARY TABLE beside (id int)")
    database.execute(
        *(
            f"INSERT INTO {name} VALUES (8, 'new')"
            for name in REPLACED
            if name not in ("picked", "swapped")
        ),
        "INSERT INTO beside VALUES (2)",
    )
    for name in (*REPLACED, "beside"):
        shop.settle(name)
    results = {result.table.name: result for result in shop.run()}
    assert results.pop("beside").error is None
    for name, result in results.items():
        assert result.state is State.NEEDS_BOOTSTRAP, result
        assert "REPLACE TABLE" in result.error.message or name == "swapped", result
    succeeded(bootstrap(shop.services, [shop.table(name) for name in REPLACED]))
    database.execute("INSERT INTO wider VALUES (9, repeat('w', 40))")
    shop.settle("wider")
    run_without_error(shop)
    shop.assert_equal(*REPLACED, "beside")
    assert sorted(row.id for row in shop.lake("logged").select("id").collect()) == [8]
    assert sorted(row.id for row in shop.lake("picked").select("id").collect()) == [7]


def test_a_key_that_the_connector_does_not_have_may_change(shop: Shop) -> None:
    """The server drops the former key first; the connector applies the clauses as written."""
    shop.database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, tenant int NOT NULL, v int)",
        "INSERT INTO orders VALUES (1, 1, 1), (2, 1, 1), (3, 1, 1)",
    )
    mysql_of(shop.database).catch_up()
    succeeded(shop.onboard("orders"))
    shop.database.execute("ALTER TABLE orders ADD PRIMARY KEY (tenant, id), DROP PRIMARY KEY")
    shop.settle("orders")
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP, result
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    shop.database.execute(
        "UPDATE orders SET id = 9 WHERE id = 1",
        "UPDATE orders SET tenant = 5 WHERE id = 2",
        "DELETE FROM orders WHERE id = 3",
        "UPDATE orders SET v = 7 WHERE id = 9",
    )
    shop.settle("orders")
    run_without_error(shop)
    rows = shop.lake("orders").select("id", "tenant", "v").collect()
    assert sorted(map(tuple, rows)) == [(2, 5, 1), (9, 1, 7)]
    shop.assert_equal("orders")


def test_a_virtual_column_of_the_session_is_refused_and_a_stored_one_is_not(shop: Shop) -> None:
    name = shop.database.label("orders")
    shop.database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, made timestamp NULL, born date,"
        " day date AS (DATE(made)) VIRTUAL, month int AS (MONTH(day)) VIRTUAL,"
        " kept date AS (DATE(made)) STORED, year int AS (YEAR(born)) VIRTUAL)",
    )
    far = ("SET SESSION time_zone = '+13:00'", "SET SESSION lc_time_names = 'de_DE'")
    insert = "INSERT INTO orders (id, made, born) VALUES ({}, '2024-01-02 05:00', '2000-01-01')"
    in_session(shop, *far, insert.format(1))
    mysql_of(shop.database).catch_up()
    (refused,) = shop.onboard("orders")
    assert refused.error is not None
    assert "'day' (is virtual, and its value depends on the session's time zone" in (
        refused.error.message
    )
    assert "columns: {exclude: [day, month]}" in refused.error.remedy
    shop.tables[name] = {"columns": {"exclude": ["day", "month"]}}
    shop.reconfigure()
    succeeded(shop.onboard("orders"))
    in_session(shop, *far, insert.format(2))
    shop.settle("orders")
    run_without_error(shop)
    shop.assert_equal("orders")
    rows = shop.lake("orders").select("kept", "year").distinct().collect()
    assert [(str(row.kept), row.year) for row in rows] == [("2024-01-02", 2000)]

    added = "ALTER TABLE orders ADD title varchar(20) AS (DAYNAME(born)) VIRTUAL"
    with pytest.raises(SchemaError, match="depends on the session's lc_time_names"):
        check(shop.services, shop.table("orders"), added)
    shop.database.execute(added)
    in_session(shop, *far, insert.format(3))
    shop.settle("orders")
    (result,) = shop.run()
    assert result.state is State.FAILED, result
    assert "column 'title'" in result.error.message
    shop.tables[name] = {"columns": {"exclude": ["day", "month", "title"]}}
    shop.reconfigure()
    retry(shop.services, shop.table("orders"))
    # Any new expression gives rows values without events, so it asks for a copy.
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP, result
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    shop.assert_equal("orders")


@pytest.mark.parametrize(
    ("database", "statement", "told", "undone"),
    [
        (MARIADB, "ALTER TABLE parts ADD PARTITION PARTITIONS 2", "Its grammar lacks", ()),
        *(
            (
                kind,
                "INSERT INTO dated VALUES (1, '2024-02-31')",
                "A row has a date that no calendar has",
                ("UPDATE dated SET d = '2024-02-29'",),
            )
            for kind in PRODUCTS
        ),
    ],
    indirect=["database"],
)
def test_a_connector_that_stopped_at_what_it_cannot_read_is_made_anew(
    database: MysqlDatabase, tmp_path: Path, statement: str, told: str, undone: tuple[str, ...]
) -> None:
    shop = Shop(database, None, tmp_path)
    database.execute(
        f"CREATE TABLE parts {PLAIN} PARTITION BY HASH (id) PARTITIONS 2",
        "CREATE TABLE dated (id int PRIMARY KEY, d date)",
    )
    try:
        succeeded(shop.onboard("dated", with_bootstrap=False))
        name = shop.services.capture(shop.table("dated")).connector
        sound = shop.services.connect.require_sound
        in_session(shop, "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'", statement)
        with pytest.raises(ConnectError) as stopped:
            wait_until(lambda: bool(sound(name)), "the connector fails")
        assert stopped.value.remedy.startswith(told), stopped.value
        in_session(shop, "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'", *undone)
        offboard(shop.services, shop.table("dated"), delete_data=False)
        succeeded(shop.onboard("dated", with_bootstrap=False))
        sound(name)
    finally:
        shop.services.close()


@on_mariadb
def test_a_clause_in_an_executed_comment_stops_no_connector(database: MysqlDatabase) -> None:
    """The connector cannot parse some clauses, but it skips executed comments that have them."""
    database.query(f"CREATE TABLE orders {PLAIN}")
    database.query(f"CREATE TABLE parts {PLAIN} PARTITION BY HASH (id) PARTITIONS 2")
    with mysql_capturing(database, "orders") as captured:
        for statement in (
            "ALTER TABLE parts /*M! ADD PARTITION PARTITIONS 2 */",
            "ALTER TABLE orders /*M! ADD SYSTEM VERSIONING */",
            "ALTER TABLE orders /*M! DROP SYSTEM VERSIONING */",
            "/*M! ALTER TABLE orders FORCE */",
            "INSERT INTO orders VALUES (1, 'a')",
        ):
            database.query(statement)
        (event,) = captured.events(captured.topic("orders"), 1)
        assert event.after == {"id": 1, "v": "a"}
        told = [one.statement for one in captured.changes() if one.table and not one.snapshot]
        # A record has its statement without such a comment at its end. That asks for a copy, too.
        assert told.count("ALTER TABLE orders") == 2
        assert read_statements(["ALTER TABLE orders"]).grave
        beside = [one.statement for one in captured.changes() if one.beside]
        assert beside == ["/*M! ALTER TABLE orders FORCE */"]
        database.query("ALTER TABLE parts ADD PARTITION PARTITIONS 2")
        assert "DDL statement couldn't be parsed" in captured.failure()


def in_session(shop: Shop, *statements: str) -> None:
    """Run statements in one session."""
    with shop.database.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@on_mariadb
def test_a_definition_that_the_connector_skips_at_its_next_start_stops_its_tables(
    shop: Shop,
) -> None:
    """Two servers write in one GTID domain, and the passive server changes table definitions."""
    database, table = mysql_of(shop.database), shop.table("t")
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 1)",
    )
    succeeded(shop.onboard("t"))
    # The binlog of the active server has the passive one's statements with its number. No
    # heartbeat comes between them.
    connect, name = shop.services.connect, shop.services.capture(table).connector
    connect.stop(name)
    database.root(
        "SET SESSION server_id = 77",
        f"ALTER TABLE {database.name}.other ADD COLUMN n int",
        f"ALTER TABLE {database.name}.t MODIFY n bigint",
    )
    # The connector does not start while the passive server's transaction is the last one.
    database.execute("INSERT INTO t VALUES (2, 5000000000)")
    connect.resume(name)
    connect.wait_running(name)
    wait_until(lambda: shop.asks_for_copy("t"), "a run to see it", 90)
    error = shop.record("t").error
    assert error is not None
    assert f"skips a definition of table {database.name}.t when it starts" in error.message
    evidence = shop.services.stream_evidence(shop.services.capture(table))
    (told,) = [one.remedy for one in of_capture(evidence) if "skips a definition" in one.message]
    assert told.endswith("then `tributary bootstrap` for them, which recreates the connector.")
    former = current_path(shop.record("t").base_path)
    assert former is not None, "readers keep what was committed"
    succeeded(bootstrap(shop.services, [table]))
    assert (local_folder(former) or Path()).exists(), "they can still have it open"
    evidence = shop.services.stream_evidence(shop.services.capture(table))
    assert of_capture(evidence) == []
    database.execute("INSERT INTO t VALUES (3, 6000000000)")
    shop.assert_equal("t")


@on_mariadb
def test_a_unique_index_with_a_hidden_column_is_refused_and_replaced(shop: Shop) -> None:
    database = mysql_of(shop.database)
    database.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, body text, UNIQUE KEY bodies (body))",
        "INSERT INTO docs VALUES (1, 'a')",
    )
    (refused,) = shop.onboard("docs")
    assert "has unique indexes on long columns (`bodies`)" in str(refused.error)
    database.execute("ALTER TABLE docs DROP INDEX bodies")
    succeeded(shop.onboard("docs"))
    database.execute("INSERT INTO docs VALUES (2, 'b')")
    shop.assert_equal("docs")
