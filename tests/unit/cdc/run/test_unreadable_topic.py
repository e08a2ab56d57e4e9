"""A table whose topic cannot be read does not stop other tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.gathering import Captures
from cdc.capture.position_check import TopicFacts
from cdc.errors import KafkaError
from cdc.run import RunContext, RunResult, cycle, run_tables, work_finder
from cdc.run import run_table as run
from cdc.run.work_finder import WorkFinder
from cdc.store.table_state import CommitSummary, State, TableRecord
from operate.context import Services
from schemas.table import TableId
from tests.unit.failing_command import TABLE, Command

OTHER = TableId("shop", "public", "other")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    monkeypatch.setattr(Services, "spark", None)
    monkeypatch.setattr(RunContext, "spark", SimpleNamespace(sparkContext=SparkContext()))
    command = Command(tmp_path, "failed")
    yield command
    command.services.close()


class SparkContext:
    def setLocalProperty(self, _key: str, _value: str) -> None:
        pass


@pytest.mark.parametrize("unread", ["facts", "settings"])
@pytest.mark.parametrize("looks", [True, False], ids=("look", "quick"))
def test_only_the_table_of_an_unreadable_topic_stops(
    command: Command, monkeypatch: pytest.MonkeyPatch, unread: str, looks: bool
) -> None:
    first = command.put(State.INCREMENTAL)
    store = command.services.store
    other = store.put(replace(first, table=OTHER, topic="other", version=0))
    error = KafkaError("topic t is closed to this user", remedy="Grant it.")
    facts: dict[str, TopicFacts | KafkaError] = {
        record.topic: TopicFacts("T1", {0: 0}, {0: 5}) for record in (first, other)
    }

    def settings(
        _context: RunContext, topics: dict[str, TopicFacts | KafkaError]
    ) -> dict[str, TopicFacts | KafkaError]:
        return {**topics, first.topic: error} if unread == "settings" else topics

    seen: list[TableId] = []

    def run_table(context: RunContext, record: TableRecord, **given: Any) -> RunResult:
        seen.append(record.table)
        if record.table == TABLE:
            return run(context, record, **given)
        assert isinstance(given["topic"], TopicFacts)
        return RunResult(record.table, record.state)

    def read(_context: RunContext, _topics: Iterable[str]) -> dict[str, TopicFacts | KafkaError]:
        return {**facts, first.topic: error} if unread == "facts" else facts

    monkeypatch.setattr(work_finder, "topic_facts", read)
    monkeypatch.setattr(work_finder, "with_settings", settings)
    monkeypatch.setattr(cycle, "run_table", run_table)
    monkeypatch.setattr(work_finder, "cut_off", lambda *_: set())
    monkeypatch.setattr(Captures, "look_at_all", lambda *_: None)
    context = command.context(sources={"shop": cast("Any", None)})
    failed, well = run_tables(context, [first, other], look_at_idle=looks)
    assert sorted(seen) == sorted([TABLE, OTHER])
    assert failed.error is not None
    assert (failed.error.error, failed.error.message) == ("KafkaError", error.message)
    assert (failed.state, well.error) == (State.FAILED, None)


@pytest.mark.parametrize("unread", [True, False])
@pytest.mark.parametrize("looks", [True, False], ids=("look", "quick"))
def test_a_look_finds_an_idle_table_whose_topic_lost_its_policy_or_its_rights(
    command: Command, monkeypatch: pytest.MonkeyPatch, unread: bool, looks: bool
) -> None:
    """Compaction deletes records that a later run may need, and sends no event."""
    moment = datetime.now(timezone.utc)
    commit = CommitSummary({0: 5}, None, moment, "20260101000000000", moment)
    idle = replace(command.put(State.INCREMENTAL), last_commit=commit)
    facts = TopicFacts("T1", {0: 0}, {0: 5})
    error = KafkaError("its settings are closed to this user", remedy="Grant it.")
    with_policy = error if unread else replace(facts, policy="compact")
    monkeypatch.setattr(work_finder, "topic_facts", lambda *_: {idle.topic: facts})
    monkeypatch.setattr(work_finder, "with_settings", lambda *_: {idle.topic: with_policy})
    finder = WorkFinder(command.context(), [idle], look_at_idle=looks, spaced=False)
    found = [(one.table, one.found) for one in finder.work()]
    assert found == ([(idle.table, True)] if looks else []), "no other round sees it"
