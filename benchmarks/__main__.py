"""Every benchmark in turn; what they need beside this project gets an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

PROJECT = Path(__file__).parents[1]
ENVIRONMENT = PROJECT / "build" / "bench-env"


def dlt_python() -> str:
    """The Python of an environment with the dependency group ``bench``, made when missing."""
    python = ENVIRONMENT / "bin" / "python"
    ready = ENVIRONMENT / ".ready"
    if not ready.exists():
        print(f"making {ENVIRONMENT.relative_to(PROJECT)} with dlt and ConnectorX", flush=True)
        venv.create(ENVIRONMENT, clear=True)
        uv = Path(sys.executable).with_name("uv")
        install = [str(uv), "pip", "install", "--quiet", "--python", str(python)]
        subprocess.run([*install, "--group", "bench"], cwd=PROJECT, check=True)
        ready.touch()
    return str(python)


def main() -> int:
    """Run both; the exit code is the first that is not 0."""
    codes = [
        subprocess.run([sys.executable, "-m", *command], cwd=PROJECT, check=False).returncode
        for command in (
            ["benchmarks.bootstrap", "--dlt-python", dlt_python()],
            ["benchmarks.incremental"],
        )
    ]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
