"""The stack of a benchmark, and environments for peers that this project does not depend on."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

from stack.local import LocalStack
from stack.postgres import POSTGRES

PROJECT = Path(__file__).parents[1]


def on_a_stack(
    measure: Callable[[LocalStack, Path, argparse.Namespace], int],
    arguments: argparse.Namespace,
    *,
    kind: str = POSTGRES,
) -> int:
    """Measure with a stack and a folder, which are removed afterwards; return the exit code.

    The stack has one kind of source. Its servers stop also if SIGTERM ends the measurement.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="tributary-bench-") as folder:
        stack = LocalStack(Path(folder, "stack"), report=print)
        try:
            stack.up(sources=[kind])
            return measure(stack, Path(folder), arguments)
        finally:
            stack.down()


def peers_python(group: str) -> str:
    """The Python of an environment with a dependency group of the project.

    The environment is created if it does not exist.
    """
    folder = PROJECT / "build" / f"{group}-env"
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"making {folder.relative_to(PROJECT)} with the group {group}", flush=True)
        venv.create(folder, clear=True)
        uv = Path(sys.executable).with_name("uv")
        install = [str(uv), "pip", "install", "--quiet", "--python", str(python)]
        subprocess.run([*install, "--group", group], cwd=PROJECT, check=True, timeout=900)
        ready.touch()
    return str(python)
