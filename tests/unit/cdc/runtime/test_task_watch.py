"""When a Spark stage counts as stuck."""

from __future__ import annotations

from cdc.runtime.task_watch import CancelledStages, StageProgress

ONE, OTHER = (1, 0), (2, 0)


def test_a_stage_is_stuck_once_it_shows_the_same_for_so_long() -> None:
    progress = StageProgress(30.0)
    assert progress.stuck({ONE: (0, 5)}, at=100.0) == []
    assert progress.stuck({ONE: (0, 6)}, at=129.0) == [], "a row was read"
    assert progress.stuck({ONE: (0, 6), OTHER: (0,)}, at=158.0) == []
    assert progress.stuck({ONE: (0, 6), OTHER: (0,)}, at=159.0) == [ONE]


def test_a_stage_that_waits_for_a_core_begins_anew() -> None:
    progress = StageProgress(30.0)
    progress.stuck({ONE: (0,)}, at=0.0)
    progress.stuck({}, at=20.0)
    assert progress.stuck({ONE: (0,)}, at=40.0) == []


def test_a_core_is_lost_once_a_cancelled_task_has_not_ended_in_time() -> None:
    running = {ONE: 2, OTHER: 1}
    cancelled = CancelledStages(15.0)
    cancelled.add(ONE, at=100.0)
    cancelled.add(OTHER, at=110.0)
    cancelled.add(ONE, at=110.0)
    assert cancelled.held(running.__getitem__, at=114.0) == 0
    assert cancelled.held(running.__getitem__, at=115.0) == 2
    assert cancelled.held(running.__getitem__, at=125.0) == 3
    running[ONE] = 0
    assert cancelled.held(running.__getitem__, at=126.0) == 1, "its tasks have ended after all"
    running[ONE] = 2
    assert cancelled.held(running.__getitem__, at=127.0) == 1, "what has ended is forgotten"
