from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.schema import CreateTable

from cdc.errors import StateError
from cdc.lake.handoff import FollowedSchema
from cdc.store import state_store
from cdc.store import tables as store_tables
from cdc.store.attempt import Attempt
from cdc.store.error_record import ErrorRecord
from cdc.store.history import RunEntry, SchemaEntry
from cdc.store.recorded_change import RecordedChange
from cdc.store.state_store import Store
from cdc.store.table_cost import TABLE_COSTS, TableCost
from cdc.store.table_state import CommitSummary, State, TableRecord
from cdc.store.tables import FORMAT, cost_rows
from schemas.changes import DropColumn, Verdict
from schemas.redaction import redact
from schemas.table import TableId
from tests.handoffs import handed
from tests.records import table_record

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
TABLE = TableId("shop", "public", "orders")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "not" / "there" / "state.db"


@pytest.fixture
def store(file: Path) -> Store:
    return Store(f"sqlite:///{file}")


def record(table: TableId = TABLE) -> TableRecord:
    return table_record(
        table=table,
        base_path="s3a://lake/orders",
        topic="shop_default.public.orders",
        updated_at=NOW,
        attempt=Attempt(UUID(int=1), NOW, "path", start_offsets={0: 1}),
        last_commit=CommitSummary({0: 2, 1: 3}, "0/1", NOW, "2026", NOW),
    )


def entry(table: TableId = TABLE, run_id: str = "r1") -> RunEntry:
    return RunEntry(
        run_id=run_id,
        table=table,
        generation=1,
        state=State.FAILED,
        started_at=NOW,
        seconds=1.5,
        commits=2,
        events=30,
        counts={"c": 20, "d": 10},
        offsets={0: 31},
        watermark=NOW,
        error=ErrorRecord("KafkaError", "down", "wait", {}),
    )


def test_a_record_comes_back_as_it_was_put(store: Store) -> None:
    assert store.get(TABLE) is None
    assert store.tables() == []
    stored = store.put(record())
    assert stored.version == 1
    found = store.get(TABLE)
    assert found == record()
    assert found is not None
    assert found.version == 1


def test_a_record_outlives_the_process_that_wrote_it(store: Store, file: Path) -> None:
    store.put(record())
    store.close()
    assert Store(f"sqlite:///{file}").get(TABLE) == record()


def test_records_are_kept_apart_by_every_part_of_their_name(store: Store) -> None:
    names = [
        TableId("shop", "public", "orders"),
        TableId("shop", "public", "Orders"),
        TableId("shop", "Public", "orders"),
        TableId("crm", "public", "orders"),
        TableId("shop", 'we"ird; drop', "t.1'é"),
    ]
    for name in names:
        store.put(record(name))
    assert [found.table for found in store.tables()] == sorted(names)
    store.delete(names[1])
    assert store.get(names[1]) is None
    assert len(store.tables()) == len(names) - 1


def test_a_record_that_someone_else_changed_is_not_overwritten(store: Store) -> None:
    mine = store.put(record())
    theirs = store.get(TABLE)
    assert theirs is not None
    theirs = store.put(replace(theirs, state=State.PAUSED))
    assert theirs.version == 2
    with pytest.raises(StateError, match=r"shop:public\.orders was changed by another process"):
        store.put(replace(mine, state=State.FAILED))
    with pytest.raises(StateError):
        store.put(record())
    found = store.get(TABLE)
    assert found is not None
    assert found.state is State.PAUSED
    assert store.put(record(), expected_version=2).version == 3


def test_a_record_that_is_gone_is_not_brought_back_by_an_update(store: Store) -> None:
    mine = store.put(record())
    store.delete(TABLE)
    with pytest.raises(StateError):
        store.put(mine)
    assert store.get(TABLE) is None


def test_of_many_writers_one_wins_each_version(store: Store) -> None:
    store.put(record())

    def write(_: int) -> int:
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

    with ThreadPoolExecutor(8) as pool:
        won = sum(pool.map(write, range(8)))
    found = store.get(TABLE)
    assert found is not None
    assert found.failures == won
    assert found.version == won + 1


def test_the_history_is_newest_first_and_per_table(store: Store) -> None:
    other = TableId("shop", "public", "other")
    for number in range(5):
        store.record_run(entry(run_id=f"r{number}"))
        store.record_run(entry(other, run_id=f"o{number}"))
    assert [run.run_id for run in store.last_runs(TABLE, 3)] == ["r4", "r3", "r2"]
    assert [replace(run, by=None) for run in store.last_runs(TABLE, 1)] == [entry(run_id="r4")]
    assert store.last_runs(TableId("a", "b", "c")) == []


def test_a_record_that_has_not_changed_is_parsed_once(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the parsing of 3,000 records was most of the cost of a round."""
    tables = [replace(TABLE, name=f"t{number}") for number in range(5)]
    for one in tables:
        store.put(record(one))
    parsed: list[str] = []
    real = state_store._read_table_record

    def counted(row: sa.Row[tuple[object, ...]]) -> TableRecord:
        parsed.append(row.table_name)
        return real(row)

    monkeypatch.setattr(state_store, "_read_table_record", counted)
    first = store.tables()
    assert len(parsed) == 5
    assert store.tables() == first
    assert len(parsed) == 5
    other = Store(f"sqlite:///{file}")
    other.put(replace(record(tables[3]), topic="another", version=1))
    other.close()
    assert [one.topic for one in store.tables()][3] == "another"
    assert parsed[5:] == ["t3"]


def test_a_cost_that_another_process_has_just_stored_is_replaced(store: Store) -> None:
    """Two processes can do so: runs of a table and of its next generation hold different leases."""
    ours, theirs = (
        TableCost(*(runs, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, NOW, 8.0, 9.0, 2, 3.0, 4.0))
        for runs in (1, 2)
    )
    meanwhile = {"source": "shop", "schema_name": "public", "table_name": "orders"}
    row = sa.insert(cost_rows).values(**meanwhile, cost=TABLE_COSTS.write(theirs))
    done: list[str] = []

    def other_process(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO tributary_cost") and not done:
            done.append(statement)
            connection.execute(row)

    sa.event.listen(sa.Engine, "before_cursor_execute", other_process)
    try:
        store.record_run(entry(), ours)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", other_process)
    assert done
    assert store.costs() == {TABLE: ours}
    assert [run.run_id for run in store.last_runs(TABLE)] == ["r1"]
    store.record_run(entry(), theirs)
    assert store.costs() == {TABLE: theirs}


def test_the_history_survives_the_table(store: Store) -> None:
    store.put(record())
    store.record_run(entry())
    store.delete(TABLE)
    assert len(store.last_runs(TABLE)) == 1


def test_sqlite_writes_ahead_and_waits_for_others(store: Store, file: Path) -> None:
    with store.transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_transactions_that_read_before_they_write_wait_for_each_other(store: Store) -> None:
    counter = store_tables.leases
    with store.transaction() as connection:
        connection.execute(
            sa.insert(counter).values(resource="x", token=0, expires_at=0, taken_at=0)
        )

    def count(_: int) -> None:
        for _ in range(20):
            with store.transaction() as connection:
                token = connection.execute(sa.select(counter.c.token)).scalar_one()
                connection.execute(sa.update(counter).values(token=token + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    with store.transaction() as connection:
        assert connection.execute(sa.select(counter.c.token)).scalar_one() == 160


def test_a_failed_transaction_leaves_nothing(store: Store) -> None:
    row = sa.insert(store_tables.leases).values(resource="x", token=1, expires_at=0, taken_at=0)

    def fail_half_way() -> None:
        with store.transaction() as connection:
            connection.execute(row)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    with store.transaction() as connection:
        assert connection.execute(sa.select(store_tables.leases)).all() == []


@pytest.mark.parametrize(("version", "remedy"), [(1, "a later one"), (-1, "Offboard its tables")])
def test_a_store_of_another_version_is_refused(
    store: Store, file: Path, version: int, remedy: str
) -> None:
    store.close()
    other = FORMAT + version
    with sqlite3.connect(file) as connection:
        connection.execute("update tributary_format set version = ?", (other,))
    connection.close()
    with pytest.raises(
        StateError, match=f"has format {other}; this version knows {FORMAT}"
    ) as info:
        Store(f"sqlite:///{file}")
    assert remedy in info.value.remedy


def test_many_can_create_the_store_at_once(file: Path) -> None:
    script = f"from cdc.store.state_store import Store; Store('sqlite:///{file}').tables()"
    root = Path(__file__).parents[4]
    started = [
        subprocess.Popen([sys.executable, "-c", script], cwd=root, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    outcomes = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, outcomes
    with sqlite3.connect(file) as connection:
        assert connection.execute("select version from tributary_format").fetchall() == [(FORMAT,)]
    connection.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("canary-nonsense", "it is not a URL"),
        ("nosuch://u:canary-pw@h/d", "cannot be used"),
        ("postgresql://u:so@canary-pw@h/d", "it is not a URL"),
        ("postgresql://u:canary-pw@127.0.0.1:1/d?connect_timeout=2", "is not usable"),
        ("sqlite:////proc/nowhere/state.db", "cannot be created"),
        ("sqlite:////proc", "is not usable"),
    ],
)
def test_a_url_that_does_not_work_is_named_without_its_password(url: str, message: str) -> None:
    with pytest.raises(StateError, match=message) as caught:
        Store(url)
    assert caught.value.context["field"] == "state.url"
    assert "canary-pw" not in f"{caught.value} {caught.value.__cause__} {caught.value.to_dict()}"
    assert caught.value.__suppress_context__


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("this is no database" * 100)
    with pytest.raises(StateError, match="file is not a database"):
        Store(f"sqlite:///{tmp_path}/state.db")


def test_the_repr_hides_the_password(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_create", lambda self: None)
    shown = repr(Store("postgresql://u:canary-pw@h/d"))
    assert shown == "Store('postgresql+psycopg://u:***@h/d')"
    assert redact("it was canary-pw") == "it was ***"


def test_names_keep_their_case_and_documents_their_length_on_mysql() -> None:
    created = CreateTable(store_tables.table_rows)
    ddl = str(created.compile(dialect=make_url("mysql://").get_dialect()()))
    assert ddl.count("COLLATE utf8mb4_bin") == 3
    assert "record LONGTEXT" in ddl
    assert "record TEXT" in str(created.compile(dialect=make_url("postgresql://").get_dialect()()))


DROPPED = RecordedChange.of(DropColumn(verdict=Verdict.EVOLVE, why="y", name="a"))
HANDOFF = handed([], schema=FollowedSchema(2, NOW, (7,), (DROPPED,)))


def test_the_schema_history_keeps_each_followed_change_once(store: Store) -> None:
    followed = SchemaEntry.followed(record(), HANDOFF)
    assert followed is not None
    for _ in range(2):
        store.record_schema(followed)
    (kept,) = store.schema_history(TABLE)
    assert replace(kept, by=None, run_id=None) == followed
    assert (kept.version, kept.verdict, kept.outcome) == (2, Verdict.EVOLVE, "followed")
    assert store.schema_history(TableId("shop", "public", "other")) == []


def test_a_lake_that_followed_nothing_has_no_history() -> None:
    assert SchemaEntry.followed(record(), handed([])) is None


def stop(outcome: State, catalog: str = "d") -> SchemaEntry:
    change = DropColumn(verdict=Verdict.BOOTSTRAP, why="y", name="a")
    schema = HANDOFF.next_schema([change], at=NOW, schema_ids=[7])
    return SchemaEntry.stopped(record(), schema, outcome, catalog=catalog)


def test_a_stop_is_kept_with_the_state_that_it_leads_to(store: Store) -> None:
    stored = store.put(record())
    with pytest.raises(StateError):
        store.put(record(), 5, schema=stop(State.NEEDS_BOOTSTRAP))
    assert store.schema_history(TABLE) == [], "the state did not move"
    stored = store.put(stored, schema=stop(State.PAUSED))
    stored = store.put(stored, schema=stop(State.PAUSED))
    store.put(stored, schema=stop(State.PAUSED, catalog="e"))
    first, second = store.schema_history(TABLE)
    assert (first.version, first.outcome, first.verdict) == (3, "paused", Verdict.BOOTSTRAP)
    assert first.key != second.key


def test_a_generation_that_is_built_beside_takes_the_place_of_the_former(store: Store) -> None:
    former = store.put(replace(record(), last_commit=None))
    build = store.put(replace(record(), generation=2, beside=True))
    assert store.tables() == [former]
    assert store.builds() == [build]
    assert store.get(TABLE, beside=True) == build

    taken = store.promote(build, former)

    assert (taken.generation, taken.beside, taken.version) == (2, False, former.version + 1)
    assert store.tables() == [taken]
    assert store.newest(former).generation == 2
    assert store.builds() == []


@pytest.mark.parametrize("changed", ["build", "former"])
def test_no_generation_takes_the_place_of_one_that_was_changed_meanwhile(
    store: Store, changed: str
) -> None:
    known = {
        "former": store.put(record()),
        "build": store.put(replace(record(), generation=2, beside=True)),
    }
    store.put(known[changed])

    with pytest.raises(StateError, match="changed by another process"):
        store.promote(**known)

    assert [found.generation for found in (*store.tables(), *store.builds())] == [1, 2]
