"""The rows of DDL statements: processes that add the same records at once keep each one once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from cdc.store.state_store import Store
from cdc.store.statements import (
    STATEMENT_COLUMNS,
    STATEMENT_RECORDS,
    StatementRows,
    StoredChange,
    StoredColumn,
    StoredColumns,
    StoredRead,
    StoredRecord,
)
from cdc.store.tables import statement_rows

COLUMN = StoredColumn("c", "VARCHAR", 20, None, "utf8mb4", True, ("'a'",))
COLUMNS = StoredColumns((COLUMN, replace(COLUMN, length=None, scale=2, charset=None, labels=())))
TEXT = STATEMENT_COLUMNS.write(COLUMNS)
CHANGE = StoredChange("ALTER", ("s", "t"), "ALTER", "0-1-5", False, "b.1:5", TEXT, ("", "u"))
RECORD = StoredRecord((CHANGE, replace(CHANGE, table=None, columns="", beside=None)))
FIRST = StoredRead("A", 0, 2, 1000, 3)
RECORDS = dict.fromkeys(range(3), RECORD)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


def test_a_record_is_read_as_it_was_written(url: str) -> None:
    assert STATEMENT_RECORDS.read(STATEMENT_RECORDS.write(RECORD), "it") == RECORD
    assert STATEMENT_COLUMNS.read(TEXT, "it") == COLUMNS
    rows = StatementRows(Store(url))
    assert rows.of("t") is None
    assert rows.add("t", None, FIRST, RECORDS)
    found = rows.of("t")
    assert found is not None
    assert (found.read, found.records) == (FIRST, RECORDS)


def test_of_processes_that_add_at_once_only_one_does(url: str) -> None:
    stores = [Store(url) for _ in range(4)]
    further = StoredRead("A", 0, 5, 2000, 5)
    more = {3: RECORD, 5: RECORD}
    with ThreadPoolExecutor(4) as pool:
        for before, now, records in ((None, FIRST, RECORDS), (FIRST, further, more)):
            adding = [
                pool.submit(StatementRows(one).add, "t", before, now, records) for one in stores
            ]
            assert sorted(one.result() for one in adding) == [False, False, False, True]
    found = StatementRows(stores[0]).of("t")
    assert found is not None
    assert (found.read, found.records) == (further, {**RECORDS, **more})


@pytest.mark.parametrize(
    "known",
    [
        None,
        replace(FIRST, topic_id="a"),
        replace(FIRST, first=1),
        replace(FIRST, last=1),
        replace(FIRST, sent_ms=999),
        replace(FIRST, records=2),
    ],
)
def test_rows_are_added_only_after_what_the_process_knows(
    url: str, known: StoredRead | None
) -> None:
    rows = StatementRows(Store(url))
    rows.add("t", None, FIRST, RECORDS)
    assert not rows.add("t", known, StoredRead("A", 0, 4, 2000, 4), {4: RECORD})
    assert not rows.add("t", known, StoredRead("B", 0, 0, 2000, 1), {0: RECORD})
    found = rows.of("t")
    assert found is not None
    assert (found.read, found.records) == (FIRST, RECORDS)


def test_a_topic_that_was_read_again_replaces_its_rows_only(url: str) -> None:
    rows = StatementRows(Store(url))
    for topic in ("t", "u"):
        rows.add(topic, None, FIRST, RECORDS)
    again = StoredRead("B", 1, 1, 2000, 1)
    assert rows.add("t", FIRST, again, {1: RECORD})
    rows.forget("none")
    found, other = rows.of("t"), rows.of("u")
    assert found is not None
    assert other is not None
    assert (found.read, found.records) == (again, {1: RECORD})
    assert (other.read, other.records) == (FIRST, RECORDS)
    rows.forget("t")
    assert rows.of("t") is None
    assert rows.of("u") == other


def test_what_another_reader_has_stored_is_read_again(url: str) -> None:
    store = Store(url)
    assert StatementRows(store, "1").add("t", None, FIRST, RECORDS)
    found = StatementRows(store, "2").of("t")
    assert found is not None
    assert (found.read, found.records) == (FIRST, None)
    further = StoredRead("A", 0, 5, 2000, 4)
    assert not StatementRows(store, "2").add("t", FIRST, further, {5: RECORD}), "not in part"
    assert StatementRows(store, "2").add("t", FIRST, FIRST, RECORDS)
    again = StatementRows(store, "2").of("t")
    assert again is not None
    assert again.records == RECORDS


def test_a_row_that_cannot_be_read_costs_a_read_of_the_topic(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(url)
    rows = StatementRows(store)
    rows.add("t", None, FIRST, RECORDS)
    with store.transaction() as connection:
        connection.execute(sa.update(statement_rows).values(record='{"format": 2}'))
    found = rows.of("t")
    assert found is not None
    assert (found.read, found.records) == (FIRST, None)
    assert "topic t is read from its first offset again" in caplog.text
