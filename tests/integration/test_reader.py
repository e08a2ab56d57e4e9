"""A reader without Spark follows a table of a real source, even across a resync."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.capture.remembered_losses import loss_scopes
from cdc.lake.publish import current_path
from cdc.store.loss_counts import Losses
from cdc.store.table_state import State
from operate.onboard import bootstrap
from operate.resync import resync
from operate.status import status
from stack.mysql_software import MARIADB
from stack.postgres import POSTGRES
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import kinds
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, succeeded
from tests.integration.rigs.shop import shop as shop
from tributary_reader import WholeTableError, changes, open_table, record_reader

pytestmark = pytest.mark.breadth

BOTH = pytest.mark.parametrize("database", kinds(of=(POSTGRES, MARIADB)), indirect=True)
Row = tuple[Any, ...]


def folder_of(shop: Shop) -> str:
    return shop.record("orders").base_path


def source_rows(shop: Shop) -> dict[int, Row]:
    return {row[0]: tuple(row) for row in shop.database.rows("SELECT id, name, at FROM orders")}


def as_rows(found: Any) -> dict[int, Row]:
    return {row["id"]: (row["id"], row["name"], row["at"]) for row in found.to_pylist()}


class Copy:
    """A copy of the table, made only from the results of `changes`."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.position: str | None = None
        self.rows: dict[int, Row] = {}

    def follow(self, **options: bool) -> list[bool]:
        """Follow the table to its end; returns, for each call, whether it gave the whole table."""
        whole = []
        more = True
        while more:
            found = changes(folder_of(self._shop), self.position, **options)
            whole.append(found.whole)
            self.rows = {} if found.whole else self.rows
            for key in as_rows(found.deleted):
                del self.rows[key]
            self.rows |= as_rows(found.rows)
            self.position, more = found.position, found.more
        assert self.rows == source_rows(self._shop)
        record_reader(folder_of(self._shop), "copy", str(self.position))
        return whole


def progress_of(shop: Shop) -> list[str]:
    """The progress of each reader, as `status` and the metrics show it."""
    found = status(shop.services, [shop.table("orders")]).readers
    return [f"{one.state.name} {one.progress.value}" for one in found]


@BOTH
def test_changes_are_followed_through_a_resync_or_refused(shop: Shop) -> None:
    kind = "timestamp" if shop.database.kind == POSTGRES else "datetime(6)"
    shop.database.execute(
        f"CREATE TABLE orders (id int PRIMARY KEY, name varchar(20), at {kind})",
        "INSERT INTO orders VALUES (1, 'a', '2020-01-02 03:04:05.000006'), (2, 'b', NULL),"
        " (3, 'c', NULL), (4, 'd', NULL)",
    )
    succeeded(shop.onboard("orders"))
    copy = Copy(shop)
    assert copy.follow() == [True]
    shop.database.execute(
        "UPDATE orders SET name = 'new' WHERE id = 2", "DELETE FROM orders WHERE id = 3"
    )
    assert shop.verify("orders").equal
    assert progress_of(shop) == ["copy behind"]
    assert copy.follow() == [False]
    assert progress_of(shop) == ["copy current"]

    shop.database.execute(
        "UPDATE orders SET name = 'newer' WHERE id = 2", "INSERT INTO orders VALUES (5, 'e', NULL)"
    )
    assert shop.verify("orders").equal
    succeeded(resync(shop.services, [shop.table("orders")]))
    shop.database.execute("DELETE FROM orders WHERE id = 4")
    assert shop.verify("orders").equal
    assert progress_of(shop) == ["copy behind"]
    assert copy.follow() == [False, False]

    shop.database.execute("UPDATE orders SET name = 'last' WHERE id = 1")
    assert shop.verify("orders").equal
    (_, scope) = loss_scopes(shop.services.capture(shop.table("orders")), shop.table("orders"))
    Losses(shop.services.store).note(scope, "its slot was away for a while")
    succeeded(resync(shop.services, [shop.table("orders")]))
    with pytest.raises(WholeTableError, match="generation 3 does not continue the one") as refused:
        copy.follow()
    assert "over_resync=True" in refused.value.remedy
    assert progress_of(shop) == ["copy lost"]
    assert copy.follow(over_resync=True) == [False, False]
    succeeded(resync(shop.services, [shop.table("orders")]))
    assert copy.follow() == [False]
    shop.database.execute("ALTER TABLE orders ADD COLUMN more int")
    assert shop.verify("orders").equal
    assert copy.follow() == [False]
    shop.database.execute("INSERT INTO orders VALUES (6, 'f', NULL, 7)")
    succeeded(resync(shop.services, [shop.table("orders")]))
    shop.database.execute("ALTER TABLE orders DROP COLUMN more")
    assert shop.verify("orders").equal
    succeeded(resync(shop.services, [shop.table("orders")]))
    with pytest.raises(WholeTableError, match="the table was copied again"):
        copy.follow()
    copy.position = None
    assert copy.follow() == [True]


@BOTH
def test_times_without_a_zone_are_in_utc_if_the_settings_say_so(shop: Shop) -> None:
    kind = "timestamp" if shop.database.kind == POSTGRES else "datetime(6)"
    table = shop.database.label("orders")
    shop.tables = {table: {"timestamps_without_zone": "timestamp"}}
    shop.reconfigure()
    shop.database.execute(
        f"CREATE TABLE orders (id int PRIMARY KEY, name varchar(20), at {kind})",
        "INSERT INTO orders VALUES (1, 'a', '2020-01-02 03:04:05.000006'), (2, 'b', NULL),"
        " (3, 'c', '0001-01-01 00:00:00'), (4, 'd', '9999-12-31 23:59:59.999999')",
    )
    succeeded(shop.onboard("orders"))
    shop.database.execute(
        "UPDATE orders SET at = '2020-03-29 02:30:00' WHERE id = 2",
        "INSERT INTO orders VALUES (5, 'e', '1969-12-31 23:59:59.999999')",
        f"ALTER TABLE orders ADD COLUMN late {kind} DEFAULT '2021-01-01 00:00:00'",
        "INSERT INTO orders (id, name) VALUES (6, 'f')",
    )
    assert shop.verify("orders").equal
    found = read(shop)
    assert {str(one.type) for one in found.schema if one.name in ("at", "late")} == {
        "timestamp[us, tz=UTC]"
    }
    assert {key: without_zone(row) for key, row in as_rows(found).items()} == source_rows(shop)

    shop.tables = {table: {}}
    shop.reconfigure()
    shop.database.execute("DELETE FROM orders WHERE id = 3")
    shop.run()
    assert shop.record("orders").state is State.NEEDS_BOOTSTRAP
    assert "cannot change timestamp to timestamp_ntz in place" in str(shop.record("orders").reason)
    succeeded(bootstrap(shop.services, [shop.table("orders")]))
    found = read(shop)
    assert str(found.schema.field("at").type) == "timestamp[us]"
    assert as_rows(found) == source_rows(shop)


def read(shop: Shop) -> Any:
    path = current_path(folder_of(shop))
    assert path is not None
    return open_table(path).read()


def without_zone(row: Row) -> Row:
    key, name, at = row
    return key, name, None if at is None else at.replace(tzinfo=None)
