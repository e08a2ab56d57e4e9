"""A warning if the clock is set back while a process runs."""

from __future__ import annotations

import logging

import pytest

from cdc.runtime.clock_watch import ClockWatch


def test_only_a_clock_that_is_set_back_is_told_and_once() -> None:
    watch = ClockWatch()
    found = [
        watch.set_back_s(clock, steady)
        for clock, steady in [
            (1000.0, 10.0),
            (1060.0, 70.0),
            (1116.0, 130.0),  # by 4 s, as after a leap
            (9000.0, 190.0),  # ahead, or the machine has slept
            (5460.0, 250.0),
            (5520.0, 310.0),
        ]
    ]
    assert found == [0.0, 0.0, 0.0, 0.0, 3600.0, 0.0]


def test_the_warning_names_by_how_much(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch, now = ClockWatch(), [10_000.0]
    monkeypatch.setattr("cdc.runtime.clock_watch.time.time", lambda: now[0])
    with caplog.at_level(logging.WARNING):
        watch.look()
        now[0] -= 3600.0
        watch.look()
        watch.look()
    (one,) = caplog.messages
    assert one.startswith("this machine's clock was set back by 1:00:00")
