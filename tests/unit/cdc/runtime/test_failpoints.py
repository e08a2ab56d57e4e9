from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.runtime import failpoints
from cdc.runtime.failpoints import FAILPOINTS

ROOT = Path(__file__).parents[4]
PACKAGES = ("schemas", "cdc", "bootstrap", "operate", "stack")


def calls() -> Iterator[tuple[str, str]]:
    """Each call of ``crash`` in the product: its place, and the name of the crash point."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                if ast.unparse(node.func) not in ("crash", "failpoints.crash"):
                    continue
                where = f"{file.relative_to(ROOT)}:{node.lineno}"
                (point,) = node.args
                assert isinstance(point, ast.Constant), f"{where}: the name must be a literal"
                yield where, str(point.value)


def test_the_points_in_the_code_are_those_on_the_list() -> None:
    found = Counter(name for _, name in calls())
    assert set(found) == set(FAILPOINTS)
    assert [name for name, count in found.items() if count > 1] == []
    assert len(set(FAILPOINTS)) == len(FAILPOINTS)


def test_without_the_variable_a_point_is_nothing() -> None:
    assert failpoints.VARIABLE not in os.environ
    assert failpoints.crash is failpoints._noop
    failpoints.crash("run.before_commit")


def run(spec: str, *names: str) -> subprocess.CompletedProcess[str]:
    script = "import sys\nfrom cdc.runtime.failpoints import crash\n"
    script += "for name in sys.argv[1:]:\n    crash(name)\n    print(name, flush=True)\n"
    return subprocess.run(
        [sys.executable, "-c", script, *names],
        env={**os.environ, failpoints.VARIABLE: spec, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_named_point_kills_the_process() -> None:
    died = run("run.before_commit", "run.after_plan", "run.before_commit", "run.after_commit")
    assert died.returncode == -signal.SIGKILL
    assert died.stdout == "run.after_plan\n"


def test_a_count_kills_at_that_passage() -> None:
    point = "bootstrap.after_chunk_commit"
    died = run(f"{point}:3", point, point, point, point)
    assert died.returncode == -signal.SIGKILL
    assert died.stdout == f"{point}\n" * 2


@pytest.mark.parametrize("spec", ["run.nowhere", "run.before_commit:0", "run.before_commit:x", ":"])
def test_a_name_that_is_not_on_the_list_is_refused(spec: str) -> None:
    refused = run(spec, "run.after_plan")
    assert refused.returncode == 1
    assert "names no crash point" in refused.stderr
