"""The process between a task and its command."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.scripted import BOUND_S, Scripted, alive, wait_until
from tributary_airflow.command import Program
from tributary_airflow.guard import NOT_EXECUTABLE, NOT_FOUND


def start(scripted: Scripted, stop_s: float = 10.0) -> subprocess.Popen[bytes]:
    program = Program(str(scripted.file), stop_s=stop_s)
    return subprocess.Popen(
        program.guarded("run"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_output_and_exit_code_are_those_of_the_command(scripted: Scripted) -> None:
    scripted.answer("run", code=3, documents=({"tables": []},), stderr="a line\n")
    guard = start(scripted)
    assert guard.wait(BOUND_S) == 3
    assert guard.stdout is not None
    assert guard.stderr is not None
    assert (guard.stdout.read(), guard.stderr.read()) == (b'{"tables": []}\n', b"a line\n")


def test_sigterm_reaches_the_command_which_ends_in_peace(scripted: Scripted) -> None:
    scripted.answer("run", seconds=60)
    guard = start(scripted)
    wait_until(lambda: scripted.pid, "the command began")
    guard.terminate()
    assert guard.wait(BOUND_S) == 128 + signal.SIGTERM
    assert scripted.stopped


def test_a_command_that_does_not_end_is_killed_after_the_bound(scripted: Scripted) -> None:
    scripted.answer("run", seconds=60, deaf=True)
    guard = start(scripted, stop_s=0.5)
    wait_until(lambda: scripted.pid, "the command began")
    guard.terminate()
    assert guard.wait(BOUND_S) == 128 + signal.SIGKILL
    assert scripted.pid is not None
    assert not alive(scripted.pid)


def test_a_command_ends_with_the_process_that_started_it(scripted: Scripted) -> None:
    """As if a worker was killed: nobody sends SIGTERM, and the pipes are closed."""
    scripted.answer("run", seconds=60, documents=({"much": "x" * 200_000},))
    words = Program(str(scripted.file), stop_s=10.0).guarded("run")
    code = f"import subprocess, time; subprocess.Popen({words!r}, stdin=subprocess.PIPE,"
    code += " stdout=subprocess.PIPE, stderr=subprocess.PIPE); time.sleep(60)"
    worker = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: scripted.pid, "the command began")
    worker.kill()
    worker.wait(BOUND_S)
    wait_until(lambda: scripted.stopped, "the command ended in peace")


def test_a_command_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for binary, code in ((tmp_path / "none", NOT_FOUND), (plain, NOT_EXECUTABLE)):
        done = subprocess.run(
            Program(str(binary)).guarded("run"),
            capture_output=True,
            stdin=subprocess.PIPE,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, b"")
