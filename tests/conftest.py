"""Fixtures of all tests: the real stack, started once by each process that runs tests."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from cdc.runtime.progress import NullProgress
from schemas.errors import TributaryError
from stack.local import LocalStack

STACK_VARIABLE = "TRIBUTARY_TEST_STACK"
"""Environment variable: folder of a stack that the tests use and leave running, for quick reruns.
"""


# Servers and Spark sessions of tests live for minutes. With Java's quick compiler alone they take a
# third less CPU than with both compilers.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# No test is timed: on a busy machine, one example takes longer than hypothesis allows by default.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

SERVERS = pytest.StashKey[dict[str, str]]()
"""Each database server with its version, or why it was missing; printed at the end of the run."""
_MANY_SESSIONS = (Path(__file__).parent, Path(__file__).parent / "integration")
"""Folders of tests that start Spark many times."""
_SENT = "servers"
"""The name under which a process that runs a part of the tests sends its `SERVERS`."""


@pytest.fixture(scope="session")
def stack(pytestconfig: pytest.Config) -> Iterator[LocalStack]:
    """A real stack of this process: started for the first test that needs it, always stopped.

    A server that does not come up fails the tests that need it; nothing is skipped.
    """
    with running_stack() as running:
        used(pytestconfig, running)
        yield running


@contextlib.contextmanager
def running_stack(sources: Sequence[str] = ()) -> Iterator[LocalStack]:
    """A stack with these kinds of source, for a block.

    The stack is stopped and deleted after the block, but not if ``STACK_VARIABLE`` names it.
    """
    if kept := os.environ.get(STACK_VARIABLE):
        running = LocalStack(Path(kept))
        running.up(sources=sources)
        yield running
        return
    # Not under pytest's own folder: its name carries the user's, and it keeps three runs.
    with tempfile.TemporaryDirectory(prefix="tributary-stack-") as folder:
        started = LocalStack(Path(folder, "stack"))
        with guarded(started):
            try:
                started.up(sources=sources)
                yield started
            finally:
                started.down(delete=True)


def used(config: pytest.Config, stack: LocalStack) -> None:
    """Note the database servers of a stack for the report."""
    config.stash.setdefault(SERVERS, {}).update(stack.versions())


def pytest_sessionstart(session: pytest.Session) -> None:
    """Make the archive of Java classes, with which Spark starts faster, before a run of many tests.

    Dozens of tests start Spark, most of them in a new process. If a run is of single test files
    only, no archive is made: it would cost more time than it saves.
    """
    config = session.config
    asked = [Path(argument).resolve() for argument in config.args]
    in_parallel_part = hasattr(config, "workerinput")
    if in_parallel_part or not any(folder in asked for folder in _MANY_SESSIONS):
        return
    from operate.warm_up import warm_up  # it loads pyspark, which unit tests do without

    try:
        warm_up(NullProgress())
    except TributaryError as error:
        config.stash.setdefault(SERVERS, {})["archive of classes"] = f"none: {error}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the noted database servers to the process that prints the report, if it is another."""
    if (sent := getattr(session.config, "workeroutput", None)) is not None:
        sent[_SENT] = session.config.stash.get(SERVERS, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the database servers that a process noted while it ran a part of the tests."""
    sent = getattr(node, "workeroutput", {}).get(_SENT, {})
    node.config.stash.setdefault(SERVERS, {}).update(sent)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print which database servers ran, and which are not available on this machine."""
    for title, note in config.stash.get(SERVERS, {}).items():
        terminalreporter.write_line(f"server {title}: {note}")


@contextlib.contextmanager
def guarded(stack: LocalStack) -> Iterator[None]:
    """Stop the stack even if this process is killed: by a time limit, a CI system or a person."""
    watch = (
        "import pathlib, sys; sys.stdin.read(); from stack.local import LocalStack;"
        "LocalStack(pathlib.Path(sys.argv[1])).down(delete=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", watch, str(stack.folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    ):
        yield  # its standard input ends when this process does
