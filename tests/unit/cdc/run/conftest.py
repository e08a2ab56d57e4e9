"""Fixtures of the tests of runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.run import RunContext
from operate.context import Services
from tests.unit.failing_command import Command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """A command with one table, without a Spark session."""
    monkeypatch.setattr(Services, "spark", None)
    monkeypatch.setattr(RunContext, "spark", None)
    command = Command(tmp_path, "failed")
    yield command
    command.services.close()
