"""The load generator sysbench, from the PATH or Debian's package, on a test's own database."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack.debian import Package, unpack, unpacked
from stack.errors import UnavailableError
from stack.ports import HOST
from stack.postgres import POSTGRES
from stack.roles import ADMIN
from tests.conftest import SERVERS
from tests.integration.rigs.databases import OwnDatabase

TABLES = 4
ROWS = 20_000
THREADS = 4
RATE = 50
"""Transactions per second, of four changes each; without a limit, no capture would keep up."""
_PACKAGE = Package("sysbench")


@dataclass(frozen=True)
class Program:
    """The program sysbench.

    Args:
        path: Path of the program.
        root: Folder of the unpacked package, or None if sysbench is installed.
    """

    path: Path
    root: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables by which an unpacked sysbench finds its libraries and scripts."""
        if self.root is None:
            return {}
        libraries = next((self.root / "usr" / "lib").glob("*-linux-gnu*"))
        return {
            "LD_LIBRARY_PATH": str(libraries),
            "LUA_PATH": f"{self.root}/usr/share/sysbench/?.lua",
            # The ways to log in of the client's library.
            "MARIADB_PLUGIN_DIR": str(libraries / "libmariadb3" / "plugin"),
        }

    def script(self, name: str) -> str:
        """The name or path of a workload that comes with sysbench."""
        return name if self.root is None else f"{self.root}/usr/share/sysbench/{name}.lua"


def find_sysbench(config: pytest.Config) -> Program:
    """Find sysbench on this machine, or fetch it.

    If there is none, the test is skipped, and the report of the test run says so.
    """
    if found := shutil.which("sysbench"):
        return Program(Path(found))
    try:
        root = unpacked(_PACKAGE) or unpack(_PACKAGE)
    except UnavailableError as error:
        config.stash.setdefault(SERVERS, {})["sysbench"] = f"NOT AVAILABLE: {error.message}"
        pytest.skip("no sysbench on this machine; see the report's end")
    return Program(root / "usr" / "bin" / "sysbench", root)


@dataclass(frozen=True)
class Sysbench:
    """The workload ``oltp_read_write`` on one database.

    Args:
        program: The program sysbench.
        database: The database that the workload writes to.
        folder: Holds the settings and the output of sysbench.
    """

    program: Program
    database: OwnDatabase
    folder: Path

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables that the workload creates and writes to."""
        return tuple(f"sbtest{number}" for number in range(1, TABLES + 1))

    def prepare(self) -> None:
        """Create the tables and fill them."""
        done = subprocess.run(
            self._command("prepare"),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    @contextlib.contextmanager
    def load(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run transactions for as long as the block runs."""
        command = self._command("run", "--time=1800", f"--rate={RATE}", "--report-interval=10")
        with self.log.open("wb") as sink:
            process = subprocess.Popen(
                command, env=self._environment, stdout=sink, stderr=subprocess.STDOUT
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)

    @property
    def log(self) -> Path:
        """The file with the output of sysbench."""
        return self.folder / "sysbench.log"

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.program.environment}

    def _command(self, action: str, *options: str) -> list[str]:
        return [
            str(self.program.path),
            f"--config-file={self._settings()}",
            self.program.script("oltp_read_write"),
            f"--tables={TABLES}",
            f"--table-size={ROWS}",
            f"--threads={THREADS}",
            *options,
            action,
        ]

    def _settings(self) -> Path:
        """The options of sysbench; the password is in a file that only the owner can read."""
        stack, kind = self.database.stack, self.database.kind
        driver, server = ("pgsql", "primary") if kind == POSTGRES else ("mysql", kind)
        settings = {
            "db-driver": driver,
            f"{driver}-host": HOST,
            f"{driver}-port": stack.addresses().ports[server],
            f"{driver}-user": ADMIN,
            f"{driver}-password": stack.passwords.get(ADMIN),
            f"{driver}-db": self.database.name,
        }
        file = self.folder / "sysbench.cnf"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file
