"""Which tables a command's wildcards match, and which facts ``discover`` reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from cdc.config import parse
from cdc.errors import ConfigError
from cdc.runtime.progress import NullProgress
from cdc.sources.source_facts import SourceColumn, SourceTable, TableStats
from cdc.store.table_state import State
from operate.cli import tables as commands
from operate.context import Services
from operate.discover import discover, selected
from operate.onboard import register
from operate.readiness_check import examine_all
from schemas.table import TableId
from schemas.types_postgres import PostgresType
from tests.unit.cdc.configuration import minimal

ORDERS, PAUSED, GONE = (TableId("shop", "public", name) for name in ("orders", "paused", "gone"))
ROWS = ("largest_row", "key_obstacle")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    for table, state in (
        (ORDERS, State.NEEDS_BOOTSTRAP),
        (PAUSED, State.PAUSED),
        (GONE, State.RETIRED),
    ):
        register(opened, table)
        record = opened.store.get(table)
        assert record is not None
        resume_to = State.CATCHING_UP if state is State.PAUSED else None
        opened.store.put(replace(record, state=state, resume_to=resume_to))
    yield opened
    opened.close()


def test_a_wildcard_leaves_out_what_is_offboarded(services: Services) -> None:
    assert selected(services, ["public.*"]) == [ORDERS, PAUSED]
    assert selected(services, []) == [ORDERS, PAUSED]
    assert selected(services, ["public.*"], retired=True) == [GONE, ORDERS, PAUSED]


def test_a_paused_table_is_copied_by_its_name_only(
    services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[TableId]] = []
    monkeypatch.setattr("operate.onboard.bootstrap", lambda _, tables: asked.append(tables) or [])
    file = tmp_path / "tributary.yaml"
    file.write_text(yaml.safe_dump(minimal()))
    commands.bootstrap(["public.*"], config=file)
    commands.bootstrap(["public.*", "public.paused"], config=file)
    assert asked == [[ORDERS], [ORDERS, PAUSED]]
    with pytest.raises(ConfigError, match="matches no table on the plan that is not paused"):
        commands.bootstrap(["public.pa*"], config=file)


def found(table: TableId) -> SourceTable:
    """A table with a key, as the source's catalog describes it."""
    key = SourceColumn("id", PostgresType("int4"), False, False, None)
    return SourceTable(
        table, "table", (key,), ("id",), (("id",),), ("id",), "postgres", "default", "admin"
    )


def test_discover_reads_no_rows_and_looks_at_no_table_that_is_on_the_plan(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading rows of thousands of tables takes hours; tables on the plan are judged already."""
    new = TableId("shop", "public", "new")
    listed = (ORDERS, new, GONE)
    stats = [TableStats(table, "table", 10, 1, ("id",), "default", None) for table in listed]
    source = services.source("shop")
    asked: list[tuple[str, TableId]] = []

    def answer(name: str, value: object, of: object = source) -> None:
        def method(table: TableId | SourceTable, *_: object, **__: object) -> object:
            asked.append((name, table if isinstance(table, TableId) else table.table))
            return value

        monkeypatch.setattr(of, name, method, raising=False)

    monkeypatch.setattr(source, "tables", lambda: stats)
    monkeypatch.setattr(source, "capture_obstacle", lambda: None)
    for rows in ROWS:
        answer(rows, None)
    captured = SimpleNamespace()
    answer("missing_rights", None, captured)
    monkeypatch.setattr(source, "capture", lambda _: captured)
    answer("table", found(new))

    assert [(entry.summary, entry.to_json()["ready"]) for entry in discover(services)] == [
        ("on the plan", None),
        ("ready", True),
        ("offboarded", False),
    ]
    assert asked == [("table", new), ("missing_rights", new)]
    *_, gone = entries = discover(services, only_new=True)
    assert [entry.stats.table for entry in entries] == [new, GONE]
    assert gone.to_json()["state"] == "retired"
    assert gone.to_json()["remedy"].startswith(f"Run `tributary onboard {GONE}`")
    del asked[2:]
    # What onboards, and a dry run of it, read rows, too.
    assert examine_all(services, [new]).replicable == [new]
    assert asked[2:] == [(name, new) for name in ("table", "missing_rights", *ROWS)]
