"""`complete`: its exit codes and its wait; and the periods in `status` and metrics."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from typer.testing import CliRunner

from cdc.config import parse
from cdc.runtime.progress import NullProgress
from cdc.store.announcements import Announcements, Proof
from cdc.store.attempt import Attempt
from cdc.store.completeness import Calendar, CompletenessRules, slot_of
from cdc.store.state_store import Store
from cdc.store.table_state import Cause, CommitSummary, State, TableRecord, transition
from operate.cli import app
from operate.cli.options import configure_logging
from operate.cli.status import show_status
from operate.context import Services
from operate.metrics.facts import Facts
from operate.metrics.families import families
from operate.periods import TablePeriods, table_periods
from operate.render import Renderer
from operate.status import Status, TableStatus
from schemas.table import TableId
from tests.records import table_record
from tests.unit.cdc.configuration import minimal

UTC = timezone.utc
NOON, HOUR = datetime(2026, 11, 23, 12, tzinfo=UTC), timedelta(hours=1)
ORDERS = TableId("shop", "public", "orders")
RULES = CompletenessRules(Calendar("hour", "Europe/Berlin"))
COMMIT = CommitSummary({0: 7}, "0/9", NOON, "20261123120000000", NOON)
ATTEMPT = Attempt(UUID(int=1), NOON - 9 * HOUR, "/lake/orders/attempt=1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a table whose hours, in Berlin time, are announced up to 13 o'clock."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIBUTARY_CONFIG", raising=False)
    chosen = {"completeness": {"by": "hour", "zone": "Europe/Berlin"}}
    document = minimal() | {"tables": {"public.orders": chosen}}
    document["state"] = {"url": f"sqlite:///{tmp_path / 'state.db'}"}
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(document))
    yield tmp_path
    configure_logging(0)


@pytest.fixture
def store(folder: Path) -> Store:
    return Store(f"sqlite:///{folder / 'state.db'}")


@pytest.fixture
def record(store: Store) -> TableRecord:
    found = store.put(table_record(attempt=ATTEMPT, last_commit=COMMIT))
    announce(store, found, NOON)
    return found


def announce(store: Store, record: TableRecord, until: datetime) -> None:
    periods = list(RULES.due(until, until - HOUR))
    assert Announcements(store).announce([Proof(record, RULES, until, periods)], NOON)


def complete(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["complete", "public.orders", *arguments])
    return result.exit_code, " ".join(result.output.split())


def test_the_exit_code_says_whether_a_period_is_complete(store: Store, record: TableRecord) -> None:
    code, told = complete("2026-11-23T12")
    assert (code, told) == (
        0,
        "2026-11-23T12 of shop:public.orders is complete since 2026-11-23 12:00:00 UTC",
    )
    assert complete("2024-01-01T00")[0] == 0, "all periods before an announced one"
    code, told = complete("2026-11-23T13")
    assert code == 1
    assert "not yet: no run has proven 2026-11-23T13 yet" in told
    assert "2099-01-01T00 is not over" in complete("2099-01-01T00")[1]

    lost = transition(record, State.NEEDS_BOOTSTRAP, at=NOON, cause=Cause(reason="no slot"))
    lost = store.put(lost)
    code, told = complete("2026-11-23T13")
    assert code == 4
    assert "cannot become complete: table shop:public.orders needs a bootstrap: no slot" in told
    assert "tributary bootstrap shop:public.orders" in told
    assert complete("2026-11-23T12")[0] == 0, "what was announced stays so"


def test_a_failed_table_can_still_become_complete(store: Store, record: TableRecord) -> None:
    store.put(replace(record, state=State.PAUSED, resume_to=State.INCREMENTAL, reason="a pause"))
    code, told = complete("2026-11-23T13")
    assert code == 1
    assert "table shop:public.orders is paused" in told


def test_the_command_waits_for_a_period(store: Store, record: TableRecord) -> None:
    began = time.monotonic()
    later = threading.Timer(1.5, announce, (store, record, NOON + HOUR))
    later.start()
    code, told = complete("2026-11-23T13", "--wait", "2m")
    later.join()
    assert code == 0, told
    assert 1 < time.monotonic() - began < 30
    assert complete("2026-11-23T14", "--wait", "1s")[0] == 1
    lost = transition(record, State.NEEDS_BOOTSTRAP, at=NOON, cause=Cause(reason="no slot"))
    store.put(lost)
    assert complete("2026-11-23T14", "--wait", "2m")[0] == 4, "without a wait"


def test_the_answer_for_programs(record: TableRecord) -> None:
    result = CliRunner().invoke(
        app, ["complete", "public.orders", "2026-11-23T12", "--output", "json"]
    )
    answer: dict[str, Any] = json.loads(result.output)
    assert answer["completion"] == "complete"
    assert answer["start"] == "2026-11-23T11:00:00+00:00"
    assert answer["announcement"]["revision"] == 1


def test_announced_periods_are_listed_with_their_late_rows(
    store: Store, record: TableRecord
) -> None:
    instant, slots = "20261123130000000", {slot_of(NOON - HOUR / 2): 5}
    Announcements(store).note_late(record, instant, slots, reannounces=True)
    code, told = complete()
    assert code == 0
    assert "2026-11-23T12" in told
    assert instant in told
    assert "complete since 2026-11-23 12:00:00 UTC, 5 late rows" in complete("2026-11-23T12")[1]
    result = CliRunner().invoke(app, ["complete", "public.orders", "--output", "json"])
    (one,) = json.loads(result.output)["periods"]
    assert (one["late_rows"], one["revision"]) == (5, 2)


def test_what_is_no_period_is_wrong_usage(record: TableRecord) -> None:
    for arguments in (["2026-11-23"], ["--wait", "5m"], ["2026-11-23T12", "--wait", "soon"]):
        assert complete(*arguments)[0] == 2
    assert "twice" in complete("2026-10-25T02")[1]


def test_a_table_without_periods_or_off_the_plan_is_an_error(
    folder: Path, store: Store, record: TableRecord
) -> None:
    result = CliRunner().invoke(app, ["complete", "public.none", "2026-11-23T12"])
    assert result.exit_code == 1
    file = folder / "tributary.yaml"
    document = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(document | {"tables": {}}))
    code, told = complete("2026-11-23T12")
    assert code == 1
    assert "its settings have no completeness" in told
    file.write_text(yaml.safe_dump(document))
    assert complete("2026-11-23T12")[0] == 0
    # Airflow's task leaves an offboarded table alone by this.
    store.put(transition(record, State.RETIRED, at=NOON))
    refused = CliRunner().invoke(app, ["complete", "public.orders", "--output", "json"])
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["context"]["state"] == "retired"


def periods_of(folder: Path) -> TablePeriods:
    opened = Services(parse((folder / "tributary.yaml").read_text()), NullProgress())
    try:
        return table_periods(opened, opened.store.tables())[ORDERS]
    finally:
        opened.close()


def test_status_and_metrics_show_the_newest_period_and_when_the_next_one_is_overdue(
    folder: Path, record: TableRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    found = periods_of(folder)
    assert (found.newest, found.newest_end, found.late_rows) == ("2026-11-23T12", NOON, 0)
    assert found.due_at == NOON + HOUR + timedelta(seconds=900), "the default target"
    assert found.overdue(NOON + 2 * HOUR)
    assert not found.overdue(NOON + HOUR)

    status = Status((TableStatus(record, 0, NOON, 0.0, 900, periods=found),), ())
    show_status(Renderer(), status, named=False)
    told = " ".join(capsys.readouterr().out.split())
    assert "shop:public.orders: newest complete hour: 2026-11-23T12 (Europe/Berlin)" in told
    facts = Facts({("state_store", ""): True}, NOON, 0.5, status, None, {})
    shown = {
        sample.name.removeprefix("tributary_table_"): sample.value
        for family in families(parse((folder / "tributary.yaml").read_text()), facts)
        for sample in family.samples
    }
    assert shown["period_end_timestamp_seconds"] == NOON.timestamp()
    assert shown["period_due_timestamp_seconds"] == found.due_at.timestamp()
    assert "late_rows" not in shown


def test_a_table_without_an_announcement_is_due_since_its_copy(folder: Path, store: Store) -> None:
    store.put(table_record(attempt=ATTEMPT, last_commit=COMMIT))
    found = periods_of(folder)
    assert (found.newest, found.newest_end) == (None, None)
    assert found.due_at == ATTEMPT.started_at + HOUR + timedelta(seconds=900)


def test_a_table_that_runs_do_not_follow_has_another_alarm(
    folder: Path, store: Store, record: TableRecord
) -> None:
    store.put(transition(record, State.NEEDS_BOOTSTRAP, at=NOON, cause=Cause(reason="no slot")))
    assert periods_of(folder).due_at is None
