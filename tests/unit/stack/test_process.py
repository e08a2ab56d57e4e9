"""A server process is found again, distinguished from others, and ended with its children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cdc.store.lease_owner import started
from stack.errors import ServerDiedError, StackError
from stack.process import Command, ServerProcess
from stack.servers import wait_ready

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"],
                         start_new_session=True)
print(f"child {child.pid}", flush=True)  # at once: the test waits for the word
time.sleep(300)
"""


class Fake:
    """A server that is a Python script."""

    name = "fake"
    program = Path(sys.executable).resolve().name
    port = 1
    stop_signal = signal.SIGTERM
    stop_limit_s = 5.0
    ready_limit_s = 0.3

    def __init__(self, folder: Path, script: str) -> None:
        self.folder = folder
        self._script = script

    def command(self) -> Command:
        return Command((sys.executable, "-c", self._script), self.folder)

    def unhealthy(self) -> str | None:
        return "never ready"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    folder = tmp_path / "data"
    folder.mkdir()
    process = ServerProcess(
        "fake",
        program=Path(sys.executable).resolve().name,
        folder=folder,
        record=tmp_path / "fake.json",
        log=tmp_path / "fake.log",
    )
    yield process
    process.kill()


def command(server: ServerProcess, script: str) -> Command:
    return Command((sys.executable, "-c", script), server.folder)


def ended(pid: int) -> bool:
    """Whether the process has ended, even if its parent has not noticed it yet (a zombie)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_is_found_again_and_stopped(server: ServerProcess, tmp_path: Path) -> None:
    server.start(command(server, "import time; time.sleep(300)"))
    again = ServerProcess(
        "fake",
        program=server.program,
        folder=server.folder,
        record=tmp_path / "fake.json",
        log=server.log,
    )
    found = again.find()
    assert found is not None
    # It grows while the interpreter starts.
    until(lambda: server.memory_bytes() > 1_000_000)
    again.stop(signal.SIGTERM, 5)
    assert again.find() is None
    assert not again.was_started
    assert ended(found.pid)


def test_a_server_that_ignores_the_signal_is_killed(server: ServerProcess) -> None:
    server.start(
        command(
            server,
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            "print('deaf', flush=True); time.sleep(300)",
        )
    )
    until(lambda: "deaf" in server.log_tail())
    server.stop(signal.SIGTERM, 0.2)
    assert server.find() is None


def test_children_in_sessions_of_their_own_end_with_it(server: ServerProcess) -> None:
    server.start(command(server, PARENT))
    until(lambda: "child" in server.log_tail())
    child = int(server.log_tail().split()[-1])
    server.kill()
    until(lambda: ended(child))


def test_children_of_a_dead_server_are_found_by_its_folder(server: ServerProcess) -> None:
    server.start(command(server, PARENT))
    until(lambda: "child" in server.log_tail())
    child = int(server.log_tail().split()[-1])
    found = server.find()
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    until(lambda: server.find() is None)
    assert not ended(child)
    server.stop(signal.SIGTERM, 1)
    until(lambda: ended(child))


def test_a_server_is_ended_while_its_starter_has_not_taken_note(
    server: ServerProcess, tmp_path: Path
) -> None:
    # Another process started it and lives on, so what was killed stays a zombie for a while.
    starter = (
        "import pathlib, sys, time; from stack.process import Command, ServerProcess;"
        "data, record, log = map(pathlib.Path, sys.argv[1:]);"
        "p = ServerProcess('fake', program='python', folder=data, record=record, log=log);"
        "p.start(Command((sys.executable, '-c', 'import time; time.sleep(300)'), data));"
        "print('started', flush=True); time.sleep(300)"
    )
    record = tmp_path / "fake.json"
    with subprocess.Popen(
        [sys.executable, "-c", starter, str(server.folder), str(record), str(server.log)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        began = time.monotonic()
        server.kill()
        assert server.find() is None
        assert time.monotonic() - began < 5
        process.kill()


def test_another_program_in_its_folder_is_left_alone(server: ServerProcess) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=server.folder) as bystander:
        server.start(command(server, "import time; time.sleep(300)"))
        server.kill()
        assert bystander.poll() is None
        bystander.kill()


def test_a_reused_pid_is_not_taken_for_the_server(server: ServerProcess, tmp_path: Path) -> None:
    record = {"pid": os.getpid(), "started": started(os.getpid()) - 1}
    (tmp_path / "fake.json").write_text(json.dumps(record))
    assert server.find() is None
    server.kill()  # would end this test run if it took the pid for the server


def test_a_server_is_found_after_the_machines_clock_was_set(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.start(command(server, "import time; time.sleep(300)"))
    booted = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted - 5)
    assert server.find() is not None
    server.kill()


def test_a_torn_record_is_no_server(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "fake.json").write_text('{"pid"')
    assert server.find() is None


def test_the_log_of_the_run_before_is_kept(server: ServerProcess) -> None:
    for word in ("first", "second"):
        server.start(command(server, f"print('{word}', flush=True)"))
        until(lambda: server.find() is None)
    assert server.log_tail() == "second"
    assert server.log.with_suffix(".previous.log").read_text() == "first\n"


def test_a_program_that_is_missing_is_named(server: ServerProcess) -> None:
    with pytest.raises(StackError, match="cannot start /nonexistent/program"):
        server.start(Command(("/nonexistent/program",), server.folder))


def test_a_death_during_start_carries_the_end_of_the_log(server: ServerProcess) -> None:
    fake = Fake(server.folder, "print('out of luck', flush=True); raise SystemExit(3)")
    server.start(fake.command())
    fake.ready_limit_s = 30
    with pytest.raises(ServerDiedError, match=r"(?s)fake ended during its start.*out of luck"):
        wait_ready(fake, server)


def test_a_server_that_never_gets_ready_is_given_up(server: ServerProcess) -> None:
    fake = Fake(server.folder, "import time; time.sleep(300)")
    server.start(fake.command())
    with pytest.raises(ServerDiedError, match=r"not ready within 0 s: never ready"):
        wait_ready(fake, server)


def test_a_wait_ends_early_when_another_server_failed(server: ServerProcess) -> None:
    fake = Fake(server.folder, "import time; time.sleep(300)")
    fake.ready_limit_s = 300
    server.start(fake.command())
    abort = threading.Event()
    abort.set()
    with pytest.raises(StackError, match="the wait for fake was given up"):
        wait_ready(fake, server, abort=abort)
