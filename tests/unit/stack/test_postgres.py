"""Which installation of PostgreSQL the stack uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack import postgres
from stack.errors import StackError


def installation(folder: Path, version: str | None) -> Path:
    """A folder of programs; its `postgres` prints a version, or fails if that is None."""
    folder.mkdir()
    for name in postgres._NEEDED:
        program = folder / name
        says = "exit 1" if version is None else f"echo 'postgres (PostgreSQL) {version}'"
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
    return folder


def test_a_postgres_that_does_not_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, old = installation(tmp_path / "a", None), installation(tmp_path / "b", "9.6.24")
    good = installation(tmp_path / "c", "15.18")
    monkeypatch.setattr(postgres, "_program_folders", lambda: iter([broken, old, good]))
    assert postgres.find_binaries() == postgres.Binaries(good, "15.18")
    monkeypatch.setattr(postgres, "_program_folders", lambda: iter([broken, old]))
    with pytest.raises(StackError, match=r"a postgres that does not run; .* is version 9\.6"):
        postgres.find_binaries()
