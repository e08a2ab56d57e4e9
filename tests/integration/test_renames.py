"""Columns that are renamed on the source, with a setting that makes the lake follow the rename."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.lake.handoff import LakeColumn
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import State
from operate.context import Services
from operate.schema import check, difference
from schemas.changes import Verdict
from tests.integration.rigs.replication import Replication
from tests.integration.rigs.running import BIG, Orders, settings
from tests.integration.rigs.running import orders as orders
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark

NOW = ("id", "note", "content", "price")
RENAMED = {"content": "body"}


def batches(orders: Orders, size: int | None) -> dict[str, Any]:
    """Settings for a run context whose batches hold ``size`` offsets, or all if None."""
    if size is None:
        return {}
    config = orders.replication.config
    defaults = config.defaults.model_copy(update={"max_events_per_run": size})
    return {"config": config.model_copy(update={"defaults": defaults})}


def column(orders: Orders, name: str) -> LakeColumn:
    return next(one for one in orders.newest.require_handoff().columns if one.name == name)


@settings(columns={"renames": RENAMED})
@pytest.mark.breadth
@pytest.mark.parametrize("size", [None, 2])
def test_a_renamed_column_keeps_every_value(orders: Orders, size: int | None) -> None:
    """Events with both names are in one batch or in several; some lack unchanged large values."""
    orders.execute(*(f"INSERT INTO T VALUES ({n}, 'a', {BIG}, {n})" for n in range(1, 8)))
    assert orders.run().error is None, "an entry may wait for its rename"
    before = dict(orders.lake("id", "body"))
    orders.execute(
        f"INSERT INTO T VALUES (8, 'b', {BIG}, 8), (9, 'b', NULL, 9)",
        "UPDATE T SET note = 'b' WHERE id = 2",
        f"UPDATE T SET body = {BIG} WHERE id IN (3, 4)",
        "UPDATE T SET note = 'b' WHERE id = 3",
        "UPDATE T SET id = 20 WHERE id = 7",
        "ALTER TABLE T RENAME COLUMN body TO content",
        "UPDATE T SET note = 'c' WHERE id IN (1, 3, 4, 8, 20)",
        f"UPDATE T SET content = {BIG} WHERE id = 9",
        "UPDATE T SET content = NULL WHERE id = 5",
        f"INSERT INTO T VALUES (10, 'c', {BIG}, 10)",
    )
    result = orders.run(**batches(orders, size))
    assert result.error is None
    orders.assert_equal(NOW)
    (entry,) = orders.replication.store.schema_history(orders.replication.table(orders.name))
    assert (entry.verdict, entry.outcome) == (Verdict.FILL, "followed")
    assert [one.what for one in entry.changes] == ["column 'body' was renamed to 'content'"]
    kept = {key: value for key, value in orders.lake("id", "body") if value is not None}
    assert kept == {6: before[6]}, "rows that were written since have none under the old name"
    # The entry may stay, and a batch without the old name ends the looking for it.
    orders.execute("UPDATE T SET note = 'd'", f"UPDATE T SET content = {BIG} WHERE id = 6")
    assert orders.run().error is None
    orders.assert_equal(NOW)
    assert not column(orders, "content").renamed
    assert column(orders, "content").former == ("body",)
    # What takes the old name again is another column.
    orders.execute("ALTER TABLE T ADD COLUMN body text")
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    reason = orders.replication.record(orders.name).reason or ""
    assert "of a column 'body' that was dropped" in reason


@settings(delete_mode="soft", columns={"renames": RENAMED})
@pytest.mark.breadth
def test_rows_that_are_kept_deleted_keep_its_values(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'one', 1), (2, 'b', 'two', 2), (3, 'c', 'x', 3)")
    orders.run()
    orders.execute("DELETE FROM T WHERE id = 1")
    orders.run()
    orders.execute(
        "UPDATE T SET body = 'three' WHERE id = 3",
        "DELETE FROM T WHERE id = 3",
        "ALTER TABLE T RENAME COLUMN body TO content",
        "DELETE FROM T WHERE id = 2",
    )
    assert orders.run().error is None
    rows = orders.lake("id", "content", "_cdc_deleted")
    assert rows == [(1, "one", True), (2, "two", True), (3, "three", True)]


@settings(columns={"renames": {"content": "body", "text": "content"}})
@pytest.mark.breadth
def test_a_column_may_be_renamed_again_before_and_after_a_look(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T VALUES (1, 'a', {BIG}, 1), (2, 'b', {BIG}, 2)")
    orders.run()
    orders.execute(
        "UPDATE T SET body = 'old' WHERE id = 2",
        "ALTER TABLE T RENAME COLUMN body TO content",
        "INSERT INTO T VALUES (3, 'c', 'between', 3)",
        "ALTER TABLE T RENAME COLUMN content TO text",
        "INSERT INTO T VALUES (4, 'd', 'new', 4)",
        "UPDATE T SET note = 'z' WHERE id IN (1, 3)",
    )
    assert orders.run().error is None
    orders.assert_equal(("id", "note", "text", "price"))
    tables = {"columns": {"renames": {"words": "text"}}}
    orders.replication.configure(**{f"public__{orders.name}": tables})
    orders.execute(
        "UPDATE T SET text = 'late' WHERE id = 2",
        "ALTER TABLE T RENAME COLUMN text TO words",
        "UPDATE T SET note = 'y' WHERE id = 1",
    )
    assert orders.run().error is None
    orders.assert_equal(("id", "note", "words", "price"))


@pytest.mark.breadth
def test_a_name_in_the_middle_that_no_entry_has_stops_the_table(orders: Orders) -> None:
    tables = {"columns": {"renames": {"text": "body"}}}
    orders.replication.configure(**{f"public__{orders.name}": tables})
    orders.execute("INSERT INTO T VALUES (1, 'a', 'x', 1)")
    orders.run()
    orders.execute(
        "ALTER TABLE T RENAME COLUMN body TO content",
        "INSERT INTO T VALUES (3, 'c', 'between', 3)",
        "ALTER TABLE T RENAME COLUMN content TO text",
    )
    assert orders.run().state is State.NEEDS_BOOTSTRAP
    assert "had another name for a while" in (orders.replication.record(orders.name).reason or "")


MASKED = {"mask": ["body", "content"], "renames": RENAMED}


@pytest.mark.parametrize(
    ("wanted", "statements", "reason"),
    [
        ({"columns": {"renames": {"key": "id"}}}, ("RENAME COLUMN id TO key",), "its key changed"),
        (
            {"columns": {"renames": {"country": "note"}}, "partition_by": ["note"]},
            ("RENAME COLUMN note TO country",),
            "partitions rows by it",
        ),
        (
            {"columns": {**MASKED, "mask": ["body"]}},
            ("RENAME COLUMN body TO content",),
            "columns.mask otherwise",
        ),
        (
            {"columns": {"renames": {"cost": "price"}}},
            ("RENAME COLUMN price TO cost", "ALTER COLUMN cost TYPE text"),
            "'cost' changed from",
        ),
        (
            {"columns": {"renames": RENAMED}},
            ("RENAME COLUMN body TO content", "ADD COLUMN body text"),
            "another column has the name 'body' now",
        ),
    ],
)
@pytest.mark.breadth
def test_what_cannot_follow_asks_for_a_copy(
    shared: Replication, wanted: dict[str, Any], statements: tuple[str, ...], reason: str
) -> None:
    name = "stop_" + "".join(letter for letter in statements[0] if letter.islower())
    name += f"_{len(statements)}_{len(wanted['columns'])}"
    shared.database.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, note text, body text, price numeric(10,2))"
    )
    shared.configure(**{f"public__{name}": wanted})
    shared.add(name)
    shared.database.execute(f"INSERT INTO {name} VALUES (1, 'a', 'b', 1)")
    stopped = Orders(shared, name)
    assert stopped.run().error is None
    stopped.execute(*(f"ALTER TABLE T {text}" for text in statements))
    assert stopped.run().state is State.NEEDS_BOOTSTRAP
    assert reason in (shared.record(name).reason or "")


@settings(columns=MASKED)
@pytest.mark.breadth
def test_hidden_values_stay_hidden_under_the_new_name(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'secret', 1), (2, 'b', NULL, 2)")
    orders.run()
    orders.execute(
        "INSERT INTO T VALUES (3, 'c', 'secret', 3)",
        "ALTER TABLE T RENAME COLUMN body TO content",
        "INSERT INTO T VALUES (4, 'd', 'secret', 4)",
    )
    result = orders.run()
    assert result.error is None
    assert not [text for text in result.warnings if "columns it lacks" in text]
    assert orders.lake("id", "content") == [(1, "***"), (2, None), (3, "***"), (4, "***")]


@settings(on_schema_change="freeze", columns={"renames": {**RENAMED, "cost": "price"}})
@pytest.mark.breadth
def test_a_frozen_table_follows_the_columns_that_it_has(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T VALUES (1, 'a', {BIG}, 1), (2, 'b', 'x', 2)")
    orders.run()
    orders.execute(
        "ALTER TABLE T RENAME COLUMN body TO content",
        "ALTER TABLE T RENAME COLUMN price TO cost",
        "ALTER TABLE T ALTER COLUMN cost TYPE numeric(12,2)",
        "ALTER TABLE T ADD COLUMN extra int DEFAULT 5",
        "UPDATE T SET note = 'b', cost = 1234567890.12 WHERE id = 1",
    )
    for _ in range(2):
        result = orders.run()
        assert result.error is None
        assert result.warnings[-1].endswith("leaves out: extra")
        orders.assert_equal(("id", "note", "content", "cost"))
        orders.execute("UPDATE T SET note = 'c' WHERE id = 2")


@settings(on_schema_change="pause", columns={"renames": RENAMED})
def test_it_is_shown_before_it_moves_and_a_pause_holds_it(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'x', 1)")
    orders.run()
    replication, name = orders.replication, orders.name
    table = replication.table(name)
    services = Services(replication.config, NullProgress(), spark=replication.spark)
    try:
        followed = check(services, table, f"alter table {name} rename column body to content")
        other = check(services, table, f"alter table {name} rename column note to remark")
        orders.execute("ALTER TABLE T RENAME COLUMN body TO content")
        now = difference(services, table)
    finally:
        services.close()
    assert (followed.verdict, other.verdict, now.verdict) == (
        Verdict.FILL,
        Verdict.BOOTSTRAP,
        Verdict.FILL,
    )
    assert "columns.renames: {remark: note}" in str(other.changes[0])
    assert orders.run().state is State.PAUSED
    assert "was renamed to 'content'" in (replication.record(name).reason or "")
