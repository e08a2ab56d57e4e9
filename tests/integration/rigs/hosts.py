"""Simulated machines: processes that see a host name and a process list of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from stack.ports import HOST
from tests.integration.rigs.project import Project, command, environment

_USER = () if os.geteuid() == 0 else ("--user", "--map-root-user")
_IN = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'
"""Shell command that makes the tested command the first process of the simulated machine.

When the first process ends, the kernel kills all other processes of that machine.
"""
_END_S = 120.0


@dataclass(frozen=True)
class Host:
    """A simulated machine on which one command runs.

    Args:
        name: The host name of the simulated machine.
        process: A process on the real machine. When it ends, the simulated machine ends, too.
        log: The file with the output of the command.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """The output of the command in one line, whatever the width of the terminal."""
        return " ".join(self.log.read_text().split())

    def suspend(self) -> None:
        """Stop all that runs on the machine, as a hypervisor does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let everything on the machine go on."""
        self._signal(signal.SIGCONT)

    def cut_power(self) -> None:
        """End the machine at once: nothing on it runs anything more."""
        self._command().kill()
        self.process.wait(30)

    def end(self) -> int:
        """Ask the command to end, as its supervisor does; returns its exit code."""
        self._command().terminate()
        return self.process.wait(_END_S)

    def writes_below(self, folder: Path) -> bool:
        """Whether a process of the machine has a data file below a folder open for writing."""
        for one in self._processes():
            with contextlib.suppress(psutil.Error, FileNotFoundError):
                if any(_is_written(file, folder) for file in one.open_files()):
                    return True
        return False

    def _command(self) -> psutil.Process:
        (first,) = psutil.Process(self.process.pid).children()
        return first

    def _processes(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def _signal(self, number: signal.Signals) -> None:
        for one in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)


def _is_written(file: Any, folder: Path) -> bool:
    """Whether an open file, as psutil shows it, is a data file below a folder and writable."""
    writable = file.mode != "r"
    return writable and file.path.endswith(".parquet") and Path(file.path).is_relative_to(folder)


@contextlib.contextmanager
def host(name: str, project: Project, *arguments: str, log: Path) -> Iterator[Host]:
    """A simulated machine that runs ``tributary`` with these arguments for a block.

    Its processes cannot see the processes of other simulated machines or of the real one. Files
    and network are those of the real machine, like storage that machines share.
    """
    unshare = shutil.which("unshare")
    assert unshare is not None, "util-linux has the command that makes such a machine"
    kept = ("--uts", "--pid", "--mount-proc", "--fork", "--kill-child")
    known = log.with_suffix(".hosts")
    known.write_text(f"{Path('/etc/hosts').read_text()}\n{HOST} {name}\n")
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [
                unshare,
                *_USER,
                *kept,
                "sh",
                "-c",
                _IN,
                name,
                str(known),
                *command(project, *arguments),
            ],
            env=environment(None),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Host(name, process, log)
    finally:
        process.kill()
        process.wait(30)
