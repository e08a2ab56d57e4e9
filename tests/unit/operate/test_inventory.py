"""Which tables on the plan a command's wildcards stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cdc.config import parse
from cdc.errors import ConfigError
from cdc.progress import NullProgress
from cdc.state import State
from operate.cli import tables as commands
from operate.context import Services
from operate.inventory import on_plan
from operate.onboard import register
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

ORDERS, PAUSED, GONE = (TableId("shop", "public", name) for name in ("orders", "paused", "gone"))


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
    assert on_plan(services, ["public.*"]) == [ORDERS, PAUSED]
    assert on_plan(services, []) == [ORDERS, PAUSED]
    assert on_plan(services, ["public.*"], retired=True) == [GONE, ORDERS, PAUSED]


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
