"""How `tributary` is called: the command lines, the environment, and the guard process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GUARD = Path(__file__).with_name("guard.py")
STOP_S = 60.0
"""Seconds between SIGTERM and SIGKILL. After SIGTERM, `tributary` takes up to 40 s to end Spark."""
PRIVATE = ("AIRFLOW", "_AIRFLOW", "_PYTHON_OPERATOR")
"""Prefixes of the variables with Airflow's own settings and secrets, which no command needs."""
OTHER_PYTHON = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"})
"""Variables about Airflow's Python; the command has an environment of its own."""


@dataclass(frozen=True)
class Program:
    """Where `tributary` is installed, and how it is called; no field has a secret.

    Args:
        binary: Path or name of the command.
        directory: The working directory; None for that of the worker.
        config: Path of tributary.yaml; None if the command finds the file by itself.
        messages: Whether Airflow gets the messages of errors, which can quote values of rows.
        stop_s: Seconds between SIGTERM and SIGKILL.
    """

    binary: str = "tributary"
    directory: str | None = None
    config: str | None = None
    messages: bool = False
    stop_s: float = STOP_S

    def argv(self, *words: str) -> list[str]:
        """Return the argument vector of a command with JSON output."""
        config = [] if self.config is None else ["--config", self.config]
        options, tables = _split(words)
        end = ["--", *tables] if tables else []
        return [self.binary, *options, "--output", "json", *config, *end]

    def guarded(self, *words: str) -> list[str]:
        """Return the argument vector that runs a command under its guard."""
        return [sys.executable, "-I", str(GUARD), str(self.stop_s), *self.argv(*words)]

    def to_json(self) -> dict[str, Any]:
        """Return the program as plain values, for a trigger."""
        return {
            "binary": self.binary,
            "directory": self.directory,
            "config": self.config,
            "messages": self.messages,
            "stop_s": self.stop_s,
        }


def _split(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the words before and after ``--``: a command with options, and tables."""
    listed = list(words)
    if "--" not in listed:
        return listed, []
    place = listed.index("--")
    return listed[:place], listed[place + 1 :]


def environment(of: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command: the worker's, without Airflow's own variables.

    A secret that tributary.yaml references as ``${NAME}`` reaches the command only in this
    environment.
    """
    known = os.environ if of is None else of
    return {
        name: value
        for name, value in known.items()
        if not name.startswith(PRIVATE) and name not in OTHER_PYTHON
    }


def onboard(tables: Iterable[str], *, strict: bool = False) -> list[str]:
    """Return the words of ``tributary onboard`` by a schedule.

    A schedule decides nothing about the tables that it names: those that were offboarded stay so.
    """
    return _of(["onboard", "--scheduled", *(["--strict"] if strict else [])], tables)


def run(tables: Iterable[str], tier: str | None, fail_on: Iterable[str]) -> list[str]:
    """Return the words of ``tributary run`` for a tier, for tables, or for all."""
    chosen = [] if tier is None else ["--tier", tier]
    return _of(["run", *chosen, "--fail-on", ",".join(fail_on)], tables)


def status(tables: Iterable[str], tier: str | None) -> list[str]:
    """Return the words of ``tributary status``."""
    return _of(["status", *([] if tier is None else ["--tier", tier])], tables)


def complete(table: str, period: str | None = None) -> list[str]:
    """Return the words of ``tributary complete`` for one period, or for all announced ones."""
    return ["complete", "--", table, *([] if period is None else [period])]


def verify(
    tables: Iterable[str], *, max_seconds: int | None, sample: float | None, go_on: bool
) -> list[str]:
    """Return the words of ``tributary verify``."""
    words = ["verify"]
    words += [] if max_seconds is None else ["--max-seconds", str(max_seconds)]
    words += [] if sample is None else ["--sample", str(sample)]
    return _of([*words, *(["--continue"] if go_on else [])], tables)


def checks(tables: Iterable[str], *, everything: bool, names: Iterable[str]) -> list[str]:
    """Return the words of ``tributary checks run``."""
    words = ["checks", "run", *(["--all"] if everything else [])]
    for name in names:
        words += ["--name", name]
    return _of(words, tables)


def of_tables(command: str, tables: Iterable[str]) -> list[str]:
    """Return the words of a command whose arguments are tables and that needs no option."""
    return _of(command.split(), tables)


def _of(words: list[str], tables: Iterable[str]) -> list[str]:
    """Return the words of a command with tables, whose names can begin with a dash."""
    listed = list(tables)
    return [*words, "--", *listed] if listed else words
