"""The state that a copy leaves when Spark fails: by a real error, or as the command ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import yaml

from bootstrap.handoff import bootstrap_table
from bootstrap.steps import LakeFacts, Step
from cdc.config import parse
from cdc.errors import LakeError, LeaseHeldError, StoppedError
from cdc.run import RunContext, run_table
from cdc.runtime import jvm_guard
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from cdc.store.table_state import State, TableRecord
from operate.context import Services
from operate.onboard import register
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

TABLE = TableId("shop", "public", "orders")


HOW = pytest.mark.parametrize("how", ["failed", "killed", "interrupted"])


class Command:
    """A command with one table, in which something fails.

    Args:
        folder: Holds the state store.
        how: The cause. ``failed`` is a real error. ``killed`` means that the ending command has
            killed Spark, ``interrupted`` that the ending command has cancelled the Spark jobs.
    """

    def __init__(self, folder: Path, how: str) -> None:
        self.services = Services(parse(yaml.safe_dump(minimal()), base=folder), NullProgress())
        self.how = how
        register(self.services, TABLE)

    def fails(self, *_args: object, **_kwargs: object) -> None:
        if self.how == "killed":
            jvm_guard._killed.set()
        if self.how == "interrupted":
            self.services.interruptible.interrupt()
        raise LakeError("Spark is gone", remedy="Start it.")

    def put(self, state: State, **facts: Any) -> TableRecord:
        known = self.services.store.get(TABLE)
        assert known is not None
        attempt = Attempt(UUID(int=1), datetime.now(timezone.utc), "/lake/a", **facts)
        return self.services.store.put(replace(known, state=state, attempt=attempt))

    def context(self, **changes: Any) -> RunContext:
        """The run context of the command, without servers and with these changes."""
        self.services.__dict__.update(kafka=None, schemas=None, connect=None)
        return replace(self.services.run_context, **changes)

    def left(self) -> tuple[State, int]:
        """The table's state and its number of failures."""
        record = self.services.store.get(TABLE)
        assert record is not None
        return record.state, record.failures


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
