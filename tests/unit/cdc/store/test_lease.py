from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cdc.errors import FencedError, LeaseHeldError, StateError
from cdc.store.lease import Lease, Leases, held_leases
from cdc.store.lease_owner import Owner
from cdc.store.state_store import Store
from cdc.store.tables import leases
from schemas.table import TableId
from tests.records import table_record

TABLE = TableId("shop", "public", "orders")
OTHER = TableId("shop", "public", "other")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path}/state.db")


def expire(store: Store) -> None:
    """Let all leases expire, by the database's clock."""
    with store.transaction() as connection:
        connection.execute(sa.update(leases).values(expires_at=store.clock - 1))


def test_the_clock_is_the_databases_and_counts_seconds(store: Store) -> None:
    with store.transaction() as connection:
        before = connection.execute(sa.select(store.clock)).scalar_one()
    assert before == pytest.approx(time.time(), abs=5)


def test_a_held_lease_is_refused_with_its_owner_and_expiry(store: Store) -> None:
    Lease(store, TABLE, "alice:1", ttl_s=60).acquire()
    with pytest.raises(LeaseHeldError) as caught:
        Lease(store, TABLE, "bob:2").acquire()
    assert "shop:public.orders is held by alice:1" in caught.value.message
    assert caught.value.context["owner"] == "alice:1"
    expires = datetime.fromisoformat(caught.value.context["expires_at"])
    assert 50 < (expires - datetime.now(timezone.utc)).total_seconds() < 65
    assert Lease(store, OTHER, "bob:2").acquire() == 1


def test_the_age_of_a_lease_counts_from_its_acquisition_and_not_from_its_renewal(
    store: Store,
) -> None:
    lease = Lease(store, TABLE, "alice:1")
    lease.acquire()
    first = held_leases(store)[str(TABLE)].taken_at
    assert abs((first - datetime.now(timezone.utc)).total_seconds()) < 5
    with store.transaction() as connection:
        connection.execute(sa.update(leases).values(taken_at=store.clock - 100))
    lease.renew()
    assert (first - held_leases(store)[str(TABLE)].taken_at).total_seconds() > 90
    expire(store)
    Lease(store, TABLE, "bob:2").acquire()
    assert held_leases(store)[str(TABLE)].taken_at >= first


def test_a_lease_that_is_let_go_at_the_same_moment_is_refused_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, asker = Lease(store, TABLE, "a"), Lease(store, TABLE, "b")
    holder.acquire()
    look = asker._take_over

    def let_go_first(read: None) -> int:
        holder.release()
        return look(read)

    monkeypatch.setattr(asker, "_take_over", let_go_first)
    with pytest.raises(LeaseHeldError, match="a process that began or ended at the same moment"):
        asker.acquire()
    assert asker.acquire() == 2


def test_tokens_only_rise_whoever_takes_the_lease(store: Store) -> None:
    tokens = []
    for owner in ("a", "b", "a", "a"):
        lease = Lease(store, TABLE, owner)
        tokens.append(lease.acquire())
        lease.release()
    lease = Lease(store, TABLE, "c")
    tokens.append(lease.acquire())
    expire(store)
    tokens.append(Lease(store, TABLE, "d").acquire())
    assert tokens == [1, 2, 3, 4, 5, 6]


def test_the_same_owner_does_not_get_it_twice(store: Store) -> None:
    Lease(store, TABLE, "a").acquire()
    with pytest.raises(LeaseHeldError):
        Lease(store, TABLE, "a").acquire()


def test_a_lease_that_ran_out_and_was_taken_is_lost(store: Store) -> None:
    slow, quick = Lease(store, TABLE, "slow"), Lease(store, TABLE, "quick")
    slow.acquire()
    expire(store)
    quick.acquire()
    for use in (slow.renew, slow.check):
        with pytest.raises(FencedError, match=r"shop:public\.orders was lost"):
            use()
    slow.release()
    quick.check()
    with pytest.raises(LeaseHeldError, match="held by quick"):
        slow.acquire()


def test_the_token_and_not_the_name_says_whose_lease_it_is(store: Store) -> None:
    slow, quick = Lease(store, TABLE, "same"), Lease(store, TABLE, "same")
    slow.acquire()
    expire(store)
    quick.acquire()
    with pytest.raises(FencedError):
        slow.check()
    slow.release()
    quick.check()


def test_a_lease_that_ran_out_but_was_not_taken_is_still_ours(store: Store) -> None:
    lease = Lease(store, TABLE, "a")
    lease.acquire()
    expire(store)
    lease.check()
    with pytest.raises(LeaseHeldError):
        Lease(store, TABLE, "b").acquire()


def test_a_released_lease_is_gone(store: Store) -> None:
    lease = Lease(store, TABLE, "a")
    lease.acquire()
    lease.release()
    with pytest.raises(FencedError):
        lease.check()
    lease.release()


def test_holding_renews_in_the_background(store: Store) -> None:
    mine = Leases(store, owner="mine", ttl_s=0.6)
    others = Leases(store, owner="others", ttl_s=0.6)
    with mine.hold(TABLE) as lease:
        time.sleep(1.5)
        with pytest.raises(LeaseHeldError), others.hold(TABLE):
            pytest.fail("the lease was given away")
        lease.check()
    with others.hold(TABLE) as lease:
        assert lease.token == 2


def test_who_holds_a_lease_is_seen_without_taking_it(store: Store) -> None:
    asking = Leases(store, owner="asking")
    assert asking.held_by_other("lake table /lake") is None
    lease = Lease(store, "lake table /lake", "alice:1")
    lease.acquire()
    held = asking.held_by_other("lake table /lake")
    assert held is not None
    assert "lake table /lake is held by alice:1" in held.message
    assert asking.held_by_other(TABLE) is None
    lease.check()
    expire(store)
    assert asking.held_by_other("lake table /lake") is None
    assert lease.acquire() == 2
    lease.release()
    assert asking.held_by_other("lake table /lake") is None


def test_what_the_former_holder_stored_last_is_read_as_the_lease_is_taken(store: Store) -> None:
    before = store.put(table_record(TABLE), 0)
    holder = Lease(store, TABLE, "a")
    holder.acquire()
    with pytest.raises(LeaseHeldError), Leases(store, owner="b").hold_record(before):
        pytest.fail("the lease was given twice")
    last = store.put(replace(before, topic="another"))
    holder.release()
    with Leases(store, owner="b").hold_record(before) as (lease, newest):
        assert (lease.token, newest) == (2, last)
    other = table_record(OTHER)
    with Leases(store).hold_record(other, gives_way=True) as (_, known):
        assert known is other, "nothing is stored"


def test_what_a_dead_holder_stored_is_read_as_its_lease_is_taken_over(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.put(table_record(TABLE), 0)
    Lease(store, TABLE, "dead").acquire()
    last = store.put(replace(before, topic="another"))
    dead = SimpleNamespace(has_died=lambda: True, shown="a process")
    monkeypatch.setattr(Owner, "parse", lambda _: dead)
    with Leases(store, owner="heir").hold_record(before) as (lease, newest):
        assert (lease.token, newest) == (2, last)


def test_two_threads_of_one_process_exclude_each_other(store: Store) -> None:
    source = Leases(store)
    with source.hold(TABLE), pytest.raises(LeaseHeldError), source.hold(TABLE):
        pytest.fail("the lease was given twice")


def test_a_wait_ends_when_the_holder_does(store: Store) -> None:
    source = Leases(store)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with source.hold(TABLE):
            held.set()
            done.wait(10)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        assert held.wait(10)
        threading.Timer(0.3, done.set).start()
        with source.hold(TABLE, wait_s=10) as lease:
            assert lease.token == 2


def test_a_wait_is_bounded_and_shown(store: Store) -> None:
    class Watch:
        def __init__(self) -> None:
            self.told: list[str] = []

        def start(self, task: str, total: int | None = None, unit: str = "rows") -> Watch:
            self.told.append(task)
            return self

        def advance(self, count: int = 1) -> None: ...

        def note(self, text: str) -> None:
            self.told.append(text)

        def done(self) -> None:
            self.told.append("done")

    watch = Watch()
    source = Leases(store, progress=watch)
    with source.hold(TABLE):
        began = time.monotonic()
        with pytest.raises(LeaseHeldError), source.hold(TABLE, wait_s=0.7):
            pytest.fail("the lease was given twice")
        assert 0.7 <= time.monotonic() - began < 5
    assert watch.told[0] == "wait for table shop:public.orders"
    assert "is held by" in watch.told[1]
    assert watch.told[-1] == "done"


def test_an_error_in_the_block_gives_the_lease_up(store: Store) -> None:
    source = Leases(store)
    with pytest.raises(RuntimeError), source.hold(TABLE):
        raise RuntimeError
    with source.hold(TABLE):
        assert threading.active_count() >= 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease ")]


def test_a_lost_lease_stops_the_renewal_and_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Leases(store, ttl_s=0.3).hold(TABLE) as lease:
        with store.transaction() as connection:
            taken = {"token": leases.c.token + 1, "owner": "thief", "expires_at": store.clock + 60}
            connection.execute(sa.update(leases).values(**taken))
        time.sleep(0.5)
        with pytest.raises(FencedError):
            lease.check()
    assert "was lost" in caplog.text
    with pytest.raises(LeaseHeldError, match="held by thief"):
        Lease(store, TABLE, "x").acquire()


def test_a_store_that_is_away_for_a_moment_is_tried_again(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Leases(store, ttl_s=0.6).hold(TABLE) as lease:
        with store.transaction() as connection:
            connection.execute(sa.text("alter table tributary_lease rename to away"))
        time.sleep(0.5)
        with store.transaction() as connection:
            connection.execute(sa.text("alter table away rename to tributary_lease"))
        time.sleep(0.4)
        lease.check()
    assert "could not be renewed" in caplog.text


def test_of_many_who_ask_at_once_one_gets_it(store: Store) -> None:
    barrier = threading.Barrier(8)

    def ask(number: int) -> int | None:
        barrier.wait()
        try:
            return Lease(store, TABLE, f"owner {number}").acquire()
        except LeaseHeldError:
            return None

    with ThreadPoolExecutor(8) as pool:
        for expected in range(1, 6):
            tokens = [token for token in pool.map(ask, range(8)) if token is not None]
            assert tokens == [expected]
            expire(store)


HOLDER = """
import sys, time
from cdc.store.lease import Leases
from cdc.store.state_store import Store
from schemas.table import TableId
with Leases(Store(sys.argv[1])).hold(TableId("shop", "public", "orders")):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_holder_that_was_killed_here_blocks_no_one(store: Store) -> None:
    url = store.shown_url
    root = Path(__file__).parents[4]
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE, text=True, cwd=root
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "held\n"
        with pytest.raises(LeaseHeldError, match=f"held by process {victim.pid} on "):
            Lease(store, TABLE, "heir").acquire()
        victim.kill()
        time.sleep(0.2)  # a zombie now: it is not waited for yet
        heir = Lease(store, TABLE, "heir")
        assert heir.acquire() == 2
    heir.check()


def test_what_is_read_with_the_lease_is_read_after_it_is_taken(store: Store) -> None:
    """Before that, the former lease holder can still store facts that the read would miss."""
    seen = list[object]()

    def read(connection: sa.Connection) -> None:
        seen.append(connection.execute(sa.select(leases.c.owner, leases.c.token)).one_or_none())

    for _ in range(2):  # the first time, there is no row of the lease
        lease = Lease(store, TABLE, "reader")
        lease.acquire(gives_way=True, read=read)
        lease.release()
    dead = str(replace(Owner.current(), started=1.0))
    Lease(store, TABLE, dead).acquire()
    Lease(store, TABLE, "heir").acquire(read=read)
    taken_over = seen.pop()
    assert seen == [("reader", 1), ("reader", 2)]
    assert taken_over == ("heir", 4)


def test_of_many_who_see_a_dead_holder_one_gets_the_lease(store: Store) -> None:
    dead = replace(Owner.current(), started=1.0)
    barrier = threading.Barrier(6)

    def ask(number: int) -> int | None:
        barrier.wait()
        try:
            return Lease(store, TABLE, f"owner {number}").acquire()
        except LeaseHeldError:
            return None

    Lease(store, TABLE, str(dead)).acquire()
    with ThreadPoolExecutor(6) as pool:
        assert [token for token in pool.map(ask, range(6)) if token] == [2]


def test_a_holder_elsewhere_is_not_taken_for_dead(store: Store) -> None:
    elsewhere = replace(Owner.current(), place="0123456789ab", pid=2**22 + 1)
    Lease(store, TABLE, str(elsewhere)).acquire()
    with pytest.raises(LeaseHeldError):
        Lease(store, TABLE, "heir").acquire()


def test_an_owner_knows_whether_its_process_lives() -> None:
    here = Owner.current()
    assert Owner.parse(str(here)) == here
    assert not here.has_died()
    assert replace(here, pid=2**22 + 1).has_died()
    assert replace(here, started=here.started - 1).has_died()
    for text in ("alice:1", "", f"{here}x", "host:1@zz/1.00"):
        assert Owner.parse(text) is None


def test_an_owner_lives_on_when_the_machines_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Owner.current()
    booted = psutil.boot_time()
    for step_s in (-3600, -2, 2, 3600):
        # What a step of the clock moves, as the system reports it.
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda step_s=step_s: booted + step_s)
        assert psutil.boot_time() == booted + step_s
        assert not here.has_died()
        assert Owner.current() == here


def test_an_owner_that_cannot_be_seen_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Owner.current()

    def hidden(_self: Path, *_arguments: object, **_more: object) -> str:
        raise FileNotFoundError  # as a /proc that shows each user their own says it

    monkeypatch.setattr(Path, "read_text", hidden)
    assert not here.has_died()
    assert replace(here, pid=2**22 + 1).has_died()


def test_a_database_without_a_known_clock_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store._engine.dialect, "name", "oracle")
    with pytest.raises(StateError, match="clock of a oracle database"):
        Lease(store, TABLE, "a").acquire()


class LeaseMachine(RuleBasedStateMachine):
    """Owners take and lose a lease in any order; at most one can write, and tokens increase."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store("sqlite://")
        self.held = {name: Lease(self.store, TABLE, name) for name in ("a", "b", "c")}
        self.newest = 0
        self.writer: str | None = None
        self.expired = True

    @rule(name=st.sampled_from("abc"))
    def acquire(self, name: str) -> None:
        free = self.writer is None or self.expired
        try:
            token = self.held[name].acquire()
        except LeaseHeldError:
            assert not free
            return
        assert free
        assert token == self.newest + 1
        self.newest, self.writer, self.expired = token, name, False

    @rule(name=st.sampled_from("abc"))
    def check(self, name: str) -> None:
        try:
            self.held[name].check()
        except FencedError:
            assert name != self.writer
            return
        assert name == self.writer
        self.expired = False

    @rule(name=st.sampled_from("abc"))
    def release(self, name: str) -> None:
        self.held[name].release()
        if name == self.writer:
            self.writer = None

    @rule()
    def run_out(self) -> None:
        expire(self.store)
        if self.writer is not None:
            self.expired = True

    @invariant()
    def the_store_agrees(self) -> None:
        with self.store.transaction() as connection:
            row = connection.execute(sa.select(leases)).first()
        assert (row.token if row else 0) == self.newest
        assert (row.owner if row else None) == self.writer

    def teardown(self) -> None:
        self.store.close()


TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
