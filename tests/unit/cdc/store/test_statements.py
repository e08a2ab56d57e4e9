"""The rows of DDL statements: processes that add the same records at once keep each one once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from cdc.store import statements
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
    forget_statements,
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


def deletes(store: Store, act: Callable[[], object], most: int = 100) -> list[int]:
    """Let ``act`` delete rows; return how many each transaction deletes.

    It dies after ``most`` transactions, which a last -1 shows.
    """
    found = [0]

    def after(_connection: object, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("BEGIN"):
            if len(found) > most:
                raise KeyboardInterrupt
            found.append(0)
        if statement.startswith("DELETE FROM tributary_statement "):
            found[-1] += cursor.rowcount

    sa.event.listen(store._engine, "after_cursor_execute", after)
    try:
        act()
    except KeyboardInterrupt:
        found.append(-1)
    finally:
        sa.event.remove(store._engine, "after_cursor_execute", after)
    return [one for one in found if one]


def rows_left(store: Store) -> int:
    with store.transaction() as connection:
        return connection.execute(
            sa.select(sa.func.count()).select_from(statement_rows)
        ).scalar_one()


FORGET = {
    "forget": lambda store: StatementRows(store).forget("t"),
    "old": lambda store: forget_statements(store, -60.0, 20),
    "replace": lambda store: StatementRows(store).add(
        "t", FIRST, StoredRead("A", 1, 1, 2000, 1), {1: RECORD}
    ),
}


@pytest.mark.parametrize("way", FORGET)
def test_no_transaction_deletes_many_statements(
    url: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic has a row for each statement of years; others must be able to write meanwhile."""
    monkeypatch.setattr(statements, "BATCH", 1)
    store = Store(url)
    StatementRows(store).add("t", None, FIRST, RECORDS)
    assert deletes(store, lambda: FORGET[way](store)) == [1, 1, 1]
    assert rows_left(store) == (1 if way == "replace" else 0)
    found = StatementRows(store).of("t")
    assert (found is None) == (way != "replace")


@pytest.mark.parametrize("way", FORGET)
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_a_deletion_that_is_cut_short_leaves_nothing_that_counts_as_complete(
    url: str, way: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "BATCH", 1)
    store = Store(url)
    rows = StatementRows(store)
    rows.add("t", None, FIRST, RECORDS)
    assert deletes(store, lambda: FORGET[way](store), most)[-1] == -1
    found = rows.of("t")
    assert found is not None
    assert found.records is None
    slow = StoredRead("A", 0, 4, 2000, 4)
    assert not rows.add("t", FIRST, slow, {4: RECORD}), "the earlier rows are not all there"
    # The next process reads the topic again, and has all rows.
    assert rows.add("t", found.read, slow, {**RECORDS, 4: RECORD})
    again = rows.of("t")
    assert again is not None
    assert (again.read, again.records) == (slow, {**RECORDS, 4: RECORD})


def test_a_deletion_that_was_cut_short_goes_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "BATCH", 1)
    store = Store(url)
    StatementRows(store).add("t", None, FIRST, RECORDS)
    deletes(store, lambda: StatementRows(store).forget("t"), 2)
    assert rows_left(store) == 2
    assert forget_statements(store, 60.0, 1) == 1
    assert forget_statements(store, 60.0, 20) == 1
    assert StatementRows(store).of("t") is None
    assert forget_statements(store, 60.0, 20) == 0


def test_rows_of_a_topic_that_was_read_again_are_not_deleted(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process reads the topic again while another one deletes its rows."""
    monkeypatch.setattr(statements, "BATCH", 1)
    one, other = Store(url), Store(url)
    StatementRows(one).add("t", None, FIRST, RECORDS)
    batch = statements._delete_batch

    def slowly(store: Store, topic: str, *, head: bool = False) -> int:
        deleted = batch(store, topic, head=head)
        if store is one and rows_left(one) == 2:
            found = StatementRows(other).of("t")
            assert found is not None
            assert StatementRows(other).add("t", found.read, FIRST, RECORDS)
        return deleted

    monkeypatch.setattr(statements, "_delete_batch", slowly)
    StatementRows(one).forget("t")
    found = StatementRows(one).of("t")
    assert found is not None
    assert found.records == RECORDS


@pytest.mark.parametrize("amid", [False, True])
def test_a_topic_that_is_read_again_is_stored_though_its_head_was_deleted(
    url: str, amid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that deletes old statements deletes the head with the last rows."""
    one, other = Store(url), Store(url)
    rows = StatementRows(one)
    rows.add("t", None, FIRST, RECORDS)
    batch = statements._delete_batch

    def after_the_other(store: Store, topic: str, *, head: bool = False) -> int:
        if amid and store is one:
            batch(other, topic, head=True)
        return batch(store, topic, head=head)

    monkeypatch.setattr(statements, "_delete_batch", after_the_other)
    if not amid:
        StatementRows(other).forget("t")
    assert rows.add("t", FIRST, FIRST, RECORDS)
    further = StoredRead("A", 0, 5, 2000, 4)
    assert rows.add("t", FIRST, further, {5: RECORD})
    found = rows.of("t")
    assert found is not None
    assert (found.read, found.records) == (further, {**RECORDS, 5: RECORD})


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
