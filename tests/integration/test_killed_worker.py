"""A Kafka Connect worker without exactly-once support is killed at any moment."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
"""Rows of each transaction: enough that events are in flight whenever a position is stored."""
MOVED = "something other than the connector moved it"


def ahead(shop: Shop, names: CaptureNames) -> int | None:
    """The bytes of log from Connect's stored position to the slot's; None without a stored one.

    The slot's position is read first, as in the product.
    """
    log = shop.services.source(names.source).capture(names).log_health()
    assert isinstance(log, SlotHealth)
    assert log.confirmed_flush_lsn is not None
    stored = stored_position(shop.services.connect, names)
    return log.confirmed_flush_lsn - stored if isinstance(stored, Lsn) else None


def position(shop: Shop, names: CaptureNames) -> Lsn:
    stored = stored_position(shop.services.connect, names)
    assert isinstance(stored, Lsn)
    return stored


def problem(shop: Shop) -> str:
    return status(shop.services, []).captures[0].problem or ""


@contextmanager
def source_away(shop: Shop) -> Iterator[None]:
    """Let the server refuse the connector's login for a block; the connector's next task fails."""
    shop.database.stack.psql(f"ALTER ROLE {CAPTURE} NOLOGIN")
    try:
        yield
    finally:
        shop.database.stack.psql(f"ALTER ROLE {CAPTURE} LOGIN")


def wait_failed(shop: Shop, names: CaptureNames) -> None:
    def failed() -> bool:
        seen = shop.services.connect.status(names.connector)
        return seen is not None and seen.failure is not None

    wait_until(failed, "the connector has failed", 150)


@dataclass
class Plain:
    """A shop whose connector runs on a worker without exactly-once support.

    Args:
        person: The person who works on the shop.
        worker: The worker without exactly-once support.
        names: The names of the capture.
    """

    person: Person
    worker: PlainWorker
    names: CaptureNames

    def killed_amid_writes(self, wait_s: float) -> None:
        """Kill the worker during writes, ``wait_s`` seconds after a series of looks.

        Asserts that the slot was not ahead of Connect's stored position at any look.
        """
        shop = self.person.shop
        with shop.writing("UPDATE busy SET v = v + 1", pause_s=0.01):
            wait_until(lambda: ahead(shop, self.names) is not None, "a stored position")
            until, looks = time.monotonic() + 3 * FLUSH_S, 0
            while time.monotonic() < until:
                assert (ahead(shop, self.names) or 0) <= 0
                looks += 1
            assert looks > FLUSH_S
            time.sleep(wait_s)
            self.worker.kill()

    def older(self) -> Mapping[str, Any]:
        """Return an older offset of the present task, after the task has stored a later offset."""
        shop = self.person.shop
        began = position(shop, self.names)
        wait_until(lambda: position(shop, self.names) > began, "the task has stored a position")
        time.sleep(2 * FLUSH_S)
        offset, then = (
            shop.services.connect.offset(self.names.connector),
            position(shop, self.names),
        )
        assert offset is not None
        wait_until(lambda: position(shop, self.names) > then, "a later position")
        return offset

    def look(self, *, is_ahead: bool) -> None:
        """Wait until the connector has failed, and assert that a run reports no lost changes.

        Asserts also whether the slot is ahead of the stored position.
        """
        shop = self.person.shop
        wait_failed(shop, self.names)
        distance = ahead(shop, self.names)
        assert distance is not None
        assert (distance > 0) is is_ahead
        assert MOVED not in problem(shop)
        self.person.run("run")
        assert self.person.state("orders") is State.INCREMENTAL

    def go_on(self, *tables: str) -> None:
        """Restart the connector, and assert that source and lake are equal afterwards."""
        shop = self.person.shop
        self.person.done("retry", tables[0])
        shop.database.execute("UPDATE orders SET v = v + 1 WHERE id = 1")
        shop.settle("orders")
        self.person.done("run")
        self.person.done("verify", *tables)


def test_a_worker_that_is_killed_or_wakes_late_asks_for_no_copies(
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
    plain = Plain(person, plain_worker, names)
    for wait_s in (0.0, FLUSH_S / 2):
        plain.killed_amid_writes(wait_s)
        with source_away(shop):
            plain_worker.start()
            plain.look(is_ahead=False)
        plain.go_on(orders, busy)

    # A worker that was suspended, and whose task another one has, stores an older position.
    older = plain.older()
    with source_away(shop):
        shop.services.connect.change_offset(names.connector, lambda _: older)
        plain.look(is_ahead=True)
    plain.go_on(orders, busy)

    with source_away(shop):
        shop.services.connect.restart(names.connector, only_failed=False)
        wait_failed(shop, names)
        shop.database.execute("UPDATE orders SET v = 9 WHERE id = 1")
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
