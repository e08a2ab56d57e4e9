"""Runs notice Kafka Connect workers that have lost the support for Kafka transactions."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import ConnectError
from operate.context import Services
from operate.transactions import Transactions


class Workers:
    """A fake Kafka Connect whose workers have the support, lack it, or do not answer."""

    def __init__(self, answers: list[bool | ConnectError | None]) -> None:
        self.answers = iter(answers)
        self.asked = 0

    def worker(self) -> Any:
        self.asked += 1
        answer = next(self.answers)
        if isinstance(answer, ConnectError):
            raise answer
        return SimpleNamespace(exactly_once=answer)


def looking(workers: Workers, *, exactly_once: bool = True) -> Transactions:
    config = SimpleNamespace(connect=SimpleNamespace(exactly_once=exactly_once))
    return Transactions(cast(Services, SimpleNamespace(config=config, connect=workers)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A monotonic clock that the test can advance; it starts at the real monotonic time."""
    now, real = SimpleNamespace(ahead=0.0), time.monotonic
    monkeypatch.setattr("operate.transactions.time.monotonic", lambda: real() + now.ahead)
    return now


def test_workers_without_support_are_named_until_they_have_it(clock: SimpleNamespace) -> None:
    workers = Workers([True, False, False, True])
    looks = looking(workers)
    assert looks.look() is None
    assert looks.look() is None
    assert workers.asked == 1, "workers with support are asked every ten minutes"
    clock.ahead = 601.0
    for asked in (2, 3):
        wrong = looks.look()
        assert wrong is not None
        assert "connectors write without transactions" in wrong.message
        assert "exactly.once.source.support=enabled" in wrong.remedy
        assert (workers.asked, looks.supported) == (asked, False)
    assert looks.look() is None
    assert looks.supported


def test_a_connect_that_does_not_answer_says_nothing() -> None:
    away = ConnectError("Kafka Connect does not answer", remedy="Start it.")
    workers = Workers([False, away, None])
    looks = looking(workers)
    assert looks.look() is not None
    assert looks.look() is None
    assert not looks.supported, "what is known of the workers stays"
    assert looks.look() is None
    assert looks.supported, "a worker without Debezium's connectors shows nothing"


def test_settings_without_transactions_need_no_support() -> None:
    workers = Workers([])
    assert looking(workers, exactly_once=False).look() is None
    assert workers.asked == 0
