"""Tests for MySQL and MariaDB only; test_journeys.py has the tests for all kinds of source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc.debezium import definition_changes, fresh_starts, include_settings
from cdc.errors import CaptureError, ConnectError
from cdc.rows.decode import TAGGED
from cdc.sources.mysql.source import MysqlSource
from cdc.store.table_state import State
from operate.check import check
from operate.lifecycle import offboard, retry
from operate.onboard import bootstrap
from operate.status import status
from operate.tier_capture import members
from stack.mysql_software import MARIADB, MYSQL
from stack.ports import HOST
from stack.roles import CAPTURE
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.mysql import MysqlDatabase, mysql_of
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.person import Person
from tests.integration.rigs.person import person as person
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.servers import connect_rest
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop


@pytest.mark.breadth
def test_a_table_swapped_in_under_the_name_of_another_asks_for_a_copy(shop: Shop) -> None:
    """RENAME TABLE sends no events, so runs read the log's statements; OPTIMIZE needs no copy."""
    shop.create("t", 20)
    succeeded(shop.onboard("t"))
    shop.database.execute(
        "ALTER TABLE t ADD COLUMN n int", "OPTIMIZE TABLE t", "UPDATE t SET n = 1 WHERE id = 1"
    )
    run_without_error(shop)
    shop.assert_equal("t")
    shop.database.execute(
        "CREATE TABLE u LIKE t",
        "INSERT INTO u (id, v) VALUES (1, 1)",
        "RENAME TABLE t TO t_old, u TO t",
    )
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "RENAME TABLE" in result.error.message
    succeeded(bootstrap(shop.services, [shop.table("t")]))
    shop.assert_equal("t")


@pytest.mark.breadth
def test_a_table_of_another_engine_or_key_for_a_while_asks_for_a_copy(shop: Shop) -> None:
    """Neither the catalog nor the events show afterwards what such a time has done to the rows."""
    names = ("emptied", "keyed", "coded")
    for name in names:
        shop.create(name, 3)
    shop.database.execute("UPDATE coded SET v = id", "ALTER TABLE coded ADD UNIQUE INDEX u (v)")
    shop.tables[shop.database.label("coded")] = {"key_columns": ["v"]}
    shop.reconfigure()
    succeeded(shop.onboard(*names))
    # This engine keeps no rows, and makes no events of that; MariaDB's package has not got it.
    other = "BLACKHOLE" if shop.database.kind == MYSQL else "MyISAM"
    shop.database.execute(
        f"ALTER TABLE emptied ENGINE = {other}",
        "ALTER TABLE emptied ENGINE = InnoDB",
        "INSERT INTO emptied VALUES (9, 9, 'nine')",
        "ALTER TABLE keyed DROP INDEX `PRIMARY`, ADD PRIMARY KEY (id, v)",
        "INSERT INTO keyed VALUES (1, 7, 'another row 1')",
        "DELETE FROM keyed WHERE id = 1 AND v = 7",
        "ALTER TABLE keyed DROP INDEX `PRIMARY`, ADD PRIMARY KEY (id)",
        "UPDATE keyed SET v = 5 WHERE id = 2",
        # Two rows have one key for a while, and the lake finds its row by that key.
        "ALTER TABLE coded DROP INDEX u",
        "INSERT INTO coded VALUES (9, 2, 'another row')",
        "DELETE FROM coded WHERE id = 2",
        "ALTER TABLE coded ADD UNIQUE INDEX u (v)",
    )
    # The catalog is as before, so only a statement that has arrived shows that an index was gone.
    shop.settle("coded")
    for result in shop.run():
        assert result.state is State.NEEDS_BOOTSTRAP, result
        assert "ALTER TABLE" in result.error.message
    succeeded(bootstrap(shop.services, [shop.table(name) for name in names]))
    # The primary key does not keep this key unique. Another index does without a gap.
    shop.database.execute(
        "ALTER TABLE coded DROP INDEX u, ADD UNIQUE INDEX w (v)",
        "DELETE FROM coded WHERE id = 9",
        "INSERT INTO coded VALUES (10, 2, 'a third')",
    )
    run_without_error(shop)
    shop.assert_equal(*names)


@pytest.mark.breadth
@pytest.mark.parametrize("database", [MARIADB], indirect=True)
def test_a_capture_that_compressed_columns_stopped_is_made_anew(
    database: MysqlDatabase, tmp_path: Path
) -> None:
    shop = Shop(database, None, tmp_path)
    connect = shop.services.connect
    shop.create("t", 3)
    shop.create("late", 3)
    database.query("CREATE TABLE packed (id int PRIMARY KEY, v text)")
    try:
        succeeded(shop.onboard("t", with_bootstrap=False))
        database.query("ALTER TABLE packed MODIFY v text COMPRESSED")
        (refused,) = shop.onboard("late", with_bootstrap=False)
        assert f"`{database.name}`.`packed` (`v`)" in str(refused.error)
        database.query("ALTER TABLE packed MODIFY v text")
        name, sound = shop.services.capture(shop.table("t")).connector, connect.require_sound
        with pytest.raises(ConnectError, match="COMPRESSED") as stopped:
            wait_until(lambda: bool(sound(name)), "the connector fails")
        assert "offboard all of its tables" in stopped.value.remedy
        offboard(shop.services, shop.table("t"), delete_data=False)
        succeeded(shop.onboard("t", "late", with_bootstrap=False))
        sound(name)
    finally:
        shop.services.close()


@pytest.mark.breadth
def test_a_default_that_changes_while_a_run_reads_it_is_no_value_of_older_rows(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create("t", 3)
    succeeded(shop.onboard("t"))
    shop.database.execute("ALTER TABLE t ADD COLUMN n int NOT NULL DEFAULT 5")
    read, later = MysqlSource.stored_value, ["ALTER TABLE t ALTER COLUMN n SET DEFAULT 7"]

    def read_after_a_change(self: MysqlSource, *of: Any) -> Any:
        while later:
            shop.database.execute(later.pop())
        return read(self, *of)

    monkeypatch.setattr(MysqlSource, "stored_value", read_after_a_change)
    (result,) = shop.run()
    assert "default '5'" in result.error.message, result
    assert result.state is State.FAILED
    retry(shop.services, shop.table("t"))
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP, result
    succeeded(bootstrap(shop.services, [shop.table("t")]))
    shop.assert_equal("t")


@pytest.mark.breadth
def test_a_connector_without_its_position_is_seen_and_its_tables_are_copied_again(
    shop: Shop,
) -> None:
    shop.create("t", 10)
    succeeded(shop.onboard("t"))
    shop.database.execute("UPDATE t SET v = 1 WHERE id = 1")
    run_without_error(shop)
    name = shop.services.capture(shop.table("t")).connector
    path = f"/connectors/{name}"
    with connect_rest(shop.database.stack) as connect:
        connect.put(f"{path}/stop").raise_for_status()
        wait_until(
            lambda: connect.get(f"{path}/status").json()["tasks"] == [], "the connector to stop"
        )
        connect.delete(f"{path}/offsets").raise_for_status()
        shop.database.execute("UPDATE t SET v = 2 WHERE id = 2")
        connect.put(f"{path}/resume").raise_for_status()
    wait_until(lambda: starts(shop) == 2, "the connector to begin anew", 120)
    (seen,) = status(shop.services, []).tables
    (line,) = (one for one in check(shop.services) if one.name == f"table {shop.table('t')}")
    assert seen.lost is not None
    for told in (seen.lost.message, line.detail):
        assert "started without its stored position" in told
    shop.database.execute("UPDATE t SET v = 3 WHERE id = 3")
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "started without its stored position" in result.error.message
    succeeded(bootstrap(shop.services, [shop.table("t")]))
    shop.assert_equal("t")


def starts(shop: Shop) -> int:
    services = shop.services
    names = services.capture(shop.table("t"))
    return len(fresh_starts(definition_changes(services.kafka, services.schemas, names)))


@pytest.mark.breadth
def test_a_cascade_is_in_the_binlog_or_the_table_is_refused(shop: Shop) -> None:
    """Since MySQL 9.6, the server itself cascades and logs it; MariaDB's engine does not log it.

    A foreign key that is created and dropped between two looks is found, too.
    """
    shop.database.execute(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY, parent int)",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (10, 1), (20, 2)",
    )
    unseen = shop.database.kind == "mariadb"
    key = "CONSTRAINT f FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE"
    shop.database.execute(f"ALTER TABLE child ADD {key}")
    (outcome,) = shop.onboard("child")
    if unseen:
        assert "changes its rows without an event" in str(outcome.error)
        shop.database.execute("ALTER TABLE child DROP FOREIGN KEY f")
        (outcome,) = shop.onboard("child")
    succeeded([outcome])
    if not unseen:
        shop.database.execute("ALTER TABLE child DROP FOREIGN KEY f")
    shop.database.execute(f"ALTER TABLE child ADD {key}")
    if unseen:
        assert remedy_of_child(shop) == "Correct that on the source, or offboard the table."
    shop.database.execute("DELETE FROM parent WHERE id = 1", "ALTER TABLE child DROP FOREIGN KEY f")
    (result,) = shop.run()
    if unseen:
        assert result.state is State.NEEDS_BOOTSTRAP, result
        assert "ON DELETE CASCADE" in result.error.message
        succeeded(bootstrap(shop.services, [shop.table("child")]))
    else:
        assert result.error is None
    shop.assert_equal("child")
    assert [row.id for row in shop.lake("child").select("id").collect()] == [20]


def remedy_of_child(shop: Shop) -> str:
    """The remedy that `check` gives for the table ``child``; empty if there is none."""
    name = f"table {shop.table('child')}"
    return "".join(line.remedy for line in check(shop.services) if line.name == name)


@pytest.mark.breadth
def test_rights_are_proven_before_a_connector_starts_and_what_it_never_saw_takes_a_tier(
    shop: Shop,
) -> None:
    """A connector knows only those table definitions that its login can see at its first start."""
    shop.create("early", 3)
    shop.create("late", 3)
    name, login = shop.database.name, f"{CAPTURE}@'{HOST}'"
    mysql_of(shop.database).root(f"REVOKE SELECT ON {name}.* FROM {login}")
    try:
        (refused,) = shop.onboard("early")
        assert isinstance(refused.error, CaptureError)
        connector = shop.services.capture(shop.table("early")).connector
        assert shop.services.connect.connector(connector) is None
        statement = refused.error.remedy.removeprefix("Run ").partition(";")[0]
        mysql_of(shop.database).root(statement)
        succeeded(shop.onboard("early"))
        mysql_of(shop.database).root(statement.replace("early", "late"))
        connect = shop.services.config.connect.model_copy(update={"timeout_s": 5})
        shop.reconfigure(connect=connect)
        (unknown,) = shop.onboard("late")
        assert "does not know the definition" in str(unknown.error)
        assert unknown.error is not None
        assert "another tier" in unknown.error.remedy
        shop.tables = {f"{name}.late": {"tier": "late"}}
        shop.reconfigure()
        succeeded(shop.onboard("late"))
    finally:
        mysql_of(shop.database).root(f"GRANT SELECT ON {name}.* TO {login}")
    shop.database.execute("UPDATE early SET v = 1 WHERE id = 1", "UPDATE late SET v = 2")
    run_without_error(shop)
    shop.assert_equal("early", "late")


@pytest.mark.breadth
def test_a_table_made_past_the_binlog_goes_on_in_a_tier_of_its_own(person: Person) -> None:
    """The first connector never learns the table's definition, and fails at the first change."""
    shop, database = person.shop, mysql_of(person.shop.database)
    label, name = database.label("t"), database.name
    shop.create("t", 3)
    shop.create("other", 3)
    person.done("onboard", label, database.label("other"))
    database.execute("DROP TABLE t")
    database.catch_up()
    unlogged = (
        "SET sql_log_bin = 0",
        f"CREATE TABLE {name}.t (id int PRIMARY KEY, v int NOT NULL, t text)",
    )
    database.root(*unlogged)
    if database.kind == MYSQL:
        off, on = (f"SET GLOBAL super_read_only = {value}" for value in ("OFF", "ON"))
        database.root(off, *unlogged, on, replica=True)
    else:
        database.root(*unlogged, replica=True)
    database.execute("INSERT INTO t VALUES (1, 1, 'one')", "UPDATE other SET v = 2")
    connector = shop.services.capture(shop.table("t")).connector

    def failed() -> bool:
        status = shop.services.connect.status(connector)
        return status is not None and status.failure is not None

    wait_until(failed, "the connector to fail")
    stopped = person.run("run", label)
    assert person.state("t") is State.FAILED
    (told,) = stopped.remedies
    assert told.startswith("The connector cannot learn this definition any more"), told
    person.done("offboard", label)
    shop.tables = {label: {"tier": "anew"}}
    person.configure()
    person.done("onboard", label)
    person.done("run")
    person.done("verify", label, database.label("other"))


@pytest.mark.breadth
@pytest.mark.parametrize("database", [MYSQL], indirect=True)
def test_a_transaction_with_a_tag_in_its_gtid_stops_its_table_until_it_is_copied_again(
    person: Person,
) -> None:
    """The connector goes on, and so do tables without such transactions."""
    shop, database = person.shop, mysql_of(person.shop.database)
    tagged, other = database.label("tagged"), database.label("other")
    shop.create("tagged", 5)
    shop.create("other", 5)
    person.done("onboard", tagged, other)
    database.root(
        "SET gtid_next = 'AUTOMATIC:shop'",
        f"UPDATE {database.name}.tagged SET v = 7 WHERE id = 2",
    )
    database.execute("UPDATE tagged SET v = 8 WHERE id = 3", "UPDATE other SET v = 9")
    for name in ("tagged", "other"):
        shop.settle(name)
    stopped = person.run("run", tagged, other)
    assert (person.state("tagged"), person.state("other")) == (State.FAILED, State.INCREMENTAL)
    assert f"(topic {shop.record('tagged').topic}, partition 0, offset 0," in stopped.messages
    assert TAGGED in stopped.messages
    assert {row.v for row in shop.lake("tagged").select("v").collect()} == {0}
    (told,) = stopped.remedies
    assert told.startswith("Let all sessions write to captured tables without tags")
    person.follow(told)
    person.done("verify", tagged, other)


@pytest.mark.breadth
def test_a_table_that_left_the_list_is_not_put_back_in_silence(shop: Shop) -> None:
    shop.create("a", 3)
    shop.create("b", 3)
    succeeded(shop.onboard("a"))
    services, names = shop.services, shop.services.capture(shop.table("a"))
    running = services.connect.connector(names.connector)
    assert running is not None
    services.connect.put_connector(names.connector, {**running, **include_settings(names, ())})
    shop.database.execute("UPDATE a SET v = 7 WHERE id = 1")
    succeeded(shop.onboard("b"))
    assert members(services, names) == {shop.table("b")}
    (again,) = shop.onboard("a")
    assert "does not list table" in str(again.error)
    results = {result.table.name: result for result in shop.run()}
    assert results["a"].state is State.NEEDS_BOOTSTRAP
    assert "does not list it" in results["a"].error.message
    succeeded(bootstrap(services, [shop.table("a")]))
    assert members(services, names) == {shop.table("a"), shop.table("b")}
    shop.assert_equal("a", "b")


@pytest.mark.breadth
def test_generated_and_invisible_columns_travel(shop: Shop) -> None:
    shop.database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int NOT NULL, unseen int DEFAULT 5 INVISIBLE,"
        " virtual_one int AS (v + 1) VIRTUAL, stored_one varchar(20) AS (concat('v', v)) STORED)",
        "INSERT INTO orders (id, v) VALUES (1, 1), (2, 2)",
        "INSERT INTO orders (id, v, unseen) VALUES (3, 3, 30)",
    )
    succeeded(shop.onboard("orders"))
    shop.database.execute(
        "UPDATE orders SET v = 20, unseen = 50 WHERE id = 2",
        "INSERT INTO orders (id, v) VALUES (4, 4)",
        "DELETE FROM orders WHERE id = 1",
    )
    run_without_error(shop)
    shop.assert_equal("orders")
    wanted = ("id", "v", "unseen", "virtual_one", "stored_one")
    rows = shop.lake("orders").select(*wanted).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [
        (2, 20, 50, 21, "v20"),
        (3, 3, 30, 4, "v3"),
        (4, 4, 5, 5, "v4"),
    ]


def test_what_is_computed_from_an_altered_column_is_copied_again(shop: Shop) -> None:
    names = ("on_reading", "on_writing")
    create = (
        "CREATE TABLE {0} (id int PRIMARY KEY, qty int, total decimal(10,2), s varchar(9)"
        " CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci,"
        " unit double AS (total / qty) {1}, label varchar(60) AS (concat(s, total)) {1},"
        " is_open int AS (s = 'open') {1})"
    )
    shop.database.execute(
        create.format("on_reading", "VIRTUAL"),
        create.format("on_writing", "STORED"),
        *(f"INSERT INTO {t} (id, qty, total, s) VALUES (1, 7, 33.33, 'Open')" for t in names),
    )
    succeeded(shop.onboard(*names))
    shop.database.execute(
        "ALTER TABLE on_reading MODIFY s varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "ALTER TABLE on_writing MODIFY total decimal(12,4)",
        *(f"INSERT INTO {t} (id, qty, total, s) VALUES (2, 7, 33.33, 'Open')" for t in names),
    )
    assert shop.scalar("SELECT is_open FROM on_reading WHERE id = 1") == 0
    assert shop.scalar("SELECT label FROM on_writing WHERE id = 1") == "Open33.3300"
    for result in shop.run():
        assert result.state is State.NEEDS_BOOTSTRAP, result
        assert "was altered, and generated column" in result.error.message


@pytest.mark.breadth
def test_a_connector_that_lags_behind_two_migrations_loses_neither(shop: Shop) -> None:
    """Events with three table definitions arrive together, and the catalog shows only the last."""
    shop.create("t", 20)
    succeeded(shop.onboard("t"))
    connect, name = shop.services.connect, shop.services.capture(shop.table("t")).connector
    connect.stop(name)
    shop.database.execute(
        "UPDATE t SET v = 1 WHERE id = 1",
        "ALTER TABLE t ADD COLUMN n int NOT NULL DEFAULT 5",
        "UPDATE t SET v = 2, n = 6 WHERE id = 2",
        "INSERT INTO t (id, v, n) VALUES (101, 3, 7)",
        "ALTER TABLE t MODIFY v bigint NOT NULL, ADD COLUMN m varchar(20)",
        "UPDATE t SET v = 5000000000, m = 'late' WHERE id = 3",
        "INSERT INTO t (id, v, m) VALUES (102, 4, 'new')",
        "DELETE FROM t WHERE id = 4",
    )
    connect.resume(name)
    run_without_error(shop)
    shop.assert_equal("t")
    found = {row.id: (row.v, row.n, row.m) for row in shop.lake("t").collect()}
    assert found[1] == (1, 5, None)
    assert found[2] == (2, 6, None)
    assert found[3] == (5_000_000_000, 5, "late")
    assert found[101] == (3, 7, None)
    assert found[102] == (4, 5, "new")
    assert 4 not in found
