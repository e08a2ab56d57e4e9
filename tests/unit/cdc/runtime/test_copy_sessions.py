"""The sessions and the rate that all copies of one source share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.runtime import copy_sessions
from cdc.runtime.copy_sessions import WAVE_S, CopyRate, CopySessions, share


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


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.floats(0, 20), st.booleans()), min_size=1, max_size=40
    )
)
def test_copies_read_no_more_than_their_rate_and_one_part(
    reads: list[tuple[int, float, bool]],
) -> None:
    """Each read begins at its reserved time or later. Some reads fail, and read nothing."""
    clock, rate = [100.0], 50_000_000
    copies = CopyRate(50, now=lambda: clock[0])
    assert copies.wave_bytes == rate * WAVE_S
    begun, free_at = list[tuple[float, int]](), 100.0
    for size, other_work_s, fails in reads:
        clock[0] += other_work_s
        with suppress(OSError), copies.reserved(size) as begin:
            assert begin == pytest.approx(max(clock[0], free_at)), "no longer than needed"
            clock[0] = max(clock[0], begin)
            if fails:
                raise OSError
            begun.append((clock[0], size))
            free_at = begin + size / rate
    for first in range(len(begun)):
        for last in range(first, len(begun)):
            passed = begun[last][0] - begun[first][0]
            read = sum(size for _, size in begun[first:last])
            assert read <= rate * passed + 1, "what was read before had its time"


def test_copies_that_begin_at_once_read_one_after_the_other() -> None:
    copies = CopyRate(10, now=lambda: 7.0)

    def begin(size: int) -> float:
        with copies.reserved(size) as at:
            return at

    with ThreadPoolExecutor(8) as pool:
        begins = sorted(pool.map(begin, [20_000_000] * 8))
    assert begins == [7.0 + 2.0 * place for place in range(8)]
