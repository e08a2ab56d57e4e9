"""Incremental runs on the real stack: how the lake shows each kind of change on the source."""

from __future__ import annotations

import itertools
import queue
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest

from cdc.kafka import KnownRecord
from cdc.log.position import Lsn
from cdc.run import RunResult, plan, run_continuously, run_table, run_tables, work_finder
from cdc.run.context import Turn
from cdc.store.lease import Leases
from cdc.store.lease_wish import is_wanted
from cdc.store.table_state import State, transition
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.faults import Interrupting
from tests.integration.rigs.replication import Replication
from tests.integration.rigs.running import BIG, COLUMNS, Orders, settings
from tests.integration.rigs.running import orders as orders
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark

BACKLOG = "INSERT INTO T SELECT n, 'n', null, n FROM generate_series(1, 45) n"


def test_inserts_updates_and_deletes_reach_the_lake(orders: Orders) -> None:
    orders.execute(
        "INSERT INTO T SELECT n, 'n' || n, null, n * 1.25 FROM generate_series(1, 100) n",
        "UPDATE T SET note = 'changed' WHERE id <= 10",
        "DELETE FROM T WHERE id > 90",
    )
    result = orders.run()
    assert (result.error, result.state, result.commits) == (None, State.INCREMENTAL, 1)
    assert result.counts == {"c": 100, "u": 10, "d": 10, "tombstone": 10}
    assert result.events == 120
    orders.assert_equal()
    assert len(orders.lake("id")) == 90
    idle = run_tables(orders.replication.context(), [orders.replication.record(orders.name)])
    assert idle == [], "a table without new offsets has no work"

    orders.execute("UPDATE T SET price = -1.50 WHERE id = 50")
    again = orders.run()
    assert (again.error, again.counts) == (None, {"u": 1})
    orders.assert_equal()


def test_a_commit_says_where_it_is(orders: Orders) -> None:
    before = datetime.now(timezone.utc)
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)", "INSERT INTO T VALUES (2, 'a', 'b', 1)")
    result = orders.run(run_id="run-1")
    commit = orders.newest
    assert commit.kind == "run"
    assert commit.run_id == "run-1"
    assert commit.start_offsets == {0: 0}
    assert commit.offsets == result.offsets == orders.replication.kafka.stable_offsets(commit.topic)
    assert commit.topic_id == orders.replication.kafka.topic_id(commit.topic)
    assert commit.counts == {"c": 2}
    assert len(commit.schema_ids) == 1
    assert commit.position is not None
    now = orders.replication.source.current_position()
    assert 0 < Lsn.parse(commit.position).value <= now.value
    assert commit.watermark is not None
    assert before - timedelta(seconds=1) <= commit.watermark <= datetime.now(timezone.utc)
    ((_, last),) = commit.last_records.items()
    topic, kafka = str(commit.topic), orders.replication.kafka
    there, other = (KnownRecord(topic, 0, last.offset, last.sent_ms + more) for more in (0, 1))
    assert kafka.replaced([there]) == {there: None}
    assert f"the record at offset {last.offset} was of" in str(kafka.replaced([other])[other])
    cached = orders.replication.record(orders.name).last_commit
    assert cached is not None
    assert (cached.offsets, cached.watermark) == (commit.offsets, commit.watermark)
    assert cached.last_records == commit.last_records
    (entry,) = orders.replication.store.last_runs(orders.replication.table(orders.name))
    assert (entry.run_id, entry.counts, entry.commits) == ("run-1", {"c": 2}, 1)


def test_meta_columns_tell_where_a_row_comes_from(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', 'b', 1)", "UPDATE T SET note = 'c'")
    orders.run()
    ((op, offset, position, schema_id),) = orders.lake(
        "_cdc_op", "_cdc_offset", "_cdc_position", "_cdc_schema_id"
    )
    assert (op, offset) == ("u", 1) or offset > 0
    assert re.fullmatch(r"[0-9A-F]{16}:[0-9A-F]{16}", position)
    assert (schema_id,) == orders.newest.schema_ids


def test_delete_and_insert_of_one_key(orders: Orders) -> None:
    orders.execute(
        "INSERT INTO T VALUES (1, 'first', 'b', 1), (2, 'stays', 'b', 2)",
        "DELETE FROM T WHERE id = 1",
        "INSERT INTO T VALUES (1, 'second', null, 3)",
    )
    orders.run()
    orders.assert_equal()
    orders.execute("DELETE FROM T WHERE id = 1", "INSERT INTO T VALUES (1, 'third', null, 4)")
    orders.run()
    orders.assert_equal()
    orders.execute("DELETE FROM T WHERE id = 1")
    orders.run()
    orders.assert_equal()


def test_keys_that_are_changed_and_swapped(orders: Orders) -> None:
    orders.execute(
        f"INSERT INTO T SELECT n, 'n' || n, {BIG}, n FROM generate_series(1, 6) n",
    )
    orders.run()
    orders.execute(
        "UPDATE T SET id = 101 WHERE id = 1",
        "BEGIN; UPDATE T SET id = -1 WHERE id = 2; UPDATE T SET id = 2 WHERE id = 3;"
        " UPDATE T SET id = 3 WHERE id = -1; COMMIT",
    )
    result = orders.run()
    assert result.error is None
    orders.assert_equal()


def test_a_moved_row_does_not_take_the_large_value_of_another(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT n, 'n' || n, {BIG}, n FROM generate_series(1, 2) n")
    orders.run()
    # The lake still has the old row 1 under the key that row 2 moves to.
    orders.execute("DELETE FROM T WHERE id = 1", "UPDATE T SET id = 1 WHERE id = 2")
    assert orders.run().error is None
    orders.assert_equal()


@pytest.mark.breadth
def test_a_moved_row_that_is_gone_by_now_is_not_an_error(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT 1, 'n', {BIG}, 1")
    orders.run()
    orders.execute("UPDATE T SET id = 2")
    orders.replication.settle()
    stop = orders.replication.kafka.stable_offsets(orders.newest.topic or "")
    orders.execute("DELETE FROM T WHERE id = 2")
    orders.replication.settle()
    part = run_table(
        orders.replication.context(), orders.replication.record(orders.name), until=stop
    )
    assert (part.error, part.offsets) == (None, stop)
    orders.run()
    orders.assert_equal()
    assert orders.lake("id") == []


def test_unchanged_large_values_are_kept(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT n, {BIG}, {BIG}, n FROM generate_series(1, 4) n")
    orders.run()
    orders.execute(
        "UPDATE T SET price = 9 WHERE id = 1",
        "UPDATE T SET note = 'small now' WHERE id = 2",
        f"UPDATE T SET note = {BIG} WHERE id = 3",
        "UPDATE T SET price = 7 WHERE id = 3",
        "UPDATE T SET body = null WHERE id = 4",
        "UPDATE T SET price = 7 WHERE id = 4",
    )
    assert orders.run().error is None
    orders.assert_equal()
    assert not [
        row for row in orders.lake(*COLUMNS) if orders.replication.capture.placeholder in row
    ]


def test_a_large_value_that_the_lake_lost_is_fetched_from_the_source(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT n, 'n', {BIG}, n FROM generate_series(1, 3) n")
    orders.replication.settle()
    # As if the rows had never been copied: their insert lies before the handoff.
    orders.replication.store.delete(orders.replication.table(orders.name))
    orders.replication.add(orders.name)
    orders.execute("UPDATE T SET price = 8")
    assert orders.run().error is None
    orders.assert_equal()


@settings(delete_mode="soft")
def test_a_soft_delete_keeps_the_row(orders: Orders) -> None:
    orders.execute(f"INSERT INTO T SELECT n, 'n' || n, {BIG}, n FROM generate_series(1, 3) n")
    orders.run()
    (kept,) = orders.replication.truth(orders.name, *COLUMNS)[:1]
    orders.execute(
        f"DELETE FROM T WHERE id = {kept[0]}",
        "INSERT INTO T VALUES (9, 'short', 'life', 1)",
        "DELETE FROM T WHERE id = 9",
    )
    assert orders.run().error is None
    deleted = [row for row in orders.lake("_cdc_deleted", *COLUMNS) if row[0]]
    assert sorted(deleted) == sorted([(True, *kept), (True, 9, "short", "life", Decimal("1.00"))])
    assert sorted(row[1:] for row in orders.lake("_cdc_deleted", *COLUMNS) if not row[0]) == sorted(
        orders.replication.truth(orders.name, *COLUMNS)
    )


def test_truncate_empties_the_table_in_log_order(orders: Orders) -> None:
    orders.execute("INSERT INTO T SELECT n, 'old', null, n FROM generate_series(1, 5) n")
    orders.run()
    orders.execute(
        "UPDATE T SET note = 'doomed'",
        "TRUNCATE T",
        "INSERT INTO T SELECT n, 'new', null, n FROM generate_series(4, 6) n",
        "DELETE FROM T WHERE id = 5",
    )
    result = orders.run()
    assert (result.error, result.counts["t"]) == (None, 1)
    orders.assert_equal()
    assert len(orders.lake("id")) == 2

    orders.execute("TRUNCATE T")
    assert orders.run().error is None
    assert orders.lake("id") == []
    orders.execute("INSERT INTO T VALUES (1, 'again', null, 1)")
    assert orders.run().error is None
    orders.assert_equal()


@settings(on_truncate="ignore")
def test_truncate_can_be_ignored(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)")
    orders.run()
    orders.execute("TRUNCATE T", "INSERT INTO T VALUES (2, 'b', null, 2)")
    assert orders.run().error is None
    assert orders.lake("id") == [(1,), (2,)]


@settings(on_truncate="pause")
def test_truncate_can_pause_the_table(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)", "TRUNCATE T")
    orders.execute("INSERT INTO T VALUES (2, 'b', null, 2)")
    result = orders.run()
    assert (result.state, orders.state) == (State.PAUSED, State.PAUSED)
    assert result.events == 1, "what came before the TRUNCATE is in"
    assert orders.lake("id") == [(1,)]
    assert "truncated" in (orders.replication.record(orders.name).reason or "")

    orders.replication.configure(**{f"public__{orders.name}": {"on_truncate": "apply"}})
    paused = orders.replication.record(orders.name)
    now = datetime.now(timezone.utc)
    orders.replication.store.put(transition(paused, State.INCREMENTAL, at=now))
    assert orders.run().error is None
    assert orders.lake("id") == [(2,)]


def test_a_large_batch_holds_cores_until_its_commit(
    orders: Orders, shared: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "EVENTS_PER_TASK", 3)
    orders.execute("INSERT INTO T SELECT n, 'n', null, n FROM generate_series(1, 8) n")
    shared.settle()
    before, wishes, commits = len(orders.timeline.commits()), list[int](), list[int]()

    @contextmanager
    def hold(wanted: int, cores: int) -> Iterator[int]:
        assert wanted <= cores
        wishes.append(wanted)
        yield 1
        commits.append(len(orders.timeline.commits()) - before)

    result = run_table(shared.context(), shared.record(orders.name), turn=Turn(cores=hold))
    assert (result.error, result.commits) == (None, 1)
    assert min(wishes) > 1
    assert commits == [1], "the cores are given back once, after the commit"
    assert "wait" in result.steps
    orders.assert_equal()


@settings(max_events_per_run=10)
def test_large_backlogs_become_several_commits(orders: Orders) -> None:
    orders.execute(
        *(f"INSERT INTO T VALUES ({n}, 'n', null, 1)" for n in range(12)),
        "UPDATE T SET note = 'm'",
    )
    result = orders.run()
    assert result.error is None
    assert result.commits >= 3
    runs = [c.record for c in orders.timeline.commits() if c.record.kind == "run"]
    assert len(runs) == result.commits
    assert all(a.offsets == b.start_offsets for a, b in itertools.pairwise(runs))
    assert all(record.offsets[0] - record.start_offsets[0] <= 10 for record in runs)
    positions = [Lsn.parse(record.position).value for record in runs if record.position]
    assert positions == sorted(positions)
    orders.assert_equal()


@settings(min_commit_interval="4s")
def test_continuous_runs_follow_the_source_until_told_to_stop(orders: Orders) -> None:
    orders.execute("INSERT INTO T VALUES (1, 'a', null, 1)")
    orders.replication.settle()
    stop, seen = threading.Event(), queue.Queue[list[RunResult]]()
    runner = threading.Thread(
        target=run_continuously,
        args=(
            orders.replication.context(),
            lambda: [orders.replication.record(orders.name)],
            stop,
        ),
        kwargs={"min_interval_s": 0.2, "report": seen.put},
    )
    runner.start()
    try:
        (first,) = seen.get(timeout=120)
        orders.execute("UPDATE T SET note = 'b'")
        (second,) = seen.get(timeout=120)
    finally:
        stop.set()
        runner.join(120)
    assert not runner.is_alive()
    assert (first.counts, second.counts) == ({"c": 1}, {"u": 1})
    *_, earlier, later = orders.timeline.commits()
    assert later.at - earlier.at >= timedelta(seconds=4), "commits keep their distance"
    orders.assert_equal()


@settings(max_events_per_run=10)
def test_small_tables_are_committed_again_and_again_beside_a_giant_and_a_failing_table(
    orders: Orders, shared: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_finder, "TURN_S", 0.0)
    small, failing = [f"{orders.name}small{n}" for n in (1, 2)], f"{orders.name}failing"
    rows = "SELECT n, 'n', null, n FROM generate_series(1, 2000) n"
    orders.execute(
        f"INSERT INTO T {rows}",
        *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in (*small, failing)),
    )
    shared.configure(**{f"public__{name}": {"min_commit_interval": "1s"} for name in small})
    shared.add(*small, failing)
    shared.configure(**{f"public__{failing}": {"mode": "append"}})  # it was onboarded with a key
    shared.database.execute(f"INSERT INTO {failing} VALUES (1)")
    stop, seen = threading.Event(), list[RunResult]()
    tables = [orders.name, *small, failing]
    runner = threading.Thread(
        target=run_continuously,
        args=(shared.context(), lambda: [shared.record(name) for name in tables], stop),
        kwargs={"min_interval_s": 0.2, "report": seen.extend},
    )

    def committed(name: str) -> bool:
        last, topic = shared.record(name).last_commit, shared.record(name).topic
        return last is not None and last.offsets == shared.kafka.stable_offsets(topic)

    runner.start()
    try:
        for number in range(3):
            shared.database.execute(*(f"INSERT INTO {name} VALUES ({number})" for name in small))
            shared.settle()
            wait_until(lambda: all(map(committed, small)), "commits of small tables", 60)
            assert not committed(orders.name), "the giant still has work"
    finally:
        stop.set()
        runner.join(120)
        shared.configure(**{f"public__{failing}": {}})
    assert not runner.is_alive()
    runs = {name: [one for one in seen if one.table.name == name] for name in tables}
    assert [len(shared.lake(name, "id")) for name in small] == [3, 3]
    assert all(one.error is None for name in (orders.name, *small) for one in runs[name])
    giant = runs[orders.name]
    assert {one.commits for one in giant} == {1}, "one cut for each turn"
    # The end of a Kafka transaction takes an offset of a cut.
    assert all(9 <= one.events <= 10 for one in giant)
    assert len(orders.lake("id")) == sum(one.events for one in giant) < 2000
    failed = shared.record(failing)
    assert (failed.state, failed.failures) == (State.FAILED, len(runs[failing]))
    assert len(runs[failing]) <= 2 < len(giant), "it waits longer after each failure"
    shared.configure(**{f"public__{orders.name}": {"max_events_per_run": 10_000}})
    assert orders.run().commits == 1
    orders.assert_equal()


@settings(max_events_per_run=10)
def test_a_run_leaves_its_table_to_a_command_that_waits(
    orders: Orders, shared: Replication
) -> None:
    orders.execute(BACKLOG)
    table, got = shared.table(orders.name), threading.Event()

    def command() -> None:
        with Leases(shared.store, owner="somebody").hold(table, wait_s=60):
            got.set()

    with ThreadPoolExecutor(1) as pool:

        def ask() -> None:
            pool.submit(command)
            wait_until(lambda: is_wanted(shared.store, str(table)), "the wish")

        result = orders.run(registry=Interrupting(shared.registry, ask))
        assert (result.error, result.commits) == (None, 1)
        assert "left to a process that waits for it" in result.warnings[0]
        assert got.wait(60)
    assert orders.run().commits == 4
    orders.assert_equal()
