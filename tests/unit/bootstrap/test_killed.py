"""The state that a copy leaves when Spark fails: by a real error, or as the command ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.handoff import bootstrap_table
from bootstrap.steps import LakeFacts, Step
from cdc.errors import LakeError, LeaseHeldError, StoppedError
from cdc.run import RunContext, run_table
from cdc.runtime import jvm_guard
from cdc.store.table_state import State
from operate.context import Services
from tests.unit.failing_command import Command

HOW = pytest.mark.parametrize("how", ["failed", "killed", "interrupted"])


@pytest.fixture
def command(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    monkeypatch.setattr(jvm_guard, "_killed", type(jvm_guard._killed)())
    monkeypatch.setattr(Services, "spark", None)
    command = Command(tmp_path, how)
    yield command
    command.services.close()


@HOW
def test_a_copy_whose_spark_is_killed_as_the_command_ends_has_not_failed(
    command: Command, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it counted as a failure, the table would wait for its next try, longer each time."""
    monkeypatch.setattr("bootstrap.handoff._Bootstrap._lake_facts", lambda _: LakeFacts())
    record = command.put(State.BOOTSTRAPPING)
    sources = {"shop": cast("Any", SimpleNamespace(capture=command.fails))}
    with pytest.raises(LakeError, match="Spark is gone"):
        bootstrap_table(command.context(sources=sources), cast("Any", None), record)
    failed = (State.FAILED, 1)
    assert command.left() == (failed if how == "failed" else (State.BOOTSTRAPPING, 0))


@HOW
def test_a_table_whose_jobs_are_cancelled_as_the_command_ends_has_not_failed(
    command: Command, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = command.put(State.CATCHING_UP, handoff_offsets={0: 1})
    monkeypatch.setattr("cdc.run.table.check_serving", command.fails)
    monkeypatch.setattr(RunContext, "spark", None)
    result = run_table(command.context(), record)
    assert result.error is not None
    failed = (State.FAILED, 1)
    assert command.left() == (failed if how == "failed" else (State.CATCHING_UP, 0))


@pytest.mark.parametrize("how", ["failed"])
def test_a_table_whose_shared_table_another_process_holds_has_not_failed(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(*_args: object, **_kwargs: object) -> None:
        raise LeaseHeldError("lake table /lake/a is held", remedy="Wait.")

    record = command.put(State.CATCHING_UP, handoff_offsets={0: 1})
    monkeypatch.setattr("cdc.run.table.check_serving", held)
    monkeypatch.setattr(RunContext, "spark", None)
    result = run_table(command.context(), record)
    assert (result.error, result.skipped) == (None, True)
    assert result.warnings == ("lake table /lake/a is held",)
    assert command.left() == (State.CATCHING_UP, 0)


@pytest.mark.parametrize("how", ["interrupted"])
def test_a_copy_that_is_interrupted_before_it_catches_up_has_not_failed(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.handoff._Bootstrap._advance", lambda _: Step.CATCH_UP)
    record = command.put(State.CATCHING_UP, handoff_offsets={0: 1})
    context = command.context(sources={"shop": cast("Any", None)})
    command.services.interruptible.interrupt()
    with pytest.raises(StoppedError):
        bootstrap_table(context, cast("Any", None), record)
    assert command.left() == (State.CATCHING_UP, 0)
