"""How `run --continuous` ends automatic resyncs that are in progress."""

from __future__ import annotations

import logging
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.runtime.progress import Interruptible, NullProgress
from operate import run
from operate.run import Runs

SERVICES = SimpleNamespace(run_context=SimpleNamespace(session="the session"))


@pytest.fixture(autouse=True)
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_INTERRUPT_S", 0.3)
    monkeypatch.setattr(run, "_CANCEL_S", 0.05)


def interrupted(copying: threading.Thread) -> Interruptible:
    """End the resyncs of a thread as `run --continuous` does; return the interrupted progress."""
    progress = Interruptible(NullProgress())
    services = SimpleNamespace(**vars(SERVICES), interruptible=progress)
    Runs._interrupt(cast("Any", SimpleNamespace(_services=services)), copying)
    return progress


def test_the_jobs_of_a_copy_are_cancelled_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled, ended = list[object](), threading.Event()

    def cancel(session: object) -> None:
        cancelled.append(session)
        if len(cancelled) == 2:
            ended.set()

    monkeypatch.setattr(run, "cancel_jobs", cancel)
    monkeypatch.setattr(run, "_INTERRUPT_S", 30.0)
    copying = threading.Thread(target=ended.wait, daemon=True)
    copying.start()
    began = time.monotonic()
    assert interrupted(copying).interrupted.is_set()
    assert not copying.is_alive()
    assert cancelled == ["the session"] * 2
    assert time.monotonic() - began < 15, "the end of the copy ends the wait"
    assert not caplog.records


def test_a_copy_that_does_not_end_is_left_after_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "cancel_jobs", lambda _: None)
    ended = threading.Event()
    copying = threading.Thread(target=ended.wait, daemon=True)
    copying.start()
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        interrupted(copying)
    assert 0.3 <= time.monotonic() - began < 10
    assert "a resync did not stop within 0 s" in caplog.text
    ended.set()


def test_no_job_is_cancelled_if_no_copy_is_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "cancel_jobs", lambda _: pytest.fail("a job was cancelled"))
    copying = threading.Thread(target=lambda: None)
    copying.start()
    copying.join()
    interrupted(copying)
