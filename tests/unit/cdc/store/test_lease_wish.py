"""A process that waits for a lease, and holders that release the lease for it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from cdc.errors import LeaseHeldError
from cdc.store.lease import Leases
from cdc.store.lease_wish import LeaseWish, is_wanted
from cdc.store.state_store import Store
from cdc.store.tables import lease_wishes
from schemas.table import TableId

TABLE = TableId("shop", "public", "orders")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path}/state.db")


def wishes(store: Store) -> int:
    with store.transaction() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(lease_wishes)).scalar_one()


@pytest.mark.timeout(60)
def test_a_holder_sees_who_waits_until_the_wait_is_over(store: Store) -> None:
    mine, others = Leases(store, owner="mine"), Leases(store, owner="others")
    got, done = threading.Event(), threading.Event()

    def wait() -> int:
        with others.hold(TABLE, wait_s=30) as lease:
            got.set()
            done.wait(30)
            return lease.token

    with ThreadPoolExecutor(1) as pool:
        with mine.hold(TABLE) as lease:
            assert not lease.is_wanted()
            waiter = pool.submit(wait)
            while not lease.is_wanted():
                time.sleep(0.05)
        with pytest.raises(LeaseHeldError), mine.hold(TABLE, gives_way=True):
            pytest.fail("the holder did not give way")
        assert got.wait(30)
        assert not is_wanted(store, str(TABLE))
        done.set()
        assert waiter.result(30) == 2
    with mine.hold(TABLE, gives_way=True) as lease:
        assert lease.token == 3


def test_a_wait_that_fails_leaves_no_wish(store: Store) -> None:
    with Leases(store, owner="mine").hold(TABLE) as lease:
        with pytest.raises(LeaseHeldError), Leases(store, owner="others").hold(TABLE, wait_s=0.1):
            pytest.fail("the lease was given twice")
        assert not lease.is_wanted()
    assert wishes(store) == 0


def test_a_free_lease_is_left_to_a_waiter_that_lives(store: Store) -> None:
    source, wish = Leases(store), LeaseWish(store, str(TABLE))
    wish.renew()
    refused = pytest.raises(LeaseHeldError, match="left to a process that waits")
    with refused as caught, source.hold(TABLE, gives_way=True):
        pytest.fail("the holder did not give way")
    assert caught.value.context["table"] == TABLE
    with source.hold(TABLE):
        pass  # who does not give way takes it
    with source.hold(TableId("shop", "public", "other"), gives_way=True):
        pass
    with store.transaction() as connection:
        connection.execute(sa.update(lease_wishes).values(expires_at=store.clock - 1))
    with source.hold(TABLE, gives_way=True):
        pass  # the waiter has died


def test_a_wish_is_renewed_and_those_of_the_dead_are_removed(store: Store) -> None:
    dead, alive = LeaseWish(store, "a"), LeaseWish(store, "b")
    dead.renew()
    with store.transaction() as connection:
        connection.execute(sa.update(lease_wishes).values(expires_at=store.clock - 1))
    alive.renew()
    assert wishes(store) == 1
    with store.transaction() as connection:
        connection.execute(sa.update(lease_wishes).values(expires_at=store.clock - 1))
    assert not is_wanted(store, "b")
    alive.renew()
    assert is_wanted(store, "b")
    assert wishes(store) == 1
    alive.withdraw()
    assert wishes(store) == 0
