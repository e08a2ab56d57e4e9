"""Incremental runs on the real stack: what a change of the table itself does."""

from __future__ import annotations

import pytest

from cdc.state import State
from tests.integration.running import COLUMNS, Orders
from tests.integration.running import orders as orders
from tests.integration.running import shared as shared
from tests.integration.running import spark as spark


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


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE T ADD COLUMN extra int DEFAULT 5",),
        ("ALTER TABLE T ADD COLUMN extra int DEFAULT 5", "ALTER TABLE T ALTER extra DROP DEFAULT"),
        ("ALTER TABLE T ADD COLUMN extra int NOT NULL DEFAULT 5",),
        ("ALTER TABLE T RENAME COLUMN note TO remark",),
        ("ALTER TABLE T ALTER COLUMN price TYPE int USING 0",),
        ("ALTER TABLE T ALTER COLUMN price TYPE numeric(10,2) USING price + 1",),
        ("ALTER TABLE T DROP COLUMN note", "ALTER TABLE T ADD COLUMN note text"),
        ("ALTER TABLE T DROP CONSTRAINT %_pkey, ADD PRIMARY KEY (id, price)",),
    ],
)
def test_schema_changes_that_need_a_copy_stop_the_table(
    orders: Orders, statements: tuple[str, ...]
) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1), (2, 'b', null, 2)")
    orders.run()
    before = orders.lake(*COLUMNS)
    orders.execute(*(text.replace("%", orders.name) for text in statements))
    orders.execute("DELETE FROM T WHERE id = 1")
    result = orders.run()
    assert (result.state, orders.state) == (State.NEEDS_BOOTSTRAP, State.NEEDS_BOOTSTRAP)
    record = orders.replication.record(orders.name)
    assert record.reason
    assert "tributary bootstrap" in (record.remedy or "")
    assert orders.lake(*COLUMNS) == before


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
    orders.execute("ALTER TABLE T DROP COLUMN body", "UPDATE T SET note = 'c' WHERE id = 2")
    assert orders.run().error is None
    orders.assert_equal(("id", "note", "price"))
    assert orders.lake("id", "body") == [(1, "b"), (2, None)]


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
