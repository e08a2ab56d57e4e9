"""Finds Prometheus and its tool on the PATH, or in Debian's package."""

from __future__ import annotations

import shutil
from pathlib import Path

from cdc.runtime.jars import Report
from stack.debian import Package, unpack
from stack.errors import UnavailableError

PACKAGE = Package(
    "prometheus",
    without=(
        "adduser",
        "daemon",
        "debconf",
        "fonts-",
        "init-",
        "lib",
        "node-",
        "perl",
        "prometheus-",
    ),
)
"""Debian's package of Prometheus, without the dependencies that the programs do not need."""


def promtool(*, cache: Path | None = None, report: Report | None = None) -> Path:
    """Return the stack's program that checks and tests rules of Prometheus.

    Args:
        cache: Folder of the cache; by default the cache of ``cdc.runtime.jars``.
        report: Receives lines of progress.

    Raises:
        UnavailableError: ``promtool`` is not installed, and Debian's package cannot be fetched.
        StackError: The package cannot be unpacked.
    """
    return _prometheus_program("promtool", cache, report)


def prometheus(*, cache: Path | None = None, report: Report | None = None) -> Path:
    """Return the stack's server of Prometheus; see `promtool` for the arguments and errors."""
    return _prometheus_program("prometheus", cache, report)


def _prometheus_program(name: str, cache: Path | None, report: Report | None) -> Path:
    """Return a program of Prometheus for the stack: the installed one, or Debian's."""
    if installed := shutil.which(name):
        return Path(installed)
    program = unpack(PACKAGE, cache=cache, report=report) / "usr/bin" / name
    if not program.exists():
        raise UnavailableError(f"Debian's package {PACKAGE.name} has no {name}")
    return program
