"""Which data checks a command executes, which results it keeps, and the effects of a failure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import yaml
from typer.testing import CliRunner

from cdc.config import parse
from cdc.errors import ConfigError, LakeError, LeaseHeldError
from cdc.runtime.progress import NullProgress
from cdc.store.checks import Checks
from cdc.store.lease import Lease
from cdc.store.table_state import State
from operate.cli import app
from operate.conditions import Condition
from operate.context import Services
from operate.data_checks import command, pausing
from operate.data_checks.command import Wanted, run_checks
from operate.exit_codes import ExitCode
from operate.run import Runs
from tests.records import ATTEMPT, ORDERS, table_record
from tests.unit.cdc.configuration import minimal

CHECKS = {
    "fresh": {"kind": "freshness", "max_age": "1h", "every_commits": 1},
    "later": {"kind": "freshness", "max_age": "2h", "policy": "report"},
    "strict": {"kind": "freshness", "max_age": "30m", "policy": "pause", "cron": "0 3 * * *"},
}
AGED = Callable[[float | None], None]


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    document = minimal_with(CHECKS, tmp_path)
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.chdir(tmp_path)
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    opened.store.put(table_record(attempt=ATTEMPT))
    yield opened
    opened.close()


def minimal_with(checks: dict[str, Any], folder: Path) -> dict[str, Any]:
    document = minimal()
    document["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
    document["defaults"] = {"checks": checks}
    return document


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> AGED:
    """A function that lets `status` show a given age of the table."""

    def age(age_s: float | None) -> None:
        record = SimpleNamespace(table=ORDERS)
        shown = SimpleNamespace(freshness_s=age_s, target_s=900, record=record)
        answer = SimpleNamespace(tables=(shown,))
        monkeypatch.setattr(command, "status", lambda *_, **__: answer)

    return age


def outcomes(found: command.Executed) -> dict[str, str]:
    return {one.check: one.outcome for one in found.results}


def test_a_command_executes_what_is_due_what_is_named_or_all(
    services: Services, aged: AGED
) -> None:
    aged(60.0)
    assert outcomes(run_checks(services, [ORDERS], Wanted())) == {"strict": "passed"}, "no commit"
    assert outcomes(run_checks(services, [ORDERS], Wanted())) == {}, "it has just passed"
    assert outcomes(run_checks(services, [ORDERS], Wanted(names=frozenset({"later"})))) == {
        "later": "passed"
    }
    assert set(outcomes(run_checks(services, [ORDERS], Wanted(everything=True)))) == set(CHECKS)
    with pytest.raises(ConfigError, match="none of the tables has a check named other"):
        run_checks(services, [ORDERS], Wanted(names=frozenset({"other", "fresh"})))


def test_a_failure_of_policy_pause_pauses_the_table_and_others_do_not(
    services: Services, aged: AGED
) -> None:
    aged(3601.0)
    found = run_checks(services, [ORDERS], Wanted(everything=True))
    assert outcomes(found) == {"fresh": "failed", "later": "passed", "strict": "failed"}
    assert [one.action for one in found.outcomes] == ["paused by check strict"]
    record = services.store.get(ORDERS)
    assert record is not None
    assert (record.state, record.resume_to) == (State.PAUSED, State.INCREMENTAL)
    assert record.paused_by_policy
    assert "check strict of table shop:public.orders failed" in str(record.reason)
    assert "tributary resume shop:public.orders" in str(record.remedy)
    again = run_checks(services, [ORDERS], Wanted(everything=True))
    assert again.outcomes == [], "it is paused already"


@pytest.mark.parametrize("age_s", [None, 60.0])
def test_neither_a_passed_nor_a_skipped_check_pauses_a_table(
    services: Services, aged: AGED, age_s: float | None
) -> None:
    aged(age_s)
    found = run_checks(services, [ORDERS], Wanted(everything=True))
    assert set(outcomes(found).values()) == {"skipped" if age_s is None else "passed"}
    assert not found.failed
    assert services.store.tables()[0].state is State.INCREMENTAL


def test_a_check_that_does_not_work_is_an_error_and_pauses_nothing(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise LakeError("the lake is away", remedy="Wait.")

    monkeypatch.setattr(command, "status", away)
    found = run_checks(services, [ORDERS], Wanted(names=frozenset({"strict"})))
    assert [(one.outcome, one.detail) for one in found.results] == [("error", "the lake is away")]
    assert found.failed
    assert services.store.tables()[0].state is State.INCREMENTAL

    def broken(*_: object, **__: object) -> None:
        raise ValueError("secret value of a row")

    monkeypatch.setattr(command, "status", broken)
    (result,) = run_checks(services, [ORDERS], Wanted(names=frozenset({"strict"}))).results
    assert result.outcome == "error"
    assert "secret" not in result.detail


def test_a_table_that_readers_do_not_see_is_skipped(services: Services, aged: AGED) -> None:
    aged(60.0)
    record = services.store.tables()[0]
    services.store.put(replace(record, state=State.NEEDS_BOOTSTRAP))
    assert outcomes(run_checks(services, [ORDERS], Wanted())) == {}
    found = run_checks(services, [ORDERS], Wanted(everything=True))
    assert {one.detail for one in found.results} == {"the table is needs_bootstrap"}
    assert not found.failed


def test_checks_that_another_process_executes_are_left_to_it(
    services: Services, aged: AGED
) -> None:
    aged(60.0)
    other = Lease(services.store, f"the checks of table {ORDERS}", "another process")
    other.acquire()
    found = run_checks(services, [ORDERS], Wanted(everything=True))
    assert (found.results, found.outcomes, found.failed) == ([], [], False)
    other.release()
    assert run_checks(services, [ORDERS], Wanted(everything=True)).results


def state_of(services: Services) -> State:
    (record,) = services.store.tables()
    return record.state


def test_a_table_that_was_copied_again_is_not_paused(
    services: Services, aged: AGED, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_again = replace(ATTEMPT, id=UUID(int=9))

    def copied(*arguments: Any, **options: Any) -> Any:
        (record,) = services.store.tables()
        services.store.put(replace(record, attempt=copied_again))
        return age(*arguments, **options)

    aged(3601.0)
    age = vars(command)["status"]
    monkeypatch.setattr(command, "status", copied)
    run_checks(services, [ORDERS], Wanted(everything=True))
    assert state_of(services) is State.INCREMENTAL
    assert not Checks(services.store).all()[ORDERS]["strict"].pausing


@pytest.mark.parametrize("by", ["checks", "run"])
def test_a_pause_that_a_lease_held_up_comes_as_soon_as_it_can(
    services: Services, aged: AGED, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    aged(3601.0)
    monkeypatch.setattr(pausing, "LEASE_WAIT_S", 0.1)
    monkeypatch.setattr(pausing, "_RUN_WAITS_S", 0.1)
    other = Lease(services.store, ORDERS, "another process")
    other.acquire()
    strict = Wanted(names=frozenset({"strict"}))
    (held,) = run_checks(services, [ORDERS], strict).outcomes
    assert held.error is not None
    assert "check strict of table shop:public.orders failed, and the table is" in str(held.error)
    assert "not paused yet: table shop:public.orders is held by another process" in str(held.error)
    assert (state_of(services), outcomes(run_checks(services, [ORDERS], Wanted()))) == (
        State.INCREMENTAL,
        {},
    ), "the check is not due again"

    with pytest.raises(LeaseHeldError, match="not paused yet"):
        pausing.pause_due(services, services.store.tables())
    other.release()
    if by == "run":
        pausing.pause_due(services, services.store.tables())
    else:
        found = run_checks(services, [ORDERS], Wanted())
        assert [one.action for one in found.outcomes] == ["paused by check strict"]
    assert state_of(services) is State.PAUSED
    (record,) = services.store.tables()
    services.store.put(replace(record, state=State.INCREMENTAL, resume_to=None))
    pausing.pause_due(services, services.store.tables())
    run_checks(services, [ORDERS], Wanted())
    assert state_of(services) is State.INCREMENTAL, "it was resumed, and is not paused again"


def test_a_run_leaves_a_due_pause_to_the_process_that_executes_the_checks(
    services: Services, aged: AGED, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(3601.0)
    monkeypatch.setattr(pausing, "LEASE_WAIT_S", 0.1)
    other = Lease(services.store, ORDERS, "another process")
    other.acquire()
    run_checks(services, [ORDERS], Wanted(names=frozenset({"strict"})))
    other.release()
    checking = Lease(services.store, pausing.lease_of_checks(ORDERS), "a process that checks")
    checking.acquire()
    pausing.pause_due(services, services.store.tables())
    assert state_of(services) is State.INCREMENTAL
    checking.release()
    pausing.pause_due(services, services.store.tables())
    assert state_of(services) is State.PAUSED


def test_a_pause_is_not_due_any_more_once_the_check_passes(
    services: Services, aged: AGED, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(3601.0)
    monkeypatch.setattr(pausing, "LEASE_WAIT_S", 0.1)
    other = Lease(services.store, ORDERS, "another process")
    other.acquire()
    run_checks(services, [ORDERS], Wanted(everything=True))
    other.release()
    aged(60.0)
    run_checks(services, [ORDERS], Wanted(names=frozenset({"strict"})))
    assert state_of(services) is State.INCREMENTAL


def test_a_failed_check_is_a_condition_until_it_passes(services: Services, aged: AGED) -> None:
    runs = Runs(services, services.store.tables)
    aged(4000.0)
    run_checks(services, [ORDERS], Wanted(names=frozenset({"fresh"})))
    assert runs.conditions() == {Condition.CHECK_FAILED: [str(ORDERS)]}
    aged(60.0)
    run_checks(services, [ORDERS], Wanted(names=frozenset({"fresh"})))
    assert runs.conditions() == {}


def test_the_commands_print_results_and_end_with_their_exit_code(
    services: Services, aged: AGED
) -> None:
    runner = CliRunner()
    aged(4000.0)
    late = runner.invoke(app, ["checks", "run", "public.orders", "--name", "fresh"])
    assert late.exit_code == ExitCode.SOME_FAILED
    assert "shop:public.orders: fresh: failed: 1 h 6 min old" in late.stdout
    report = runner.invoke(app, ["checks", "run", "--name", "later", "--output", "json"])
    assert report.exit_code == ExitCode.OK
    (result,) = json.loads(report.stdout)["results"]
    assert (result["check"], result["outcome"]) == ("later", "passed")
    listed = runner.invoke(app, ["checks", "list", "--output", "json"])
    found = {one["check"]: one for one in json.loads(listed.stdout)["checks"]}
    assert set(found) == set(CHECKS)
    assert (found["fresh"]["failed"], found["fresh"]["newest"]["outcome"]) == (True, "failed")
    assert (found["strict"]["due"], found["strict"]["newest"]) == (True, None)
    text = runner.invoke(app, ["checks", "list"]).stdout
    assert "never by itself" in text
    both = runner.invoke(app, ["checks", "run", "--all", "--name", "fresh"])
    assert both.exit_code == ExitCode.USAGE
    assert Checks(services.store).of(ORDERS, "fresh") is not None
