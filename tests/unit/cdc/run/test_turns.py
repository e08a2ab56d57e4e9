"""When the run of a table ends early, before the end of its topic, because others wait."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import sqlalchemy as sa

from cdc.capture.position_check import TopicFacts
from cdc.errors import FencedError, LeaseHeldError
from cdc.kafka import Since
from cdc.lake.commit import CommitRecord
from cdc.lake.timeline import Committed
from cdc.run import RunContext, RunResult, cycle, metastore_name, run_table, run_tables, work_finder
from cdc.run.batch import Applied
from cdc.run.context import Turn
from cdc.run.lane import Entry
from cdc.run.quarantining import HeldQuarantine
from cdc.run.schedule import TURN_S
from cdc.run.workers import Work
from cdc.store.lease import Leases
from cdc.store.lease_wish import LeaseWish
from cdc.store.table_state import CommitSummary, State
from operate.context import Services
from tests.unit.failing_command import TABLE, Command

COMMITS = 5
_INSTANTS = itertools.count()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """A command with a table that is several commits behind its topic."""
    monkeypatch.setattr(Services, "spark", None)
    monkeypatch.setattr(RunContext, "spark", cast("Any", SimpleNamespace(sparkContext=Pools())))
    command = Command(tmp_path, "failed")
    commit = CommitRecord("run", TABLE, str(UUID(int=1)), offsets={0: 0})
    lake = SimpleNamespace(keep_up=lambda _: False)
    shape = cast("Any", SimpleNamespace(lake=lake, source_table=None, source_schema=None))

    def applies(run: Any, _until: object) -> None:
        step = run._settings.max_events_per_run
        run._apply_range(shape, Committed("0", "commit", commit), {0: COMMITS * step})

    monkeypatch.setattr("cdc.run.table._TableRun._apply_all", applies)
    monkeypatch.setattr("cdc.run.table.BatchWriter", Writer)
    monkeypatch.setattr(Writer, "meanwhile", lambda: None, raising=False)
    yield command
    command.services.close()


class Pools:
    def setLocalProperty(self, _key: str, _value: str) -> None:
        pass


class Writer:
    """A fake writer whose commits write nothing."""

    meanwhile: Callable[[], object]
    quarantined: HeldQuarantine

    def __init__(self, *_: object, quarantined: HeldQuarantine, **_settings: object) -> None:
        Writer.quarantined = quarantined

    def apply(self, piece: Any, newest: CommitRecord, *_: object, **_more: object) -> Applied:
        Writer.meanwhile()
        return Applied(
            replace(newest, offsets=dict(piece.end)), f"20260102030405{next(_INSTANTS):03}", 1
        )


@pytest.mark.parametrize(
    ("turn", "commits"),
    [(None, COMMITS), (Turn(), COMMITS), (Turn(1000.0), COMMITS), (Turn(0.0), 1)],
)
def test_a_turn_ends_after_its_time_and_one_commit(
    command: Command, turn: Turn | None, commits: int
) -> None:
    result = run_table(command.context(), command.put(State.INCREMENTAL), turn=turn)
    assert (result.error, result.commits, result.warnings) == (None, commits, ())
    assert command.left() == (State.INCREMENTAL, 0)


@pytest.mark.parametrize(("turn", "commits"), [(Turn(), 1), (None, COMMITS)])
def test_a_run_gives_way_after_the_commit_during_which_another_process_asks(
    command: Command, monkeypatch: pytest.MonkeyPatch, turn: Turn | None, commits: int
) -> None:
    wish = LeaseWish(command.services.store, str(TABLE))
    monkeypatch.setattr(Writer, "meanwhile", wish.renew)
    record = command.put(State.INCREMENTAL)
    result = run_table(command.context(), record, turn=turn)
    assert (result.error, result.commits) == (None, commits)
    assert any("left to a process" in warning for warning in result.warnings) == bool(turn)
    again = run_table(command.context(), record, turn=turn)
    assert again.skipped == bool(turn), "the waiter comes first"
    wish.withdraw()
    monkeypatch.setattr(Writer, "meanwhile", lambda: None)
    assert run_table(command.context(), record, turn=turn).commits == COMMITS


def test_a_run_changes_the_quarantine_only_while_it_holds_the_lease(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change() -> None:
        with Writer.quarantined.changing():
            pass

    monkeypatch.setattr(Writer, "meanwhile", change)
    assert run_table(command.context(), command.put(State.INCREMENTAL)).error is None
    with pytest.raises(FencedError, match=r"the lease on table .* was lost"):
        change()


def test_a_run_uses_the_state_store_in_few_transactions(command: Command) -> None:
    """A run has two transactions, one for each commit, and two between two commits.

    The two are for the lease with all that the run reads, and for the history with the release.
    Between two commits, the run asks whether a process waits for the table, and checks its lease.
    This run has no guard.
    """
    begun = list[object]()
    context, record = command.context(), command.put(State.INCREMENTAL)
    sa.event.listen(command.services.store._engine, "begin", begun.append)
    assert run_table(context, record, turn=Turn(0.0)).commits == 1
    assert len(begun) == 2 + 1 + 1, "it also asks once who waits"
    begun.clear()
    assert run_table(context, record, turn=Turn()).commits == COMMITS
    assert len(begun) == 2 + COMMITS + 2 * (COMMITS - 1)


@pytest.mark.parametrize("spaced", [True, False])
def test_only_one_of_many_runs_has_a_limited_turn(
    command: Command, monkeypatch: pytest.MonkeyPatch, spaced: bool
) -> None:
    record, turns = command.put(State.INCREMENTAL), list[Turn]()

    def run(_context: RunContext, record: Any, **given: Any) -> RunResult:
        turns.append(given["turn"])
        return RunResult(record.table, record.state)

    facts = {record.topic: TopicFacts("T1", {0: 0}, {0: 5})}
    monkeypatch.setattr(work_finder, "topic_facts", lambda *_: facts)
    monkeypatch.setattr(work_finder, "with_settings", lambda _, topics: topics)
    monkeypatch.setattr(cycle, "run_table", run)
    run_tables(command.context(), [record], look_at_idle=False, spaced=spaced)
    (turn,) = turns
    assert turn.seconds == (TURN_S if spaced else None)
    assert (turn.events is None) is not spaced, "a commit fits in the turn"
    assert turn.events_per_commit(10**9) == (turn.events or 10**9)
    assert turn.events_per_commit(10) == 10


@pytest.mark.parametrize(("commits", "end"), [(0, 7), (0, 9), (1, 9), (1, 12)])
def test_a_table_is_fresh_only_if_no_open_transaction_hides_its_events(
    command: Command, monkeypatch: pytest.MonkeyPatch, commits: int, end: int
) -> None:
    """The lake has 7 offsets before the run, and 9 after it, if the run makes a commit."""
    commit = CommitSummary({0: 7}, None, None, "20260101000000000", datetime.now(timezone.utc))
    record = command.services.store.put(replace(command.put(State.INCREMENTAL), last_commit=commit))

    def run(_context: RunContext, record: Any, **_given: Any) -> RunResult:
        return RunResult(record.table, record.state, 1, offsets={0: 9})

    topic = TopicFacts("T1", {0: 0}, {0: 9 if commits else 7}, high={0: end})
    monkeypatch.setattr(work_finder, "topic_facts", lambda *_: {record.topic: topic})
    monkeypatch.setattr(work_finder, "with_settings", lambda _, topics: topics)
    monkeypatch.setattr(cycle, "run_table", run)
    monkeypatch.setattr(cycle, "follow_name", lambda *_, **__: None)
    kafka = SimpleNamespace(since=lambda _: {record.topic: {0: Since(end, end)}})
    context = command.context(kafka=cast("Any", kafka))
    assert len(run_tables(context, [record], look_at_idle=False)) == commits
    whole = context.predictions.fresh_at(record) > 0.0
    assert whole is (end == (9 if commits else 7))


@pytest.mark.parametrize(("turn", "deferred"), [(Turn(), True), (None, False)])
def test_only_a_run_among_others_is_deferred_while_another_process_holds_its_lake_table(
    command: Command, monkeypatch: pytest.MonkeyPatch, turn: Turn | None, deferred: bool
) -> None:
    def held() -> None:
        raise LeaseHeldError("lake table /lake/a is held", remedy="Wait.")

    monkeypatch.setattr(Writer, "meanwhile", held)
    result = run_table(command.context(), command.put(State.INCREMENTAL), turn=turn)
    assert (result.error, result.commits, result.deferred) == (None, 0, deferred)
    assert command.left() == (State.INCREMENTAL, 0)


def test_a_deferred_run_reads_nothing_while_the_other_process_goes_on(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(_context: RunContext, record: Any, **_given: Any) -> RunResult:
        ran.append(record.table.name)
        return RunResult(record.table, record.state)

    monkeypatch.setattr(cycle, "run_table", run)
    record, context = command.put(State.INCREMENTAL), command.context()
    entry = Entry(TABLE, "default", 0.0, 900.0, 1.0, lake="/lake/orders")
    facts = TopicFacts("T1", {0: 0}, {0: 5})
    first = Work(record, facts, cast("Any", None), entry, Turn(), 0.0)
    again = replace(first, deferred=True)
    with Leases(command.services.store, owner="other").hold("lake table /lake/orders"):
        cycle._run_due(context, first, 0)
        result = cycle._run_due(context, again, 0)
        assert (ran, result.deferred, result.skipped) == ([TABLE.name], True, True)
        assert "is held by other" in result.warnings[0]
    cycle._run_due(context, again, 0)
    assert ran == [TABLE.name] * 2


def test_a_name_that_was_not_set_is_set_later(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metastore may lack a new column of the table, which no other look would find."""

    def held(*_: object, **_given: object) -> None:
        raise LeaseHeldError("lake table /lake/a is held", remedy="Wait.")

    record = replace(command.put(State.INCREMENTAL), named="thrift://hive shop.orders /lake/a")
    command.services.store.put(record)
    config = command.services.config.model_copy(update={"catalog": "a metastore"})
    context = command.context(config=config)
    monkeypatch.setattr(metastore_name, "keep_name", held)
    metastore_name.follow_name(context, record, wait_s=0.0)
    known = command.services.store.get(TABLE)
    assert known is not None
    assert known.named is None
