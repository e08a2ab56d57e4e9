"""The cost of `onboard`, without the copies, grows at most with the number of new tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cdc.config import parse
from cdc.errors import ConfigError
from cdc.runtime.progress import NullProgress
from cdc.sources.source_facts import SourceColumn, SourceTable
from cdc.store.table_state import State
from operate.context import Services
from operate.onboard import copy, onboard, register
from operate.readiness_check import examine_all, on_record
from schemas.table import TableId
from schemas.types_postgres import PostgresType
from tests.unit.cdc.configuration import minimal

SOURCE_LOOKS = ("table", "largest_row", "key_obstacle")


def some(count: int) -> list[TableId]:
    return [TableId("shop", "public", f"t_{number:04}") for number in range(count)]


def found(table: TableId) -> SourceTable:
    key = SourceColumn("id", PostgresType("int4"), False, False, None)
    return SourceTable(
        table, "table", (key,), ("id",), (("id",),), "default", ("id",), "admin", "postgres"
    )


class Counted:
    """Services with a fake source of equal tables, which count the calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **tables: Any) -> None:
        document = minimal() | ({"tables": tables} if tables else {})
        self.services = Services(parse(yaml.safe_dump(document), base=folder), NullProgress())
        self.calls: Counter[str] = Counter()
        source = self.services.source("shop")
        captured = SimpleNamespace(missing_rights=lambda _: None)
        answers: dict[str, Any] = {
            "capture_obstacle": lambda: None,
            "capture": lambda _: captured,
            "table": found,
            "largest_row": lambda _: None,
            "key_obstacle": lambda *_: None,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(source, name, self._counting(name, answer))
        store = self.services.store
        for name in ("tables", "get", "put", "transaction"):
            monkeypatch.setattr(store, name, self._counting(f"store {name}", getattr(store, name)))

    def _counting(self, name: str, answer: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            self.calls[name] += 1
            return answer(*arguments, **more)

        return call

    def follow(self, tables: list[TableId]) -> None:
        """Put tables on the plan, as if their copies were complete."""
        for table in tables:
            register(self.services, table)
            record = self.services.store.get(table)
            assert record is not None
            self.services.store.put(replace(record, state=State.INCREMENTAL))
        self.calls.clear()


def test_tables_are_examined_with_as_many_reads_of_the_plan_whatever_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    for count in (10, 100):
        counted = Counted(tmp_path, monkeypatch)
        assert examine_all(counted.services, some(count)).replicable == some(count)
        reads.append({name: n for name, n in counted.calls.items() if name.startswith("store")})
        assert counted.calls["table"] == count
        counted.services.close()
    assert reads[0] == reads[1]
    assert sum(reads[0].values()) <= 10


def test_the_plan_is_read_once_for_all_tables_that_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(tmp_path, monkeypatch)
    known = on_record(counted.services)
    for table in some(100):
        assert register(counted.services, table, known).action == "registered"
    assert counted.calls["store tables"] == 1
    assert counted.calls["store put"] == 100
    assert [one.table for one in counted.services.store.tables()] == some(100)
    again = register(counted.services, some(1)[0], known)
    assert again.action == "is already on the plan, registered"
    counted.services.close()


def test_the_source_is_not_asked_again_about_tables_that_a_wildcard_matches_and_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule can repeat `onboard 'public.*'` to find new tables."""
    counted = Counted(tmp_path, monkeypatch)
    counted.follow(some(100))
    monkeypatch.setattr("operate.onboard._capture_group", lambda _, group: untouched(group.tables))
    outcomes = onboard(counted.services, some(101), in_bulk=some(101))
    assert [one.table for one in outcomes if one.action == "is prepared"] == some(101)[100:]
    assert sum("already up to date" in one.action for one in outcomes) == 100
    assert {name: counted.calls[name] for name in SOURCE_LOOKS} == dict.fromkeys(SOURCE_LOOKS, 1)
    assert counted.calls["store transaction"] <= 12
    # A table that an argument names is examined.
    counted.calls.clear()
    onboard(counted.services, some(2), in_bulk=some(1))
    assert counted.calls["table"] == 1
    counted.services.close()


def untouched(tables: tuple[TableId, ...]) -> list[Any]:
    """The outcomes for tables whose capture needs no change; the one new table is paused."""
    from operate.table_outcome import Outcome

    return [
        Outcome(one, "is prepared", State.PAUSED if one == some(101)[100] else State.INCREMENTAL)
        for one in tables
    ]


def test_tables_that_are_done_start_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(tmp_path, monkeypatch)
    counted.follow(some(100))
    monkeypatch.setattr(Services, "spark", property(lambda _: pytest.fail("Spark was started")))
    outcomes = copy(counted.services, some(100))
    assert [one.table for one in outcomes] == some(100)
    assert {one.state for one in outcomes} == {State.INCREMENTAL}
    assert counted.calls["store transaction"] == 1
    counted.services.close()


def test_the_settings_of_a_table_that_is_done_are_compared_in_each_onboarding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(tmp_path, monkeypatch)
    counted.follow(some(2))
    counted.services.close()
    edited = Counted(tmp_path, monkeypatch, **{"public.t_0001": {"name": "elsewhere"}})
    examined = examine_all(edited.services, some(2), only_settings=some(2))
    assert list(examined.refused) == some(2)[1:]
    assert isinstance(examined.refused[some(2)[1]], ConfigError)
    edited.services.close()
