"""A table that is copied again while it is verified."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from cdc.errors import StateError
from operate.verify import table as module
from tests.records import ORDERS, table_record
from tests.unit.cdc.store.test_table_state import READY


def test_a_copy_that_another_one_replaces_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run brings its rows up to date, however long `verify` waits."""
    verifier: Any = object.__new__(module._TableVerifier)
    verifier._attempt, verifier._id, verifier._topic = READY, ORDERS, "orders"
    verifier._context = SimpleNamespace(
        timeline=lambda _: SimpleNamespace(latest_offsets=lambda: None)
    )
    verifier._services = verifier._capture = SimpleNamespace(
        wait_until_readable=lambda *_, **__: None
    )
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
        verifier._advance({0: 5})
    assert runs == ["once"]
