"""What a task sees of a command that runs: lines of progress, JSON, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from tests.scripted import Scripted, alive, wait_until
from tributary_airflow.command import Program, environment
from tributary_airflow.process import Running, ask, documents, shown

CANARY = "canary-4711"


@pytest.mark.parametrize(
    "line",
    [
        "copy shop:public.orders: 600,000 of 2,000,000 rows, 150,000 rows/s, 9 s left",
        "run shop:public.orders: done, 1,204 offsets, took 3 s",
        "wait for a heartbeat of connector shop_default: 12 s",
        "wait for the source: 1 min 20 s",
        "compare shop:public.orders again, round 2: 4 of 9 keys",
    ],
)
def test_lines_of_progress_are_shown(line: str) -> None:
    assert shown(line, messages=False) == line
    assert shown(f"{line}; the server says {CANARY}", messages=False) == line


@pytest.mark.parametrize(
    "line",
    [
        f"ERROR: duplicate key value violates a constraint, Key (id)=({CANARY}) exists: 5 rows",
        f"java.lang.RuntimeException: 5 {CANARY}",
        f"Warning: {CANARY}",
        f"copy of {CANARY} failed",
        "",
    ],
)
def test_other_lines_are_not_shown_unless_the_connection_asks_for_them(line: str) -> None:
    assert shown(line, messages=False) is None
    assert shown(line, messages=True) == (line or None)


def test_of_a_logged_message_only_its_place_is_shown() -> None:
    line = f"2026-11-28 10:00:00,123 WARNING cdc.run.table: a server says {CANARY}"
    assert shown(line, messages=False) == "WARNING of cdc.run.table"


def test_output_that_is_no_json_is_no_document() -> None:
    assert documents(b'{"a": 1}\n\n[2]\n', whole=True) == (({"a": 1}, [2]), True)
    assert documents(b'{"a": 1}\n{"b', whole=True) == (({"a": 1},), False)
    assert documents(b'{"a": 1}\n', whole=False) == (({"a": 1},), False)


def test_a_run_gives_its_lines_its_json_and_its_code(scripted: Scripted, tmp_path: Path) -> None:
    line = "copy shop:public.orders: 5 of 9 rows"
    scripted.answer("run", code=3, documents=({"tables": []},), stderr=f"{line}\n{CANARY}\n")
    told = list[str]()
    program = Program(str(scripted.file), str(tmp_path), "t.yaml")
    ran = Running(program, ("run", "--", "public.orders"), told.append).run()
    assert (ran.code, ran.document, ran.readable) == (3, {"tables": []}, True)
    assert told == [line]
    assert scripted.calls == [["run", "--", "public.orders"]]
    assert scripted.folders == [str(tmp_path)]


def test_a_command_in_silence_gives_signs_of_life(scripted: Scripted) -> None:
    scripted.answer("run", seconds=1.0)
    told = list[str]()
    Running(Program(str(scripted.file)), ("run",), told.append, silence_s=0.2).run()
    assert told[0] == "tributary run: still running after 0 s"
    assert len(told) >= 2


def test_a_stop_from_another_thread_waits_until_the_command_has_ended(scripted: Scripted) -> None:
    """As `on_kill` of a task does, amid `execute`."""
    scripted.answer("run", seconds=60)
    running = Running(Program(str(scripted.file)), ("run",), lambda _: None)

    def stop() -> None:
        wait_until(lambda: scripted.pid, "the command began")
        running.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    ran = running.run()
    stopper.join()
    assert ran.code == 143
    assert scripted.stopped


def test_the_environment_has_no_secret_of_airflow() -> None:
    known = {
        "AIRFLOW__CORE__FERNET_KEY": CANARY,
        "AIRFLOW_CONN_DB": CANARY,
        "AIRFLOW_HOME": "/home",
        "_AIRFLOW_PROCESS_CONTEXT": "client",
        "PYTHONPATH": "/airflow",
        "SHOP_PASSWORD": "s",
        "PATH": "/bin",
    }
    assert environment(known) == {"SHOP_PASSWORD": "s", "PATH": "/bin"}


def test_the_command_gets_the_environment_of_the_worker(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    scripted.answer("run")
    Running(Program(str(scripted.file)), ("run",), lambda _: None).run()
    (names,) = scripted.environments
    assert "SHOP_PASSWORD" in names
    assert [name for name in names if name.startswith("AIRFLOW")] == []


def test_a_question_has_a_bound_and_its_command_does_not_outlive_it(scripted: Scripted) -> None:
    scripted.answer("status", seconds=60)
    program = Program(str(scripted.file))
    began = time.monotonic()
    assert asyncio.run(ask(program, ("status",), bound_s=1.0)) is None
    assert time.monotonic() - began < 15
    wait_until(lambda: scripted.stopped, "the command ended in peace")


def test_a_question_that_is_cancelled_leaves_no_command(scripted: Scripted) -> None:
    scripted.answer("status", seconds=60)

    async def cancelled() -> None:
        asking = asyncio.create_task(ask(Program(str(scripted.file)), ("status",), bound_s=60))
        while scripted.pid is None:
            await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while not scripted.stopped:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)

    asyncio.run(cancelled())
    assert scripted.pid is not None
    wait_until(lambda: scripted.stopped, "the command ended in peace")
    wait_until(lambda: not alive(scripted.pid or 0), "the command is gone")


def test_a_question_gets_its_answer(scripted: Scripted) -> None:
    scripted.answer("status", code=4, documents=({"tables": []},))
    ran = asyncio.run(ask(Program(str(scripted.file)), ("status",), bound_s=30))
    assert ran is not None
    assert (ran.code, ran.document) == (4, {"tables": []})
