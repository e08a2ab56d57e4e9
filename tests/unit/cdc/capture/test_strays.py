"""Which topics only a table with another name for a while explains."""

from __future__ import annotations

from cdc.capture.strays import stray_topics
from cdc.debezium import CaptureNames
from schemas.table import TableId

NAMES = CaptureNames("shop", "default", "p", "s", "c", "shop_default", "postgres")
ORDERS, ODD = TableId("shop", "public", "orders"), TableId("shop", "public", "é.x")


def strays(*topics: str, known: tuple[str, ...] = ()) -> dict[TableId, list[str]]:
    planned = [NAMES.topic(table) for table in (ORDERS, ODD)]
    everything = [*planned, *NAMES.own_topics, *topics]
    return stray_topics(NAMES, [ORDERS, ODD], everything, {*planned, *known})


def test_a_topic_with_a_tables_name_that_no_table_has_is_a_stray() -> None:
    assert strays() == {}
    found = strays("shop_default.b.orders", "shop_default.a.orders", "shop_default.b._.x")
    assert found == {
        ORDERS: ["shop_default.a.orders", "shop_default.b.orders"],
        ODD: ["shop_default.b._.x"],
    }


def test_topics_of_others_are_no_strays() -> None:
    there = "shop_default.other.orders"
    assert strays(there, known=(there,)) == {}
    assert strays("shop_default2.b.orders", "other.b.orders", "shop_default.b.lines") == {}
    assert strays("shop_default.b.my_orders") == {}
