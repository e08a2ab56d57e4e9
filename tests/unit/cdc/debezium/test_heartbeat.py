"""How long a heartbeat is waited for while the connector works through a backlog."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.debezium import heartbeat, wait_while_sending
from cdc.errors import CaptureError


def wait(ends: Iterable[int], *, beats_after: int) -> int:
    """Wait with a heartbeat after a number of failed waits; return how many waits have begun.

    The looks at the end of the topic find the given offsets.
    """
    looks, waits = iter(ends), list[int]()
    kafka = SimpleNamespace(high_watermarks_many=lambda _: {"orders": {0: next(looks)}})

    def once() -> None:
        waits.append(1)
        if len(waits) <= beats_after:
            raise CaptureError(f"no heartbeat in wait {len(waits)}", remedy="Wait.")

    wait_while_sending(cast("Any", kafka), ["orders"], once)
    return len(waits)


def test_the_wait_is_repeated_while_the_topics_grow() -> None:
    assert wait([5], beats_after=0) == 1
    assert wait([5, 6, 9, 12], beats_after=3) == 4


def test_the_wait_ends_with_its_error_once_no_topic_grows() -> None:
    with pytest.raises(CaptureError, match="no heartbeat in wait 2"):
        wait([5, 6, 6], beats_after=9)


def test_all_waits_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BACKLOG_S", 0.0)
    with pytest.raises(CaptureError, match="no heartbeat in wait 1"):
        wait([5, 6, 7], beats_after=9)
