"""Keeps a server's sessions for a moment, since a login costs much more than a statement."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cdc.sources.servers import Login

S = TypeVar("S")

IDLE_S = 20.0
"""Longest time that a session waits for its next use, in seconds. It is longer than the pause
between two looks of a continuous run, which would log in for each look otherwise."""
LIFE_S = 60.0
"""A session of this age, in seconds since its login, is closed instead of used again. The next
login can reach another server, if a host name or a proxy points to a new primary by then."""
_LEAST_S = 0.01
"""Shortest time until the next check of idle sessions, in seconds."""
MOST = 4
"""Largest number of idle sessions of one login."""


@dataclass(frozen=True)
class _Idle(Generic[S]):
    """An idle session.

    Args:
        login: The session's login.
        session: The session.
        born: Time of the login, in seconds of the monotonic clock.
        since: Time of the last use, in seconds of the monotonic clock.
    """

    login: Login
    session: S
    born: float
    since: float


class IdleSessions(Generic[S]):
    """The idle sessions of one source, all of one driver. Safe to share among threads.

    A session that has waited too long is closed. All sessions are closed when this object is
    deleted or the process ends.

    Args:
        close: Closes a session. It must not raise an error.
        idle_s: Longest time that a session waits for its next use, in seconds.
        now: Returns the time in seconds.
    """

    def __init__(
        self,
        close: Callable[[S], object],
        *,
        idle_s: float = IDLE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._close = close
        self._idle_s = idle_s
        self._now = now
        self._idle: list[_Idle[S]] = []
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._idle, close)

    def take(self, login: Login) -> tuple[S, float] | None:
        """Remove and return a login's newest idle session, and the time of its login.

        The result is None if the login has no idle session.
        """
        with self._lock:
            late = self._without_late()
            own = [one for one in self._idle if one.login == login]
            if own:
                self._idle.remove(own[-1])
        _close_all(late, self._close)
        return (own[-1].session, own[-1].born) if own else None

    def close_oldest(self, login: Login) -> None:
        """Close the login's oldest idle session, if it has one."""
        with self._lock:
            own = [one for one in self._idle if one.login == login]
            ended = [min(own, key=lambda one: one.born)] if own else []
            for one in ended:
                self._idle.remove(one)
        _close_all(ended, self._close)

    def keep(self, login: Login, session: S, born: float) -> None:
        """Keep a session for the login's next use, or close it.

        Args:
            login: The session's login.
            session: The session, in the state in which it was right after its login.
            born: Time of the login, as `take` returned it; for a new session, the time now.
        """
        with self._lock:
            late = self._without_late()
            new = _Idle(login, session, born, self._now())
            crowded = sum(one.login == login for one in self._idle) >= MOST
            if crowded or self._is_late(new):
                late.append(new)
            else:
                self._idle.append(new)
                self._expect_late()
        _close_all(late, self._close)

    def close(self, chosen: Callable[[Login], bool]) -> None:
        """Close the idle sessions of chosen logins."""
        with self._lock:
            ended = [one for one in self._idle if chosen(one.login)]
            for one in ended:
                self._idle.remove(one)
        _close_all(ended, self._close)

    def _expect_late(self) -> None:
        """Start a timer, if none runs, whose thread closes the sessions that wait too long."""
        if self._timer is None:
            waited = self._now() - min(one.since for one in self._idle)
            left = max(_LEAST_S, self._idle_s - waited)
            timer = threading.Timer(left, _close_late, [weakref.ref(self)])
            timer.daemon = True
            with suppress(RuntimeError):  # the process has too many threads now
                timer.start()
                self._timer = timer

    def _close_late(self) -> None:
        with self._lock:
            self._timer = None
            late = self._without_late()
            if self._idle:
                self._expect_late()
        _close_all(late, self._close)

    def _without_late(self) -> list[_Idle[S]]:
        """Remove the sessions that may not be used any more, and return them."""
        late = [one for one in self._idle if self._is_late(one)]
        for one in late:
            self._idle.remove(one)
        return late

    def _is_late(self, one: _Idle[S]) -> bool:
        now = self._now()
        return now - one.since >= self._idle_s or now - one.born >= LIFE_S


def _close_late(sessions: weakref.ref[IdleSessions[Any]]) -> None:
    # A reference of the timer itself would keep the sessions open although nobody can use them.
    if (alive := sessions()) is not None:
        alive._close_late()


def _close_all(idle: list[_Idle[S]], close: Callable[[S], object]) -> None:
    while idle:
        close(idle.pop().session)
