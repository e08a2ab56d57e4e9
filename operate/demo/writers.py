"""Threads that write to the demo's source as the shop and its customers would."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from cdc.errors import SourceError
from operate.demo.sessions import AdminSession, Sessions
from operate.demo.shop import Deed

_PAUSE_AFTER_ERROR_S = 0.5


class Writers:
    """Threads of the demo that write to the source.

    The threads start when a ``with`` block begins, and stop when the block ends.

    Args:
        sessions: Opens a session on the source; each writer has its own.
        deeds: The transactions from which each writer chooses.
        rate: Transactions per second of each writer.
        count: Number of writers.
        seed: Seed of the random choice of deeds.
    """

    def __init__(
        self,
        sessions: Sessions,
        deeds: Sequence[Deed],
        *,
        rate: float,
        count: int = 3,
        seed: int = 7,
    ) -> None:
        self._sessions = sessions
        self._deeds = deeds
        self._pause_s = 1.0 / rate
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._done: Counter[str] = Counter()
        self._failures: list[str] = []
        self._threads = [
            threading.Thread(
                target=self._write_until_stopped,
                args=(number, random.Random(seed + number)),  # noqa: S311 - not for secrets
                name=f"writer {number}",
                daemon=True,
            )
            for number in range(count)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30.0)

    @property
    def deeds(self) -> dict[str, int]:
        """Number of the demo's transactions committed so far, for each deed."""
        with self._lock:
            return dict(self._done)

    @property
    def total(self) -> int:
        """Number of the demo's transactions committed so far."""
        with self._lock:
            return self._done.total()

    @property
    def failures(self) -> list[str]:
        """The error messages of the demo's transactions that the source refused."""
        with self._lock:
            return list(self._failures)

    def _write_until_stopped(self, number: int, chance: random.Random) -> None:
        weights = [deed.weight for deed in self._deeds]
        while not self._stop.is_set():
            try:
                with self._sessions() as session:
                    while not self._stop.is_set():
                        (deed,) = chance.choices(self._deeds, weights)
                        self._do_one(session, deed, chance.randint(1, 1_000_000))
                        self._stop.wait(self._pause_s)
            except SourceError as error:
                with self._lock:
                    self._failures.append(error.message)
                self._stop.wait(_PAUSE_AFTER_ERROR_S)

    def _do_one(self, session: AdminSession, deed: Deed, number: int) -> None:
        with session.transaction():
            for statement in deed.statements:
                session.run(statement, {"n": self.total, "r": number})
        with self._lock:
            self._done[deed.name] += 1
