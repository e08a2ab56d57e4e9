"""The histories of runs, schema changes and states: their entries, retention and authors."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from cdc.errors import StateError
from cdc.lake.handoff import FollowedSchema
from cdc.store import actor, histories, history_rows
from cdc.store.actor import Actor
from cdc.store.attempt import Attempt
from cdc.store.error_record import ErrorRecord
from cdc.store.histories import Histories
from cdc.store.history import RunEntry, SchemaEntry, StateEntry
from cdc.store.recorded_change import RecordedChange
from cdc.store.state_store import Store
from cdc.store.table_state import Cause, State, TableRecord, transition
from cdc.store.tables import run_rows, schema_change_rows, state_change_rows
from schemas.changes import AddColumn, AddPartition, Change, Verdict
from schemas.table import TableId
from tests.handoffs import handed
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.store.sql_statements import statements

PARTS = TableId("shop", "public", "parts")
LONG_AGO = datetime(2000, 1, 1, tzinfo=timezone.utc)
DAY = 86400.0
EVERY_90_S = timedelta(seconds=90)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(actor, "_command", "run")
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}", "the run")
    yield opened
    opened.close()


def run(number: int = 0, table: TableId = ORDERS, **facts: object) -> RunEntry:
    known = RunEntry(
        f"r{number}",
        table,
        1,
        State.INCREMENTAL,
        datetime(2026, 1, 2, tzinfo=timezone.utc) + number * EVERY_90_S,
        2.0,
        1,
        30,
        {"c": 20, "d": 10},
        {0: number},
    )
    return replace(known, **facts)


def runs(store: Store, table: TableId = ORDERS) -> list[RunEntry]:
    """All entries of a table's run history, newest first."""
    return store.last_runs(table, 10_000)


def states(store: Store) -> list[StateEntry]:
    noted = Histories(store).since(LONG_AGO)
    return [one.entry for one in noted if isinstance(one.entry, StateEntry)]


def age(store: Store, rows: sa.Table, seconds: float, table: TableId | None = None) -> None:
    """Make the entries of a history older than they are."""
    aged = sa.update(rows).values(noted_at=rows.c.noted_at - seconds)
    if table is not None:
        aged = aged.where(rows.c.table_name == table.name)
    with store.transaction() as connection:
        connection.execute(aged)


def test_a_day_of_runs_is_an_entry_for_each_hour(store: Store) -> None:
    """With an entry per run, 1,000 tables with 960 runs a day would take half a gigabyte a day."""
    for number in range(960):
        store.record_run(run(number))
    kept = runs(store)
    whole, hours = kept[: history_rows.RUNS_WHOLE], kept[history_rows.RUNS_WHOLE :]
    assert [one.run_id for one in whole] == [f"r{number}" for number in range(959, 859, -1)]
    assert all(one.runs == 1 for one in whole)
    assert len(hours) == 22, "860 runs are of 21.5 hours"
    assert sum(one.runs for one in hours) == 860
    assert sum(one.events for one in hours) == 860 * 30
    assert sum(one.counts["d"] for one in hours) == 860 * 10
    first = hours[-1]
    assert (first.started_at, first.runs, first.run_id) == (run(0).started_at, 40, "r39")
    assert (first.seconds, first.commits, first.offsets) == (80.0, 40, {0: 39})


@pytest.mark.parametrize(
    "other",
    [
        {"state": State.FAILED},
        {"generation": 2},
        {"error": ErrorRecord("KafkaError", "down", "wait", {})},
        {"by": Actor("somebody", "elsewhere", "run")},
        {"started_at": run(0).started_at + timedelta(hours=1)},
    ],
    ids=lambda facts: next(iter(facts)),
)
def test_runs_that_are_not_alike_stay_apart(
    store: Store, other: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_rows, "RUNS_WHOLE", 1)
    for number in range(3):
        store.record_run(run(number))
    for number in range(3, 6):
        store.record_run(run(number, **other))
    assert [one.runs for one in runs(store)] == [1, 2, 3]
    assert [one.run_id for one in runs(store)] == ["r5", "r4", "r2"]


def test_errors_of_one_kind_are_one_entry(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose broker is down fails again and again, and should not fill the history."""
    monkeypatch.setattr(history_rows, "RUNS_WHOLE", 1)
    down = ErrorRecord("KafkaError", "down", "wait", {"try": "1"})
    for number in range(4):
        again = replace(down, context={"try": str(number)})
        store.record_run(run(number, state=State.FAILED, commits=0, error=again))
    assert [one.runs for one in runs(store)] == [1, 3]


def test_runs_of_other_tables_are_not_joined(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_rows, "RUNS_WHOLE", 1)
    for number in range(4):
        store.record_run(run(number))
        store.record_run(run(number, PARTS))
    assert [one.runs for one in runs(store)] == [one.runs for one in runs(store, PARTS)] == [1, 3]


def test_every_change_of_a_state_is_kept_with_who_made_it(store: Store) -> None:
    actor.name_command("pause")
    other = Store(store.shown_url, "another run")
    registered = store.put(table_record(state=State.REGISTERED))
    attempt = Attempt(UUID(int=1), NOW, "path", start_offsets={0: 1}, handoff_offsets={0: 2})
    copying = store.put(transition(registered, State.BOOTSTRAPPING, at=NOW, attempt=attempt))
    copying = store.put(replace(copying, failures=1))
    caught = store.put(transition(copying, State.CATCHING_UP, at=NOW))
    followed = store.put(transition(caught, State.INCREMENTAL, at=NOW))
    paused = transition(followed, State.PAUSED, at=NOW, cause=Cause("migration"))
    other.put(paused)
    kept = states(store)
    assert [(one.former, one.state) for one in kept] == [
        (None, State.REGISTERED),
        (State.REGISTERED, State.BOOTSTRAPPING),
        (State.BOOTSTRAPPING, State.CATCHING_UP),
        (State.CATCHING_UP, State.INCREMENTAL),
        (State.INCREMENTAL, State.PAUSED),
    ], "a record whose state stays adds nothing"
    last = kept[-1]
    assert (last.why, last.run_id) == ("migration", "another run")
    assert (last.by.user, last.by.host) == (getpass.getuser(), socket.gethostname())
    assert last.by.command == "pause"
    assert {one.run_id for one in kept[:-1]} == {"the run"}
    other.close()


def test_a_change_that_another_process_refuted_is_not_kept(store: Store) -> None:
    mine = store.put(table_record())
    store.put(replace(mine, state=State.PAUSED))
    with pytest.raises(StateError):
        store.put(replace(mine, state=State.FAILED))
    with pytest.raises(StateError):
        store.put(table_record(state=State.FAILED))
    assert [one.state for one in states(store)] == [State.INCREMENTAL, State.PAUSED]


def test_a_next_generation_is_named_until_it_takes_the_place_of_the_former(store: Store) -> None:
    former = store.put(table_record())
    build = store.put(table_record(state=State.CATCHING_UP, generation=2, beside=True))
    store.promote(build, former)
    store.delete(ORDERS)
    store.delete(ORDERS)
    assert [(one.beside, one.generation, one.former, one.state) for one in states(store)] == [
        (False, 1, None, State.INCREMENTAL),
        (True, 2, None, State.CATCHING_UP),
        (False, 2, State.INCREMENTAL, State.CATCHING_UP),
        (False, 2, State.CATCHING_UP, None),
    ]


def change(record: TableRecord, version: int, at: datetime = NOW) -> SchemaEntry:
    key = f"{record.table}/{record.generation}/{version}"
    return SchemaEntry(record.table, record.generation, version, at, (7,), (), "followed", key)


def test_a_schema_change_names_the_command_that_recorded_it(store: Store) -> None:
    entry = change(table_record(), 2)
    store.record_schema(entry)
    (kept,) = store.schema_history(ORDERS)
    assert replace(kept, by=None, run_id=None) == entry
    assert kept.by is not None
    assert (kept.by.command, kept.run_id) == ("run", "the run")


def test_events_are_read_by_time_and_table_oldest_first(store: Store) -> None:
    past = store.now() - timedelta(hours=1)
    for table in (ORDERS, PARTS):
        store.record_schema(change(table_record(table), 2, at=past))
        store.put(table_record(table))
        store.record_run(run(1, table))
    age(store, state_change_rows, 2 * DAY)
    known = Histories(store)
    assert [type(one.entry).__name__ for one in known.since(LONG_AGO, [ORDERS])] == [
        *("StateEntry", "SchemaEntry", "RunEntry"),
    ]
    assert len(known.since(LONG_AGO)) == 6
    assert len(known.since(past)) == 4
    assert [type(one.entry) for one in known.since(past + timedelta(seconds=1), [PARTS])] == [
        RunEntry
    ]
    assert known.since(store.now() + timedelta(hours=1)) == []


def test_old_entries_are_deleted_and_newer_ones_stay(store: Store) -> None:
    for table in (ORDERS, PARTS):
        store.put(table_record(table))
        for number in range(3):
            store.record_run(run(number, table))
    assert Histories(store).forget(DAY) == 0
    age(store, run_rows, 2 * DAY, ORDERS)
    age(store, state_change_rows, 2 * DAY, PARTS)
    assert Histories(store).forget(DAY) == 4
    assert runs(store) == []
    assert len(runs(store, PARTS)) == 3
    assert [one.table for one in states(store)] == [ORDERS]
    assert Histories(store).forget(DAY) == 0


def test_schema_changes_go_only_with_tables_that_left_the_plan(store: Store) -> None:
    """If the newest entry were deleted, a run would add it again.

    `status` also needs all schema changes of a table with frozen columns. After an `offboard`,
    people read them for as long as the history of the table's runs.
    """
    gone, retired = (TableId("shop", "public", name) for name in ("gone", "retired"))
    for table in (ORDERS, gone, retired):
        left = store.put(table_record(table))
        store.record_schema(change(table_record(table), 2, at=LONG_AGO))
    left = store.put(transition(left, State.RETIRED, at=NOW))
    store.delete(gone)
    # A next generation's record says nothing of the table.
    store.put(table_record(beside=True))
    store.delete(ORDERS, beside=True)
    store.put(table_record(state=State.RETIRED, beside=True))
    store.put(transition(left, State.REGISTERED, at=NOW))
    store.record_schema(change(table_record(retired), 3, at=LONG_AGO))
    assert Histories(store).forget(DAY) == 0, "the changes are old, but the tables left just now"
    expire(store, DAY)
    assert Histories(store).forget(DAY) == 2
    versions = {
        table.name: [one.version for one in store.schema_history(table)]
        for table in (ORDERS, gone, retired)
    }
    assert versions == {"orders": [2], "gone": [], "retired": [3]}, "it is onboarded again"


def expire(store: Store, seconds: float) -> None:
    """Let schema changes that may go have got needless so much earlier."""
    earlier = schema_change_rows.c.needless_at - seconds
    with store.transaction() as connection:
        connection.execute(sa.update(schema_change_rows).values(needless_at=earlier))


ATTEMPTS = (UUID(int=1), UUID(int=2))


def followed(*changes: Change, version: int, at: datetime, attempt: UUID) -> SchemaEntry:
    """What a run adds once the lake has followed these changes."""
    copied = table_record(generation=attempt.int, attempt=Attempt(attempt, NOW, "path"))
    recorded = tuple(map(RecordedChange.of, changes))
    schema = FollowedSchema(version, at, (7,), recorded)
    entry = SchemaEntry.followed(copied, handed([], schema=schema))
    assert entry is not None
    return entry


def partition(version: int, at: datetime, attempt: UUID = ATTEMPTS[0]) -> SchemaEntry:
    new = AddPartition(verdict=Verdict.EVOLVE, why="it is empty", name=f"p{version}")
    return followed(new, version=version, at=at, attempt=attempt)


def versions(store: Store) -> list[tuple[int, int]]:
    return [(one.generation, one.version) for one in store.schema_history(ORDERS)]


def test_new_partitions_leave_the_history_once_later_changes_have_replaced_them(
    store: Store,
) -> None:
    """With an entry a day, 1,000 tables would have 365,000 entries a year, each with all columns.

    The newest entry stays, since each run adds it again if the history lacks it.
    """
    store.put(table_record())
    now = store.now()
    for version in range(2, 32):
        entry = partition(version, now - timedelta(days=31 - version))
        for _ in range(2):
            store.record_schema(entry)
    assert Histories(store).forget(10.5 * DAY) == 18
    assert versions(store) == [(1, version) for version in range(20, 32)]
    # An entry was the newest one until its successor came, so its age counts from then on.
    assert Histories(store).forget(9.5 * DAY) == 1
    store.record_schema(entry)
    assert Histories(store).forget(0.5 * DAY) == 9
    assert versions(store) == [(1, 30), (1, 31)]


def test_no_change_of_columns_leaves_the_history_of_a_table_on_the_plan(store: Store) -> None:
    """`status` derives the columns that a frozen table lacks from all of them."""
    store.put(table_record())
    added = AddColumn(verdict=Verdict.IGNORE, why="w", name="c", type="int", frozen=True)
    new = AddPartition(verdict=Verdict.EVOLVE, why="it is empty", name="p")
    for version, changes in enumerate([(new,), (added,), (new, added), (new,), (new,)], 2):
        store.record_schema(followed(*changes, version=version, at=LONG_AGO, attempt=ATTEMPTS[0]))
    assert Histories(store).forget(DAY) == 2
    assert versions(store) == [(1, 3), (1, 4), (1, 6)]


def test_the_newest_change_of_each_attempt_stays(store: Store) -> None:
    """While a next generation is built, runs still add the newest change of the serving one."""
    serving = partition(2, LONG_AGO)
    stopped = replace(serving, outcome="paused", key=f"{ATTEMPTS[0]}/3/paused/d", version=3)
    store.put(table_record())
    for entry in (serving, stopped, partition(2, LONG_AGO, ATTEMPTS[1])):
        store.record_schema(entry)
    store.record_schema(partition(3, LONG_AGO, ATTEMPTS[1]))
    assert Histories(store).forget(DAY) == 1
    assert versions(store) == [(1, 2), (1, 3), (2, 3)]


def test_a_look_for_old_schema_changes_reads_an_index_only(store: Store) -> None:
    """It happens each minute, and no other process can write to a SQLite store meanwhile."""
    with statements(store) as asked:
        Histories(store).forget(DAY)
    looks = [one for one in asked if one.startswith("SELECT") and schema_change_rows.name in one]
    with store.transaction() as connection:
        plans = [
            connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}", (DAY, 500, 0)).all()
            for one in looks
        ]
    index = f"ix_{schema_change_rows.name}_needless_at"
    assert [[row.detail for row in plan] for plan in plans] == [
        [f"SEARCH {schema_change_rows.name} USING COVERING INDEX {index} (needless_at<?)"]
    ]


def test_many_old_schema_changes_are_deleted_in_batches(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "BATCH", 10)
    monkeypatch.setattr(histories, "BATCHES", 2)
    store.put(table_record())
    for version in range(2, 30):
        store.record_schema(partition(version, LONG_AGO))
    assert deletes(store) == [10, 10]
    assert deletes(store) == [7]
    assert deletes(store) == []


def deletes(store: Store) -> list[int]:
    """Delete old entries once; return the number of rows that each statement has deleted."""
    found: list[int] = []

    def after(_connection: object, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("DELETE"):
            found.append(cursor.rowcount)

    sa.event.listen(sa.Engine, "after_cursor_execute", after)
    try:
        Histories(store).forget(DAY)
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", after)
    return found


def test_no_statement_deletes_many_entries(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that never deleted entries has millions; others must be able to write meanwhile."""
    monkeypatch.setattr(histories, "BATCH", 10)
    monkeypatch.setattr(histories, "BATCHES", 3)
    for number in range(45):
        store.record_run(run(number))
    assert deletes(store) == [], "nothing is due"
    age(store, run_rows, 2 * DAY)
    assert deletes(store) == [10, 10, 10], "the next run goes on"
    assert deletes(store) == [10, 5]
    assert deletes(store) == []
    assert runs(store) == []


def test_a_search_for_old_entries_reads_an_index_only(store: Store) -> None:
    for rows in (run_rows, state_change_rows):
        with store.transaction() as connection:
            plan = connection.exec_driver_sql(
                f"EXPLAIN QUERY PLAN SELECT id FROM {rows.name} WHERE noted_at < 1"
                " ORDER BY noted_at LIMIT 500"
            ).all()
        assert [row.detail for row in plan] == [
            f"SEARCH {rows.name} USING COVERING INDEX ix_{rows.name}_noted_at (noted_at<?)"
        ]


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container in Kubernetes can run under a user id without a user name."""

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", unknown)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    monkeypatch.setattr("socket.gethostname", lambda: "h" * 200)
    monkeypatch.setattr(actor, "_command", "run")
    assert Actor.current() == Actor("uid 4711", "h" * 64, "run")
    assert str(Actor("etl", "worker-1", "run")) == "etl@worker-1: run"


def test_entries_are_plain_values_for_programs(store: Store) -> None:
    store.put(table_record())
    store.record_run(run())
    store.record_schema(change(table_record(), 2))
    for noted in Histories(store).since(LONG_AGO):
        shown = json.loads(json.dumps(noted.entry.to_json()))
        assert set(shown["by"]) == {"user", "host", "command"}
        assert shown["run_id"]
    assert schema_change_rows.c.entry_key.unique


def test_only_the_newest_entries_of_a_fleet_are_read_if_asked(store: Store) -> None:
    for number in range(4):
        for table in (ORDERS, PARTS):
            store.record_run(run(number, table))
    age(store, run_rows, 50.0, ORDERS)
    newest = Histories(store).since(LONG_AGO, most=3)
    assert [(one.entry.table, one.entry.run_id) for one in newest] == [
        *((PARTS, "r1"), (PARTS, "r2"), (PARTS, "r3")),
    ]
    of_each = Histories(store).since(LONG_AGO, [ORDERS, PARTS], most=1)
    assert {(one.entry.table, one.entry.run_id) for one in of_each} == {
        *((ORDERS, "r3"), (PARTS, "r3")),
    }


def test_joined_runs_add_up_their_steps(store: Store) -> None:
    first, second = run(0, steps={"read": 1.5, "write": 0.5}), run(1, steps={"write": 0.25})
    joined = second.after(first)
    assert joined is not None
    assert joined.steps == {"read": 1.5, "write": 0.75}
