"""The newest result of `verify` and the newest run of each table."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from cdc.store.actor import Actor
from cdc.store.history import RunEntry
from cdc.store.newest_runs import NewestRuns
from cdc.store.state_store import Store
from cdc.store.table_state import State
from cdc.store.verifications import Verifications, VerifyRecord
from operate.verify.result import Difference, Verification
from schemas.table import TableId
from tests.records import table_record

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
ORDERS, PARTS = TableId("shop", "public", "orders"), TableId("shop", "public", "parts")
EQUAL = VerifyRecord("a", NOW, 5, {}, "0/1", 1.0, NOW)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'state.db'}")


def test_a_result_replaces_the_earlier_one_of_its_table(store: Store) -> None:
    kept = Verifications(store)
    assert kept.all() == {}
    kept.keep(ORDERS, EQUAL)
    kept.keep(PARTS, EQUAL)
    worse = replace(EQUAL, differences={"missing": 1})
    kept.keep(ORDERS, worse)
    assert kept.all() == {ORDERS: worse, PARTS: EQUAL}
    assert (kept.of(ORDERS), kept.of(PARTS)) == (worse, EQUAL)
    assert kept.of(TableId("shop", "public", "none")) is None
    assert (EQUAL.equal, worse.equal) == (True, False)


def test_differences_are_counted_by_kind_also_beyond_those_that_are_listed() -> None:
    listed = (Difference("missing", {"id": 1}), Difference("missing", {"id": 2}))
    result = Verification(
        *(ORDERS, 9, 9, 9, listed, 5, ({"id": 3},), 1, 0, 0, "0/1", {}, {}, "i", 1.0)
    )
    assert result.counts == {"missing": 2, "more": 3, "unsettled": 1}
    equal = replace(result, differences=(), difference_count=0, unsettled=(), unsettled_count=0)
    assert equal.counts == {}
    assert equal.equal


def test_the_newest_run_of_each_table_on_the_plan_is_found(store: Store) -> None:
    first = RunEntry("r1", ORDERS, 1, State.INCREMENTAL, NOW, 1.0, 1, 2, {"c": 2}, {0: 2})
    first = replace(first, by=Actor.current())
    runs = NewestRuns(store)
    for table in (ORDERS, PARTS):
        store.put(table_record(table))
    store.put(table_record(ORDERS, beside=True))
    store.record_run(first)
    assert runs.read() == {ORDERS: first}
    second = replace(first, run_id="r2", seconds=9.0)
    store.record_run(second)
    store.record_run(replace(first, table=PARTS))
    store.record_run(replace(first, table=TableId("shop", "public", "gone")))
    assert runs.read() == {ORDERS: second, PARTS: replace(first, table=PARTS)}
    store.delete(PARTS)
    assert runs.read() == {ORDERS: second}
