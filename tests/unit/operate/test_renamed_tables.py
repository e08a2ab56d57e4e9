"""Which tables leave a publication if a table was renamed after its copy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from cdc.debezium import CaptureNames
from cdc.store.attempt import Attempt
from cdc.store.state_store import Store
from cdc.store.table_state import State
from operate.tier_capture import remove_tables
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from tests.records import NOW, ORDERS, table_record

NAMES = CaptureNames("shop", "default", "p", "s", "c", "shop", "postgres")
ITEMS, RENAMED = (TableId("shop", "public", name) for name in ("items", "orders_2023"))


class Publication:
    """A fake publication, which knows its tables by their object ids.

    Args:
        tables: The present name of each table.
    """

    def __init__(self, tables: dict[int, TableId]) -> None:
        self.tables = tables

    def remove_renamed(
        self, known: Collection[Fingerprint], keep: Collection[TableId]
    ) -> list[TableId]:
        oids = {one.facts["oid"] for one in known}
        gone = {oid for oid, name in self.tables.items() if oid in oids and name not in keep}
        return [self.tables.pop(oid) for oid in gone]

    def remove(self, tables: Sequence[TableId]) -> list[TableId]:
        gone = [oid for oid, name in self.tables.items() if name in tables]
        return [self.tables.pop(oid) for oid in gone]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    opened.put(table_record(ORDERS, attempt=copied(1)))
    opened.put(table_record(ITEMS, attempt=copied(2)))
    yield opened
    opened.close()


def copied(oid: int) -> Attempt:
    return Attempt(UUID(int=oid), NOW, "/lake", fingerprint=Fingerprint({"oid": oid}))


def removed(store: Store, sent: Publication, *tables: TableId) -> list[TableId]:
    on_source = SimpleNamespace(sent_tables=sent)
    source = SimpleNamespace(capture=lambda _: on_source)
    services = SimpleNamespace(store=store, source=lambda _: source)
    return sorted(remove_tables(cast("Any", services), NAMES, tables))


def test_a_table_leaves_under_the_name_that_it_has_now(store: Store) -> None:
    sent = Publication({1: RENAMED, 2: ITEMS})
    assert removed(store, sent, ORDERS) == [RENAMED]
    assert sent.tables == {2: ITEMS}
    assert removed(store, sent, ORDERS) == []


def test_the_table_that_has_its_name_now_leaves_too(store: Store) -> None:
    sent = Publication({1: RENAMED, 2: ITEMS, 3: ORDERS})
    assert removed(store, sent, ORDERS) == [ORDERS, RENAMED]
    assert sent.tables == {2: ITEMS}


def test_a_table_that_another_record_has_by_name_stays(store: Store) -> None:
    """Two tables have swapped their names."""
    sent = Publication({1: ITEMS, 2: ORDERS})
    assert removed(store, sent, ORDERS) == [ORDERS]
    assert sent.tables == {1: ITEMS}
    assert removed(store, sent, ORDERS, ITEMS) == [ITEMS]


def test_a_table_of_a_move_stays_and_one_that_was_offboarded_does_not(store: Store) -> None:
    record = store.put(table_record(RENAMED, tier="fast"))
    sent = Publication({1: RENAMED})
    assert removed(store, sent, ORDERS) == [RENAMED], "its capture is another one"
    store.delete(record.table)
    store.put(table_record(RENAMED, State.REGISTERED, beside=True))
    sent = Publication({1: RENAMED})
    assert removed(store, sent, ORDERS) == []


def test_the_next_generation_knows_its_table_too(store: Store) -> None:
    store.put(table_record(ORDERS, State.BOOTSTRAPPING, beside=True, attempt=copied(3)))
    sent = Publication({1: RENAMED, 3: TableId("shop", "archive", "orders")})
    assert len(removed(store, sent, ORDERS)) == 2
