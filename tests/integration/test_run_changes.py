"""Difficult changes, one by one: the lake must have exactly what the source has committed."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from cdc.debezium import names
from cdc.run import run_tables
from cdc.store.table_state import State
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.replication import Replication
from tests.integration.rigs.running import BIG, Orders, settings
from tests.integration.rigs.running import orders as orders
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.sources import on_replica


def test_what_was_rolled_back_never_arrives(orders: Orders) -> None:
    orders.execute(
        "INSERT INTO T VALUES (1, 'first', null, 1)",
        "BEGIN; INSERT INTO T VALUES (2, 'a', null, 2); SAVEPOINT s;"
        " UPDATE T SET note = 'never'; INSERT INTO T VALUES (3, 'never', null, 3);"
        " DELETE FROM T WHERE id = 1; ROLLBACK TO s; INSERT INTO T VALUES (4, 'b', null, 4);"
        " RELEASE s; COMMIT",
        "BEGIN; DELETE FROM T; ROLLBACK",
    )
    result = orders.run()
    assert (result.error, result.counts) == (None, {"c": 3})
    orders.assert_equal()


def test_transactions_that_commit_in_another_order_than_they_wrote(orders: Orders) -> None:
    """The transactions' rows are interleaved in the log, so log positions in the topic go back."""
    orders.execute("INSERT INTO T SELECT n, 'old', null, n FROM generate_series(1, 6) n")
    with ExitStack() as stack:
        one, two, three = (
            stack.enter_context(orders.replication.database.connect()) for _ in range(3)
        )
        for connection in (one, two, three):
            connection.execute("BEGIN")
        for place in (1, 2):
            one.execute(f"UPDATE {orders.name} SET note = 'one' WHERE id = {place}".encode())
            two.execute(f"UPDATE {orders.name} SET note = 'two' WHERE id = {place + 2}".encode())
            three.execute(f"UPDATE {orders.name} SET note = '3' WHERE id = {place + 4}".encode())
        three.execute("COMMIT")
        two.execute(f"UPDATE {orders.name} SET note = 'two, later' WHERE id = 5".encode())
        two.execute("COMMIT")
        one.execute(f"UPDATE {orders.name} SET note = 'one, last' WHERE id IN (3, 5)".encode())
        one.execute(f"DELETE FROM {orders.name} WHERE id = 6".encode())
        one.execute("COMMIT")
    assert orders.run().error is None
    orders.assert_equal()
    rows = dict(orders.lake("id", "_cdc_position"))
    commit, row = (int(half, 16) for half in rows[1].split(":"))
    assert commit > row, "the row was written before the commit that was sent before it"


@settings(max_events_per_run=40_000)
@pytest.mark.breadth
def test_one_transaction_of_100k_rows_becomes_several_commits(orders: Orders) -> None:
    orders.execute(
        "BEGIN; INSERT INTO T SELECT n, 'n' || n, null, n * 0.01 FROM generate_series(1, 90000) n;"
        " UPDATE T SET note = 'twice' WHERE id <= 10000; COMMIT"
    )
    result = orders.run()
    assert (result.error, result.commits) == (None, 3)
    assert result.counts == {"c": 90_000, "u": 10_000}
    orders.assert_equal()


def test_generated_columns_stay_on_the_source(shared: Replication) -> None:
    shared.database.execute(
        "CREATE TABLE sums (id int PRIMARY KEY, a int,"
        " twice int GENERATED ALWAYS AS (a * 2) STORED)"
    )
    shared.add("sums")
    shared.database.execute("INSERT INTO sums VALUES (1, 2), (2, 3)", "UPDATE sums SET a = 5")
    results = {result.table.name: result for result in shared.run()}
    assert results["sums"].error is None
    shared.assert_equal("sums", ("id", "a"))
    attempt = shared.record("sums").attempt
    assert attempt is not None
    assert "twice" not in shared.spark.read.format("hudi").load(attempt.path).columns


@pytest.mark.breadth
def test_columns_that_a_primary_key_includes_are_none_of_it(shared: Replication) -> None:
    shared.database.execute("CREATE TABLE covered (id int, v int, PRIMARY KEY (id) INCLUDE (v))")
    shared.add("covered")
    shared.database.execute("INSERT INTO covered VALUES (1, 1), (2, 2), (3, 3)")
    shared.run()
    shared.database.execute(
        "UPDATE covered SET v = 9 WHERE id = 1", "DELETE FROM covered WHERE id = 2"
    )
    results = {result.table.name: result for result in shared.run()}
    assert results["covered"].error is None
    shared.assert_equal("covered", ("id", "v"))


def test_a_partitioned_table_travels_through_its_root(shared: Replication) -> None:
    shared.database.execute(
        "CREATE TABLE meters (id int, day date, value int, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day)",
        "CREATE TABLE meters_a PARTITION OF meters"
        " FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
        "CREATE TABLE meters_b PARTITION OF meters"
        " FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')",
    )
    shared.add("meters")
    shared.database.execute(
        "INSERT INTO meters VALUES (1, '2024-01-05', 1), (2, '2024-02-05', 2)",
        "INSERT INTO meters_b VALUES (3, '2024-02-06', 3)",
        "UPDATE meters SET day = '2024-02-07' WHERE id = 1",
        "DELETE FROM meters_b WHERE id = 2",
    )
    results = {result.table.name: result for result in shared.run()}
    assert results["meters"].error is None
    shared.assert_equal("meters", ("id", "day", "value"))
    shared.database.execute("TRUNCATE meters", "INSERT INTO meters VALUES (9, '2024-01-09', 9)")
    shared.run()
    shared.assert_equal("meters", ("id", "day", "value"))
    # One more is followed before it has rows, and its rows arrive.
    shared.database.execute(
        "CREATE TABLE meters_c PARTITION OF meters FOR VALUES FROM ('2024-03-01') TO ('2024-04-01')"
    )
    results = {result.table.name: result for result in shared.run()}
    assert (results["meters"].error, shared.record("meters").state) == (None, State.INCREMENTAL)
    shared.database.execute("INSERT INTO meters VALUES (10, '2024-03-09', 10)")
    shared.run()
    shared.assert_equal("meters", ("id", "day", "value"))
    # A new file with the old rows, which are younger than the catalog that the lake follows.
    shared.database.execute("VACUUM FULL meters_c")
    results = {result.table.name: result for result in shared.run()}
    assert (results["meters"].error, shared.record("meters").state) == (None, State.INCREMENTAL)
    # No event reports this change, and those before and after it do not hide it.
    shared.database.execute(
        "TRUNCATE meters_c",
        "INSERT INTO meters VALUES (11, '2024-03-10', 11)",
        "GRANT SELECT ON meters_c TO PUBLIC",
        "VACUUM FULL meters_a",
    )
    results = {result.table.name: result for result in shared.run()}
    assert shared.record("meters").state is State.NEEDS_BOOTSTRAP
    error = results["meters"].error
    assert error is not None
    assert "meters_c was truncated" in error.message
    assert "meters_a" not in error.message


@pytest.mark.parametrize(
    "identity", ["FULL", pytest.param("USING INDEX", marks=pytest.mark.breadth)]
)
def test_tables_without_a_primary_key_follow_the_columns_that_are_named(
    shared: Replication, identity: str
) -> None:
    name = "named_" + identity.split()[0].lower()
    shared.configure(**{f"public__{name}": {"key_columns": ["code"]}})
    shared.database.execute(
        f"CREATE TABLE {name} (code text NOT NULL, n int)",
        f"CREATE UNIQUE INDEX {name}_code ON {name} (code)",
        f"ALTER TABLE {name} REPLICA IDENTITY {identity}"
        + (f" {name}_code" if identity == "USING INDEX" else ""),
    )
    shared.add(name)
    shared.database.execute(
        f"INSERT INTO {name} VALUES ('a', 1), ('b', 2), ('c', 3)",
        f"UPDATE {name} SET n = 9 WHERE code = 'a'",
        f"UPDATE {name} SET code = 'z' WHERE code = 'b'",
        f"DELETE FROM {name} WHERE code = 'c'",
    )
    results = {result.table.name: result for result in shared.run()}
    assert results[name].error is None
    shared.assert_equal(name, ("code", "n"))


@pytest.mark.parametrize("delete_mode", ["hard", pytest.param("soft", marks=pytest.mark.breadth)])
def test_named_columns_that_change_beside_a_primary_key(
    shared: Replication, delete_mode: str
) -> None:
    """The connector's key is the primary key, which does not change, so it sends one event only."""
    name = f"beside_{delete_mode}"
    shared.configure(**{f"public__{name}": {"key_columns": ["code"], "delete_mode": delete_mode}})
    shared.database.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, code text NOT NULL UNIQUE, n int)",
        f"ALTER TABLE {name} REPLICA IDENTITY FULL",
    )
    shared.add(name)
    shared.database.execute(f"INSERT INTO {name} VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    assert {result.error for result in shared.run()} == {None}
    shared.database.execute(
        f"UPDATE {name} SET code = 'z' WHERE id = 1",
        f"UPDATE {name} SET n = 7 WHERE id = 1",
        f"UPDATE {name} SET code = 'a' WHERE id = 2",
        f"UPDATE {name} SET n = 8 WHERE id = 3",
    )
    assert {result.error for result in shared.run()} == {None}
    if delete_mode == "hard":
        shared.assert_equal(name, ("id", "code", "n"))
    else:
        rows = shared.lake(name, "code", "id", "_cdc_deleted")
        assert rows == [("a", 2, False), ("b", 2, True), ("c", 3, False), ("z", 1, False)]
        return
    # The old rows of events have only the primary key from now on, and the former code is unknown.
    shared.database.execute(
        f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT",
        f"UPDATE {name} SET code = 'y' WHERE id = 1",
        f"DELETE FROM {name} WHERE id = 2",
    )
    results = {result.table.name: result for result in shared.run()}
    assert shared.record(name).state is State.NEEDS_BOOTSTRAP
    error = results[name].error
    assert error is not None
    assert "replica identity" in error.message


def test_an_empty_partition_that_had_rows_before_it_was_attached_again_asks_for_a_copy(
    shared: Replication,
) -> None:
    """The topic has the events of the partition's rows, but none that says they are gone."""
    shared.database.execute(
        "CREATE TABLE weeks (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE weeks_a PARTITION OF weeks FOR VALUES FROM (0) TO (10)",
    )
    shared.add("weeks")
    shared.database.execute(
        "CREATE TABLE weeks_b PARTITION OF weeks FOR VALUES FROM (10) TO (20)",
        "INSERT INTO weeks VALUES (1), (11)",
        "ALTER TABLE weeks DETACH PARTITION weeks_b",
        "DELETE FROM weeks_b",
    )

    def empty() -> bool:
        """Vacuum the partition; returns whether it is empty.

        VACUUM keeps the row while an older transaction, on primary or replica, may see it.
        """
        shared.database.execute("VACUUM weeks_b")
        return shared.database.rows("SELECT pg_relation_size('weeks_b')") == [(0,)]

    wait_until(empty, "an empty file of weeks_b")
    shared.database.execute(
        "ALTER TABLE weeks ATTACH PARTITION weeks_b FOR VALUES FROM (10) TO (20)"
    )
    shared.run()
    assert shared.record("weeks").state is State.NEEDS_BOOTSTRAP


LARGE = {
    "a": ("text", BIG),
    "b": ("json", f"to_json({BIG})"),
    "c": ("jsonb", f"to_jsonb({BIG})"),
    "d": ("bytea", f"{BIG}::bytea"),
    "e": ("text[]", "(SELECT array_agg(md5(i::text)) FROM generate_series(1, 1000) i)"),
    "f": ("int[]", "(SELECT array_agg(i) FROM generate_series(1, 5000) i)"),
    "g": ("numeric", "(SELECT string_agg('7', '')::numeric FROM generate_series(1, 20000))"),
    "h": ("xml", f"('<a>' || {BIG} || '</a>')::xml"),
}
"""By column name: the type, and SQL for a value that PostgreSQL stores out of line."""


@pytest.mark.breadth
def test_unchanged_large_values_of_each_type(shared: Replication) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in LARGE.items())
    external = ", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name in LARGE)
    values = ", ".join(value for _, value in LARGE.values())
    shared.database.execute(
        f"CREATE TABLE large (id int PRIMARY KEY, n int, {columns})",
        f"ALTER TABLE large {external}",
        f"INSERT INTO large SELECT 0, 0, {values}",
    )
    # Row 0 is older than the handoff, as a row that the copy has not delivered.
    shared.add("large")
    insert = "INSERT INTO large SELECT {0}, 0, " + values
    shared.database.execute(
        "UPDATE large SET n = 1",
        insert.format(1),
        "UPDATE large SET n = 1 WHERE id = 1",
        insert.format(2),
        insert.format(3),
    )
    results = {result.table.name: result for result in shared.run()}
    assert results["large"].error is None
    shared.database.execute(
        "UPDATE large SET n = 5",
        "UPDATE large SET id = 20 WHERE id = 2",
        "UPDATE large SET a = 'short', f = null WHERE id = 3",
        "UPDATE large SET n = 6 WHERE id = 3",
    )
    results = {result.table.name: result for result in shared.run()}
    assert results["large"].error is None
    attempt = shared.record("large").attempt
    assert attempt is not None
    shown = [f"CAST({name} AS STRING)" for name in "abcgh"]
    lake = shared.spark.read.format("hudi").load(attempt.path)
    rows = lake.selectExpr("id", "n", *shown, "hex(d)", "e", "f").collect()
    with shared.database.connect() as connection:
        truth = connection.execute(
            "SELECT id, n, a, b::text, c::text, g::text, h::text, upper(encode(d, 'hex')), e, f"
            " FROM large"
        ).fetchall()
    assert sorted((tuple(row) for row in rows), key=repr) == sorted(truth, key=repr)
    assert len(truth) == 4


def test_values_of_16_mib_arrive(shared: Replication) -> None:
    shared.database.execute(
        "CREATE TABLE huge (id int PRIMARY KEY, n int, v text)",
        "ALTER TABLE huge ALTER v SET STORAGE EXTERNAL",
    )
    shared.add("huge")
    shared.database.execute(
        "INSERT INTO huge SELECT 1, 0, string_agg(md5(g::text), '')"
        " FROM generate_series(1, 524288) g",
        "UPDATE huge SET n = 1",
    )
    results = {result.table.name: result for result in shared.run()}
    assert results["huge"].error is None
    shared.assert_equal("huge", ("id", "n", "v"))
    on_replica(shared.source)
    assert shared.source.largest_row(shared.source.table(shared.table("huge"))) == 2 + 16 * 1024**2


def test_an_inserted_value_that_equals_the_stand_in_survives(orders: Orders) -> None:
    shown = orders.replication.capture.placeholder
    orders.execute(f"INSERT INTO T VALUES (1, '{shown}', 'b', 1), (2, 'x', '{shown}', 2)")
    assert orders.run().error is None
    orders.assert_equal()
    orders.execute("UPDATE T SET price = 3")
    assert orders.run().error is None
    orders.assert_equal()
    assert orders.state is State.INCREMENTAL


@pytest.mark.breadth
def test_another_captures_stand_in_is_a_value_like_any(orders: Orders) -> None:
    """A table that stores events can contain placeholders of another capture as ordinary values."""
    replication = orders.replication
    source = replication.capture.source
    shown = names(source, replication.config.source(source), "other").placeholder
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    assert orders.run().error is None
    orders.execute(f"UPDATE T SET note = '{shown}', body = '{shown}'")
    assert orders.run().error is None
    assert orders.lake("note", "body") == [(shown, shown)]


@pytest.mark.breadth
def test_a_null_in_a_column_with_a_default_stays_null(shared: Replication) -> None:
    """The converter sends the default instead of NULL, so the run reads the row from the source."""
    columns = ("id", "n", "t", "b", "d", "f", "day", "kept")
    shared.database.execute(
        "CREATE TABLE defaults (id int PRIMARY KEY, n int DEFAULT 7, t text DEFAULT 'it''s',"
        " b boolean DEFAULT true, d numeric(6,2) DEFAULT 1.50, f float8 DEFAULT 0.5,"
        " day date DEFAULT '2020-02-02', kept int NOT NULL DEFAULT 3, body text)"
    )
    shared.add("defaults")
    nulls = "n = null, t = null, b = null, d = null, f = null, day = null"
    shared.database.execute(
        "INSERT INTO defaults (id) SELECT n FROM generate_series(1, 6) n",
        "INSERT INTO defaults VALUES (7, 1, 'a', false, 2, 3, '2021-01-01')",
        "INSERT INTO defaults VALUES (8, null, null, null, null, null, null)",
        f"UPDATE defaults SET {nulls} WHERE id IN (2, 3)",
        "UPDATE defaults SET n = 7, kept = 4 WHERE id = 3",
        "DELETE FROM defaults WHERE id = 4",
    )
    results = {result.table.name: result for result in shared.run()}
    assert results["defaults"].error is None
    shared.assert_equal("defaults", columns)
    shared.database.execute(
        f"UPDATE defaults SET {nulls} WHERE id IN (1, 7)",
        f"UPDATE defaults SET n = 9, body = {BIG} WHERE id = 8",
        "UPDATE defaults SET t = 'it''s' WHERE id = 8",
        "UPDATE defaults SET id = 50 WHERE id = 2",
    )
    results = {result.table.name: result for result in shared.run()}
    assert results["defaults"].error is None
    shared.assert_equal("defaults", (*columns, "body"))


def test_the_connectors_own_converter_decides_what_a_default_means(shared: Replication) -> None:
    """An edit of the setting `connect.converter` does not change existing connectors."""
    shared.database.execute("CREATE TABLE edited (id int PRIMARY KEY, t text DEFAULT 'new')")
    shared.add("edited")
    shared.database.execute("INSERT INTO edited VALUES (1, 'a'), (2, 'b')")
    connect = shared.config.connect.model_copy(update={"converter": "confluent"})
    edited = shared.config.model_copy(update={"connect": connect})
    shared.database.execute("UPDATE edited SET t = NULL WHERE id = 1")
    results = {result.table.name: result for result in shared.run(config=edited)}
    assert results["edited"].error is None
    shared.assert_equal("edited", ("id", "t"))


def test_a_delete_whose_key_another_identity_left_out_stops_the_table(
    orders: Orders, shared: Replication
) -> None:
    """The index of the former replica identity is dropped, so the catalog no longer shows it."""
    other = f"{orders.name}_other"
    orders.execute(f"CREATE TABLE {other} (id int PRIMARY KEY, q int NOT NULL, v int NOT NULL)")
    shared.add(other)
    orders.execute(
        f"INSERT INTO {other} VALUES (0, 1, 1), (1, 2, 2)", f"DELETE FROM {other} WHERE id = 0"
    )
    shared.settle()
    (zero,) = run_tables(shared.context(), [shared.record(other)])
    assert zero.error is None
    assert shared.lake(other, "id") == [(1,)]
    orders.execute(
        f"CREATE UNIQUE INDEX {other}_q ON {other} (q)",
        f"ALTER TABLE {other} REPLICA IDENTITY USING INDEX {other}_q",
        f"DELETE FROM {other}",
        f"ALTER TABLE {other} REPLICA IDENTITY DEFAULT",
        f"DROP INDEX {other}_q",
    )
    shared.settle()
    (stopped,) = run_tables(shared.context(), [shared.record(other)])
    assert stopped.error is not None, "the row with key 1 would stay"
    assert stopped.error.error == "DecodeError"
    assert "lacks the key" in stopped.error.message
    assert shared.lake(other, "id") == [(1,)]
