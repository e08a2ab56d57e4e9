"""Resyncs that runs start by themselves, and that go on after errors."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, cast

import pytest

from cdc.errors import StateError
from operate.automatic_resync import Unattended

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.context import Services


@pytest.mark.timeout(30)
def test_no_error_ends_automatic_resyncs(caplog: pytest.LogCaptureFixture) -> None:
    stop, asked = threading.Event(), list[int]()

    def records() -> list[TableRecord]:
        asked.append(1)
        if len(asked) == 1:
            raise KeyError("unforeseen")
        if len(asked) == 2:
            raise StateError("the store is away", remedy="Start it.")
        stop.set()
        return []

    unattended = Unattended(cast("Services", None), records)  # without tables it is not used
    with caplog.at_level(logging.WARNING, logger="operate.automatic_resync"):
        unattended.repeat(stop, 0.0, lambda _: None)
    assert len(asked) == 3
    assert "KeyError: 'unforeseen'" in caplog.text
    assert "the store is away" in caplog.text
