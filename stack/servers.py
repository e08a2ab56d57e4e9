"""Watches, starts, stops and crashes any server of the stack, through one interface."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cdc.runtime.jars import Report
from cdc.runtime.waiting import wait_while
from stack.errors import ServerDiedError, StackError
from stack.process import Command, ServerProcess

_POLL_S = 0.1
_REPORT_EVERY_S = 10.0


class Server(Protocol):
    """The interface that each server of the stack has."""

    name: str
    program: str
    folder: Path
    port: int
    stop_signal: signal.Signals
    stop_limit_s: float
    ready_limit_s: float

    def command(self) -> Command:
        """The command that starts the stack's server."""

    def unhealthy(self) -> str | None:
        """The reason why the stack's server is not ready; None when it is ready."""


class Prepared(Server, Protocol):
    """A server of the stack whose files must be written before each start."""

    def prepare(self) -> None:
        """Write the files of the stack's server."""


@dataclass(frozen=True)
class ServerStatus:
    """The status of one server of the stack.

    Args:
        name: The server's name.
        port: Port that the server listens on.
        pid: The server's process id; None if the server does not run.
        memory_bytes: Resident memory of all of the server's processes, in bytes.
        state: ``healthy``, ``unhealthy``, ``dead`` (it ended by itself) or ``stopped``.
        detail: The reason why the server is ``unhealthy`` or ``dead``; for a dead server, also the
            last lines of its log. Empty if the server is ``healthy`` or ``stopped``.
    """

    name: str
    port: int
    pid: int | None
    memory_bytes: int
    state: str
    detail: str = ""


def status_of(server: Server, process: ServerProcess) -> ServerStatus:
    """Return the current status of a server of the stack.

    Args:
        server: The server.
        process: The server's process.
    """
    found = process.find()
    if found is not None:
        detail = server.unhealthy()
        state = "healthy" if detail is None else "unhealthy"
        memory = process.memory_bytes()
        return ServerStatus(server.name, server.port, found.pid, memory, state, detail or "")
    if process.was_started:
        detail = f"it ended by itself; the end of {process.log}:\n{process.log_tail()}"
        return ServerStatus(server.name, server.port, None, 0, "dead", detail)
    return ServerStatus(server.name, server.port, None, 0, "stopped")


class RunningServer:
    """A handle on one server of the stack, to crash and restart the server.

    Args:
        server: The server.
        process: The server's process.
    """

    def __init__(self, server: Server, process: ServerProcess) -> None:
        self._server = server
        self._process = process

    @property
    def pid(self) -> int | None:
        """The process id of the stack's server; None if the server does not run."""
        process = self._process.find()
        return process.pid if process else None

    def kill(self) -> None:
        """Kill the stack's server with SIGKILL, as a crash would."""
        self._process.crash()

    def stop(self) -> None:
        """Stop the stack's server as an operator would."""
        self._process.stop(self._server.stop_signal, self._server.stop_limit_s)

    def start(self) -> None:
        """Start the stack's server unless it runs, and wait until it is ready."""
        if self._process.find() is None:
            self._process.start(self._server.command())
        wait_ready(self._server, self._process)

    def restart(self) -> None:
        """Stop the stack's server as an operator would, start it, and wait until it is ready."""
        self.stop()
        self.start()

    def log_tail(self, lines: int = 25) -> str:
        """Return the last lines of the output of the stack's server."""
        return self._process.log_tail(lines)


def wait_ready(
    server: Server,
    process: ServerProcess,
    report: Report | None = None,
    abort: threading.Event | None = None,
) -> None:
    """Wait until a started server of the stack is ready.

    Args:
        server: The server.
        process: The server's process.
        report: Receives lines of progress.
        abort: An event that ends the wait early. The caller sets it if another server fails.

    Raises:
        ServerDiedError: The server ended or was not ready in time. The message has the last lines
            of the server's log.
        StackError: The wait ended early.
    """
    started = reported = time.monotonic()

    def problem() -> str | None:
        nonlocal reported
        if process.find() is None:
            raise _server_died_error(server, process, "ended during its start")
        found = server.unhealthy()
        now = time.monotonic()
        if found is not None and report is not None and now - reported > _REPORT_EVERY_S:
            reported = now
            report(f"waiting for {server.name}: {found} ({now - started:.0f} s)")
        return found

    left = wait_while(problem, timeout_s=server.ready_limit_s, poll_s=_POLL_S, stop=abort)
    took = time.monotonic() - started
    if not left:
        if report is not None:
            report(f"{server.name} ready on port {server.port} ({took:.1f} s)")
        return
    if took < server.ready_limit_s:
        raise StackError(
            f"the wait for {server.name} was given up, since another server failed: {left}",
            remedy="Look at the first error; `tributary stack status` shows the others.",
        )
    raise _server_died_error(
        server, process, f"was not ready within {server.ready_limit_s:.0f} s: {left}"
    )


def _server_died_error(server: Server, process: ServerProcess, what: str) -> ServerDiedError:
    """Return the error for a server of the stack that ended, or was not ready in time."""
    return ServerDiedError(
        f"{server.name} {what}; the end of {process.log}:\n{process.log_tail()}",
        remedy="Act on the log's last lines, then run `tributary stack up` again; `tributary stack"
        " down` stops the running servers.",
        server=server.name,
    )
