"""Which statements of a connector's topic concern a table."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cdc.debezium import DefinitionChange
from cdc.gtid import MariadbGtidSet
from cdc.run.told import since
from cdc.sources.base import Source
from schemas.table import TableId

TABLE = TableId("shop", "shop", "orders")
BIG = TableId("shop", "shop", "big")


class Positions:
    """As much of a source as is asked."""

    def position(self, text: str) -> MariadbGtidSet:
        return MariadbGtidSet.parse(text)


def change(statement: str, table: TableId | None = TABLE, **more: Any) -> DefinitionChange:
    facts: dict[str, Any] = {"gtid": "0-1-9", "snapshot": False, "offset": 0, **more}
    return DefinitionChange(kind="ALTER", table=table, statement=statement, **facts)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (change("ALTER TABLE orders ADD x int"), True),
        (change("ALTER TABLE orders ADD x int", gtid=None), True),
        (change("ALTER TABLE orders ADD x int", gtid="0-1-5"), False),
        (change("CREATE TABLE orders (id int)", snapshot=True, gtid=None), False),
        (change("ALTER TABLE big ADD x int", BIG), False),
        (change("ALTER TABLE big EXCHANGE PARTITION p WITH TABLE `shop`.`orders`", BIG), True),
        (change("ALTER TABLE big EXCHANGE PARTITION p WITH TABLE orders_old", BIG), False),
    ],
)
def test_what_is_told_of_a_table_after_a_position(told: DefinitionChange, found: bool) -> None:
    listed = list(since(cast("Source", Positions()), TABLE, "0-1-5", [told]))
    assert bool(listed) is found
