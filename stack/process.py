"""Starts the process of a server in the background, finds it again, watches and stops it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cdc.runtime.waiting import wait_while
from cdc.store.lease_owner import started
from stack.errors import StackError

# Handles of the servers that this process has started, so that ended ones are reaped without a
# ResourceWarning.
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
_KILL_LIMIT_S = 20.0


@dataclass(frozen=True)
class Command:
    """The command that starts a server of the stack.

    Args:
        argv: Program and arguments. They must contain no secret, since every user can read them.
        folder: Working directory, which no other server uses. A process that runs the program in
            this directory belongs to the server.
        environment: Environment variables that the server gets besides those of this process.
    """

    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)


class ServerProcess:
    """The process of a stack's server, whose pid and start time are recorded in a file.

    Args:
        name: The server's name.
        program: File name of the server's program, for example ``java``.
        folder: The server's working directory.
        record: The file with the pid and the start time.
        log: The file of the server's output.
    """

    def __init__(self, name: str, *, program: str, folder: Path, record: Path, log: Path) -> None:
        self.name = name
        self.program = program
        self.folder = folder
        self.log = log
        self._record = record

    def start(self, command: Command) -> None:
        """Start the stack's server in a session of its own, so that it outlives this process.

        Raises:
            StackError: The program cannot be started.
        """
        self.kill()
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".previous.log"))
        with self.log.open("wb") as log:
            try:
                process = subprocess.Popen(  # noqa: S603 - an argument list of our own, no shell
                    command.argv,
                    cwd=command.folder,
                    env={**os.environ, **command.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise StackError(
                    f"{self.name}: cannot start {command.argv[0]}: {error.strerror}",
                    remedy="Check that the program exists and that this user may run it.",
                ) from error
        _reap_servers()
        _CHILDREN[process.pid] = process
        with contextlib.suppress(psutil.NoSuchProcess):
            record = {"pid": process.pid, "started": started(process.pid)}
            self._record.write_text(json.dumps(record), "utf-8")

    @property
    def was_started(self) -> bool:
        """Whether the stack's server was started and not stopped; a crash is not a stop."""
        return self._record.exists()

    def find(self) -> psutil.Process | None:
        """Return the stack server's recorded process; None if the process does not run.

        A process with the recorded pid but another start time is a different process.
        """
        try:
            record = json.loads(self._record.read_text("utf-8"))
            process = psutil.Process(record["pid"])
            if started(process.pid) != record.get("started") or _server_has_ended(process):
                return None
        except (FileNotFoundError, json.JSONDecodeError, psutil.NoSuchProcess):
            return None
        return process

    def memory_bytes(self) -> int:
        """Return the resident memory of all processes of a stack's server, in bytes.

        A memory page that several processes share is counted for each of them.
        """
        total = 0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def stop(self, sign: signal.Signals, limit_s: float) -> None:
        """Send the stack's server a signal, wait for its end, and kill its remaining processes."""
        family = self._family()
        if process := self.find():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(sign)
            wait_while(self.find, timeout_s=limit_s, poll_s=0.05)
        self._end(family)

    def kill(self) -> None:
        """End the stack server's processes at once with SIGKILL, if any run."""
        self._end(self._family())

    def crash(self) -> None:
        """Kill the stack's server as a crash would; ``status`` then shows it as dead."""
        self._end(self._family(), forget=False)

    def log_tail(self, lines: int = 25) -> str:
        """Return the last lines of the stack server's output."""
        try:
            text = self.log.read_bytes()[-20_000:].decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _family(self) -> list[psutil.Process]:
        """Return all processes of a stack's server.

        These are the recorded process, its descendants, and each process that runs the server's
        program in the server's folder. For example, PostgreSQL's child processes outlive a killed
        postmaster for a moment, and are then found by program and folder.
        """
        found: dict[int, psutil.Process] = {}
        if process := self.find():
            found[process.pid] = process
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {child.pid: child for child in process.children(recursive=True)}
        folder = str(self.folder.resolve())
        for stray in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                ours = stray.pid not in found and Path(stray.exe()).name == self.program
                if ours and stray.cwd() == folder:
                    found[stray.pid] = stray
        return list(found.values())

    def _end(self, family: list[psutil.Process], *, forget: bool = True) -> None:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if alive := wait_while(
            lambda: [process.pid for process in family if not _server_has_ended(process)],
            timeout_s=_KILL_LIMIT_S,
            poll_s=0.02,
        ):
            raise StackError(
                f"{self.name}: processes {alive} did not end within {_KILL_LIMIT_S:.0f} s",
                remedy="See `ps`: they wait for the disk, or belong to another user.",
            )
        if forget:
            self._record.unlink(missing_ok=True)


@atexit.register
def _reap_servers() -> None:
    """Reap the stack's servers that this process started and that have ended."""
    for pid, child in list(_CHILDREN.items()):
        if child.poll() is not None:
            _CHILDREN.pop(pid, None)


def _server_has_ended(process: psutil.Process) -> bool:
    """Whether a stack server's process is gone, or is a zombie that its parent has not reaped."""
    if child := _CHILDREN.get(process.pid):
        if child.poll() is None:
            return False
        # It is reaped, so from now on the pid can belong to another process.
        _CHILDREN.pop(process.pid, None)
        return True
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
