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
