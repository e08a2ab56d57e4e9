"""Which topics can exist only because a table had another name for a while."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from cdc.capture.stray_topics import stray_topics, written_since
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


def test_a_topic_that_was_left_over_when_a_copy_began_has_nothing_that_the_copy_lacks() -> None:
    began = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    sent = {"old": began - timedelta(hours=1), "new": began + timedelta(seconds=1)}
    strays = {ORDERS: ["empty", "new", "old"], ODD: ["old"]}
    assert written_since(strays, sent, dict.fromkeys(strays, began)) == {ORDERS: ["new"]}
