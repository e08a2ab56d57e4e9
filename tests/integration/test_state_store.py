"""The state store and its leases on a database server, as a site with a Spark cluster needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from cdc.errors import FencedError, LeaseHeldError, StateError
from cdc.run.commits import run_entry
from cdc.run.context import RunResult
from cdc.store import histories, history_rows, retired_rows, stored_costs
from cdc.store import timeouts as store_timeouts
from cdc.store.histories import Histories
from cdc.store.history import SchemaEntry, StateEntry
from cdc.store.lease import Lease, Leases
from cdc.store.lineage import LineagePosition, Unsent
from cdc.store.quarantine import Quarantine, Quarantined
from cdc.store.state_store import Store
from cdc.store.statements import StatementRows, StoredChange, StoredRead, StoredRecord
from cdc.store.table_cost import TableCost
from cdc.store.table_state import State, TableRecord
from cdc.store.tables import leases, run_rows
from schemas.table import TableId
from stack.local import LocalStack
from stack.mysql_software import PRODUCTS
from stack.ports import HOST
from stack.roles import ADMIN
from tests.integration.rigs.mysql import had, mysql_stack_of, own_mysql_database
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.proxy import Pooler, Proxy
from tests.records import table_record

TABLE = TableId("shop", 'we"ird', "Orders")
HOUR = timedelta(hours=1)

HOLDER = """
import sys, time
from cdc.store.lease import Leases
from cdc.store.state_store import Store
from schemas.table import TableId
with Leases(Store(sys.argv[1]), owner="victim", ttl_s=2).hold(TableId("shop", 'we"ird', "Orders")):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def mysql_stack(pytestconfig: pytest.Config) -> Iterator[LocalStack]:
    with mysql_stack_of(pytestconfig) as running:
        yield running


@pytest.fixture(
    params=["postgresql", *(pytest.param(kind, marks=pytest.mark.breadth) for kind in PRODUCTS)]
)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database, for each kind of server in turn."""
    if request.param not in PRODUCTS:
        database: Database = request.getfixturevalue("database")
        yield database.dsn()
        return
    stack: LocalStack = request.getfixturevalue("mysql_stack")
    with own_mysql_database(stack, had(stack, request.param)) as created:
        yield store_url(stack, request.param, created.name)


def store_url(stack: LocalStack, kind: str, database: str) -> str:
    password = quote(stack.passwords.get(ADMIN), safe="")
    port = stack.addresses().ports[kind]
    return f"{kind}+pymysql://{ADMIN}:{password}@{HOST}:{port}/{database}"


@pytest.fixture(params=PRODUCTS)
def in_a_doubled_hour(request: pytest.FixtureRequest) -> Iterator[str]:
    """A store on a server whose time zone has just ended summer time: local times are ambiguous."""
    stack: LocalStack = request.getfixturevalue("mysql_stack")
    kind = had(stack, request.param)
    # Servers remember a zone for as long as they run, so each test has one of its own.
    number = now = int(time.time())
    stack.mysql(
        kind,
        f"INSERT INTO mysql.time_zone VALUES ({number}, 'N')",
        f"INSERT INTO mysql.time_zone_name VALUES ('Test/{number}', {number})",
        "INSERT INTO mysql.time_zone_transition_type VALUES"
        f" ({number}, 0, 3600, 0, 'winter'), ({number}, 1, 7200, 1, 'summer')",
        "INSERT INTO mysql.time_zone_transition VALUES"
        f" ({number}, {now - 10**7}, 1), ({number}, {now - 1800}, 0)",
        f"SET GLOBAL time_zone = 'Test/{number}'",
    )
    try:
        with own_mysql_database(stack, kind) as created:
            yield store_url(stack, kind, created.name)
    finally:
        stack.mysql(kind, "SET GLOBAL time_zone = '+00:00'")


@pytest.mark.breadth
def test_leases_go_on_when_summer_time_ends(in_a_doubled_hour: str) -> None:
    store = Store(in_a_doubled_hour)
    before = time.time()
    with store.transaction() as connection:
        told = connection.execute(sa.select(store.clock)).scalar_one()
    assert before - 5 < told < time.time() + 5
    store.close()


def record() -> TableRecord:
    return table_record(
        table=TABLE,
        state=State.REGISTERED,
        base_path="s3a://lake/orders",
        topic="shop_default.public.orders",
        updated_at=datetime.now(timezone.utc),
    )


@pytest.mark.breadth
def test_two_processes_store_the_first_cost_of_a_table(url: str) -> None:
    """This can happen, since a run and a copy of the next generation hold different leases."""
    now = datetime.now(timezone.utc)
    ours, theirs = (
        TableCost(*(runs, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, now, 8.0, 9.0, 2, 3.0, 4.0))
        for runs in (1, 2)
    )
    entry = run_entry("r", record(), RunResult(TABLE, State.INCREMENTAL, started_at=now))
    one, other = Store(url), Store(url)
    with ThreadPoolExecutor(1) as pool:
        with other.transaction() as connection:
            stored_costs.put_cost(connection, TABLE, theirs)
            ended = pool.submit(one.record_run, entry, ours)
            with pytest.raises(FutureTimeout):
                ended.result(timeout=1.0)
        ended.result(timeout=30.0)
    assert other.costs()[TABLE].runs == 1
    one.close()
    other.close()


def test_records_and_leases_of_many_at_once(url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: Store(url), range(6)))
    first = stores[0].put(record())

    def write(store: Store) -> int:
        won = 0
        for _ in range(10):
            found = store.get(TABLE)
            assert found is not None
            try:
                store.put(replace(found, failures=found.failures + 1))
            except StateError:
                continue
            won += 1
        return won

    def take(store: Store) -> int | None:
        try:
            return Lease(store, TABLE, repr(id(store))).acquire()
        except LeaseHeldError:
            return None

    with ThreadPoolExecutor(6) as pool:
        won = sum(pool.map(write, stores))
        found = stores[0].get(TABLE)
        assert found == replace(first, failures=won)
        stores[0].put_all([replace(found, failures=0), replace(first, failures=9)])
        assert stores[1].get(TABLE) == replace(found, failures=0), "the other one is an older one"
        for expected in range(1, 6):
            assert [token for token in pool.map(take, stores) if token] == [expected]
            with stores[0].transaction() as connection:
                connection.execute(sa.update(leases).values(expires_at=stores[0].clock - 1))
    for store in stores:
        store.close()


def test_the_histories_of_many_tables_stay_bounded_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table and its next generation have two writers, which merge the same history entries."""
    monkeypatch.setattr(history_rows, "RUNS_WHOLE", 3)
    tables = [TableId("shop", "public", f"t{number}") for number in range(4)]
    began = datetime(2026, 1, 2, tzinfo=timezone.utc)
    store, other = Store(url), Store(url)

    def write(table: TableId, writer: Store) -> None:
        result = RunResult(table, State.INCREMENTAL, commits=1, events=10, started_at=began)
        for number in range(20):
            run = run_entry(f"{table.name}/{number}", replace(record(), table=table), result)
            writer.record_run(run)

    with ThreadPoolExecutor(8) as pool:
        pairs = [(table, writer) for table in tables for writer in (store, other)]
        list(pool.map(lambda pair: write(*pair), pairs))
    for table in tables:
        write(table, store)  # joins what two writers left to each other
        kept = store.last_runs(table, 100)
        assert [run.run_id for run in kept[:3]] == [
            f"{table.name}/{number}" for number in (19, 18, 17)
        ]
        assert sum(run.runs for run in kept) == 60
        assert sum(run.events for run in kept) == 600
        assert len(kept) < 30
    store.close()
    other.close()


def test_histories_are_read_by_time_and_forgotten_in_batches(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "BATCH", 10)
    store = Store(url, "the run")
    stored = store.put(record())
    store.record_schema(SchemaEntry(TABLE, 1, 2, stored.updated_at, (7,), (), "followed", "key"))
    store.put(replace(stored, state=State.RETIRED))
    before, known = store.now() - timedelta(minutes=5), Histories(store)
    result = RunResult(TABLE, State.INCREMENTAL)
    for number in range(25):
        store.record_run(run_entry(f"r{number}", record(), result))
    events = [noted.entry for noted in known.since(before, [TABLE])]
    assert len(events) == len(known.since(before)) == 28
    states = [entry for entry in events if isinstance(entry, StateEntry)]
    assert [(one.former, one.state, one.run_id) for one in states] == [
        (None, State.REGISTERED, "the run"),
        (State.REGISTERED, State.RETIRED, "the run"),
    ]
    assert known.forget(3600.0) == 0
    with store.transaction() as connection:
        connection.execute(sa.update(run_rows).values(noted_at=run_rows.c.noted_at - 7200))
    assert known.forget(3600.0) == 25
    assert known.forget(0.0) == 3, "states, and the schema of a table that left the plan"
    assert known.since(before) == []
    store.close()


def test_statements_are_loaded_whole_while_another_process_deletes_some(url: str) -> None:
    """Each SQL statement of a transaction sees what others have committed before it began."""
    one, other = Store(url), Store(url)
    change = StoredChange("ALTER", ("s", "t"), "ALTER", None, False, None, "", None)
    read = StoredRead("A", 0, 19, 1000, 20)
    records = dict.fromkeys(range(20), StoredRecord((change,)))
    rows, of_other = StatementRows(one), StatementRows(other)
    assert rows.add("t", None, read, records)

    def prune(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT tributary_statement"):
            left = of_other.of("t")
            assert left is not None
            assert left.records is not None
            of_other.prune("t", left, [min(left.records)])

    sa.event.listen(one._engine, "after_cursor_execute", prune)
    try:
        loaded = [rows.of("t") for _ in range(3)]
    finally:
        sa.event.remove(one._engine, "after_cursor_execute", prune)
    assert [found and found.records and min(found.records) for found in loaded] == [0, 1, 2]
    # The head goes with the last rows. A process that has read the topic again inserts it.
    of_other.forget("t")
    assert rows.add("t", read, read, records)
    assert not rows.add("t", replace(read, sent_ms=1), read, records), "another head is there"
    again = rows.of("t")
    assert again is not None
    assert (again.read, again.records) == (read, records)
    one.close()
    other.close()


def test_rows_of_retired_tables_are_deleted_and_new_ones_stay(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two tables is onboarded and offboarded between the search and the deletion."""
    monkeypatch.setattr(histories, "BATCH", 2)
    store, other = Store(url), Store(url)
    began = datetime.now(timezone.utc) - 2 * HOUR
    cost = TableCost(*(1, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, began, 8.0, 9.0, 2, 3.0, 4.0))
    again = replace(TABLE, name="again")
    for table in (TABLE, again):
        stored = store.put(replace(record(), table=table))
        bad = Quarantined(
            *(table, table.name, "topic", "id", 0, 0, 7, "why", began, 5, "run", began)
        )
        Quarantine(store).keep([replace(bad, offset=offset) for offset in range(3)])
        with store.transaction() as connection:
            stored_costs.put_cost(connection, table, cost)
        store.put(replace(stored, state=State.RETIRED, updated_at=began))
    delete = retired_rows._delete_batch

    def onboards_first(*arguments: Any) -> int:
        if (retired := other.get(again)) is not None and retired.version == 2:
            planned = other.put(replace(retired, state=State.REGISTERED))
            other.put(replace(planned, state=State.RETIRED))
        return delete(*arguments)

    monkeypatch.setattr(retired_rows, "_delete_batch", onboards_first)
    assert Histories(store).forget(3600.0) == 4
    assert store.costs() == {again: cost}
    assert Quarantine(store).counts() == {"again": 3}
    store.close()
    other.close()


def test_an_entry_whose_transaction_ends_late_is_sent_later(url: str) -> None:
    store, result = Store(url), RunResult(TABLE, State.INCREMENTAL)
    store.put(record())
    store.record_run(run_entry("r0", record(), result))
    unsent = Unsent(store, "jobs")
    entries, position = unsent.after(unsent.before(datetime.now(timezone.utc) - HOUR), 100)
    assert [type(one.entry).__name__ for one in entries] == ["StateEntry", "RunEntry"]
    other = Store(url)
    with other.transaction() as connection:
        other._history(connection).add_run(run_entry("late", record(), result))
        store.record_run(run_entry("r1", record(), result))
        entries, position = unsent.after(position, 100)
        assert [one.entry.run_id for one in entries] == ["r1"]
        unsent.keep(position)
    unsent = Unsent(store, "jobs")
    assert unsent.position() == position
    entries, position = unsent.after(position, 100)
    assert [one.entry.run_id for one in entries] == ["late"]
    unsent.keep(position)
    assert unsent.after(unsent.position(), 100)[0] == []
    assert Unsent(store, "other").position() == LineagePosition()
    store.close()
    other.close()


def test_a_killed_holder_blocks_no_longer_than_its_term(url: str) -> None:
    store = Store(url)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "held\n"
        time.sleep(3)  # longer than the term: the victim renews
        with pytest.raises(LeaseHeldError, match="held by victim"):
            Lease(store, TABLE, "heir").acquire()
        os.kill(victim.pid, signal.SIGKILL)
    began = time.monotonic()
    with Leases(store).hold(TABLE, wait_s=20) as lease:
        assert time.monotonic() - began < 4
        assert lease.token == 2
    store.close()


def test_a_machine_that_vanished_amid_a_transaction_locks_nothing_for_long(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's connection was never closed, so the server does not know that it is gone."""
    monkeypatch.setattr(store_timeouts, "IDLE_LIMIT_S", 2)
    monkeypatch.setattr(store_timeouts, "ANSWER_LIMIT_S", 10)
    vanished, store = Store(url), Store(url)
    Lease(vanished, TABLE, "vanished", ttl_s=0.1).acquire()
    time.sleep(0.2)
    taken = []

    def vanish() -> None:
        with vanished.transaction() as connection:
            connection.execute(sa.update(leases).values(expires_at=vanished.clock))
            taken.append(Lease(store, TABLE, "heir").acquire())

    with pytest.raises(StateError, match="is not usable"):
        vanish()
    assert taken == [2]
    vanished.close()
    store.close()


def test_a_holder_that_was_stopped_finds_its_lease_lost(url: str) -> None:
    store = Store(url)
    stopped = Lease(store, TABLE, "stopped", ttl_s=0.5)
    stopped.acquire()
    time.sleep(0.7)
    with Leases(store).hold(TABLE) as heir:
        with pytest.raises(FencedError):
            stopped.check()
        heir.check()
    store.close()


def test_a_server_that_does_not_answer_is_an_error_in_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection stays open, so the operating system reports no error by itself."""
    monkeypatch.setattr(store_timeouts, "CONNECT_LIMIT_S", 2)
    monkeypatch.setattr(store_timeouts, "ANSWER_LIMIT_S", 2)
    with Proxy(url) as proxy:
        store = Store(proxy.url)
        kept = store.put(record())

        def fails(work: Callable[[], object]) -> None:
            began = time.monotonic()
            with pytest.raises(StateError, match="is not usable"):
                work()
            assert time.monotonic() - began < 10

        def amid_a_transaction() -> None:
            with store.transaction() as connection:
                connection.execute(sa.select(1))
                proxy.stall()
                connection.execute(sa.select(2))

        fails(amid_a_transaction)
        proxy.go_on()
        assert store.get(TABLE) == kept
        proxy.stall()
        fails(lambda: store.put(replace(kept, failures=1)))  # by one of the pool, then a new one
        proxy.go_on()
        assert store.get(TABLE) == kept
        store.close()


def test_a_connection_to_a_server_that_takes_no_writes_is_dropped(url: str) -> None:
    """After a failover by DNS, pooled connections still go to the former primary, which answers."""
    store = Store(url)
    kept = store.put(record())
    what = "CHARACTERISTICS AS TRANSACTION" if url.startswith("postgresql") else "TRANSACTION"
    with store.transaction() as connection:
        connection.exec_driver_sql(f"SET SESSION {what} READ ONLY")
    with pytest.raises(StateError, match=r"(?i)read[- ]only"):
        store.put(replace(kept, failures=1))
    assert store.put(replace(kept, failures=1)).failures == 1
    store.close()


def test_nothing_of_the_store_stays_in_a_session_that_a_pooler_gives_to_another_client(
    database: Database,
) -> None:
    changed = (
        "SELECT name, setting FROM pg_settings WHERE source = 'session'"
        " AND name NOT IN ('transaction_isolation', 'transaction_read_only')"
    )
    with Pooler(database.dsn()) as pooler:
        store = Store(pooler.url)
        kept = store.put(record())
        for _ in range(8):
            kept = store.put(kept)
        with store.transaction() as connection:
            (limit,) = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").one()
            session = connection.connection.dbapi_connection
        assert limit == "30s"
        assert session is not None
        assert session.execute(changed).fetchall() == []
        names = session.execute("SELECT name FROM pg_prepared_statements").fetchall()
        assert names == []
        session.rollback()
        store.close()
