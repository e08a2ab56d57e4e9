"""When the JVM of a Spark that does not start in time is killed."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from cdc.runtime import spark


class Jvm:
    """Spark's JVM, as far as it is killed."""

    def __init__(self) -> None:
        self.killed = threading.Event()

    def kill(self) -> None:
        self.killed.set()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(spark, "_JVM_POLL_S", 0.02)


def test_a_start_that_ends_in_time_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm, late, over = Jvm(), threading.Event(), threading.Event()
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))
    over.set()
    spark._kill_late_jvm(0.0, late, over)
    assert not jvm.killed.is_set()
    assert not late.is_set()


def test_a_jvm_that_appears_after_the_limit_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm, late, over = Jvm(), threading.Event(), threading.Event()
    watch = threading.Thread(target=spark._kill_late_jvm, args=(0.0, late, over), daemon=True)
    watch.start()
    watch.join(0.2)
    assert watch.is_alive(), "there is no JVM yet"
    assert not late.is_set()
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))
    assert jvm.killed.wait(10.0)
    assert late.is_set()
    watch.join(10.0)
    assert not watch.is_alive()


def test_the_watch_ends_with_a_start_that_has_no_jvm_of_its_own() -> None:
    late, over = threading.Event(), threading.Event()
    watch = threading.Thread(target=spark._kill_late_jvm, args=(0.0, late, over), daemon=True)
    watch.start()
    over.set()
    watch.join(10.0)
    assert not watch.is_alive()
    assert not late.is_set()
