"""Looks at a capture's log by several processes at the same time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.log_looks import LogLooks
from cdc.log.continuity import Continuity, LogMark
from cdc.store.log_marks import LogMarks
from cdc.store.loss_counts import Losses
from cdc.store.state_store import Store

BEFORE = LogMark("server", "binlog.000007", "0-1-5")
NOW = LogMark("server", "binlog.000008", "0-1-9")


@pytest.mark.parametrize("parallel", [True, False])
def test_a_loss_that_another_copy_counts_meanwhile_is_counted_once(
    tmp_path: Path, parallel: bool
) -> None:
    """Counting twice would discard a good copy: each count after a copy's start discards it."""
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    marks, losses = LogMarks(store), Losses(store)
    marks.move("capture", None, BEFORE)
    looks = LogLooks(store, cast("Any", None), cast("Any", None))

    def continuity(earlier: LogMark | None, _sent: object) -> Continuity:
        if earlier == NOW:
            return Continuity(NOW, NOW, None)
        if parallel:
            losses.note("capture", "the binlog of source shop lacks transactions 0-1-7")
            marks.move("capture", BEFORE, NOW)
        return Continuity(earlier, NOW, "lacks transactions 0-1-7")

    health = SimpleNamespace(title="the binlog of source shop")
    capture = SimpleNamespace(continuity=continuity, log_health=lambda: health)
    source = SimpleNamespace(capture=lambda _: capture)
    names = SimpleNamespace(resource="capture", source="shop")
    for _ in range(2):
        looks.follow(cast("Any", names), cast("Any", source))
        assert losses.seen("capture")["capture"].times == 1
        assert marks.of("capture") == NOW
    store.close()
