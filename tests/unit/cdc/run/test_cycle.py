"""Many tables: which of them run, in which pools, and what goes on while nothing can run."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from cdc.errors import StateError
from cdc.run import cycle, idle_tables
from cdc.run.context import RunResult, Turn
from cdc.run.lane import Entry
from cdc.run.published_settings import PublishedSettings
from cdc.run.workers import Work
from cdc.runtime.rounds import Rounds
from cdc.store.attempt import Attempt, CopyView
from cdc.store.table_state import State, TableRecord
from schemas.table import TableId
from tests.records import table_record

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
VIEW = CopyView("", "0/5", NOW, on_replica=False, system_identifier="7", timeline=None)
OTHER = TableId("shop", "shop", "seen")


def test_a_table_that_waits_keeps_its_name_while_its_settings_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table's entry in the metastore has the partition columns of its settings."""
    attempt = Attempt(UUID(int=1), NOW, "/lake", settings_digest="one", view=VIEW)
    edited = replace(attempt, settings_digest="another")
    record = replace(table_record(updated_at=NOW, attempt=attempt), state=State.INCREMENTAL)
    records = [record, replace(record, table=OTHER, attempt=edited)]
    named: list[TableRecord] = []
    monkeypatch.setattr(idle_tables, "settings_digest", lambda *_: "one")
    captures = SimpleNamespace(look_at_all=lambda _: None)
    finder = SimpleNamespace(captures=captures, work=list, look_at_idle=lambda: None)
    monkeypatch.setattr(cycle, "WorkFinder", lambda *_, **__: finder)
    monkeypatch.setattr(cycle, "remove_former", lambda *_, **__: None)
    monkeypatch.setattr(cycle, "name_idle", lambda _, idle, **__: named.extend(idle))
    settings = SimpleNamespace(lake=None, pool_shares={})
    settings.spark = SimpleNamespace(parallel_tables=1)
    context = SimpleNamespace(config=settings, published_settings=PublishedSettings())
    context.settings_of_idle = lambda _: None
    context.store = SimpleNamespace(now=lambda: NOW)
    cycle.run_tables(cast("Any", context), records, look_at_idle=True)
    assert named == [record]


@pytest.mark.timeout(60)
def test_tables_with_events_do_not_wait_for_the_check_of_idle_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check asks the sources, and one of them may not answer for a minute."""
    answers, stop, found, done = threading.Event(), threading.Event(), list[str](), list[str]()

    class Finder:
        captures = SimpleNamespace(look_at_all=lambda _: done.append("all captures"))

        def work(self) -> list[Any]:
            found.append("round")
            if len(found) == 3:
                answers.set()
            return []

        def look_at_idle(self) -> None:
            assert answers.wait(20.0), "three rounds were made meanwhile"

        def found(self) -> list[Any]:
            done.append("idle tables")
            return []

    def tidy(*_: object, limit_s: float) -> None:
        done.append(f"tidy for {limit_s:.0f} s")
        stop.set()

    monkeypatch.setattr(cycle, "WorkFinder", lambda *_, **__: Finder())
    monkeypatch.setattr(cycle, "_runnable_tables", lambda *_: [])
    monkeypatch.setattr(cycle, "_tidy_after_round", tidy)
    monkeypatch.setattr(cycle, "_must_end", lambda _, asked: asked.is_set())
    settings = SimpleNamespace(pool_shares={}, spark=SimpleNamespace(parallel_tables=1))
    context = cast("Any", SimpleNamespace(config=settings, rounds=Rounds()))
    cycle.run_continuously(context, list, stop, min_interval_s=0.01)
    assert done == ["idle tables", "all captures", "tidy for 20 s"]


@pytest.mark.timeout(60)
def test_a_run_that_ends_also_begins_with_events_while_it_checks_idle_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each table runs once. A long run waits, so that it keeps no worker from what is found."""
    began, checked = threading.Event(), threading.Event()
    ran: list[str] = []
    names = ("events", "compacted", "rewritten", "backlog")

    def work_of(name: str) -> Work:
        record = table_record(table=TableId("shop", "public", name))
        seconds = 3_600.0 if name == "backlog" else 1.0
        entry = Entry(record.table, "", NOW.timestamp(), 60.0, seconds)
        facts = cast("Any", (None, None, entry, Turn(), 0.0))
        return Work(record, *facts, found=name in ("compacted", "rewritten"))

    class Finder:
        captures = SimpleNamespace(look_at_all=lambda _: None)

        def work(self) -> list[Work]:
            return [work_of(name) for name in names if checked.is_set() or name != "rewritten"]

        def look_at_idle(self) -> None:
            assert began.wait(20.0), "a table with events runs meanwhile"
            checked.set()

    def run(_: object, work: Work, __: int) -> RunResult:
        began.set()
        assert checked.is_set() or not work.entry.long
        assert checked.wait(20.0)
        ran.append(work.table.name)
        return RunResult(work.table, State.INCREMENTAL)

    monkeypatch.setattr(cycle, "WorkFinder", lambda *_, **__: Finder())
    monkeypatch.setattr(cycle, "_runnable_tables", lambda *_: [])
    monkeypatch.setattr(cycle, "_tidy_after_round", lambda *_: None)
    monkeypatch.setattr(cycle, "_run_due", run)
    settings = SimpleNamespace(pool_shares={}, spark=SimpleNamespace(parallel_tables=4))
    records = [table_record(table=TableId("shop", "public", name)) for name in names]
    results = cycle.run_tables(cast("Any", SimpleNamespace(config=settings)), records)
    assert [result.table.name for result in results] == list(names)
    assert sorted(ran) == sorted(names)


@pytest.mark.timeout(60)
def test_an_unforeseen_error_of_the_check_of_idle_tables_ends_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> None:
        raise ZeroDivisionError("a defect")

    finder = SimpleNamespace(look_at_idle=fails, work=list)
    monkeypatch.setattr(cycle, "WorkFinder", lambda *_, **__: finder)
    monkeypatch.setattr(cycle, "_runnable_tables", lambda *_: [])
    monkeypatch.setattr(cycle, "_must_end", lambda *_: False)
    monkeypatch.setattr(cycle, "_spark_is_gone", lambda _: False)
    settings = SimpleNamespace(pool_shares={}, spark=SimpleNamespace(parallel_tables=1))
    context = cast("Any", SimpleNamespace(config=settings, rounds=Rounds()))
    with pytest.raises(ZeroDivisionError):
        cycle.run_continuously(context, list, threading.Event(), min_interval_s=0.01)


def test_a_shard_waits_while_the_state_store_is_away() -> None:
    """If a worker raised the store's error, `run --continuous` would end for all tables."""

    def away() -> None:
        raise StateError("the state store does not answer", remedy="Start it.")

    context = SimpleNamespace(shared=lambda _: SimpleNamespace(held_by_other=away))
    work = SimpleNamespace(deferred=True, entry=SimpleNamespace(lake="/lake/orders"))
    held = cycle._held_by_other(cast("Any", context), cast("Any", work))
    assert held == "the state store does not answer"


def test_captures_are_watched_although_no_round_is_possible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While Kafka is down, connectors fail, and their slots retain the log of the primary."""
    watched: list[bool] = []
    stop = threading.Event()

    def watch() -> None:
        watched.append(True)
        stop.set()

    monkeypatch.setattr(cycle, "_try_round", lambda *_, **__: False)
    monkeypatch.setattr(cycle, "_must_end", lambda _, asked: asked.is_set())
    settings = SimpleNamespace(pool_shares={}, spark=SimpleNamespace(parallel_tables=1))
    context = cast("Any", SimpleNamespace(config=settings, rounds=Rounds()))
    cycle.run_continuously(context, list, stop, min_interval_s=0.01, watch=watch)
    assert watched == [True]
    assert context.rounds.newest is None, "the metrics show no round that found nothing out"
    stop.clear()
    monkeypatch.setattr(cycle, "_try_round", lambda *_, **__: not time.sleep(0.05))
    cycle.run_continuously(context, list, stop, min_interval_s=0.01, watch=watch)
    newest = cast("Rounds", context.rounds).newest
    assert newest is not None
    assert 0.05 <= newest.seconds < 5


def test_fair_pools_are_as_many_as_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark keeps each scheduler pool until Spark ends, and asks all pools for each free core."""
    pools: list[str] = []
    jobs = SimpleNamespace(setLocalProperty=lambda _, pool: pools.append(pool))
    context = SimpleNamespace(spark=SimpleNamespace(sparkContext=jobs))
    monkeypatch.setattr(cycle, "_held_by_other", lambda *_: None)
    monkeypatch.setattr(cycle, "run_table", lambda *_, **__: SimpleNamespace(commits=()))
    for number in range(100):
        record = table_record(table=TableId("shop", "public", f"t{number}"))
        work = SimpleNamespace(record=record, captures=None, topic=None, turn=None)
        cycle._run_and_name(cast("Any", context), cast("Any", work), number % 3)
    assert len(pools) == 100
    assert len(set(pools)) == 3


def test_a_check_that_waits_for_a_server_delays_the_end_by_a_bound_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests to a Kafka that is down take a minute each."""
    monkeypatch.setattr(cycle, "_END_S", 0.2)
    answers, began, done = threading.Event(), threading.Event(), list[str]()

    def waits() -> None:
        began.set()
        answers.wait(60.0)

    with cycle._Background() as background:
        background.begin("watch", waits)
        background.begin("look", lambda: done.append("look"))
        assert began.wait(20.0)
        assert not background.is_due("watch")
    assert "is cut off" in caplog.text
    answers.set()
    background._thread.join(20.0)
    assert done == [], "a job that has not begun is dropped"
