"""Tables of each kind of source on their way to a lake: onboarded, run, verified, followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import StateError
from cdc.store.kept_task_looks import KeptLooks
from cdc.store.table_state import State
from operate.check import check
from operate.discover import discover, selected
from operate.lifecycle import offboard, pause, published_path, resume
from operate.metrics.exposing import Scrapes
from operate.metrics.facts import FactReader
from operate.metrics.text import as_text
from operate.onboard import bootstrap
from operate.status import Status, status
from operate.tier_capture import members
from stack.mysql_software import MYSQL
from stack.postgres import POSTGRES
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import for_each_kind
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.prometheus import Scraped
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop


@for_each_kind(MYSQL)
def test_a_table_travels_while_it_is_written_to(shop: Shop) -> None:
    shop.create("orders", 8000)
    shop.create("parts", 500)
    # The text has a fixed length and is shorter: each server shows it in its own way.
    shop.database.execute("ALTER TABLE parts ADD COLUMN code char(5) DEFAULT 'ab'")
    key = "({turn} * 7919 % 8000 + {})"
    with shop.writing(
        f"UPDATE orders SET v = v + 1 WHERE id = {key.replace('{}', '1')}",
        f"DELETE FROM orders WHERE id = {key.replace('{}', '3')} AND id % 7 = 0",
        f"INSERT INTO orders SELECT k.id, 0, 'again' FROM (SELECT {key.replace('{}', '5')} AS id) k"
        " WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = k.id)",
        "UPDATE parts SET v = v + 1 WHERE id = 7",
    ) as done:
        succeeded(shop.onboard("orders"))
        # The other table is brought into a capture that runs.
        succeeded(shop.onboard("parts"))
        assert members(shop.services, shop.services.capture(shop.table("orders"))) == {
            shop.table("orders"),
            shop.table("parts"),
        }
        for result in shop.run():
            assert result.error is None, result.error
    assert done[0] > 50
    shop.assert_equal("orders", "parts")
    codes = shop.lake("parts").select("code").distinct().collect()
    assert [row.code for row in codes] == [shop.scalar("SELECT code FROM parts WHERE id = 1")]
    found = status(shop.services, [])
    assert [one.problem for one in found.captures] == [None]
    assert {one.record.state for one in found.tables} == {State.INCREMENTAL}
    shows_the_log_that_is_kept(shop, found)
    assert [line for line in check(shop.services) if line.status == "error"] == []
    assert {e.stats.table.name: e.summary for e in discover(shop.services)} == {
        "orders": "on the plan",
        "parts": "on the plan",
    }


def shows_the_log_that_is_kept(shop: Shop, found: Status) -> None:
    """Assert that the metrics of the retained log agree with an earlier answer of `status`."""
    reader = FactReader(shop.services, 60.0)
    scrapes = Scrapes(shop.services.config, reader, cache_s=0.0, bound_s=60.0)
    seen = Scraped(as_text(scrapes.collect()).decode())
    (capture,) = found.captures
    retained = seen.get("log_retained_bytes")
    assert retained is not None
    assert abs(retained - capture.to_json()["log"]["retained_bytes"]) < 16 * 2**20
    assert seen.get("connector_up") == seen.get("connector_tasks", state="running") == 1
    assert seen.get("table_events_behind", table=str(shop.table("parts"))) == 0


@for_each_kind()
def test_each_change_of_a_row_arrives(shop: Shop) -> None:
    shop.create("orders", 50)
    succeeded(shop.onboard("orders"))
    shop.database.execute(
        "INSERT INTO orders VALUES (100, 1, 'new'), (101, 1, NULL)",
        "UPDATE orders SET v = 7, t = NULL WHERE id <= 5",
        "DELETE FROM orders WHERE id = 6",
        "UPDATE orders SET id = 200 WHERE id = 7",
        "DELETE FROM orders WHERE id = 8",
        "INSERT INTO orders VALUES (8, 8, 'again')",
    )
    with shop.database.begin() as connection, connection.cursor() as cursor:
        for former, other in ((9, -1), (10, 9), (-1, 10)):
            cursor.execute(f"UPDATE orders SET id = {other} WHERE id = {former}")
        connection.commit()
    with shop.database.begin() as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE orders SET v = 99")
        connection.rollback()
    shop.settle("orders")
    run_without_error(shop)
    assert arrived(shop) == set(shop.database.rows("SELECT id, v, t FROM orders"))
    assert {(9, 0, "row 10"), (10, 0, "row 9"), (200, 0, "row 7")} < arrived(shop)
    # A key that comes and goes in more than one batch.
    for text in ("second", "third"):
        shop.database.execute(
            "DELETE FROM orders WHERE id = 8", f"INSERT INTO orders VALUES (8, 9, '{text}')"
        )
        shop.settle("orders")
        run_without_error(shop)
        assert (8, 9, text) in arrived(shop)
    shop.database.execute("DELETE FROM orders WHERE id = 8 OR id = 200")
    shop.assert_equal("orders")
    assert len(arrived(shop)) == 49


def arrived(shop: Shop) -> set[tuple[object, ...]]:
    return {tuple(row) for row in shop.lake("orders").select("id", "v", "t").collect()}


@for_each_kind()
def test_keys_of_several_columns_and_of_text(shop: Shop) -> None:
    shop.database.execute(
        "CREATE TABLE pairs (a int, b varchar(20), n int, PRIMARY KEY (a, b))",
        "CREATE TABLE names (code varchar(20) PRIMARY KEY, n int)",
    )
    words = ("", "a", "a b", "a,b", "a:b", "it's", "größe", "__null__", '"', "\\", "1", "01")
    shop.database.load("names", ((word, 0) for word in words))
    shop.database.load("pairs", ((a, word, 0) for word in words for a in (1, 2, -3)))
    succeeded(shop.onboard("names", "pairs"))
    shop.database.execute(
        "UPDATE names SET n = n + 1",
        "UPDATE names SET code = 'moved' WHERE code = 'a b'",
        "DELETE FROM names WHERE code = '1'",
        "UPDATE pairs SET n = 5 WHERE a = 1",
        "UPDATE pairs SET a = 7 WHERE a = 2 AND b = 'a'",
        "UPDATE pairs SET b = 'moved' WHERE a = -3 AND b = 'a,b'",
        "DELETE FROM pairs WHERE a = 2 AND b = ''",
        "INSERT INTO pairs VALUES (2, '', 9)",
    )
    shop.assert_equal("names", "pairs")
    assert shop.lake("names").count() == len(words) - 1
    assert shop.lake("pairs").where("a = 7 AND b = 'a'").count() == 1


@for_each_kind()
def test_changes_of_the_table_are_followed_or_ask_for_a_copy(shop: Shop) -> None:
    shop.create("items", 20)
    succeeded(shop.onboard("items"))
    shop.database.execute(
        "ALTER TABLE items ADD COLUMN plain int,"
        " ADD COLUMN filled varchar(9) DEFAULT 'so' NOT NULL",
        "UPDATE items SET plain = 7 WHERE id = 3",
        "CREATE INDEX by_v ON items (v)",
    )
    # PostgreSQL has no trace of a new column's first value once another change rewrote the rows.
    run_without_error(shop)
    shop.database.execute(
        shop.database.retype("items", "v", "bigint"),
        "UPDATE items SET v = 5000000000, filled = 'other' WHERE id = 4",
    )
    run_without_error(shop)
    shop.assert_equal("items")
    shop.database.execute(
        "ALTER TABLE items DROP COLUMN plain", "INSERT INTO items VALUES (100, 1, 'new', 'x')"
    )
    run_without_error(shop)
    shop.assert_equal("items")
    shop.database.execute("TRUNCATE TABLE items", "INSERT INTO items VALUES (200, 1, 'more', 'y')")
    run_without_error(shop)
    shop.assert_equal("items")
    left = [tuple(row) for row in shop.lake("items").select("id", "plain").collect()]
    assert left == [(200, None)]
    for statements in (
        ("ALTER TABLE items DROP COLUMN filled, ADD COLUMN filled varchar(9)",),
        ("ALTER TABLE items RENAME COLUMN t TO note",),
        (shop.database.retype("items", "v", "smallint"),),
        (
            "CREATE TABLE other (id int PRIMARY KEY, v int, note text)",
            "INSERT INTO other VALUES (1, 1, 'came as no event')",
            "ALTER TABLE items RENAME TO former",
            "ALTER TABLE other RENAME TO items",
        ),
    ):
        shop.database.execute(*statements)
        (result,) = shop.run()
        assert result.state is State.NEEDS_BOOTSTRAP, statements
        assert "tributary bootstrap" in (shop.record("items").remedy or "")
        succeeded(bootstrap(shop.services, [shop.table("items")]))
        shop.assert_equal("items")


@for_each_kind()
def test_pause_and_resume(shop: Shop) -> None:
    shop.create("orders", 100)
    succeeded(shop.onboard("orders"))
    pause(shop.services, shop.table("orders"), reason="a migration")
    shop.database.execute("UPDATE orders SET v = 5")
    assert shop.run() == []
    with pytest.raises(StateError, match="paused"):
        shop.verify("orders")
    assert shop.onboard("orders")[0].state is State.PAUSED
    resume(shop.services, shop.table("orders"))
    assert shop.record("orders").state is State.INCREMENTAL
    assert shop.verify("orders").equal
    assert shop.lake("orders").where("v = 5").count() == 100


@for_each_kind(POSTGRES)
def test_offboarding_the_last_table_takes_the_capture_along(shop: Shop) -> None:
    for name in ("orders", "parts"):
        shop.create(name, 100)
    succeeded(shop.onboard("orders", "parts"))
    services, capture = shop.services, shop.services.capture(shop.table("orders"))
    offboard(services, shop.table("parts"), delete_data=True)
    kept = services.source(shop.database.name).capture(capture).kept_log
    assert kept is None or kept.exists()
    assert members(services, capture) == {shop.table("orders")}
    own = set(services.kafka.topics(capture.own_topics))
    assert own == set(capture.own_topics)
    shop.database.execute("UPDATE parts SET v = 1", "UPDATE orders SET v = 2")
    shop.assert_equal("orders")

    assert KeptLooks(services.store).of(capture.connector) is not None
    offboard(services, shop.table("orders"), delete_data=False)
    assert set(services.kafka.topics(own)) == own
    assert kept is None or not kept.drop(), "it was there"
    assert services.connect.connector(capture.connector) is None
    assert KeptLooks(services.store).of(capture.connector) is None
    assert services.kafka.topics([capture.topic(shop.table("parts"))]) == {}
    assert Path(shop.record("orders").base_path).exists()
    assert not Path(shop.record("parts").base_path).exists()
    assert selected(services, []) == []

    shop.database.execute("UPDATE orders SET v = 7 WHERE id = 1")
    succeeded(shop.onboard("orders"))
    record = shop.record("orders")
    assert record.generation == 2
    assert record.attempt is not None
    shop.assert_equal("orders")
    assert published_path(services, record.table) == record.attempt.path
    offboard(services, shop.table("orders"), delete_data=True)
    assert services.kafka.topics(own) == {}, "nobody would ever delete them"


@pytest.mark.breadth
@for_each_kind(POSTGRES)
def test_a_lost_log_stops_its_tables_and_bootstrap_begins_anew(shop: Shop) -> None:
    shop.create("orders", 500)
    succeeded(shop.onboard("orders"))
    services, capture = shop.services, shop.services.capture(shop.table("orders"))
    source = services.source(shop.database.name)
    services.connect.stop(capture.connector)
    shop.database.execute("UPDATE orders SET v = 1 WHERE id = 1")
    shop.database.lose_log()
    shop.database.execute("UPDATE orders SET v = 1 WHERE id = 2")

    title = source.capture(capture).log_health().title
    refused = shop.onboard("orders")
    assert refused[0].failed
    assert title in str(refused[0].error)
    assert status(services, []).failed
    broken = [line for line in check(services) if line.status == "error"]
    assert any(title in line.name for line in broken), broken

    (result,) = shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP, "it has no new offsets, and never will have"
    succeeded(bootstrap(services, [shop.table("orders")]))
    assert shop.record("orders").generation == 2
    shop.assert_equal("orders")
    assert [one.problem for one in status(services, []).captures] == [None]
