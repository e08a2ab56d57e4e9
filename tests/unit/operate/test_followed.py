"""Which tables runs follow while the plan changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cdc.config import parse
from cdc.errors import ConfigError, StateError
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import State
from operate.cli import app
from operate.context import Services
from operate.discover import followed
from operate.exit_codes import ExitCode
from operate.onboard import register
from operate.run import Runs
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

ORDERS, LINES = TableId("shop", "public", "orders"), TableId("shop", "public", "lines")
LOG = TableId("shop", "public", "log")
SHARD = TableId("shop", "eu", "sales")
SHARED = {"all_sales": {"from": ["eu.sales"], "shard": "{schema}", "shard_column": "_shard"}}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def move(services: Services, table: TableId, state: State, **facts: object) -> None:
    """Change a table's state in the store, as another process could."""
    record = services.store.get(table)
    assert record is not None
    services.store.put(replace(record, state=state, **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [[], ["*"], ["public.*"], ["public.o*", "public.l*"]])
def test_a_table_that_is_onboarded_while_runs_repeat_is_followed(
    services: Services, arguments: list[str]
) -> None:
    records = followed(services, arguments, unmatched=lambda _: None)
    assert records() == []
    for count, table in enumerate((ORDERS, LINES), start=1):
        register(services, table)
        assert len(records()) == count
    move(services, ORDERS, State.RETIRED)
    assert [one.table for one in records()] == [LINES]
    register(services, ORDERS)
    assert [one.table for one in records()] == [LINES, ORDERS]


def test_a_new_table_counts_for_exit_code_and_waiting_tables(services: Services) -> None:
    """Resyncs and checks of captures use the same function, so they are covered, too."""
    runs = Runs(services, followed(services, []))
    assert (runs.empty, runs.exit_code()) == (True, ExitCode.OK)
    register(services, ORDERS)
    move(services, ORDERS, State.FAILED, resume_to=State.INCREMENTAL)
    assert (runs.empty, runs.exit_code()) == (False, ExitCode.SOME_FAILED)
    assert [one.table for one in runs.waiting()] == [ORDERS]


def test_a_name_follows_its_table_only_and_waits_for_it_to_come_back(services: Services) -> None:
    register(services, ORDERS)
    records = followed(services, ["public.orders"])
    register(services, LINES)
    assert [one.table for one in records()] == [ORDERS]
    move(services, ORDERS, State.RETIRED)
    assert records() == []
    register(services, ORDERS)
    assert [one.table for one in records()] == [ORDERS]


@pytest.mark.parametrize("left", [False, True])
def test_a_name_that_is_not_on_the_plan_is_refused_by_name(services: Services, left: bool) -> None:
    register(services, LINES)
    if left:
        register(services, ORDERS)
        move(services, ORDERS, State.RETIRED)
    for unmatched in (None, lambda _: None):
        with pytest.raises(StateError, match=r"shop:public\.orders is not on the plan"):
            followed(services, ["public.orders", "public.l*"], unmatched=unmatched)
    both = "tables shop:public.orders, shop:public.typo are not on the plan"
    with pytest.raises(StateError, match=both) as refused:
        followed(services, ["public.typo", "public.orders"])
    assert "`tributary onboard shop:public.orders shop:public.typo`" in str(refused.value.remedy)


def test_a_wildcard_without_a_table_is_refused_by_a_single_run_only(services: Services) -> None:
    register(services, ORDERS)
    with pytest.raises(ConfigError, match=r"'eu\.\*' matches no table on the plan"):
        followed(services, ["public.orders", "eu.*"])
    told: list[str] = []
    followed(services, ["public.orders", "eu.*"], unmatched=told.append)
    assert told == ["eu.*"]


def in_tiers(folder: Path) -> Services:
    """Services of a plan in which ``orders`` and ``log`` are critical, and ``lines`` is not."""
    tables = {
        "public.orders": {"tier": "critical"},
        "public.log": {"tier": "critical", "mode": "append"},
    }
    config = parse(yaml.safe_dump({**minimal(), "tables": tables}), base=folder)
    services = Services(config, NullProgress())
    for table in (ORDERS, LINES, LOG):
        register(services, table)
    return services


def test_a_tier_selects_its_tables_append_tables_too(tmp_path: Path) -> None:
    services = in_tiers(tmp_path)
    try:
        for tiers, chosen in (
            (["critical"], [LOG, ORDERS]),
            (["default"], [LINES]),
            (["critical", "default"], [LINES, LOG, ORDERS]),
            ([], [LINES, LOG, ORDERS]),
        ):
            assert [one.table for one in followed(services, [], tiers=tiers)()] == chosen
        both = followed(services, ["public.o*"], tiers=["critical"])
        assert [one.table for one in both()] == [ORDERS]
    finally:
        services.close()


def test_a_tier_without_tables_and_a_table_of_another_tier_are_refused(tmp_path: Path) -> None:
    services = in_tiers(tmp_path)
    try:
        with pytest.raises(ConfigError, match="'tier typo' matches no table on the plan"):
            followed(services, [], tiers=["critical", "typo"])
        told: list[str] = []
        followed(services, ["public.li*"], tiers=["critical", "later"], unmatched=told.append)
        assert told == ["tier later", "public.li*"]
        with pytest.raises(ConfigError, match=r"shop:public\.lines is of tier default, not"):
            followed(services, ["public.lines"], tiers=["critical"], unmatched=told.append)
        for tiers in ([], ["default"]):
            assert [one.table for one in followed(services, ["public.lines"], tiers=tiers)()] == [
                LINES
            ]
    finally:
        services.close()


def test_the_shards_of_a_lake_table_are_followed_as_they_come(tmp_path: Path) -> None:
    config = parse(yaml.safe_dump({**minimal(), "tables": SHARED}), base=tmp_path)
    services = Services(config, NullProgress())
    try:
        told: list[str] = []
        records = followed(services, ["all_sales"], unmatched=told.append)
        assert told == ["all_sales"]
        register(services, LINES)
        register(services, SHARD)
        assert [one.table for one in records()] == [SHARD]
    finally:
        services.close()


@pytest.mark.parametrize("more", [[], ["--continuous"]])
def test_a_misspelled_name_ends_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tributary.yaml").write_text(yaml.safe_dump(minimal()))
    ran = CliRunner().invoke(app, ["run", "public.typo", *more])
    assert ran.exit_code == ExitCode.ERROR
    assert "table shop:public.typo is not on the plan" in " ".join(ran.output.split())
