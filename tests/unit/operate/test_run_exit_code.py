"""What the states of tables make of the exit code of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cdc.config import parse
from cdc.progress import NullProgress
from cdc.state import State
from operate.context import Services
from operate.exit_codes import ExitCode
from operate.incremental import Runs
from operate.onboard import register
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

TABLE = TableId("shop", "public", "orders")


@pytest.mark.parametrize(
    ("was", "generation", "code"),
    [
        (State.BOOTSTRAPPING, 1, ExitCode.OK),
        (State.CATCHING_UP, 1, ExitCode.OK),
        (State.BOOTSTRAPPING, 2, ExitCode.SOME_FAILED),
        (State.INCREMENTAL, 1, ExitCode.SOME_FAILED),
    ],
)
def test_a_table_that_was_never_taken_is_no_failure_of_a_run(
    tmp_path: Path, was: State, generation: int, code: ExitCode
) -> None:
    """It is named each time; its values may stop every copy until somebody changes its settings."""
    services = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    try:
        register(services, TABLE)
        record = services.store.get(TABLE)
        assert record is not None
        failed = replace(record, state=State.FAILED, resume_to=was, generation=generation)
        services.store.put(failed)
        runs = Runs(services, [TABLE])
        assert runs.exit_code() is code
        assert [one.table for one in runs.waiting()] == [TABLE]
    finally:
        services.close()
