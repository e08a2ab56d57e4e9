"""The text that ``tributary run`` prints for each table."""

from __future__ import annotations

import pytest

from cdc.errors import LakeError
from cdc.run import RunResult
from cdc.store.error_record import ErrorRecord
from cdc.store.table_state import State
from operate.cli.operations import _show_runs
from operate.render import Renderer
from schemas.table import TableId


def test_a_failed_table_is_shown_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    error = LakeError("the lake is full", remedy="Add disks.")
    failed = RunResult(
        TableId("shop", "public", "orders"), State.FAILED, error=ErrorRecord.of(error)
    )
    _show_runs(Renderer(), [failed])
    assert capsys.readouterr().out.splitlines() == [
        "shop:public.orders: the lake is full",
        "  What to do: Add disks.",
    ]


def test_a_table_that_another_process_runs_is_told_once_until_it_has_run_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With two drivers and short rounds, one line in each round would fill the log in a day."""
    table, shown = TableId("shop", "public", "orders"), set[TableId]()
    held = RunResult(table, State.INCREMENTAL, skipped=True, warnings=("held by west",))
    ran = RunResult(table, State.INCREMENTAL, commits=1, events=2, seconds=1.0)
    for result in (held, held, ran, held, held):
        _show_runs(Renderer(), [result], shown)
    assert capsys.readouterr().out.splitlines() == [
        "shop:public.orders: skipped: held by west",
        "shop:public.orders: 2 changes in 1 commits, 1 s",
        "shop:public.orders: skipped: held by west",
    ]
