"""The loop of every wait: its time limit, its pauses, its progress, and how it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from cdc.errors import StoppedError
from cdc.runtime.progress import Interruptible, NullProgress, Task, shown_as
from cdc.runtime.waiting import (
    MOST_WAITS,
    Clock,
    Movement,
    pause,
    wait_while,
    wait_while_moving,
)


class Stage(Clock):
    """A clock that advances only when the loop sleeps; it remembers the pauses."""

    def __init__(self, stopped_at: float | None = None) -> None:
        self.time = 100.0
        self.pauses: list[float] = []
        self._stopped_at = stopped_at

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float, stop: threading.Event | None) -> None:
        self.pauses.append(seconds)
        self.time += seconds
        if stop is not None and self._stopped_at is not None and self.time >= self._stopped_at:
            stop.set()


class Seen:
    """A progress that is also its only task, and remembers all its calls."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int | None, str]] = []
        self.looks = 0
        self.notes: list[str] = []
        self.ended = 0

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        self.started.append((task, total, unit))
        return self

    def advance(self, count: int = 1) -> None:
        self.looks += count

    def note(self, text: str) -> None:
        self.notes.append(text)

    def done(self) -> None:
        self.ended += 1


def looks(*results: str) -> Callable[[], str]:
    """A function that returns these results, one per call; a further call fails the test."""
    left = iter(results)
    return lambda: next(left)


def test_what_is_there_at_once_takes_one_look_and_no_pause() -> None:
    clock, task = Stage(), Seen()
    assert wait_while(looks(""), timeout_s=9, poll_s=1, task=task, clock=clock) == ""
    assert (clock.pauses, task.looks, task.notes) == ([], 0, [])


def test_a_wait_looks_until_nothing_is_lacking() -> None:
    clock, task = Stage(), Seen()
    left = wait_while(looks("three", "two", ""), timeout_s=9, poll_s=1, task=task, clock=clock)
    assert left == ""
    assert clock.pauses == [1, 1]
    assert (task.looks, task.notes) == (2, ["three", "two"])


def test_when_time_has_run_out_it_returns_what_is_lacking_then() -> None:
    clock = Stage()
    left = wait_while(looks("a", "b", "c", "d"), timeout_s=2.5, poll_s=1, clock=clock)
    assert left == "d"
    assert clock.pauses == [1, 1, 0.5], "the last look is at the very end of the time"


def test_what_comes_in_the_last_pause_is_in_time() -> None:
    assert wait_while(looks("a", ""), timeout_s=0.5, poll_s=60, clock=Stage()) == ""


@pytest.mark.parametrize("timeout_s", [0, -1])
def test_without_any_time_it_looks_once(timeout_s: float) -> None:
    clock = Stage()
    assert wait_while(looks("a"), timeout_s=timeout_s, poll_s=1, clock=clock) == "a"
    assert clock.pauses == []


def test_a_slow_look_counts_as_time() -> None:
    clock = Stage()

    def slow() -> str:
        clock.time += 4
        return "still slow"

    assert wait_while(slow, timeout_s=7, poll_s=1, clock=clock) == "still slow"
    assert clock.pauses == [1], "4 s, 1 s of pause, 4 s: too late for another one"


def test_pauses_double_up_to_the_longest() -> None:
    clock = Stage()
    wait_while(lambda: "a", timeout_s=10, poll_s=(0.5, 3), clock=clock)
    assert clock.pauses == [0.5, 1, 2, 3, 3, 0.5]


def test_a_wait_that_is_stopped_returns_what_was_lacking_without_another_look() -> None:
    stop, clock = threading.Event(), Stage(stopped_at=101)
    assert wait_while(looks("a", "b"), timeout_s=9, poll_s=1, stop=stop, clock=clock) == "b"
    assert stop.is_set()
    assert clock.pauses == [1]


def test_the_real_clock_wakes_up_when_the_wait_is_stopped() -> None:
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    began = Clock().now()
    assert wait_while(lambda: "a", timeout_s=60, poll_s=60, stop=stop) == "a"
    assert Clock().now() - began < 30


def test_an_interrupt_of_the_progress_ends_the_wait() -> None:
    progress, clock = Interruptible(NullProgress()), Stage()

    def lacking() -> str:
        progress.interrupt()
        return "a heartbeat"

    with (
        pytest.raises(StoppedError, match="wait for a beat"),
        shown_as("wait for a beat", progress) as task,
    ):
        wait_while(lacking, timeout_s=9, poll_s=1, task=task, clock=clock)
    assert clock.pauses == []


def test_an_error_of_a_look_is_not_waited_for() -> None:
    def broken() -> str:
        raise ValueError("the connector has failed")

    with pytest.raises(ValueError, match="has failed"):
        wait_while(broken, timeout_s=9, poll_s=1, clock=Stage())


def test_a_shown_task_ends_with_its_block() -> None:
    seen = Seen()
    with shown_as("wait for a", seen):
        assert seen.ended == 0
    assert seen.started == [("wait for a", None, "checks")]
    assert seen.ended == 1
    with pytest.raises(ZeroDivisionError), shown_as("wait for b", seen):
        1 / 0  # noqa: B018 - fails
    assert seen.ended == 2
    with shown_as("wait for c") as task:
        task.note("not shown")


@pytest.mark.parametrize(
    ("positions", "waits"),
    [
        (["0/1"], 1),
        (["0/1", "0/2"], MOST_WAITS),
    ],
    ids=("does not move", "moves"),
)
def test_a_wait_goes_on_while_something_moves_and_has_a_bound(
    positions: list[str], waits: int
) -> None:
    clock, moves, asked = Stage(), Movement(), list[int]()

    def behind() -> str:
        asked.append(1)
        moves.note(positions[len(asked) % len(positions)])
        return "behind"

    left = wait_while_moving(behind, moves.ended, timeout_s=30.0, poll_s=10.0, clock=clock)
    assert left == "behind"
    assert clock.time - 100.0 == 30.0 * waits


def test_a_wait_that_moves_ends_with_its_reason() -> None:
    clock, moves = Stage(), Movement()

    def behind() -> str:
        moves.note(clock.time)
        return "" if clock.time >= 500.0 else "behind"

    assert not wait_while_moving(behind, moves.ended, timeout_s=30.0, poll_s=10.0, clock=clock)
    assert clock.time == 500.0


def test_a_wait_that_moves_ends_at_the_bound_of_all_waits() -> None:
    clock, moves = Stage(), Movement()

    def behind() -> str:
        moves.note(clock.time)
        return "behind"

    left = wait_while_moving(
        behind, moves.ended, timeout_s=30.0, poll_s=10.0, most_s=70.0, clock=clock
    )
    assert left == "behind"
    assert clock.time - 100.0 == 90.0, "the wait that has begun goes on to its own bound"


def test_a_wait_that_moves_ends_when_it_is_stopped() -> None:
    stop, clock = threading.Event(), Stage(stopped_at=150)
    left = wait_while_moving(
        lambda: "behind", lambda: True, timeout_s=30.0, poll_s=10.0, stop=stop, clock=clock
    )
    assert left == "behind"
    assert clock.time == 150


def test_a_position_that_moves_from_one_wait_to_the_next_has_moved() -> None:
    moves = Movement()
    moves.note("0/1")
    assert not moves.ended()
    moves.note("0/2")
    assert moves.ended()
    moves.note("0/2")
    assert not moves.ended()
    assert not Movement().ended(), "nothing was seen"


def test_a_pause_lasts_as_long_as_it_should_and_is_shown() -> None:
    seen, clock = Seen(), Stage()
    pause("copy orders again", 1.2, seen, clock=clock)
    assert sum(clock.pauses) == pytest.approx(1.2)
    assert [name for name, *_ in seen.started] == ["copy orders again"]
    assert seen.ended == 1


def test_an_interrupt_ends_a_pause() -> None:
    progress = Interruptible(NullProgress())
    threading.Timer(0.1, progress.interrupt).start()
    began = Clock().now()
    with pytest.raises(StoppedError, match="copy orders again"):
        pause("copy orders again", 60.0, progress)
    assert Clock().now() - began < 30
