"""A worker without Kafka transactions is killed before it stores what it has confirmed."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from cdc.debezium import CaptureNames, stored_position
from cdc.log.position import Lsn
from cdc.sources.postgres.slot import SlotHealth
from cdc.store.table_state import State
from operate.status import status
from stack.postgres import POSTGRES
from stack.roles import CAPTURE
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.person import Person, created
from tests.integration.rigs.person import person as person
from tests.integration.rigs.plain_worker import FLUSH_S, PlainWorker
from tests.integration.rigs.plain_worker import plain_worker as plain_worker
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop
from tests.integration.rigs.shop import shop as shop

pytestmark = [
    pytest.mark.breadth,
    pytest.mark.parametrize("database", [POSTGRES], indirect=True),
]

MANY = 100
"""Rows of each transaction: so many that the worker sends events while it stores a position."""
MOVED = "something other than the connector moved it"


def confirmed(shop: Shop, names: CaptureNames) -> Lsn:
    log = shop.services.source(names.source).capture(names).log_health()
    assert isinstance(log, SlotHealth)
    assert log.confirmed_flush_lsn is not None
    return log.confirmed_flush_lsn


def is_ahead(shop: Shop, names: CaptureNames) -> bool:
    """Whether the slot is after Connect's stored position, which is read after it."""
    at, stored = confirmed(shop, names), stored_position(shop.services.connect, names)
    return isinstance(stored, Lsn) and at > stored


def problem(shop: Shop) -> str:
    return status(shop.services, []).captures[0].problem or ""


def failed(shop: Shop, names: CaptureNames) -> bool:
    seen = shop.services.connect.status(names.connector)
    return seen is not None and seen.failure is not None


def test_a_worker_that_is_killed_before_it_stores_its_position_costs_no_copy(
    person: Person, plain_worker: PlainWorker
) -> None:
    shop = person.shop
    connect = {**shop.database.document(shop.folder)["connect"], "url": plain_worker.config.url}
    person.configure(connect={**connect, "exactly_once": False})
    (orders,) = created(shop, "orders")
    shop.create("busy", MANY)
    busy = shop.database.label("busy")
    person.done("onboard", orders, busy)
    names = shop.services.capture_of(shop.record("orders"))

    with ExitStack() as source_away:
        with shop.writing("UPDATE busy SET v = v + 1", pause_s=0.01):
            wait_until(lambda: is_ahead(shop, names), "the slot moves first", 30 * FLUSH_S)
            plain_worker.kill()
        # Without the source, the next task cannot go on, as if the worker were still away.
        shop.database.stack.psql(f"ALTER ROLE {CAPTURE} NOLOGIN")
        source_away.callback(shop.database.stack.psql, f"ALTER ROLE {CAPTURE} LOGIN")
        plain_worker.start()
        wait_until(lambda: failed(shop, names), "the connector has failed", 150)
        assert is_ahead(shop, names)
        assert MOVED not in problem(shop)
        person.run("run")
        assert person.state("orders") is State.INCREMENTAL
    person.done("retry", orders)
    shop.database.execute("UPDATE orders SET v = 7 WHERE id = 1")
    person.done("run")
    person.done("verify", orders, busy)

    with ExitStack() as source_away:
        shop.database.stack.psql(f"ALTER ROLE {CAPTURE} NOLOGIN")
        source_away.callback(shop.database.stack.psql, f"ALTER ROLE {CAPTURE} LOGIN")
        shop.services.connect.restart(names.connector, only_failed=False)
        wait_until(lambda: failed(shop, names), "the connector has failed", 150)
        shop.database.execute("UPDATE orders SET v = 8 WHERE id = 1")
        advance = f"SELECT pg_replication_slot_advance('{names.slot}', pg_current_wal_lsn())"
        shop.database.stack.psql(advance, database=shop.database.name)
        assert MOVED in problem(shop)
        refused = person.refused("retry", orders)
        assert "was not restarted, since changes are lost" in refused.messages
        person.run("run")
        assert person.state("orders") is State.NEEDS_BOOTSTRAP
    person.done("bootstrap", orders, busy)
    person.done("verify", orders, busy)
    person.done("offboard", orders, busy)
