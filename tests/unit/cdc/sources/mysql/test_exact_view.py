"""Copies of one process open their sessions on a replica one after the other."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest

from cdc.errors import ReplicaError
from cdc.runtime.progress import NullProgress
from cdc.sources.mysql import exact_view
from cdc.sources.mysql.replica_applier import Applier


def view(timeout_s: float) -> AbstractContextManager[Any]:
    unused = cast("Any", None)
    return exact_view.replica_view(
        Applier(unused),
        exact_view.Fenced(unused, unused),
        sessions=1,
        resuming=nullcontext,
        timeout_s=timeout_s,
        progress=NullProgress(),
    )


def test_a_copy_waits_for_its_turn_in_bounded_time() -> None:
    with (
        exact_view._TURN,
        pytest.raises(ReplicaError, match="another copy in this process has waited"),
        view(0.05),
    ):
        pytest.fail("two copies open their sessions at once")
    assert not exact_view._TURN.locked()


def test_a_view_that_cannot_even_begin_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RuntimeError, match="new thread"), view(0.05):
        pytest.fail("there is no thread")
    assert not exact_view._TURN.locked()
