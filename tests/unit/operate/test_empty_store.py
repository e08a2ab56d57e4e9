"""Whether a state store without tables belongs to a new project, or has lost its tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cdc.config import parse
from cdc.errors import ConnectError
from cdc.runtime.progress import NullProgress
from cdc.store.lease import Lease
from cdc.store.table_state import State
from operate import run
from operate import server_answers as asked
from operate.check import _no_tables
from operate.cli.status import EMPTY_PLAN, show_status
from operate.context import Services
from operate.empty_store import LostTablesError, empty_store
from operate.exit_codes import ExitCode
from operate.metrics.facts import Facts
from operate.metrics.families import families
from operate.render import Output, Renderer
from operate.run import Runs
from operate.server_answers import Answers
from operate.status import Status, status
from tests.records import NOW, table_record
from tests.unit.cdc.configuration import minimal

CONNECTOR = "tributary_shop_default"


class Told(Answers):
    """Fake answers of servers, with the connectors that a function returns."""

    def __init__(self, services: Services, look: Callable[[], list[str]]) -> None:
        super().__init__(services)
        self._look = look

    def connectors(self) -> list[str]:
        return self._look()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    document = minimal()
    document["tables"] = {"public.logs": {"mode": "append", "tier": "slow"}}
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def told(services: Services, *connectors: str) -> Told:
    return Told(services, lambda: list(connectors))


def away() -> list[str]:
    raise ConnectError("Kafka Connect did not answer in time", remedy="Look at it.")


def series(services: Services, shown: Status) -> dict[str, float]:
    facts = Facts({}, NOW, 0.1, shown)
    return {
        one.name: one.samples[0].value
        for one in families(services.config, facts)
        if one.name in ("tributary_tables", "tributary_connectors_without_tables")
    }


def test_a_new_project_has_no_table_and_no_problem(
    services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    found = status(services, (), answers=told(services, "another"))
    assert not found.failed
    assert series(services, found) == {
        "tributary_tables": 0,
        "tributary_connectors_without_tables": 0,
    }
    show_status(Renderer(Output.TEXT), found, named=False)
    assert capsys.readouterr().out.splitlines() == [EMPTY_PLAN]


@pytest.mark.parametrize("connector", [CONNECTOR, "tributary_shop_slow_append"])
def test_connectors_show_that_a_store_without_tables_has_lost_them(
    services: Services, capsys: pytest.CaptureFixture[str], connector: str
) -> None:
    found = status(services, (), answers=told(services, "another", connector))
    assert found.failed
    assert found.empty_store is not None
    problem = found.empty_store.problem
    assert isinstance(problem, LostTablesError)
    assert f"has connector {connector} of this configuration" in problem.message
    assert str(services.store.shown_url) in problem.message
    assert f"drop slot {connector} and publication {connector} of source shop" in problem.remedy
    assert series(services, found)["tributary_connectors_without_tables"] == 1
    show_status(Renderer(Output.TEXT), found, named=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert EMPTY_PLAN not in shown
    assert "What to do: Check state.url." in shown
    assert found.to_json()["empty_store"]["connectors"] == [connector]


def test_connect_that_does_not_answer_is_said_and_is_no_failure(
    services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    found = status(services, (), answers=Told(services, away))
    assert not found.failed
    assert series(services, found) == {"tributary_tables": 0}
    show_status(Renderer(Output.TEXT), found, named=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert EMPTY_PLAN in shown
    assert "is not known, since Kafka Connect could not be asked: Kafka Connect did not" in shown


def test_connect_is_waited_for_a_limited_time(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "_CONNECTORS_S", 0.2)
    monkeypatch.setattr(services.connect, "names", lambda: time.sleep(5.0))
    began = time.monotonic()
    found = empty_store(services, Answers(services))
    assert time.monotonic() - began < 3.0
    assert found is not None
    assert not found.lost
    assert found.left is None


@pytest.mark.parametrize("state", [State.INCREMENTAL, State.RETIRED])
def test_a_store_that_has_a_record_is_not_empty(services: Services, state: State) -> None:
    services.store.put(table_record(state=state))
    assert empty_store(services, told(services, CONNECTOR)) is None
    if state is State.RETIRED:
        found = status(services, (), answers=told(services))
        assert series(services, found)["tributary_connectors_without_tables"] == 0


def test_the_first_onboarding_of_a_project_is_no_loss(services: Services) -> None:
    """The onboarding creates the connector before it records the table."""
    creating = Lease(services.store, "the capture of shop, tier default", "another process")
    creating.acquire()
    found = empty_store(services, told(services, CONNECTOR))
    assert found is not None
    assert not found.lost
    creating.release()
    found = empty_store(services, told(services, CONNECTOR))
    assert found is not None
    assert found.lost

    def recorded() -> list[str]:
        services.store.put(table_record())
        return [CONNECTOR]

    assert empty_store(services, Told(services, recorded)) is None


def test_runs_fail_and_end_without_the_tables_that_the_store_must_have(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.__dict__["run_context"] = SimpleNamespace(
        config=None,
        kafka=None,
        predictions=SimpleNamespace(fresh_at=None),
        unchecked=[],
        forgotten={},
    )
    for name in ("silences", "expiring", "shortfalls_now"):
        monkeypatch.setattr(run, name, lambda *_: [])
    monkeypatch.setattr(run, "Answers", lambda found: told(found, CONNECTOR))
    ended: list[bool] = []

    def continuously(_context: object, _records: object, stop: Any, **options: Any) -> None:
        options["watch"]()
        ended.append(stop.is_set())

    monkeypatch.setattr(run, "run_continuously", continuously)
    monkeypatch.setattr(run, "cancel_jobs", lambda _: None)
    runs = Runs(services, services.store.tables)
    assert runs.exit_code() is ExitCode.OK
    runs.repeat(1.0, *[lambda *_: None] * 4)
    assert ended == [True], "the process ends, so that whoever started it sees its exit code"
    assert runs.exit_code() is ExitCode.SOME_FAILED


def test_check_has_a_line_about_it(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    for look, expected in (
        (lambda: [CONNECTOR], ["error"]),
        (away, ["warning"]),
        (list, []),
    ):
        monkeypatch.setattr("operate.check.Answers", lambda found, look=look: Told(found, look))
        assert [line.status for line in _no_tables(services)] == expected
