"""The freshness targets that `status TABLE` shows, by the load of all tables on the plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.config import parse
from cdc.errors import KafkaError
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import CommitSummary, State, TableRecord
from operate import shown_targets
from operate.context import Services
from operate.server_answers import Answers
from operate.shown_targets import shown_shortfalls
from operate.targets import Shortfall
from schemas.table import TableId
from tests.records import NOW, table_record
from tests.unit.cdc.configuration import minimal

HOUR = timedelta(hours=1)


class Ends(Answers):
    """Answers of a Kafka whose topics all end at offset 7."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.asked = list[str]()

    def ends(self, topics: Iterable[str]) -> Mapping[str, Mapping[int, int]]:
        self.asked = [*topics]
        return {topic: {0: 7} for topic in self.asked}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def at(name: str, offset: int) -> TableRecord:
    commit = CommitSummary({0: offset}, "0/9", NOW - HOUR, "20260102110000000", NOW - HOUR)
    return table_record(
        TableId("shop", "public", name), State.INCREMENTAL, topic=name, last_commit=commit
    )


def test_tables_that_are_not_shown_are_judged_by_their_own_facts(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = dict[str, float]()

    def look(*given: Any) -> list[Any]:
        records: Iterable[TableRecord] = given[3]
        fresh_at: Callable[[TableRecord], float] = given[4]
        fresh.update({record.table.name: fresh_at(record) for record in records})
        whole.update(one.name for one, at in given[2]._whole_at.items() if at == NOW.timestamp())
        return []

    whole = set[str]()
    monkeypatch.setattr(shown_targets, "shortfalls_now", look)
    late, idle, unknown = at("late", 5), at("idle", 7), at("unknown", 7)
    behind, done = at("behind", 6), at("done", 7)
    retired = replace(at("retired", 7), state=State.RETIRED)
    answers = Ends(services)
    shown = {late.table: (2, True), idle.table: (0, False), unknown.table: (None, False)}
    shown_shortfalls(answers, [late, idle, unknown, behind, done, retired], shown, NOW)
    assert answers.asked == ["behind", "done"], "the others are known"
    watermark = (NOW - HOUR).timestamp()
    assert fresh == {
        "late": -math.inf, "idle": math.inf, "unknown": math.inf,
        "behind": watermark, "done": math.inf, "retired": watermark,
    }  # fmt: skip
    assert whole == {"idle", "done"}


def test_the_known_ends_are_those_of_all_requests(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape's forecast uses them; without them, no table would have a backlog."""
    ends: dict[str, dict[int, int]] = {"shown": {0: 9}, "other": {0: 5}}
    monkeypatch.setattr(
        services.kafka, "ends_now", lambda topics, **_: {topic: ends[topic] for topic in topics}
    )
    answers = Answers(services)
    assert answers.ends(["shown"]) == {"shown": {0: 9}}
    assert answers.ends([]) == {}
    assert answers.known_ends == {"shown": {0: 9}}
    assert answers.ends(["other"]) == {"other": {0: 5}}
    assert answers.known_ends == ends


def test_topics_of_others_that_cannot_be_read_hide_no_missed_target(
    services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_self: object, _topics: object) -> Any:
        raise KafkaError("their topics cannot be read", remedy="Grant it.")

    late = at("late", 5)
    missed = Shortfall("runs", True, (late.table,), "no commit", ("wait",))
    monkeypatch.setattr(Answers, "ends", away)
    monkeypatch.setattr(shown_targets, "shortfalls_now", lambda *_: [missed])
    shown = {late.table: (2, True)}
    assert shown_shortfalls(Answers(services), [late, at("other", 1)], shown, NOW) == [missed]
    assert "their topics cannot be read" in caplog.text
