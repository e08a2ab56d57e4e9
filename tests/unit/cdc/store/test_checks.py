"""The results of checks, and the number of commits since them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from cdc.store.checks import Checks
from cdc.store.commit_counts import commit_counts
from cdc.store.histories import Histories
from cdc.store.history import RunEntry
from cdc.store.state_store import Store
from cdc.store.table_state import State
from cdc.store.tables import check_result_rows
from schemas.table import TableId
from tests.records import NOW, ORDERS
from tests.unit.cdc.store.check_results import BROKEN, FAILED, PASSED

PARTS = TableId("shop", "public", "parts")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(os.environ.get("TRIBUTARY_TEST_STORE") or f"sqlite:///{tmp_path / 'state.db'}")


def test_the_newest_results_of_each_check_are_kept(store: Store) -> None:
    checks = Checks(store)
    assert checks.all() == {}
    assert checks.of(ORDERS, "keys") is None
    for result in (PASSED, FAILED, BROKEN):
        checks.keep(result)
    checks.keep(replace(PASSED, check="other"))
    checks.keep(replace(PASSED, table=PARTS))
    found = checks.all()
    assert {table: set(names) for table, names in found.items()} == {
        ORDERS: {"keys", "other"},
        PARTS: {"keys"},
    }
    record = found[ORDERS]["keys"]
    assert record == checks.of(ORDERS, "keys")
    assert (record.newest, record.conclusive, record.passed_at) == (BROKEN, FAILED, NOW)
    assert record.failed, "a check that does not work says nothing new about the data"
    assert not found[PARTS]["keys"].failed
    assert not checks.keep(replace(PASSED, outcome="passed")).failed


def test_the_history_has_results_about_the_data_newest_first(store: Store) -> None:
    checks = Checks(store)
    for result in (PASSED, BROKEN, FAILED, replace(PASSED, check="other")):
        checks.keep(result)
    assert checks.last(ORDERS, "keys", 5) == [FAILED, PASSED]
    assert checks.last(ORDERS, "keys", 1) == [FAILED]
    assert checks.last(PARTS, "keys", 5) == []


def test_old_results_are_deleted_and_the_newest_one_of_a_check_stays(store: Store) -> None:
    checks = Checks(store)
    checks.keep(FAILED)
    assert Histories(store).forget(3600) == 0
    with store.transaction() as connection:
        older = check_result_rows.c.noted_at - 7200
        connection.execute(sa.update(check_result_rows).values(noted_at=older))
    assert Histories(store).forget(3600) == 1
    assert checks.last(ORDERS, "keys", 5) == []
    record = checks.of(ORDERS, "keys")
    assert record is not None
    assert record.failed


def test_the_commits_of_runs_are_counted_by_table(store: Store) -> None:
    run = RunEntry("r", ORDERS, 1, State.INCREMENTAL, NOW, 1.0, 3, 9, {}, {0: 1})
    assert commit_counts(store) == {}
    for commits in (3, 0, 4):
        store.record_run(replace(run, commits=commits))
    store.record_run(replace(run, table=PARTS, commits=0))
    assert commit_counts(store) == {ORDERS: 7}
