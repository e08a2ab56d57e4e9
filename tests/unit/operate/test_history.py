"""The output of `history`, and the forms of times that the command accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from typer.testing import CliRunner

from cdc.config import parse
from cdc.runtime.progress import NullProgress
from cdc.store import history_rows
from cdc.store.error_record import ErrorRecord
from cdc.store.history import RunEntry, SchemaEntry
from cdc.store.recorded_change import RecordedChange
from cdc.store.table_state import Cause, State, transition
from cdc.store.tables import run_rows
from operate.cli import app
from operate.cli.history import KindOption
from operate.context import Services
from operate.exit_codes import ExitCode
from operate.history import Kind, history, moment
from operate.lifecycle import pause, resume
from operate.run import Runs
from schemas.changes import DropColumn, Verdict
from schemas.table import TableId
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.configuration import minimal

PARTS = TableId("shop", "public", "parts")
LONG_AGO = datetime(2000, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    document = minimal()
    document["state"] = {"url": f"sqlite:///{tmp_path / 'state.db'}", "keep_history": "2d"}
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(document))
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def run(**facts: object) -> RunEntry:
    known = RunEntry("r1", ORDERS, 1, State.INCREMENTAL, NOW, 2.4, 1, 1234, {"c": 1234}, {0: 9})
    return replace(known, **facts)


def what(services: Services, *kinds: Kind) -> list[str]:
    return [event.what for event in history(services, LONG_AGO, kinds=kinds)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("30m", NOW - timedelta(minutes=30)),
        ("24h", NOW - timedelta(hours=24)),
        ("7d", NOW - timedelta(days=7)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=timezone.utc)),
        ("2026-03-01T12:30", datetime(2026, 3, 1, 12, 30, tzinfo=timezone.utc)),
        ("2026-03-01T12:30:00Z", datetime(2026, 3, 1, 12, 30, tzinfo=timezone.utc)),
        ("2026-03-01T12:30+02:00", datetime(2026, 3, 1, 10, 30, tzinfo=timezone.utc)),
    ],
)
def test_a_time_is_a_duration_or_a_moment(text: str, expected: datetime) -> None:
    assert moment(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "0h", "-1d", "7w", "2026-13-01", "9999999d"])
def test_what_is_no_time_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ValueError, match="neither a time nor a duration") as refused:
        moment(text, NOW)
    assert repr(text) in str(refused.value)


def test_events_are_sentences(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_rows, "RUNS_WHOLE", 1)
    store = services.store
    stored = store.put(table_record())
    for _ in range(4):
        store.record_run(run())
    down = ErrorRecord("KafkaError", "the broker is down", "wait", {})
    store.record_run(run(state=State.FAILED, commits=0, events=0, error=down))
    stored = store.put(
        transition(stored, State.NEEDS_BOOTSTRAP, at=NOW, cause=Cause("the slot is lost"))
    )
    dropped = RecordedChange.of(DropColumn(verdict=Verdict.EVOLVE, why="y", name="a"))
    for version, outcome in ((2, "followed"), (3, "needs_bootstrap")):
        key = str(version)
        store.record_schema(
            SchemaEntry(ORDERS, 1, version, store.now(), (7,), (dropped,), outcome, key)
        )
    store.put(table_record(state=State.REGISTERED, generation=2, beside=True))
    store.delete(ORDERS, beside=True)
    assert what(services, Kind.RUN) == [
        "4 runs: 4 commits, 4,936 changes, 10 s",
        "0 commits, 0 changes, 2 s; the broker is down",
    ]
    assert what(services, Kind.SCHEMA) == [
        "schema version 2: column 'a' was dropped",
        "needs_bootstrap: column 'a' was dropped",
    ]
    assert what(services, Kind.STATE) == [
        "incremental",
        "needs_bootstrap, was incremental: the slot is lost",
        "next generation, 2: registered",
        "next generation, 2: record removed",
    ]
    assert len(what(services)) == 8


def test_a_pause_and_its_end_are_found_with_reason_and_run(services: Services) -> None:
    services.store.put(table_record())
    services.store.put(table_record(PARTS))
    pause(services, ORDERS, reason="migration")
    resume(services, ORDERS)
    found = history(services, LONG_AGO, [ORDERS])
    assert [event.what for event in found][1:] == [
        "paused, was incremental: migration",
        "incremental, was paused",
    ]
    assert {event.run_id for event in found} == {services.run_id}
    assert [event.table for event in history(services, LONG_AGO)].count(PARTS) == 1


def test_a_command_forgets_what_is_older_than_the_setting(services: Services) -> None:
    store = services.store
    for table in (ORDERS, PARTS):
        store.record_run(run(table=table))
    aged = sa.update(run_rows).values(noted_at=run_rows.c.noted_at - 2 * 86400)
    with store.transaction() as connection:
        connection.execute(aged.where(run_rows.c.table_name == "parts"))
    Runs(services, store.tables)._forget_history([])
    assert [event.table for event in history(services, LONG_AGO)] == [ORDERS]


def test_the_command_shows_lines_and_values(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    services.store.put(table_record())
    services.store.record_run(run())
    runner = CliRunner()
    shown = runner.invoke(app, ["history", "--since", "7d"])
    assert shown.exit_code == ExitCode.OK, shown.output
    head, *lines = shown.stdout.splitlines()[1:]
    assert "keeps events for 2d (state.keep_history)" in shown.stdout.splitlines()[0]
    assert head.split("  ")[0] == "when (UTC)"
    assert len(lines) == 2
    assert "shop:public.orders" in lines[0]
    assert any("1 commit, 1,234 changes, 2 s" in line for line in lines), "both are of one moment"
    answer = runner.invoke(app, ["history", "public.orders", "--kind", "run", "--output", "json"])
    (event,) = json.loads(answer.stdout)["history"]
    assert (event["kind"], event["events"], event["run_id"]) == ("run", 1234, "r1")
    assert set(event["by"]) == {"user", "host", "command"}
    assert event["at"].endswith("+00:00")
    quiet = runner.invoke(app, ["history", "--kind", "schema"])
    assert "Nothing has happened since" in quiet.stdout


def test_the_command_of_a_change_is_recorded_as_a_person_typed_it(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    services.store.put(table_record())
    paused = CliRunner().invoke(app, ["pause", "public.orders", "--reason", "a migration"])
    assert paused.exit_code == ExitCode.OK, paused.output
    newest = history(services, LONG_AGO, kinds=[Kind.STATE])[-1]
    assert newest.by is not None
    assert newest.by.command == "pause"
    assert newest.what == "paused, was incremental: a migration"


@pytest.mark.parametrize("wrong", [["--since", "soon"], ["--kind", "commit"]])
def test_a_wrong_option_is_a_usage_error(wrong: list[str]) -> None:
    refused = CliRunner().invoke(app, ["history", *wrong])
    assert refused.exit_code == ExitCode.USAGE


def test_the_option_has_the_kinds_that_there_are() -> None:
    assert [one.value for one in KindOption] == [one.value for one in Kind]
