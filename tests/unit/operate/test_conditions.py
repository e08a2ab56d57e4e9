"""The conditions of `--check` and `--fail-on`, and the exit codes of `status` and `run`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
import typer
import yaml
from typer.core import TyperGroup
from typer.testing import CliRunner

from cdc.config import parse as read
from cdc.config.checks import CheckSettings
from cdc.errors import KafkaError
from cdc.run import Silence
from cdc.runtime.progress import NullProgress
from cdc.store.attempt import Attempt
from cdc.store.checks import after
from cdc.store.lease import Lease, held_leases
from cdc.store.quarantine import Quarantine, Quarantined
from cdc.store.table_state import Cause, State, TableRecord, transition
from cdc.store.verifications import Verifications, VerifyRecord
from operate import conditions, exit_codes
from operate import status as status_module
from operate.capture_status import CaptureStatus
from operate.check_status import CheckStatus
from operate.cli import app
from operate.conditions import (
    Condition,
    UnknownConditionError,
    half_copied,
    named_conditions,
    of_record,
)
from operate.context import Services
from operate.exit_codes import ExitCode
from operate.run import Runs
from operate.status import Status, TableStatus
from operate.targets import Shortfall
from schemas.table import TableId
from tests.records import NOW, ORDERS, table_record
from tests.unit.cdc.configuration import minimal
from tests.unit.cdc.store.check_results import FAILED
from tests.unit.operate.documents import text

ATTEMPT = Attempt(UUID(int=1), NOW, "path", start_offsets={0: 1}, handoff_offsets={0: 2})
ROOT_COMMAND = cast("TyperGroup", typer.main.get_command(app))


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    document = minimal()
    document["state"] = {"url": f"sqlite:///{tmp_path / 'state.db'}"}
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(document))
    opened = Services(read(yaml.safe_dump(document), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def of_state(state: State, **facts: Any) -> TableRecord:
    known: dict[str, Any] = {"attempt": ATTEMPT}
    known |= {"resume_to": State.INCREMENTAL} if state in (State.PAUSED, State.FAILED) else {}
    return table_record(state=state, **(known | facts))


def test_conditions_are_named_in_a_list_that_can_be_repeated() -> None:
    assert (
        named_conditions(["late,paused"])
        == named_conditions(["late", "paused"])
        == {Condition.LATE, Condition.PAUSED}
    )
    assert named_conditions([" Half-Copied , needs_bootstrap"]) == {
        Condition.HALF_COPIED,
        Condition.NEEDS_BOOTSTRAP,
    }


@pytest.mark.parametrize("wrong", ["latte", "", "late,", "late paused", "all"])
def test_an_unknown_condition_is_refused_with_the_list(wrong: str) -> None:
    with pytest.raises(UnknownConditionError) as refused:
        named_conditions([wrong])
    for one in Condition:
        assert one.value in str(refused.value)
    (unknown,) = [name for name in (part.strip() for part in wrong.split(",")) if name != "late"]
    assert repr(unknown) in str(refused.value)


@pytest.mark.parametrize("command", ["status", "run"])
def test_an_unknown_condition_is_a_usage_error(command: str) -> None:
    refused = CliRunner().invoke(app, [command, "--fail-on", "late,latte"])
    assert refused.exit_code == ExitCode.USAGE
    shown = " ".join(refused.output.replace("│", " ").split())
    assert "'latte' is not one of late, unkept, paused, quarantined, failed" in shown


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.REGISTERED, [Condition.HALF_COPIED]),
        (State.BOOTSTRAPPING, [Condition.HALF_COPIED]),
        (State.CATCHING_UP, [Condition.HALF_COPIED]),
        (State.INCREMENTAL, []),
        (State.PAUSED, [Condition.PAUSED]),
        (State.NEEDS_BOOTSTRAP, [Condition.NEEDS_BOOTSTRAP]),
        (State.FAILED, [Condition.FAILED]),
        (State.RETIRED, []),
    ],
)
def test_each_state_is_a_condition_or_none(state: State, expected: list[Condition]) -> None:
    assert of_record(of_state(state), None, {}) == expected


@pytest.mark.parametrize("beside", [False, True])
def test_a_copy_that_a_process_works_on_is_not_half_copied(
    services: Services, beside: bool
) -> None:
    copying = of_state(State.CATCHING_UP, beside=beside)
    record, build = (of_state(State.INCREMENTAL), copying) if beside else (copying, None)
    lease = Lease(services.store, copying.resource, "another process")
    assert half_copied(record, build, held_leases(services.store))
    lease.acquire()
    assert not half_copied(record, build, held_leases(services.store))
    lease.release()
    assert half_copied(record, build, held_leases(services.store))


def test_a_next_generation_whose_copy_failed_is_half_copied() -> None:
    build = of_state(State.FAILED, beside=True, resume_to=State.BOOTSTRAPPING)
    assert of_record(of_state(State.INCREMENTAL), build, {}) == [Condition.HALF_COPIED]


def shown(record: TableRecord, **facts: Any) -> TableStatus:
    return TableStatus(record, 0, NOW, 5.0, 900, **facts)


def failed_check(policy: str) -> CheckStatus:
    settings = CheckSettings(kind="not_null", columns=("id",), policy=policy)
    return CheckStatus("keys", settings, after(None, FAILED), due=False, failure=FAILED)


DIFFERENT = VerifyRecord(str(UUID(int=1)), NOW, 9, {"missing": 2}, "0/9", 1.5)
FOLLOWED = of_state(State.INCREMENTAL)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (shown(FOLLOWED), []),
        (shown(FOLLOWED, verified=replace(DIFFERENT, differences={})), []),
        (replace(shown(FOLLOWED), freshness_s=901.0), ["late"]),
        (shown(FOLLOWED, quarantined=2), ["quarantined"]),
        (shown(FOLLOWED, half_copied=True), ["half_copied"]),
        (shown(FOLLOWED, verified=DIFFERENT), ["drift"]),
        (shown(FOLLOWED, checks=(failed_check("alarm"),)), ["check_failed"]),
        (shown(FOLLOWED, checks=(failed_check("pause"),)), ["check_failed"]),
        (shown(FOLLOWED, checks=(failed_check("report"),)), []),
        (shown(FOLLOWED, lost=cast("Any", KafkaError("gone", remedy="wait"))), ["lost"]),
        (shown(of_state(State.PAUSED), quarantined=2), ["paused", "quarantined"]),
        (shown(of_state(State.FAILED)), ["failed"]),
        (shown(of_state(State.NEEDS_BOOTSTRAP)), ["needs_bootstrap"]),
    ],
)
def test_status_names_the_conditions_of_a_table(table: TableStatus, expected: list[str]) -> None:
    assert [one.value for one in table.conditions] == expected
    assert table.to_json()["conditions"] == expected
    found = Status((table,), ())
    assert found.to_json()["conditions"] == {name: ["shop:public.orders"] for name in expected}


def test_status_names_captures_and_targets_too() -> None:
    broken = CaptureStatus("shop", "default", None, "missing", None, "there is no connector")
    targets = (
        Shortfall("runs", True, (ORDERS,), "no commit", ("run",)),
        Shortfall("table", False, (ORDERS,), "too much", ("wait",)),
    )
    late = replace(shown(FOLLOWED), freshness_s=901.0)
    found = Status((late,), (broken,), targets=targets)
    assert found.to_json()["conditions"] == {
        "late": ["shop:public.orders"],
        "unkept": ["shop:public.orders"],
        "silent": ["shop/default"],
    }


BROKEN = (
    shown(of_state(State.PAUSED, table=TableId("shop", "public", "a"))),
    shown(FOLLOWED, quarantined=3),
)


@pytest.mark.parametrize(
    ("tables", "options", "code"),
    [
        (BROKEN, [], ExitCode.OK),
        (BROKEN, ["--check"], ExitCode.ERROR),
        (BROKEN, ["--fail-on", "paused"], ExitCode.ERROR),
        (BROKEN, ["--check", "--fail-on", "late,quarantined"], ExitCode.ERROR),
        (BROKEN, ["--check", "--fail-on", "late,failed"], ExitCode.OK),
        ((shown(FOLLOWED),), ["--check"], ExitCode.OK),
        ((shown(of_state(State.FAILED)),), [], ExitCode.SOME_FAILED),
        ((shown(of_state(State.FAILED)),), ["--check"], ExitCode.ERROR),
        ((shown(of_state(State.NEEDS_BOOTSTRAP)),), [], ExitCode.NEEDS_BOOTSTRAP),
        ((shown(of_state(State.NEEDS_BOOTSTRAP)),), ["--check"], ExitCode.ERROR),
        ((shown(of_state(State.NEEDS_BOOTSTRAP)),), ["--fail-on", "paused"], ExitCode.OK),
    ],
)
def test_status_ends_with_what_it_was_asked_for(
    services: Services,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tables: tuple[TableStatus, ...],
    options: list[str],
    code: ExitCode,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(status_module, "status", lambda *_: Status(tables, ()))
    ended = CliRunner().invoke(app, ["status", *options])
    assert ended.exit_code == code, ended.output
    named = [line for line in ended.output.splitlines() if line.startswith("Not as it should be: ")]
    assert bool(named) == (code == ExitCode.ERROR)
    if options == ["--check"] and tables is BROKEN:
        assert named == [
            "Not as it should be: paused: shop:public.a",
            "Not as it should be: quarantined: shop:public.orders",
        ]
    as_json = CliRunner().invoke(app, ["status", *options, "--output", "json"])
    assert as_json.exit_code == code
    assert json.loads(as_json.stdout)["conditions"] == Status(tables, ()).to_json()["conditions"]


def runs_of(services: Services, *fail_on: str) -> Runs:
    return Runs(services, services.store.tables, named_conditions(fail_on) if fail_on else None)


def fill(services: Services) -> None:
    """Store a table for each condition that the state store can have, and one without a fault."""
    store = services.store
    for number, state in enumerate((State.PAUSED, State.FAILED, State.BOOTSTRAPPING), start=1):
        record = of_state(state, table=TableId("shop", "public", state.value))
        store.put(replace(record, attempt=replace(ATTEMPT, id=UUID(int=10 + number))))
    store.put(table_record(ORDERS, attempt=ATTEMPT))
    store.put(table_record(TableId("shop", "public", "well")))
    left_out = Quarantined(
        *(ORDERS, str(UUID(int=1)), "t", None, 0, 5, None, "bad", NOW, 3, "r1", NOW),
        key=b"k",
        value=b"v",
    )
    Quarantine(store).keep([left_out])
    Verifications(store).keep(ORDERS, DIFFERENT)


def test_a_run_names_the_conditions_of_its_tables(services: Services) -> None:
    fill(services)
    runs = runs_of(services)
    capture = services.capture(ORDERS)
    runs.silences = [Silence(capture, (ORDERS,), "it is stopped", "start it")]
    runs.targets = [Shortfall("runs", True, (ORDERS,), "no commit", ("run",))]
    assert {one.value: names for one, names in runs.conditions().items()} == {
        "late": ["shop:public.orders"],
        "paused": ["shop:public.paused"],
        "quarantined": ["shop:public.orders"],
        "failed": ["shop:public.failed"],
        "half_copied": ["shop:public.bootstrapping"],
        "drift": ["shop:public.orders"],
        "silent": [f"shop/{capture.tier}"],
    }


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [
        ((), ExitCode.SOME_FAILED),
        (("failed",), ExitCode.SOME_FAILED),
        (("paused",), ExitCode.SOME_FAILED),
        (("quarantined", "late"), ExitCode.SOME_FAILED),
        (("late", "silent", "unkept"), ExitCode.OK),
        (("half_copied",), ExitCode.NEEDS_BOOTSTRAP),
        (("half_copied,paused",), ExitCode.NEEDS_BOOTSTRAP),
        (("needs_bootstrap",), ExitCode.OK),
    ],
)
def test_a_run_ends_with_what_it_was_asked_for(
    services: Services, fail_on: tuple[str, ...], code: ExitCode
) -> None:
    fill(services)
    assert runs_of(services, *fail_on).exit_code() is code


def test_an_error_of_a_run_is_a_failure_whatever_the_state(services: Services) -> None:
    services.store.put(table_record(ORDERS, attempt=ATTEMPT))
    runs = runs_of(services, "failed")
    assert runs.exit_code() is ExitCode.OK
    runs._failed = {ORDERS}
    assert runs.failing() == {Condition.FAILED: ["shop:public.orders"]}
    assert runs.exit_code() is ExitCode.SOME_FAILED


def test_what_only_a_new_process_can_repair_counts_whatever_was_asked_for(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = runs_of(services, "paused")
    assert runs.exit_code() is ExitCode.OK
    monkeypatch.setattr("operate.run.has_ended", lambda: True)
    assert runs.exit_code() is ExitCode.SOME_FAILED


def test_a_failed_first_copy_counts_if_it_is_asked_for(services: Services) -> None:
    """By default, `run` does not count such a table as failed, since it has no readers."""
    copying = table_record(state=State.BOOTSTRAPPING, attempt=ATTEMPT)
    error = KafkaError("down", remedy="wait")
    at = datetime.now(timezone.utc)
    services.store.put(transition(copying, State.FAILED, at=at, cause=Cause(error=error)))
    assert runs_of(services).exit_code() is ExitCode.OK
    assert runs_of(services, "failed").exit_code() is ExitCode.SOME_FAILED


def test_the_page_has_the_tables_of_the_code() -> None:
    page = text("docs/observe.md")
    for table in (exit_codes.table_of_exit_codes(), conditions.table_of_conditions()):
        assert table in page, f"write it again:\n{table}"


def test_every_condition_has_a_meaning() -> None:
    assert list(conditions.MEANINGS) == list(Condition)


def test_the_table_of_exit_codes_names_commands_and_options_that_exist() -> None:
    named = [name for one in exit_codes.MEANINGS for name in one.commands]
    assert len(named) == len(set(named))
    for name in named:
        command: Any = ROOT_COMMAND
        # Words in capitals are arguments.
        words = [word for word in name.split() if not word.startswith("--") and word.islower()]
        for word in words:
            command = command.commands[word]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in name.split() if word.startswith("--")} <= options
