"""The package by itself: it never imports Tributary, and the folder hides no other package."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
MODULES = sorted((HERE / "src" / "tributary_airflow").glob("*.py"))
CORE = {"schemas", "cdc", "bootstrap", "tributary_reader", "operate", "stack"}
PURE = {"__init__", "command", "guard", "layout", "outcome", "process"}
"""Modules that need no Airflow; the core's tests compare two of them with Tributary itself."""


def imported(file: Path) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name.split(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.name)
def test_no_module_imports_tributary(file: Path) -> None:
    assert not imported(file) & CORE
    assert "airflow" not in imported(file) or file.stem not in PURE


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.name)
def test_a_module_stays_readable(file: Path) -> None:
    text = file.read_text("utf-8")
    assert len(text.splitlines()) <= 500
    long = [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno >= 60
    ]
    assert long == []


def test_the_folder_of_the_repository_hides_no_airflow() -> None:
    """The folder is named like Airflow's package. It is none itself, so the installed one wins."""
    assert not (HERE / "__init__.py").exists()
    code = "import airflow; print(airflow.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=True
    )
    assert "site-packages" in done.stdout


def test_the_guard_needs_nothing_but_the_standard_library() -> None:
    assert imported(HERE / "src" / "tributary_airflow" / "guard.py") <= sys.stdlib_module_names
