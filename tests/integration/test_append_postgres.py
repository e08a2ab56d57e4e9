"""Tables without a key on PostgreSQL: its publications, physical row places and replay pauses."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.errors import CaptureError
from cdc.store.table_state import State
from operate.check import check
from operate.onboard import bootstrap
from tests.integration.rigs.logs import ROWS, Log, bag, create_log, inserters
from tests.integration.rigs.logs import log as log
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded

pytestmark = pytest.mark.breadth


def test_without_the_right_to_pause_the_choices_are_named_and_nothing_is_captured(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(database, spark, tmp_path, tables={"public.events": {"mode": "append"}})
    create_log(database, "events", 100)
    (refused,) = shop.onboard("events")
    assert isinstance(refused.error, CaptureError)
    for choice in ("GRANT EXECUTE ON FUNCTION pg_catalog.pg_wal_replay_pause()", "snapshot_from"):
        assert choice in refused.error.remedy
    assert shop.scalar("SELECT count(*) FROM pg_publication") == 0
    shop.tables["public.events"]["snapshot_from"] = "primary"
    shop.reconfigure()
    log = Log(shop)
    with inserters(database, "events") as done:
        succeeded(log.onboard())
    assert sum(done) > 0
    log.run()
    log.assert_equal()
    assert log.attempt.view.on_replica is False
    assert shop.verify("events").equal
    assert shop.scalar("SELECT count(*) FROM pg_replication_slots WHERE temporary") == 0
    shop.services.close()


def test_the_application_goes_on_to_update_and_delete(log: Log) -> None:
    log.shop.database.execute("ALTER TABLE events REPLICA IDENTITY NOTHING")
    succeeded(log.onboard())
    log.shop.database.execute(
        "UPDATE events SET n = -1 WHERE n = 5", "DELETE FROM events WHERE n = 6"
    )
    log.insert(1, 1)
    log.run()
    assert len(log.in_lake()) == ROWS + 2
    assert log.in_lake(where="n = -1") == []
    source = log.shop.services.source(log.shop.database.name)
    deadline = time.monotonic() + 20
    while not source.table(log.shop.table("events")).deleted:  # statistics come a moment later
        assert time.monotonic() < deadline
        time.sleep(0.2)
    name = f"table {log.shop.table('events')}"
    (line,) = [line for line in check(log.shop.services) if line.name == name]
    assert line.status == "note"
    assert "50 updated and 50 deleted rows" in line.detail
    found = log.shop.verify("events")
    assert not found.equal
    assert found.difference_count == 50 + 50 + 50, "old images, new images, and deleted rows"


def test_verify_counts_how_often_a_row_occurs(log: Log) -> None:
    with inserters(log.shop.database, "events"):
        succeeded(log.onboard())
        found = log.shop.verify("events")
    assert found.equal, found.differences
    assert found.source_rows == found.lake_rows > ROWS
    # Only inserts are captured. So the lake keeps the row with 2, and the row with 1 occurs once
    # more on the source.
    log.shop.database.execute("UPDATE events SET n = 1 WHERE ctid = '(0,2)'")
    found = log.shop.verify("events")
    assert not found.equal
    assert {(one.kind, one.key["n"]) for one in found.differences} == {("missing", 1), ("extra", 2)}
    assert found.difference_count == 2


def test_a_partitioned_table_is_read_by_the_places_of_all_its_partitions(log: Log) -> None:
    log.shop.database.execute(
        "DROP TABLE events",
        "CREATE TABLE events (kind text, n int, t text) PARTITION BY LIST (n)",
        "CREATE TABLE events_one PARTITION OF events FOR VALUES IN (1)",
        "CREATE TABLE events_rest PARTITION OF events DEFAULT",
        "INSERT INTO events SELECT 'old', g % 5, repeat('y', 500) FROM generate_series(1, 3000) g",
    )
    log.settings["chunk_rows"] = 500
    log.shop.reconfigure()
    with inserters(log.shop.database, "events"):
        succeeded(log.onboard())
    assert len(log.attempt.chunks) > 3
    log.run()
    log.assert_equal()
    assert log.shop.verify("events").equal


def test_a_new_column_and_another_replica_identity_are_followed(log: Log) -> None:
    succeeded(log.onboard())
    log.shop.database.execute(
        "ALTER TABLE events ADD COLUMN more int DEFAULT 7 NOT NULL",
        "ALTER TABLE events REPLICA IDENTITY NOTHING",
        "INSERT INTO events VALUES ('one', 1, NULL, 8)",
    )
    log.run()
    assert Counter(log.in_lake("more")) == {(7,): ROWS, (8,): 1}
    log.assert_equal()


def test_a_renamed_column_of_a_log_goes_on_under_its_new_name(log: Log) -> None:
    log.settings["columns"] = {"renames": {"number": "n"}}
    log.shop.reconfigure()
    succeeded(log.onboard())
    log.shop.database.execute(
        "INSERT INTO events VALUES ('one', 1001, NULL)",
        "ALTER TABLE events RENAME COLUMN n TO number",
        "INSERT INTO events VALUES ('one', 1002, NULL)",
    )
    log.run()
    with log.shop.database.connect() as connection:
        truth = bag(connection.execute("SELECT kind, number, t FROM events").fetchall())
    assert bag(log.in_lake("kind", "number", "t")) == truth
    assert log.in_lake("n", where="number > 1000") == [(None,)] * 2
    assert log.shop.verify("events").equal


def test_a_null_of_before_a_column_was_not_null_is_no_other_value(log: Log) -> None:
    """A lagging connector reads the present table definition for an event that is older."""
    succeeded(log.onboard())
    connector = log.shop.services.capture(log.shop.table("events")).connector
    connect = log.shop.services.connect
    connect.stop(connector)
    log.shop.database.execute(
        "ALTER TABLE events REPLICA IDENTITY FULL",
        "INSERT INTO events VALUES ('null', NULL, 't')",
        "UPDATE events SET n = 5 WHERE n IS NULL",
        "ALTER TABLE events ALTER COLUMN n SET NOT NULL",
    )
    connect.resume(connector)
    connect.wait_running(connector)
    log.shop.settle("events")
    (result,) = log.shop.run()
    assert result.state is State.NEEDS_BOOTSTRAP, log.in_lake(where="kind = 'null'")
    assert "no longer allows NULL" in result.error.message
    succeeded(bootstrap(log.shop.services, [log.shop.table("events")]))
    log.run()
    log.assert_equal()
    log.insert(1)
    log.run()
    log.assert_equal()


BREADTH = pytest.mark.breadth
A = "ALTER TABLE {} "


def test_nulls_that_a_domain_allows_from_now_on_are_copied_and_followed(log: Log) -> None:
    """The connector does not learn from ALTER DOMAIN that the column allows NULL; a copy does."""
    shop = log.shop
    shop.tables["public.kept"] = {"delete_mode": "soft"}
    shop.reconfigure()
    shop.database.execute(
        "CREATE DOMAIN number AS int NOT NULL",
        "ALTER TABLE events ALTER n TYPE number",
        "CREATE TABLE kept (id int PRIMARY KEY, n number)",
        "INSERT INTO kept VALUES (1, 1)",
    )
    succeeded(shop.onboard("events", "kept"))
    shop.database.execute(
        "INSERT INTO events VALUES ('zero', 0, NULL)", "INSERT INTO kept VALUES (2, 0)"
    )
    log.run()
    shop.database.execute(
        "ALTER DOMAIN number DROP NOT NULL",
        "INSERT INTO events VALUES ('null', NULL, NULL)",
        "INSERT INTO kept VALUES (3, NULL)",
    )
    for table in ("events", "kept"):
        shop.settle(table)
    results = {result.table.name: result for result in shop.run()}
    assert {one.state for one in results.values()} == {State.NEEDS_BOOTSTRAP}
    assert results.keys() == {"events", "kept"}
    assert all("column 'n' allows NULL" in one.error.message for one in results.values())
    succeeded(bootstrap(shop.services, [shop.table("events"), shop.table("kept")]))
    shop.database.execute(
        "INSERT INTO events VALUES ('null', NULL, NULL), ('zero', 0, NULL)",
        "INSERT INTO kept VALUES (4, NULL), (5, 0), (6, NULL), (7, 0)",
        "DELETE FROM kept WHERE id > 5",
    )
    for table in ("events", "kept"):
        shop.settle(table)
    run_without_error(shop)
    log.assert_equal()
    kept = shop.lake("kept").select("id", "n").collect()
    assert {row.id: row.n for row in kept} == {1: 1, 2: 0, 3: None, 4: None, 5: 0, 6: None, 7: 0}


OF_A_WHILE = {
    "carried": [
        A + "ALTER n DROP NOT NULL",
        "INSERT INTO {} (kind, n, never) VALUES ('null', NULL, 1)",
        "DELETE FROM {} WHERE kind = 'null'",
        A + "ALTER n SET NOT NULL",
    ],
    "new": [
        A + "ADD COLUMN x int",
        "INSERT INTO {} (kind, n, never) VALUES ('null', 1, 1)",
        "DELETE FROM {} WHERE kind = 'null'",
        "UPDATE {} SET x = 1",
        A + "ALTER x SET NOT NULL",
    ],
    "new, with a default": [
        A + "ADD COLUMN x int DEFAULT 1",
        "INSERT INTO {} (kind, n, never, x) VALUES ('null', 1, 1, NULL)",
        "DELETE FROM {} WHERE kind = 'null'",
        A + "ALTER x SET DEFAULT 2, ALTER x SET NOT NULL",
    ],
}
OF_A_DOMAIN = {
    "of a domain": [
        "INSERT INTO {} (kind, n, never) VALUES ('null', 1, 1)",
        "DELETE FROM {} WHERE kind = 'null'",
        "UPDATE {} SET may = 1",
        "ALTER DOMAIN may_{} SET NOT NULL",
    ],
    "of a domain, back": [
        "ALTER DOMAIN never_{} DROP NOT NULL",
        "INSERT INTO {} (kind, n, never) VALUES ('null', 1, NULL)",
        "DELETE FROM {} WHERE kind = 'null'",
        "ALTER DOMAIN never_{} SET NOT NULL",
    ],
    "new, of a domain": [
        "CREATE DOMAIN late_{} AS int",
        "ALTER TABLE {0} ADD COLUMN x late_{0}",
        "INSERT INTO {} (kind, n, never) VALUES ('null', 1, 1)",
        "DELETE FROM {} WHERE kind = 'null'",
        "UPDATE {} SET x = 1",
        "ALTER DOMAIN late_{} SET NOT NULL",
    ],
}


@pytest.mark.parametrize(
    "statements",
    [
        *(pytest.param(one, id=name) for name, one in OF_A_WHILE.items()),
        *(pytest.param(one, id=name, marks=BREADTH) for name, one in OF_A_DOMAIN.items()),
    ],
)
def test_a_null_of_a_while_between_two_looks_is_no_other_value(
    log: Log, statements: list[str]
) -> None:
    shop = log.shop
    shop.tables["public.kept"] = {"delete_mode": "soft"}
    shop.reconfigure()
    shop.database.execute(
        "ALTER TABLE events ALTER n SET NOT NULL",
        "CREATE TABLE kept (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text,"
        " n int NOT NULL)",
        "INSERT INTO kept (kind, n) VALUES ('old', 1), ('old', 2)",
        *(
            one.format(table)
            for table in ("events", "kept")
            for one in (
                "CREATE DOMAIN may_{} AS int",
                "CREATE DOMAIN never_{} AS int",
                "ALTER TABLE {0} ADD COLUMN may may_{0}, ADD COLUMN never never_{0}",
                "UPDATE {} SET never = 1",
                "ALTER DOMAIN never_{} SET NOT NULL",
            )
        ),
    )
    succeeded(shop.onboard("events", "kept"))
    connectors = {shop.services.capture(shop.table(one)).connector for one in ("events", "kept")}
    for connector in connectors:
        shop.services.connect.stop(connector)
    for table in ("events", "kept"):
        shop.database.execute(*(one.format(table) for one in statements))
    for connector in connectors:
        shop.services.connect.resume(connector)
        shop.services.connect.wait_running(connector)
    for table in ("events", "kept"):
        shop.settle(table)
    results = {result.table.name: result for result in shop.run()}
    went_on = {
        name: shop.lake(name).where("kind = 'null'").collect()
        for name, result in results.items()
        if result.state is not State.NEEDS_BOOTSTRAP
    }
    assert not went_on
    assert results.keys() == {"events", "kept"}
