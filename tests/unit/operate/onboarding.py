"""An onboarding without servers: a source of equal tables, and a capture that takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cdc.config import parse
from cdc.runtime.progress import NullProgress
from cdc.sources.source_facts import SourceColumn, SourceTable
from cdc.store.table_state import State
from operate import capture_undo, tier_capture
from operate import onboard as onboard_module
from operate.capture_undo import Found
from operate.context import Services
from operate.onboard import register
from schemas.errors import TributaryError
from schemas.table import TableId
from schemas.types_postgres import PostgresType
from tests.unit.cdc.configuration import minimal


def some(count: int) -> list[TableId]:
    return [TableId("shop", "public", f"t_{number:04}") for number in range(count)]


def found(table: TableId) -> SourceTable:
    key = SourceColumn("id", PostgresType("int4"), False, False, None)
    return SourceTable(
        table, "table", (key,), ("id",), (("id",),), ("id",), "postgres", "default", "admin"
    )


def answers() -> dict[str, Callable[..., Any]]:
    """The methods of a source that examinations call, for a source of equal tables."""
    captured = SimpleNamespace(missing_rights=lambda _: None)
    return {
        "capture_obstacle": lambda: None,
        "capture": lambda _: captured,
        "table": found,
        "largest_row": lambda _: None,
        "key_obstacle": lambda *_: None,
    }


def answering(monkeypatch: pytest.MonkeyPatch, source: object) -> None:
    """Let a source, or a class of sources, answer as a source of equal tables."""
    for name, answer in answers().items():
        static = staticmethod(answer) if isinstance(source, type) else answer
        monkeypatch.setattr(source, name, static)


class Counted:
    """Services with a fake source of equal tables, which count the calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **tables: Any) -> None:
        document = minimal() | ({"tables": tables} if tables else {})
        self.services = Services(parse(yaml.safe_dump(document), base=folder), NullProgress())
        self.calls: Counter[str] = Counter()
        source = self.services.source("shop")
        for name, answer in answers().items():
            monkeypatch.setattr(source, name, self._counting(name, answer))
        store = self.services.store
        for name in ("tables", "get", "put", "transaction"):
            monkeypatch.setattr(store, name, self._counting(f"store {name}", getattr(store, name)))

    def _counting(self, name: str, answer: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            self.calls[name] += 1
            return answer(*arguments, **more)

        return call

    def follow(self, tables: list[TableId]) -> None:
        """Put tables on the plan, as if their copies were complete."""
        for table in tables:
            register(self.services, table)
            record = self.services.store.get(table)
            assert record is not None
            self.services.store.put(replace(record, state=State.INCREMENTAL))
        self.calls.clear()


def capture_without_servers(
    monkeypatch: pytest.MonkeyPatch,
    prepare_each: Callable[..., dict[TableId, TributaryError]],
    withdraw: Callable[[Collection[TableId]], object],
    members: Collection[TableId],
    *,
    before: Found | None = None,
) -> None:
    """Replace what onboarding asks servers about a capture.

    Args:
        monkeypatch: Replaces it for the test.
        prepare_each: Prepares the capture.
        withdraw: Removes tables from the capture.
        members: The tables in the capture.
        before: What existed of a capture without tables on the plan.
    """
    monkeypatch.setattr(onboard_module, "prepare_each", prepare_each)
    monkeypatch.setattr(capture_undo, "withdraw", lambda _s, _g, tables: withdraw(tables))
    monkeypatch.setattr(onboard_module, "look", lambda *_: before)
    monkeypatch.setattr(tier_capture, "hold_for_change", lambda *_: nullcontext())
    monkeypatch.setattr(tier_capture, "members", lambda *_: members)
