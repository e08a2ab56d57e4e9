"""The mark that a look at a log leaves for the next one."""

from __future__ import annotations

from pathlib import Path

from cdc.log.continuity import LogMark
from cdc.store.log_marks import LogMarks
from cdc.store.state_store import Store

FIRST = LogMark("server", "binlog.000007", "0-1-5")
SECOND = LogMark("server", "binlog.000008", "0-1-9")


def test_a_mark_is_replaced_only_by_a_look_that_has_read_it(tmp_path: Path) -> None:
    marks = LogMarks(Store(f"sqlite:///{tmp_path / 'state.db'}"))
    assert marks.of("shop/main") is None
    marks.move("shop/main", None, FIRST)
    marks.move("shop/main", None, SECOND)  # of a process that has read none, and comes late
    assert marks.of("shop/main") == FIRST
    marks.move("shop/main", FIRST, SECOND)
    marks.move("shop/main", FIRST, LogMark("server", "binlog.000007", "0-1-6"))
    assert marks.of("shop/main") == SECOND
    assert marks.of("shop/rare") is None


def test_a_mark_that_is_forgotten_does_not_come_back(tmp_path: Path) -> None:
    """A process that has read the mark before must not store it again: the mark's log is gone."""
    marks = LogMarks(Store(f"sqlite:///{tmp_path / 'state.db'}"))
    for scope in ("shop/main", "shop/rare"):
        marks.move(scope, None, FIRST)
    marks.forget("shop/main")
    marks.move("shop/main", FIRST, SECOND)
    assert marks.of("shop/main") is None
    assert marks.of("shop/rare") == FIRST
    marks.forget("shop/main")
