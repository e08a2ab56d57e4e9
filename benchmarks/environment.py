"""Environments of the peers, whose libraries this project does not depend on."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

PROJECT = Path(__file__).parents[1]


def peers_python(group: str) -> str:
    """The Python of an environment with a dependency group of the project, made when missing."""
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
