"""The exit code of a run, depending on the states of its tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import stamina
import typer
import yaml

from cdc.config import parse
from cdc.errors import KafkaError, PausedByPolicyError, StateError
from cdc.run import run_continuously
from cdc.runtime import task_watch
from cdc.runtime.progress import NullProgress
from cdc.store.lease import Lease
from cdc.store.table_state import Cause, State, TableRecord, transition
from operate import run
from operate.cli.operations import _repeat, _require_read
from operate.context import Services
from operate.exit_codes import ExitCode
from operate.lifecycle import resume
from operate.onboard import register
from operate.render import Output, Renderer
from operate.run import FailedCheck, Runs
from operate.status import Status, TableStatus
from operate.targets import Shortfall
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

if TYPE_CHECKING:
    from cdc.run import RunContext

TABLE = TableId("shop", "public", "orders")


@pytest.fixture(autouse=True)
def repetitions_do_not_wait() -> Iterator[None]:
    """Repeat failed requests to Connect as often as in production, but without pauses."""
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def with_run_context(services: Services) -> None:
    """Give services a context of runs without Kafka."""
    services.__dict__["run_context"] = SimpleNamespace(
        config=services.config,
        kafka=None,
        predictions=SimpleNamespace(fresh_at=None),
        forgotten={},
        unchecked=[],
    )


def put(services: Services, **facts: Any) -> None:
    """Put the table on the plan, with these facts in its record."""
    register(services, TABLE)
    record = services.store.get(TABLE)
    assert record is not None
    services.store.put(replace(record, **facts))


@pytest.mark.parametrize(
    ("was", "generation", "code"),
    [
        (State.BOOTSTRAPPING, 1, ExitCode.OK),
        (State.CATCHING_UP, 1, ExitCode.OK),
        (State.BOOTSTRAPPING, 2, ExitCode.SOME_FAILED),
        (State.INCREMENTAL, 1, ExitCode.SOME_FAILED),
    ],
)
def test_a_table_that_was_never_taken_is_no_failure_of_a_run(
    services: Services, was: State, generation: int, code: ExitCode
) -> None:
    """A table whose first copy fails is named by each run, but does not fail the run.

    The table's values may stop every copy until somebody changes its settings.
    """
    put(services, state=State.FAILED, resume_to=was, generation=generation)
    runs = Runs(services, services.store.tables)
    assert runs.exit_code() is code
    assert [one.table for one in runs.waiting()] == [TABLE]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PausedByPolicyError("a TRUNCATE; on_truncate is pause", remedy="r"), ExitCode.SOME_FAILED),
        (None, ExitCode.OK),
    ],
    ids=["a setting", "a person"],
)
def test_a_table_that_a_setting_has_paused_is_a_failure_until_it_is_resumed(
    services: Services, error: PausedByPolicyError | None, code: ExitCode
) -> None:
    """The line in one run's output is easily missed, and later runs do not touch the table."""
    put(services, state=State.INCREMENTAL)
    (record,) = services.store.tables()
    cause = Cause("a reason", error, "r")
    services.store.put(transition(record, State.PAUSED, at=record.updated_at, cause=cause))
    runs = Runs(services, services.store.tables)
    assert runs.exit_code() is code
    shown = TableStatus(services.store.tables()[0], None, None, None, 60)
    assert Status((shown,), ()).failed is (code is ExitCode.SOME_FAILED)
    resume(services, TABLE)
    assert runs.exit_code() is ExitCode.OK


@pytest.mark.parametrize("state", [State.BOOTSTRAPPING, State.CATCHING_UP])
@pytest.mark.parametrize("generation", [1, 2])
def test_a_table_with_readers_whose_copy_nobody_continues_needs_a_bootstrap(
    services: Services, state: State, generation: int
) -> None:
    put(services, state=state, generation=generation)
    runs = Runs(services, services.store.tables)
    copying = Lease(services.store, TABLE, "another process")
    copying.acquire()
    assert runs.exit_code() is ExitCode.OK
    copying.release()
    published = generation > 1
    assert runs.exit_code() is (ExitCode.NEEDS_BOOTSTRAP if published else ExitCode.OK)


def test_one_run_looks_at_captures_once_its_tables_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    done: list[str] = []
    with_run_context(services)
    monkeypatch.setattr(run, "run_tables", lambda *_: done.append("tables") or [])
    monkeypatch.setattr(run, "empty_store", lambda *_: done.append("store"))
    monkeypatch.setattr(run, "silences", lambda *_: done.append("captures") or [])
    monkeypatch.setattr(run, "expiring", lambda *_: done.append("topics") or [])
    missed = Shortfall("runs", True, (TABLE,), "no commit", ("wait",))
    monkeypatch.setattr(run, "shortfalls_now", lambda *_: done.append("targets") or [missed])
    try:
        runs = Runs(services, services.store.tables)
        assert runs.exit_code() is ExitCode.OK
        assert runs.once() == []
        assert done == ["tables", "store", "captures", "topics", "targets"]
        assert runs.targets == [missed]
        assert runs.exit_code() is ExitCode.SOME_FAILED
    finally:
        services.close()


def test_workers_without_transactions_count_and_prove_no_period(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(services)
    announced: list[str] = []
    with_run_context(services)
    for name in ("silences", "expiring", "shortfalls_now", "forgotten_tables", "over_limits"):
        monkeypatch.setattr(run, name, lambda *_: [])
    monkeypatch.setattr(run, "keep_looks", lambda *_: None)
    monkeypatch.setattr(run, "announce_periods", lambda *_: announced.append("periods"))
    worker = SimpleNamespace(exactly_once=False)
    monkeypatch.setattr(Services, "connect", SimpleNamespace(worker=lambda: worker))
    runs = Runs(services, services.store.tables)
    runs.watch()
    (wrong,) = runs.failed_checks
    assert wrong.message.startswith("connect.exactly_once is true, but Kafka Connect's workers")
    assert announced == []
    assert runs.exit_code() is ExitCode.SOME_FAILED
    worker.exactly_once = True
    runs.watch()
    assert (runs.failed_checks, announced) == ([], ["periods"])
    assert runs.exit_code() is ExitCode.OK


@pytest.mark.parametrize("failing", ["pause_due", "silences", "expiring", "shortfalls_now"])
def test_a_check_that_fails_hides_no_other_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    services = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    with_run_context(services)
    done: list[str] = []

    def check(name: str) -> Callable[..., list[Any]]:
        def checked(*_: object) -> list[Any]:
            done.append(name)
            if name == failing and len(done) <= len(names):
                raise KafkaError("a topic has no leader", remedy="Elect one.")
            return []

        return checked

    names = ("pause_due", "silences", "expiring", "shortfalls_now")
    for name in names:
        monkeypatch.setattr(run, name, check(name))
    try:
        runs = Runs(services, services.store.tables)
        runs.watch()
        assert done == [*names]
        (failed,) = runs.failed_checks
        assert "could not be checked: a topic has no leader" in failed.message
        assert failed.to_json()["remedy"] == "Elect one."
        assert runs.exit_code() is ExitCode.SOME_FAILED
        runs.watch()
        assert (runs.failed_checks, runs.exit_code()) == ([], ExitCode.OK)
    finally:
        services.close()


@pytest.mark.parametrize("output", [Output.TEXT, Output.JSON])
def test_a_check_that_fails_between_two_rounds_is_shown_until_it_is_possible_again(
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    output: Output,
) -> None:
    with_run_context(services)
    answers: list[list[Any] | KafkaError] = []
    rounds: list[list[Any] | KafkaError]
    rounds = [[], _no_leader("a"), _no_leader("a"), _no_leader("b"), []]

    def checked(*_: object) -> list[Any]:
        answer = answers[0]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    monkeypatch.setattr(run, "silences", checked)
    for name in ("expiring", "shortfalls_now"):
        monkeypatch.setattr(run, name, lambda *_: [])
    renderer, shown = Renderer(output), list[str]()

    def repeated(*_: object, watch: Callable[[], None], **__: object) -> None:
        for answer in rounds:
            answers[:] = [answer]
            watch()
            shown.append(capsys.readouterr().out.strip())

    monkeypatch.setattr(run, "run_continuously", repeated)
    monkeypatch.setattr(run, "empty_store", lambda *_: None)
    monkeypatch.setattr(run, "cancel_jobs", lambda _: None)
    _repeat(renderer, Runs(services, services.store.tables), 5.0)
    first, again, other, last = shown[1:]
    assert (shown[0], again) == ("", ""), "only what has changed is shown"
    for text, topic in ((first, "a"), (other, "b")):
        assert "captures could not be checked" in text
        assert f"topic {topic} has no leader" in text
    if output is Output.JSON:
        (failed,) = json.loads(first)["failed_checks"]
        assert failed["what"] == "captures"
        assert json.loads(last) == {"failed_checks": []}
    else:
        assert "What to do: Elect one." in first
        assert last == "All checks are possible again."


def _no_leader(topic: str) -> KafkaError:
    return KafkaError(f"topic {topic} has no leader", remedy="Elect one.")


@pytest.mark.timeout(60)
def test_runs_end_as_failed_once_cores_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further try of a table whose task never ends would take one more core."""
    services = Services(parse(yaml.safe_dump(minimal()), base=tmp_path), NullProgress())
    stop, asked = threading.Event(), list[int]()

    def records() -> list[TableRecord]:
        asked.append(1)
        monkeypatch.setattr(task_watch, "_held", 1)
        return []

    context = cast("RunContext", services)  # without tables nothing of it is used
    try:
        run_continuously(context, records, stop, min_interval_s=0.0)
        assert len(asked) == 1
        assert not stop.is_set()
        assert Runs(services, services.store.tables).exit_code() is ExitCode.SOME_FAILED
    finally:
        services.close()


@pytest.mark.timeout(60)
def test_runs_end_as_failed_once_something_fails_and_a_secret_has_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client reads its password only once, but a new process reads it again."""
    secret = tmp_path / "password"
    secret.write_text("former")
    document = minimal()
    document["connect"] = {
        **document.get("connect", {}),
        "username": "u",
        "password": f"${{file:{secret}}}",
    }
    services = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    stop, asked = threading.Event(), list[int]()

    def records() -> list[TableRecord]:
        asked.append(1)
        if len(asked) == 2:
            secret.write_text("rotated")
        raise StateError("the state store is not usable", remedy="")

    context = cast("RunContext", services)  # without tables nothing of it is used
    try:
        run_continuously(context, records, stop, min_interval_s=0.0)
        assert len(asked) == 2, "an outage alone ends nothing"
        assert not stop.is_set()
        assert services.secret_files.changed == (str(secret),)
        with pytest.raises(typer.Exit) as ended:
            _require_read(Renderer(Output.TEXT), services.secret_files.changed)
        assert ended.value.exit_code == ExitCode.SOME_FAILED
        assert "changed since this process has read it" in capsys.readouterr().out
    finally:
        services.close()


@pytest.mark.parametrize("store_away", [False, True])
def test_a_run_that_finds_no_work_looks_at_its_captures_nevertheless(
    services: Services, monkeypatch: pytest.MonkeyPatch, *, store_away: bool
) -> None:
    """While Kafka is down, a slot can fill the disk of the primary, so runs must report it."""
    with_run_context(services)
    looked: list[str] = []

    def away(*_: object) -> Any:
        raise KafkaError("Kafka does not answer", remedy="Start it.")

    def no_store() -> Any:
        raise StateError("the state store does not answer", remedy="Start it.")

    monkeypatch.setattr(run, "run_tables", away)
    for name in ("silences", "expiring", "shortfalls_now"):
        monkeypatch.setattr(run, name, away)
    monkeypatch.setattr(Runs, "_look_at_logs", lambda *_: looked.append("logs"))
    monkeypatch.setattr(Runs, "_forget_history", lambda *_: None)
    put(services, state=State.INCREMENTAL)
    records = services.store.tables()
    runs = Runs(services, no_store if store_away else lambda: records)
    with pytest.raises(StateError if store_away else KafkaError):
        runs.once()
    if not store_away:
        assert looked == ["logs"]
        assert "captures" in [one.what for one in runs.failed_checks]


def test_a_look_ends_at_the_step_in_which_the_signal_arrives(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step can wait for servers, and systemd kills a process that does not end in time."""
    stop, looked = threading.Event(), list[str]()

    def slow(*_: object) -> list[Any]:
        looked.append("captures")
        stop.set()
        return []

    services.__dict__["run_context"] = SimpleNamespace(forgotten={})
    monkeypatch.setattr(run, "forgotten_tables", lambda *_: [])
    monkeypatch.setattr(run, "silences", slow)
    monkeypatch.setattr(run, "expiring", lambda *_: looked.append("topics"))
    put(services, state=State.INCREMENTAL)
    runs = Runs(services, services.store.tables)
    known = FailedCheck("expiring topics", "a topic has no leader", "Elect one.")
    runs.failed_checks = [known]
    assert not runs.watch(stop)
    assert looked == ["captures"]
    assert runs.failed_checks == [known], "nobody knows that the check is possible again"


def test_targets_are_judged_by_the_records_of_that_moment(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps before can take minutes, in which a table commits."""
    judged = list[object]()
    with_run_context(services)
    for name in ("forgotten_tables", "silences", "expiring", "over_limits"):
        monkeypatch.setattr(run, name, lambda *_: [])
    monkeypatch.setattr(run, "shortfalls_now", lambda *given: judged.append(given[3]) or [])
    put(services, state=State.INCREMENTAL)
    record = services.store.tables()
    looks = iter([record, [], [], []])
    Runs(services, lambda: next(looks)).watch()
    assert judged == [[]]
