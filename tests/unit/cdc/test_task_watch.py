"""When a stage is taken for stuck."""

from __future__ import annotations

from cdc.task_watch import StageProgress

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
