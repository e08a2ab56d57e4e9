"""A table that is copied again while it is verified."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from cdc.errors import StateError
from operate.verify import following as module
from operate.verify.following import Following
from tests.records import ORDERS, READY, table_record


def test_a_copy_that_another_one_replaces_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run updates the replaced copy any more, so waiting would not help `verify`."""
    context: Any = SimpleNamespace(timeline=lambda _: SimpleNamespace(latest_offsets=lambda: None))
    capture: Any = SimpleNamespace(
        table=ORDERS, topic="orders", wait_until_readable=lambda *_, **__: None
    )
    services: Any = SimpleNamespace()
    record = table_record(attempt=READY)
    runs: list[str] = []

    def run(*_: object, **__: object) -> SimpleNamespace:
        nonlocal record
        runs.append("once")
        record = table_record(attempt=replace(READY, id=UUID(int=77)))
        return SimpleNamespace(error=None)

    monkeypatch.setattr(module, "require", lambda *_: record)
    monkeypatch.setattr(module, "run_table", run)
    monkeypatch.setattr(module, "WAIT_S", 3.0)
    with pytest.raises(StateError, match="another copy has replaced"):
        Following(services, context, capture, READY).advance({0: 5})
    assert runs == ["once"]
