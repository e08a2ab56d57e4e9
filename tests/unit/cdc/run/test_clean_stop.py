"""A request to stop, or the end of Spark, ends continuous runs without a traceback."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.config.secret_files import SecretFiles
from cdc.run import cycle, run_continuously
from cdc.run.context import RunResult
from cdc.run.published_settings import PublishedSettings
from cdc.run.workers import Work, Workers
from cdc.runtime.rounds import Rounds
from cdc.store.table_state import State
from tests.unit.cdc.run.waiting_work import WAIT_S, work


class Gone:
    """A context whose Spark has ended.

    Args:
        ending: Whether Spark has ended because the command ends.
    """

    def __init__(self, *, ending: bool) -> None:
        self.ending = ending
        self.config = SimpleNamespace(
            spark=SimpleNamespace(parallel_tables=1), pool_shares={}, lake=None
        )
        self.published_settings = PublishedSettings()
        self.secret_files = SecretFiles()
        self.rounds = Rounds()

    @property
    def spark(self) -> Any:
        raise ConnectionRefusedError("the JVM is gone")


@pytest.mark.timeout(60)
def test_no_table_starts_after_a_request_to_stop_though_a_round_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The JVM is killed 20 s after the request, and a round can take a minute."""
    stop, ended, began = threading.Event(), threading.Event(), list[str]()

    def run(_context: object, one: Work, _worker: int) -> RunResult:
        began.append(one.table.name)
        stop.set()
        ended.set()
        return RunResult(one.table, State.INCREMENTAL)

    def offer(workers: Workers, _: object) -> None:
        usual(workers, [work("one"), work("two"), work("three")])
        assert ended.wait(WAIT_S)
        time.sleep(0.5)

    usual = Workers.offer
    monkeypatch.setattr(Workers, "offer", offer)
    finder = SimpleNamespace(
        work=list,
        found=list,
        look_at_idle=lambda: None,
        captures=SimpleNamespace(look_at_all=lambda _: None),
    )

    monkeypatch.setattr(cycle, "_run_due", run)
    monkeypatch.setattr(cycle, "_find_work", lambda *_, **__: finder)
    monkeypatch.setattr(cycle, "_tidy_after_round", lambda *_: None)
    run_continuously(cast("Any", Gone(ending=True)), list, stop, min_interval_s=0.0)
    assert len(began) == 1


def test_a_run_that_meets_the_end_of_spark_is_a_result() -> None:
    result = cycle._run_due(cast("Any", Gone(ending=True)), work("one"), 0)
    assert result.error is not None
    assert "ConnectionRefusedError: the JVM is gone" in result.error.message
    with pytest.raises(ConnectionRefusedError):
        cycle._run_due(cast("Any", Gone(ending=False)), work("one"), 0)


@pytest.mark.timeout(60)
def test_a_round_that_meets_the_end_of_spark_ends_runs_quietly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = threading.Event()

    def fails(*_: object, **__: object) -> None:
        stop.set()
        raise ConnectionRefusedError("the JVM is gone")

    monkeypatch.setattr(cycle, "_find_work", fails)
    run_continuously(cast("Any", Gone(ending=True)), list, stop, min_interval_s=0.0)
    with pytest.raises(ConnectionRefusedError):
        run_continuously(
            cast("Any", Gone(ending=False)), list, threading.Event(), min_interval_s=0.0
        )
