"""The sessions and the rate that all copies of one source share."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.runtime import copy_sessions
from cdc.runtime.copy_sessions import MOST_S, WAVE_S, CopyRate, CopySessions, share


def nothing() -> None:
    """Do nothing: a check for waits that are never interrupted."""


@given(st.integers(1, 64), st.integers(1, 200), st.integers(0, 64))
def test_a_copy_leaves_a_session_to_each_copy_that_has_none(
    free: int, wanted: int, waiting: int
) -> None:
    got = share(free, wanted, waiting)
    assert 1 <= got <= min(free, wanted)
    assert got == min(wanted, free) or got == 1 or free - got == waiting
    assert share(free, wanted, 0) == min(free, wanted)


def test_a_giant_leaves_sessions_to_small_tables_and_takes_all_when_it_is_alone() -> None:
    sessions = CopySessions(16)
    with sessions.copying():
        with ExitStack() as small:
            for _ in range(7):
                small.enter_context(sessions.copying())
            with sessions.taken(64, check=nothing) as giants:
                assert giants == 9
                for _ in range(7):
                    assert small.enter_context(sessions.taken(1, check=nothing)) == 1
        with sessions.taken(64, check=nothing) as giants:
            assert giants == 16


def test_many_copies_never_have_more_sessions_than_the_bound() -> None:
    sessions, lock = CopySessions(5), threading.Lock()
    now, most = 0, 0

    def copy(number: int) -> int:
        nonlocal now, most
        with sessions.copying():
            for _ in range(20):
                together = number % 4 == 0
                wanted = 3 if together else 1 + number % 7
                with sessions.taken(wanted, check=nothing, together=together) as got:
                    with lock:
                        now += got
                        most = max(most, now)
                    assert got == wanted if together else got <= wanted
                    with lock:
                        now -= got
        return 1

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(copy, range(12))) == 12
    assert 1 <= most <= 5
    with sessions.taken(5, check=nothing, together=True) as all_of_them:
        assert all_of_them == 5, "none is lost"


def test_a_copy_whose_lease_is_lost_stops_waiting_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_sessions, "_CHECK_S", 0.01)
    sessions = CopySessions(1)

    def lost() -> None:
        raise RuntimeError("the lease is lost")

    with (
        sessions.taken(1, check=nothing),
        pytest.raises(RuntimeError, match="lease"),
        sessions.taken(1, check=lost),
    ):
        pytest.fail("there is no free session")
    with sessions.taken(1, check=lost) as got:
        assert got == 1


class Rate(CopyRate):
    """A rate by a clock that only moves while somebody waits, or as a test says."""

    at = 1000.0

    def _now(self) -> float:
        return self.at

    def _pause(self, seconds: float) -> None:
        self.at += seconds


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 20)), min_size=1, max_size=40),
)
def test_copies_read_no_more_than_their_rate_and_one_part(reads: list[tuple[int, float]]) -> None:
    """The copies do other work in between, for example read."""
    copies, rate = Rate(50), 50_000_000
    assert copies.wave_bytes == rate * WAVE_S
    begun, free_at = list[tuple[float, int]](), 0.0
    for size, other_work_s in reads:
        copies.at += other_work_s
        needed = max(copies.at, free_at)
        copies.begin(size, nothing_more)
        assert copies.at == pytest.approx(needed), "no longer than needed"
        free_at = copies.at + size / rate
        begun.append((copies.at, size))
    for first in range(len(begun)):
        for last in range(first, len(begun)):
            passed = begun[last][0] - begun[first][0]
            read = sum(size for _, size in begun[first:last])
            assert read <= rate * passed + 1, "what was read before had its time"


def nothing_more(_why: str) -> None:
    """Do nothing: a check of a wait that is never interrupted."""


def test_one_read_of_any_size_keeps_others_waiting_for_a_bounded_time() -> None:
    copies = Rate(10)
    copies.begin(10**13, nothing_more)
    began = copies.at
    copies.begin(1, nothing_more)
    assert copies.at - began == pytest.approx(MOST_S)


def test_a_copy_that_stops_waiting_holds_up_nobody() -> None:
    copies, seen = Rate(10), list[str]()
    copies.begin(100_000_000, nothing_more)

    def stop(why: str) -> None:
        seen.append(why)
        if len(seen) == 3:
            raise RuntimeError("the command ends")

    with pytest.raises(RuntimeError, match="ends"):
        copies.begin(900_000_000, stop)
    assert "by the limit of 10 MB/s" in seen[0]
    copies.begin(1, nothing_more)
    assert copies.at == pytest.approx(1010.0), "what was never read does not count"


def test_copies_that_begin_at_once_read_one_after_the_other() -> None:
    copies, begun = CopyRate(100), list[float]()

    def read(size: int) -> None:
        copies.begin(size, nothing_more)
        begun.append(time.monotonic())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, [20_000_000] * 4))
    begun.sort()
    assert all(b - a >= 0.19 for a, b in itertools.pairwise(begun))
