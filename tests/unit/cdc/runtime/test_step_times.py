"""The durations of a run's steps: each second counts for exactly one step."""

from __future__ import annotations

import threading

import pytest

from cdc.runtime.step_times import StepTimes, begin_steps, step


def test_an_inner_step_takes_its_time_from_the_outer_one() -> None:
    now = [0.0]
    times = StepTimes(lambda: now[0])
    now[0] = 5.0  # before any step: it has no name
    times.enter("write")
    now[0] = 7.0
    times.enter("fill")
    now[0] = 10.0
    times.leave()
    now[0] = 11.0
    times.leave()
    now[0] = 20.0
    times.enter("write")
    now[0] = 20.5
    times.leave()
    assert times.ended() == {"write": 3.5, "fill": 3.0}


def test_a_step_counts_in_the_thread_that_measures_also_if_it_fails() -> None:
    @step("read")
    def fails() -> None:
        raise ValueError

    times = begin_steps()
    with pytest.raises(ValueError):
        fails()
    other = threading.Thread(target=step("write")(lambda: None))
    other.start()
    other.join()
    assert set(times.ended()) == {"read"}


def test_without_a_measurement_a_step_only_works() -> None:
    times = begin_steps()
    assert times.ended() == {}
    assert step("read")(lambda: 7)() == 7
    assert times.ended() == {}
