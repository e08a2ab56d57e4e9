"""Idle sessions: which one is used again, and which are closed."""

from __future__ import annotations

import gc
import inspect
import queue
import time
from typing import Any

import pytest

from cdc.sources.idle_sessions import IDLE_S, LIFE_S, MOST, IdleSessions
from cdc.sources.servers import Login
from operate.cli.operations import run

ADMIN: Login = ("admin", False)
REPLICA: Login = ("snapshot", True)


class Kept:
    """Idle sessions, which are numbers, with a clock that the test sets."""

    def __init__(self) -> None:
        self.time = 100.0
        self.closed: list[int] = []
        self.sessions = IdleSessions[int](self.closed.append, now=lambda: self.time)

    def keep(self, *sessions: int, login: Login = ADMIN) -> None:
        for session in sessions:
            self.sessions.keep(login, session, self.time)


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_login_gets_its_own_newest_session(kept: Kept) -> None:
    kept.keep(1, 2)
    kept.keep(3, login=REPLICA)
    taken: list[Any] = [kept.sessions.take(ADMIN) for _ in range(3)]
    assert taken == [(2, 100.0), (1, 100.0), None]
    assert kept.sessions.take(REPLICA) == (3, 100.0)
    assert kept.closed == []


def test_a_session_that_waited_too_long_is_closed(kept: Kept) -> None:
    kept.keep(1)
    kept.keep(2, login=REPLICA)
    kept.time += IDLE_S - 0.1
    assert kept.sessions.take(REPLICA) == (2, 100.0)
    kept.time += 0.1
    assert kept.sessions.take(ADMIN) is None
    assert kept.closed == [1]


def test_a_continuous_run_does_not_log_in_for_each_look() -> None:
    assert 2 * inspect.signature(run).parameters["interval"].default < IDLE_S


def test_a_session_is_closed_some_time_after_its_login(kept: Kept) -> None:
    born = kept.time
    while kept.time < born + LIFE_S - 1:
        kept.sessions.keep(ADMIN, 1, born)
        kept.time += 1
        assert kept.sessions.take(ADMIN) == (1, born)
    kept.time += 1
    kept.sessions.keep(ADMIN, 1, born)
    assert kept.closed == [1]
    assert kept.sessions.take(ADMIN) is None


def test_the_oldest_session_of_a_login_makes_room(kept: Kept) -> None:
    for number, born in enumerate((103.0, 101.0, 102.0)):
        kept.sessions.keep(ADMIN, number, born)
    kept.sessions.keep(REPLICA, 9, 100.0)
    kept.sessions.close_oldest(ADMIN)
    kept.sessions.close_oldest(("marker", False))
    assert kept.closed == [1]
    assert kept.sessions.take(ADMIN) == (2, 102.0)


def test_few_sessions_of_a_login_are_kept(kept: Kept) -> None:
    kept.keep(*range(MOST + 1))
    kept.keep(100, login=REPLICA)
    assert kept.closed == [MOST]
    assert kept.sessions.take(ADMIN) == (MOST - 1, 100.0)


def test_a_session_is_closed_although_no_other_follows() -> None:
    closed = queue.Queue[int]()
    sessions = IdleSessions[int](closed.put, idle_s=0.05)
    sessions.keep(ADMIN, 1, time.monotonic())
    assert closed.get(timeout=30) == 1
    assert sessions.take(ADMIN) is None


def test_each_session_is_closed_although_they_began_to_wait_one_after_the_other() -> None:
    closed = queue.Queue[int]()
    sessions = IdleSessions[int](closed.put, idle_s=0.2)
    sessions.keep(ADMIN, 1, time.monotonic())
    time.sleep(0.1)
    sessions.keep(REPLICA, 2, time.monotonic())
    assert [closed.get(timeout=30) for _ in range(2)] == [1, 2]
    sessions.keep(ADMIN, 3, time.monotonic())
    assert closed.get(timeout=30) == 3


def test_the_sessions_of_chosen_logins_are_closed(kept: Kept) -> None:
    kept.keep(1)
    kept.keep(2, login=REPLICA)
    kept.sessions.close(lambda login: login[1])
    assert kept.closed == [2]
    assert kept.sessions.take(ADMIN) == (1, 100.0)


def test_the_end_closes_all_sessions(kept: Kept) -> None:
    kept.keep(1)
    kept.keep(2, login=REPLICA)
    assert kept.closed == []
    del kept.sessions
    gc.collect()
    assert sorted(kept.closed) == [1, 2]
