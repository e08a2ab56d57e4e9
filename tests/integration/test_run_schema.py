"""Incremental runs on the real stack: the effects of changes to a table's definition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import pytest

from cdc.runtime.progress import NullProgress
from cdc.store.table_state import State, transition
from operate.context import Services
from operate.status import status
from schemas.changes import Verdict
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.replication import Replication
from tests.integration.rigs.running import COLUMNS, Orders, settings
from tests.integration.rigs.running import orders as orders
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark


def test_a_nullable_column_is_added_in_place(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2)")
    orders.run()
    orders.execute(
        "ALTER TABLE T ADD COLUMN extra int",
        "INSERT INTO T VALUES (3, 'c', null, 3, 33)",
        "UPDATE T SET extra = 22 WHERE id = 2",
    )
    assert orders.run().error is None
    orders.assert_equal((*COLUMNS, "extra"))
    orders.execute("UPDATE T SET extra = null WHERE id = 3")
    assert orders.run().error is None
    orders.assert_equal((*COLUMNS, "extra"))


def test_a_batch_waits_for_a_catalog_that_shows_its_transactions(orders: Orders) -> None:
    """A commit is in the log before it is visible: here the commit waits for a missing standby.

    If the statement rewrote an index, the connector itself would wait for the commit's locks.
    """
    statement = "ALTER TABLE T ADD COLUMN extra int; UPDATE T SET extra = id * 2"
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2)")
    orders.run()
    orders.execute("INSERT INTO T VALUES (3, 'c', null, 3)")
    hangs = orders.replication.database.commits_hang()
    with ThreadPoolExecutor(2) as pool, hangs as release:
        hanging = pool.submit(
            orders.execute, "SET synchronous_commit TO on", f"BEGIN; {statement}; COMMIT"
        )
        orders.replication.settle()
        assert not hanging.done()
        running = pool.submit(orders.run)
        wait_until(lambda: len(orders.lake("id")) == 3, "the changes before")
        assert not running.done()
        release()
        assert running.result(60).error is None
        hanging.result(20)
    orders.assert_equal((*COLUMNS, "extra"))


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (("ALTER TABLE T ADD COLUMN extra float DEFAULT random()",), "'extra'"),
        (
            (
                "ALTER TABLE T ADD COLUMN extra int DEFAULT 5",
                "ALTER TABLE T ALTER extra DROP DEFAULT",
                "VACUUM FULL T",
            ),
            "'extra'",
        ),
        (("ALTER TABLE T RENAME COLUMN note TO remark",), "renamed to 'remark'"),
        (
            (
                "ALTER TABLE T RENAME COLUMN note TO remark",
                "INSERT INTO T VALUES (7, 'x', 'y', 7)",
                "ALTER TABLE T RENAME COLUMN remark TO note",
            ),
            "had another name for a while",
        ),
        (
            ("ALTER TABLE T RENAME TO %_away", "ALTER TABLE %_away RENAME TO T"),
            "had another name or schema for a while",
        ),
        (("ALTER TABLE T ALTER COLUMN price TYPE int USING 0",), "'price' changed from"),
        (
            ("ALTER TABLE T ALTER COLUMN price TYPE numeric(10,2) USING price + 1",),
            "'price' was altered",
        ),
        (
            ("ALTER TABLE T DROP COLUMN note", "ALTER TABLE T ADD COLUMN note text"),
            "of a column 'note' that was dropped",
        ),
        (("ALTER TABLE T DROP CONSTRAINT %_pkey, ADD PRIMARY KEY (id, price)",), "its key changed"),
    ],
)
def test_schema_changes_that_need_a_copy_stop_the_table(
    orders: Orders, statements: tuple[str, ...], reason: str
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2)")
    orders.run()
    before = orders.lake(*COLUMNS)
    orders.execute(*(text.replace("%", orders.name) for text in statements))
    orders.execute("DELETE FROM T WHERE id = 1")
    result = orders.run()
    assert (result.state, orders.state) == (State.NEEDS_BOOTSTRAP, State.NEEDS_BOOTSTRAP)
    record = orders.replication.record(orders.name)
    assert reason in (record.reason or "")
    assert "tributary bootstrap" in (record.remedy or "")
    assert orders.lake(*COLUMNS) == before


def test_old_rows_get_the_default_of_a_new_column(orders: Orders) -> None:
    """The rows are in the lake already, or in events from before or after the new columns."""
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2), (3, 'c', null, 3)")
    orders.run()
    orders.execute(
        "INSERT INTO T VALUES (4, 'd', null, 4)",
        "UPDATE T SET note = 'B' WHERE id = 2",
        "ALTER TABLE T ADD COLUMN n int NOT NULL DEFAULT 5, ADD COLUMN t text DEFAULT 'a''b\\c',"
        " ADD COLUMN at timestamptz DEFAULT now(), ADD COLUMN b bytea DEFAULT '\\x00ff',"
        " ADD COLUMN l int[] DEFAULT '{1,NULL,3}', ADD COLUMN d numeric(12,3) DEFAULT -1.5,"
        " ADD COLUMN o date DEFAULT '1500-02-03'",
        "INSERT INTO T (id, n, t, d) VALUES (5, 55, 'five', 5), (6, 6, 'six', 6)",
        "ALTER TABLE T ALTER n SET DEFAULT 6",
        "UPDATE T SET n = 33, t = 'three' WHERE id = 3",
        "DELETE FROM T WHERE id = 1",
    )
    result = orders.run(**small_batches(orders))
    assert result.error is None
    columns = (*COLUMNS, "n", "t", "b", "l", "d", "o")
    orders.assert_equal(columns)
    (times,) = {row[1:] for row in orders.lake("id", "at") if row[0] in (2, 4)}
    assert times[0] is not None
    orders.execute("UPDATE T SET note = 'z' WHERE id = 4")
    assert orders.run().error is None
    orders.assert_equal(columns)
    columns_now = orders.newest.require_handoff().columns
    assert not [one for one in columns_now if one.late]
    # What a replay of older events would need stays.
    assert {one.name for one in columns_now if one.added} == set("ntbldo") | {"at"}


def small_batches(orders: Orders) -> dict[str, Any]:
    """Settings for batches of two offsets, so that old and new events are in different batches."""
    config = orders.replication.config
    defaults = config.defaults.model_copy(update={"max_events_per_run": 2})
    return {"config": config.model_copy(update={"defaults": defaults})}


@pytest.mark.breadth
def test_an_idle_table_is_filled_too(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2)")
    orders.run()
    orders.execute("ALTER TABLE T ADD COLUMN n bigint DEFAULT 5")
    assert orders.run().error is None
    orders.assert_equal((*COLUMNS, "n"))
    (entry,) = orders.replication.store.schema_history(orders.replication.table(orders.name))
    assert (entry.version, entry.outcome, entry.verdict) == (2, "followed", Verdict.FILL)
    assert [change.what for change in entry.changes] == ["column 'n' (bigint) was added"]


def test_a_column_that_came_and_went_is_held_against_its_own_name_only(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)")
    orders.run()
    orders.execute("ALTER TABLE T ADD COLUMN helper int", "ALTER TABLE T DROP COLUMN helper")
    assert orders.run().error is None
    orders.execute("ALTER TABLE T ADD COLUMN n int", "INSERT INTO T VALUES (2, 'b', null, 2, 3)")
    assert orders.run().error is None, "the run before has looked at what came and went"
    orders.assert_equal((*COLUMNS, "n"))
    # Between two looks its events have values that the source no longer shows.
    orders.execute(
        "ALTER TABLE T ADD COLUMN x int",
        "UPDATE T SET x = 1",
        "ALTER TABLE T DROP COLUMN x",
        "ALTER TABLE T ADD COLUMN x int",
    )
    stopped = orders.run()
    assert stopped.state is State.NEEDS_BOOTSTRAP
    assert "was added and dropped meanwhile" in str(stopped.error)


@pytest.mark.parametrize("default", [pytest.param("", marks=pytest.mark.breadth), "DEFAULT 5"])
def test_a_new_column_that_had_another_name_at_first_needs_a_copy(
    orders: Orders, default: str
) -> None:
    """The catalog shows only the last name, but events have the values under the first name."""
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)")
    orders.run()
    orders.execute(
        f"ALTER TABLE T ADD COLUMN x int {default}",
        "INSERT INTO T VALUES (3, 'c', null, 1, 33)",
        "ALTER TABLE T RENAME COLUMN x TO y",
        "INSERT INTO T VALUES (4, 'd', null, 1, 44)",
    )
    stopped = orders.run()
    assert stopped.state is State.NEEDS_BOOTSTRAP
    assert "former name of" in str(stopped.error)


@pytest.mark.breadth
def test_a_new_column_whose_first_name_another_one_took_needs_a_copy(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2)")
    orders.run()
    orders.execute(
        "ALTER TABLE T ADD COLUMN amount int",
        "UPDATE T SET amount = 5 WHERE id = 1",
        "ALTER TABLE T RENAME COLUMN amount TO amount_old",
        "ALTER TABLE T ADD COLUMN amount int",
        "UPDATE T SET note = 'x' WHERE id = 2",
    )
    stopped = orders.run()
    assert stopped.state is State.NEEDS_BOOTSTRAP
    assert "was added after it" in str(stopped.error)


@pytest.mark.breadth
def test_a_label_of_a_new_column_that_was_renamed_at_once_needs_a_copy(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)")
    orders.run()
    orders.execute(
        "CREATE TYPE T_state AS ENUM ('sad', 'calm')",
        "ALTER TABLE T ADD COLUMN state T_state",
        "UPDATE T SET state = 'sad'",
        "ALTER TYPE T_state RENAME VALUE 'sad' TO 'blue'",
    )
    stopped = orders.run()
    assert stopped.state is State.NEEDS_BOOTSTRAP
    assert "'blue'" in str(stopped.error)


@settings(delete_mode="soft")
@pytest.mark.breadth
def test_a_deleted_row_that_is_kept_is_not_filled(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2)")
    orders.run()
    orders.execute("DELETE FROM T WHERE id = 1")
    orders.run()
    orders.execute("ALTER TABLE T ADD COLUMN n int DEFAULT 5")
    assert orders.run().error is None
    assert orders.lake("id", "_cdc_deleted", "n") == [(1, True, None), (2, False, 5)]


@settings(on_schema_change="freeze")
@pytest.mark.breadth
def test_a_frozen_table_leaves_new_columns_out_and_says_so(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)")
    orders.run()
    orders.execute(
        "ALTER TABLE T ADD COLUMN n int DEFAULT 5, ADD COLUMN p point",
        "INSERT INTO T VALUES (2, 'b', null, 2, 7)",
    )
    for _ in range(2):
        result = orders.run()
        assert result.error is None
        assert "leaves out: n, p" in result.warnings[-1]
        orders.assert_equal(COLUMNS)
        orders.execute("UPDATE T SET note = 'c', n = 8 WHERE id = 2")
    services = Services(orders.replication.config, NullProgress(), spark=orders.replication.spark)
    (shown,) = status(services, [orders.replication.table(orders.name)]).tables
    services.close()
    assert shown.notes == ("the lake lacks the columns n, p (on_schema_change: freeze)",)
    orders.replication.configure(**{f"public__{orders.name}": {}})
    orders.execute("ALTER TABLE T DROP COLUMN p")
    assert orders.run().state is State.NEEDS_BOOTSTRAP, "nobody knows the values of until now"


@settings(on_schema_change="pause")
def test_a_policy_of_pause_stops_before_anything_of_the_new_schema(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)")
    orders.run()
    orders.execute(
        "ALTER TABLE T ADD COLUMN n int DEFAULT 5", "INSERT INTO T VALUES (2, 'b', null, 2, 7)"
    )
    assert orders.run().state is State.PAUSED
    assert orders.lake("id") == [(1,)]
    record = orders.replication.record(orders.name)
    assert "column 'n' (integer) was added" in (record.reason or "")
    orders.replication.configure(**{f"public__{orders.name}": {}})
    now = datetime.now(timezone.utc)
    orders.replication.store.put(transition(record, State.INCREMENTAL, at=now))
    assert orders.run().error is None
    orders.assert_equal((*COLUMNS, "n"))
    history = orders.replication.store.schema_history(orders.replication.table(orders.name))
    assert [entry.outcome for entry in history] == ["paused", "followed"]


def test_a_column_that_the_settings_leave_out_from_now_on_gets_no_values(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.replication.configure(**{f"public__{orders.name}": {"columns": {"exclude": ["body"]}}})
    orders.execute("INSERT INTO T VALUES (2, 'a', 'secret', 2)")
    assert orders.run().error is None
    assert orders.lake("id", "body") == [(1, "b"), (2, None)]


def test_a_rewrite_without_a_change_is_let_through(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute("VACUUM FULL T", "INSERT INTO T VALUES (2, 'a', 'b', 2)")
    result = orders.run()
    assert result.error is None
    assert "tributary verify" in result.warnings[0]
    orders.assert_equal()


def test_a_rewrite_of_a_table_without_events_is_noticed(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute("ALTER TABLE T ALTER COLUMN price TYPE numeric(10,2) USING price + 1")
    result = orders.run()
    assert (result.state, result.commits) == (State.NEEDS_BOOTSTRAP, 0)
    assert "'price' was altered" in (orders.replication.record(orders.name).reason or "")


def test_a_dropped_column_is_null_from_then_on(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1), (2, 'a', 'b', 2)")
    orders.run()
    orders.execute(
        "INSERT INTO T VALUES (3, 'a', 'b', 3)",
        "ALTER TABLE T DROP COLUMN body",
        "UPDATE T SET note = 'c' WHERE id = 2",
    )
    assert orders.run().error is None
    orders.assert_equal(("id", "note", "price"))
    assert orders.lake("id", "body") == [(1, "b"), (2, None), (3, None)]


@pytest.mark.breadth
def test_wider_types_are_followed_in_place(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)")
    orders.run()
    orders.execute(
        "ALTER TABLE T ADD COLUMN n int",
        "INSERT INTO T VALUES (2, 'a', 'b', 2, 2147483647)",
    )
    orders.run()
    orders.execute(
        "INSERT INTO T VALUES (3, 'a', 'b', 2, 3)",
        "ALTER TABLE T ALTER COLUMN n TYPE bigint",
        "ALTER TABLE T ALTER COLUMN price TYPE numeric(20,2)",
        "INSERT INTO T VALUES (4, 'a', 'b', 123456789012345.67, 9999999999)",
    )
    result = orders.run()
    assert result.error is None
    orders.assert_equal((*COLUMNS, "n"))


def test_a_label_that_was_added_and_renamed_later_is_noticed(orders: Orders) -> None:
    orders.execute("CREATE TYPE T_mood AS ENUM ('sad')", "ALTER TABLE T ADD COLUMN mood T_mood")
    assert orders.run().error is None
    orders.execute("ALTER TYPE T_mood ADD VALUE 'calm'")
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1, 'calm')")
    assert orders.run().error is None
    assert orders.lake("mood") == [("calm",)]
    orders.execute("ALTER TYPE T_mood RENAME VALUE 'calm' TO 'quiet'")
    orders.execute("INSERT INTO T VALUES (2, 'a', 'b', 1, 'sad')")
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    assert "'calm'" in (orders.replication.record(orders.name).reason or "")


def test_another_key_by_the_settings_needs_a_copy(shared: Replication) -> None:
    """The key changes in the settings only, not in the source's catalog."""
    shared.database.execute(
        "CREATE TABLE rekeyed (id int PRIMARY KEY, code text NOT NULL UNIQUE, n int)",
        "ALTER TABLE rekeyed REPLICA IDENTITY FULL",
    )
    shared.add("rekeyed")
    shared.database.execute("INSERT INTO rekeyed VALUES (1, 'a', 1)")
    shared.run()
    shared.configure(public__rekeyed={"key_columns": ["code"]})
    shared.database.execute("UPDATE rekeyed SET n = 2")
    (error,) = [result.error for result in shared.run() if result.table.name == "rekeyed"]
    assert error is not None
    assert "its key changed from (id) to (code)" in error.message
    assert shared.record("rekeyed").state is State.NEEDS_BOOTSTRAP
    assert shared.lake("rekeyed", "id", "n") == [(1, 1)]


@pytest.mark.parametrize("idle", [pytest.param(False, marks=pytest.mark.breadth), True])
def test_other_partition_columns_by_the_settings_need_a_copy(
    shared: Replication, idle: bool
) -> None:
    name = "idle" if idle else "busy"
    shared.database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, day int, n int)")
    shared.add(name)
    shared.database.execute(f"INSERT INTO {name} VALUES (1, 1, 1)")
    shared.run()
    shared.configure(**{f"public__{name}": {"partition_by": ["day"]}})
    if not idle:
        shared.database.execute(f"UPDATE {name} SET n = 2")
    (error,) = [result.error for result in shared.run() if result.table.name == name]
    assert error is not None
    assert "its partition_by changed from () to (day)" in error.message
    assert "`tributary bootstrap" in error.remedy
    assert shared.record(name).state is State.NEEDS_BOOTSTRAP
    assert shared.lake(name, "id", "n") == [(1, 1)]
