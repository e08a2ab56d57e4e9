"""A MySQL server without GTIDs: positions are file and position in the primary's binlog."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cdc.debezium import stored_position
from cdc.log.binlog_position import BinlogPosition, StoredPosition
from cdc.sources.source_facts import Check
from cdc.store.table_state import State
from operate.check import check
from operate.onboard import bootstrap
from operate.status import status
from operate.tier_capture import members
from schemas.fingerprint import READ_AT
from stack.local import LocalStack
from stack.mysql_software import MYSQL
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.mysql import MysqlDatabase, had, own_mysql_database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop
from tests.integration.rigs.sources import capture_of

pytestmark = pytest.mark.breadth

_MODES = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


@dataclass(frozen=True)
class PlainDatabase(MysqlDatabase):
    """A database on servers whose GTIDs can be switched off and on."""

    def place(self) -> tuple[str, int]:
        """The end of the primary's binlog, as file name and position."""
        file, at, *_ = self.root("SHOW BINARY LOG STATUS")[0]
        return str(file), int(at)

    def catch_up(self) -> None:
        """Wait until the replica has executed all transactions of the primary, in any GTID mode."""
        file, at = self.place()
        reached = self.root(f"SELECT SOURCE_POS_WAIT('{file}', {at}, 60)", replica=True)[0][0]
        assert (-1 if reached is None else reached) >= 0, "the replica does not follow"

    def mode(self) -> str:
        return str(self.root("SELECT @@global.gtid_mode")[0][0])

    def switch(self, mode: str) -> None:
        """Switch both servers to a GTID mode, in the steps that MySQL prescribes."""
        now, wanted = _MODES.index(self.mode()), _MODES.index(mode)
        if now == wanted:
            return
        if now > wanted:
            self.catch_up()
            file, at = self.place()
            self._follow(
                f"SOURCE_AUTO_POSITION = 0, SOURCE_LOG_FILE = '{file}', SOURCE_LOG_POS = {at}"
            )
        step = 1 if wanted > now else -1
        for one in _MODES[now + step :: step]:
            # What has a GTID and what has none must be executed everywhere before the next mode.
            for replica in (True, False):
                self.root(f"SET GLOBAL gtid_mode = {one}", replica=replica)
            self.catch_up()
            if one == mode:
                break
        if mode == "ON":
            self._follow("SOURCE_AUTO_POSITION = 1")

    def _follow(self, how: str) -> None:
        self.root(
            "STOP REPLICA", f"CHANGE REPLICATION SOURCE TO {how}", "START REPLICA", replica=True
        )


@pytest.fixture(scope="module", autouse=True)
def gtids_again(mysql_stack: LocalStack) -> Iterator[None]:
    """Switch GTIDs on again after the tests, because other tests may use the same servers."""
    yield
    PlainDatabase(mysql_stack, "mysql", MYSQL).switch("ON")


@pytest.fixture(params=[MYSQL])
def database(request: pytest.FixtureRequest, mysql_stack: LocalStack) -> Iterator[PlainDatabase]:
    """A database of a test's own on servers without GTIDs."""
    kind = had(mysql_stack, request.param)
    mysql_stack.up()
    PlainDatabase(mysql_stack, "mysql", kind).switch("OFF")
    with own_mysql_database(mysql_stack, kind, PlainDatabase) as created:
        assert isinstance(created, PlainDatabase)
        assert created.mode() == "OFF"
        yield created


def stored(shop: Shop) -> StoredPosition | None:
    found = stored_position(shop.services.connect, shop.services.capture(shop.table("any")))
    assert found is None or isinstance(found, StoredPosition)
    return found


def reads_upto(shop: Shop, name: str) -> str:
    attempt = shop.record(name).attempt
    assert attempt is not None
    return attempt.reads_upto or ""


def plain(shop: Shop) -> PlainDatabase:
    assert isinstance(shop.database, PlainDatabase)
    return shop.database


def test_tables_travel_while_they_are_written_to(shop: Shop) -> None:
    shop.create("orders", 8000)
    shop.create("parts", 500)
    key = "({turn} * 7919 % 8000 + {})"
    with shop.writing(
        f"UPDATE orders SET v = v + 1 WHERE id = {key.replace('{}', '1')}",
        f"DELETE FROM orders WHERE id = {key.replace('{}', '3')} AND id % 7 = 0",
        f"INSERT INTO orders SELECT k.id, 0, 'again' FROM (SELECT {key.replace('{}', '5')} AS id) k"
        " WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = k.id)",
        "UPDATE parts SET v = v + 1 WHERE id = 7",
    ) as done:
        succeeded(shop.onboard("orders"))
        # The connector is restarted with a longer list, amid the writes.
        succeeded(shop.onboard("parts"))
        run_without_error(shop)
    assert done[0] > 50
    shop.assert_equal("orders", "parts")
    assert BinlogPosition.parse(reads_upto(shop, "orders")).base == "binlog"
    assert members(shop.services, shop.services.capture(shop.table("orders"))) == {
        shop.table("orders"),
        shop.table("parts"),
    }
    assert [one.problem for one in status(shop.services, []).captures] == [None]
    lines = {line.name.rpartition(": ")[2]: line for line in check(shop.services)}
    assert [line for line in lines.values() if line.status == "error"] == []
    warned = {name for name, line in lines.items() if line.status == "warning"}
    assert any("gtid_mode" in name for name in warned), warned
    assert any("replica transactions" in name for name in warned), warned

    # Rows that lie compressed in one event of the binlog, and statements that send no events.
    shop.database.execute("ALTER TABLE parts ADD COLUMN n int DEFAULT 7, ADD INDEX (v)")
    plain(shop).root(
        "SET SESSION binlog_transaction_compression = ON",
        f"UPDATE {shop.database.name}.orders SET t = repeat('x', 300)",
        f"UPDATE {shop.database.name}.parts SET n = id",
    )
    run_without_error(shop)
    shop.assert_equal("orders", "parts")
    shop.database.execute(
        "CREATE TABLE swapped LIKE orders",
        "INSERT INTO swapped VALUES (1, 1, 'came as no event')",
        "RENAME TABLE orders TO former, swapped TO orders",
    )
    (result,) = [one for one in shop.run() if one.table == shop.table("orders")]
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "RENAME TABLE" in result.error.message
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    shop.assert_equal("orders", "parts")


def test_what_is_stored_as_passed_is_in_kafka(shop: Shop) -> None:
    shop.create("big", 1)
    succeeded(shop.onboard("big"))
    services, topic = shop.services, shop.record("big").topic
    source = services.source(shop.database.name)
    for compression in ("OFF", "ON"):
        before = services.kafka.stable_offsets(topic)[0]
        plain(shop).root(
            f"SET SESSION binlog_transaction_compression = {compression}, cte_max_recursion_depth"
            " = 50000",
            f"INSERT INTO {shop.database.name}.big SELECT k.n + (SELECT max(id) FROM"
            f" {shop.database.name}.big), 0, repeat('x', 50) FROM (WITH RECURSIVE s (n) AS (SELECT"
            " 1 UNION ALL SELECT n + 1 FROM s WHERE n < 30000) SELECT n FROM s) k",
        )
        whole, looks = source.current_position(), 0
        while True:
            found = stored(shop)
            # After the look at the position: what it claims must be in Kafka by then.
            seen = services.kafka.stable_offsets(topic)[0]
            assert found is not None
            if found.reaches(whole):
                break
            source.nudge()
            looks += 1
        assert seen - before >= 30_000, (compression, looks)
    shop.assert_equal("big")


def test_a_purged_binlog_stops_the_tables(shop: Shop) -> None:
    shop.create("orders", 50)
    succeeded(shop.onboard("orders"))
    services, capture = shop.services, shop.services.capture(shop.table("orders"))
    services.connect.stop(capture.connector)
    shop.database.execute("UPDATE orders SET v = 1 WHERE id = 1")
    shop.database.lose_log()
    shop.database.execute("UPDATE orders SET v = 1 WHERE id = 2")
    assert status(services, []).failed
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "no longer has the changes that the connector needs next" in result.error.message
    succeeded(bootstrap(services, [shop.table("orders")]))
    shop.assert_equal("orders")


def test_gtids_that_come_or_go_ask_for_copies(shop: Shop) -> None:
    for name in ("orders", "idle"):
        shop.create(name, 20)
    succeeded(shop.onboard("orders", "idle"))
    tables = [shop.table("orders"), shop.table("idle")]
    for mode in ("ON", "OFF"):
        plain(shop).switch(mode)
        shop.database.execute("UPDATE orders SET v = v + 1 WHERE id = 1")
        results = shop.run()
        assert {one.table: one.state for one in results} == dict.fromkeys(
            tables, State.NEEDS_BOOTSTRAP
        )
        for one in results:
            assert "positions of two kinds" in one.error.message
        succeeded(bootstrap(shop.services, tables))
        # In the terms of the new mode, and not in what the connector repeats of the former.
        assert ("binlog." in reads_upto(shop, "orders")) == (mode == "OFF")
        shop.database.execute("UPDATE orders SET v = v + 1 WHERE id = 2")
        run_without_error(shop)
        shop.assert_equal("orders", "idle")


def test_a_gtid_mode_that_is_being_changed_is_an_error_until_it_is_on(shop: Shop) -> None:
    def line() -> Check:
        return next(one for one in check(shop.services) if one.name.endswith("gtid_mode"))

    plain(shop).switch("ON_PERMISSIVE")
    assert line().status == "error"
    assert "cannot start again once the server has purged" in line().detail
    plain(shop).switch("ON")
    assert line().status == "ok"


def test_a_statement_that_is_logged_is_looked_for_until_the_catalog_shows_it(shop: Shop) -> None:
    """A server that waits for a replica's answer logs a statement long before it commits it."""
    shop.create("t", 3)
    database, table = plain(shop), shop.table("t")
    source = shop.services.source(database.name)
    database.root(
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
        "SET GLOBAL rpl_semi_sync_source_timeout = 8000",
        "SET GLOBAL rpl_semi_sync_source_enabled = ON",
    )
    before = database.place()
    altering = threading.Thread(
        target=database.execute, args=("ALTER TABLE t ADD COLUMN n int",), daemon=True
    )
    try:
        altering.start()
        wait_until(lambda: database.place() != before, "the statement to be logged", 30)
        logged = source.current_position()
        listed = "SELECT column_name FROM information_schema.columns WHERE table_name = 't' AND"
        columns = database.rows(f"{listed} table_schema = '{database.name}'")
        assert ("n",) not in columns, "it is committed already: nothing is shown here"
        found, fingerprint = capture_of(source).described(table)
        assert "n" in [column.name for column in found.columns]
        assert source.position(str(fingerprint.facts[READ_AT])).reaches(logged)
    finally:
        altering.join()
        database.root(
            "SET GLOBAL rpl_semi_sync_source_enabled = OFF",
            "UNINSTALL PLUGIN rpl_semi_sync_source",
        )


def test_rows_that_a_restarted_connector_read_by_a_later_definition_ask_for_a_copy(
    shop: Shop,
) -> None:
    """The connector's stored position is older than its schema history, as after a kill."""
    database, table = shop.database, shop.table("t")
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 1, -1)"
    )
    succeeded(shop.onboard("t"))
    services, name = shop.services, shop.services.capture(table).connector
    services.connect.stop(name)
    before = services.connect.offset(name)
    assert before is not None
    services.connect.resume(name)
    services.connect.wait_running(name)
    database.execute("UPDATE t SET a = 2, b = -2", "ALTER TABLE t MODIFY b int AFTER id")
    run_without_error(shop)
    shop.assert_equal("t")
    services.connect.change_offset(name, lambda _: dict(before))
    services.connect.wait_running(name)
    # A run sees it once the new task has sent a heartbeat.
    wait_until(lambda: shop.asks_for_copy("t"), "a run to see it", 90)
    error = shop.record("t").error
    assert error is not None
    assert "took the definition after it from its schema history" in error.message
    succeeded(bootstrap(services, [table]))
    database.execute("UPDATE t SET a = 3")
    run_without_error(shop)
    shop.assert_equal("t")


def test_xa_transactions_are_refused_even_of_one_phase(shop: Shop) -> None:
    """This must be the last test, since the server counts XA transactions until its restart."""
    shop.create("orders", 3)
    succeeded(shop.onboard("orders"))
    with shop.database.connect() as connection, connection.cursor() as cursor:
        for statement in (
            "XA START 'one'",
            "UPDATE orders SET v = 5",
            "XA END 'one'",
            "XA COMMIT 'one' ONE PHASE",
        ):
            cursor.execute(statement)
    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP
    assert "XA transactions are used" in result.error.message
