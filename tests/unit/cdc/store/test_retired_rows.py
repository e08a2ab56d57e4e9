"""What the state store has of retired tables is deleted after a while, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import sqlalchemy as sa

from cdc.store import histories, retired_rows
from cdc.store.checks import Checks
from cdc.store.histories import Histories
from cdc.store.quarantine import Quarantine, Quarantined
from cdc.store.state_store import Store, _values
from cdc.store.stored_costs import put_cost
from cdc.store.table_cost import TableCost
from cdc.store.table_state import State, TableRecord, transition
from cdc.store.tables import table_rows
from cdc.store.verifications import Verifications, VerifyRecord
from schemas.table import TableId
from tests.records import NOW, ORDERS, READY, table_record
from tests.unit.cdc.store.check_results import PASSED
from tests.unit.cdc.store.sql_statements import statements

PARTS = TableId("shop", "public", "parts")
DAY = 86400.0
COST = TableCost(1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 60.0, NOW, 1.0, 1.0, 2, 1.0, 100.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    yield opened
    opened.close()


def fill(store: Store, table: TableId, quarantined: int = 3) -> None:
    """Keep rows of each kind that no history has."""
    known = Quarantined(
        *(table, f"attempt of {table.name}", "topic", "id", 0, 0, 7, "why", NOW, 5, "run", NOW)
    )
    Quarantine(store).keep([replace(known, offset=offset) for offset in range(quarantined)])
    Checks(store).keep(replace(PASSED, table=table))
    Verifications(store).keep(table, VerifyRecord("a", NOW, 5, {}, "0/1", 1.0, NOW))
    with store.transaction() as connection:
        put_cost(connection, table, COST)


def left(store: Store) -> set[str]:
    """The tables of which the state store has rows, by the names of SQL table and table."""
    with store.transaction() as connection:
        return {
            f"{rows.name.removeprefix('tributary_')} {name}"
            for rows in retired_rows._LEFT
            for name in connection.execute(sa.select(rows.c.table_name)).scalars()
        }


def retire(store: Store, record: TableRecord, days: float) -> TableRecord:
    at = datetime.now(timezone.utc) - timedelta(days=days)
    return store.put(transition(record, State.RETIRED, at=at))


KINDS = ("quarantine", "cost", "check", "verification")


def test_what_is_left_of_a_retired_table_is_deleted_after_a_while(store: Store) -> None:
    young, gone = (TableId("shop", "public", name) for name in ("young", "gone"))
    for table, days in ((ORDERS, 3.0), (PARTS, None), (young, 1.0)):
        stored = store.put(table_record(table, attempt=READY))
        fill(store, table)
        if days is not None:
            retire(store, stored, days)
    fill(store, gone)
    # A next generation's record says nothing of the table.
    store.put(table_record(PARTS, State.RETIRED, beside=True, updated_at=NOW))
    assert Histories(store).forget(2 * DAY) == 6
    assert left(store) == {
        f"{kind} {name}" for kind in KINDS for name in ("parts", "young", "gone")
    }
    assert Histories(store).forget(2 * DAY) == 0


@pytest.mark.parametrize("again", [False, True])
def test_a_table_that_is_onboarded_again_keeps_what_it_has(
    store: Store, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put on the plan between the search and the deletion, and perhaps leaves it again."""
    retired = retire(store, store.put(table_record()), 3.0)
    fill(store, ORDERS)
    search = retired_rows._retired_in

    def onboards(connection: sa.Connection, rows: sa.Table) -> list[TableId]:
        found = search(connection, rows)
        if rows is retired_rows._LEFT[-1]:
            planned = transition(retired, State.REGISTERED, at=NOW)
            values = _values(transition(planned, State.RETIRED, at=NOW) if again else planned, 4)
            connection.execute(sa.update(table_rows).values(**values))
        return found

    monkeypatch.setattr(retired_rows, "_retired_in", onboards)
    assert Histories(store).forget(2 * DAY) == 0
    assert left(store) == {f"{kind} orders" for kind in KINDS}


def test_tables_that_left_the_plan_lately_cost_no_query_each(store: Store) -> None:
    """It would be one for each of them, at each look."""

    def look() -> int:
        with statements(store) as asked:
            assert Histories(store).forget(DAY) == 0
        return len(asked)

    before = look()
    for number in range(5):
        table = TableId("shop", "public", f"t{number}")
        fill(store, table)
        retire(store, store.put(table_record(table)), 0.5)
    assert look() <= before


def test_many_quarantined_records_are_deleted_in_batches(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "BATCH", 2)
    monkeypatch.setattr(histories, "BATCHES", 3)
    retire(store, store.put(table_record()), 3.0)
    fill(store, ORDERS, quarantined=9)
    assert Histories(store).forget(2 * DAY) == 6, "three batches, and the next look goes on"
    assert Histories(store).forget(2 * DAY) == 3 + 1
    assert Histories(store).forget(2 * DAY) == 2
    assert left(store) == set()


def test_the_search_reads_nothing_of_tables_on_the_plan(store: Store) -> None:
    """Quarantines of tables on the plan can be large, and the search takes place each minute."""
    retire(store, store.put(table_record()), 3.0)
    with statements(store) as asked:
        Histories(store).forget(DAY)
    asked = [one for one in asked if "EXISTS" in one]
    assert len(asked) == len(KINDS)
    with store.transaction() as connection:
        for one in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}", ("retired",)).all()
            details = [row.detail for row in plan]
            assert details[0] == "SCAN tributary_table"
            assert "USING COVERING INDEX" in details[-1]
            assert details[-1].startswith("SEARCH")


def test_a_retired_table_has_no_chunks_on_record(store: Store) -> None:
    """A giant table has thousands, and each round of runs reads all records."""
    copied = store.put(table_record(attempt=READY))
    retired = retire(store, copied, 0.0)
    assert READY.chunks
    assert retired.attempt == replace(READY, chunks=())
    assert store.tables() == [retired]
    assert transition(retired, State.REGISTERED, at=NOW).attempt is None
    never_copied = store.put(table_record(PARTS, State.REGISTERED))
    assert retire(store, never_copied, 0.0).attempt is None
