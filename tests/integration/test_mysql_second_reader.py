"""Two connectors that read one primary's binlog with the same server id end each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stack.mysql_software import MARIADB, MYSQL
from tests.integration.rigs.captured import describe, wait_until
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import kinds
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.person import Person, created
from tests.integration.rigs.person import early as early

pytestmark = [
    pytest.mark.breadth,
    pytest.mark.parametrize("database", kinds(of=(MARIADB, MYSQL)), indirect=True),
]


def test_the_connector_that_another_one_ends_says_how_both_go_on(early: Person) -> None:
    shop = early.shop
    (orders,) = created(shop, "orders")
    early.done("onboard", "--no-bootstrap", orders)
    connect, names = shop.services.connect, shop.services.capture_of(shop.record("orders"))
    there = replace(names, connector=f"{names.connector}_2", topic_prefix=f"{names.topic_prefix}_2")
    topics = {topic: there.topic_config(topic) for topic in there.own_topics}
    shop.services.kafka.ensure_topics({**topics, there.topic(shop.table("orders")): {}})
    ours = connect.connector(names.connector)
    assert ours is not None
    history = {"schema.history.internal.kafka.topic": there.schema_history_topic}
    theirs = {**ours, **history, "topic.prefix": there.topic_prefix}

    def failed() -> bool:
        seen = connect.status(names.connector)
        return seen is not None and seen.failure is not None

    def both() -> str:
        return "; ".join(describe(connect, one.connector) for one in (names, there))

    connect.put_connector(there.connector, theirs)
    try:
        wait_until(failed, "the first connector is ended", 150, both)
        (remedy,) = {one for one in early.run("check").remedies if "database.server.id" in one}
        assert remedy.startswith("Another client reads the binlog")
        connect.put_connector(there.connector, {**theirs, "database.server.id": "4711"})
        connect.wait_running(there.connector)
        early.done("retry", orders)
        connect.wait_running(names.connector)
        connect.wait_running(there.connector)
    finally:
        connect.delete(there.connector)
    early.done("offboard", orders)
