"""An environment as users install it from a clone, and the archive that `package` makes of it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from cdc.runtime.jars import sha256_of
from tests.integration.rigs.project import Ran

ROOT = Path(__file__).parents[3]
_LIMIT_S = 900.0


def installed(folder: Path) -> Path:
    """Install the locked packages and this project's wheel; returns the path of ``tributary``."""
    python, wheels = folder / "bin" / "python", folder / "wheels"
    uv = str(Path(sys.executable).with_name("uv"))
    install = (uv, "pip", "install", "--quiet", "--no-deps", "--python", str(python))
    _do(sys.executable, "-m", "venv", "--without-pip", str(folder))
    _do(*install, "--require-hashes", "--requirement", str(ROOT / "requirements-run.lock"))
    _do(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels))
    (wheel,) = wheels.iterdir()
    _do(*install, str(wheel))
    return folder / "bin" / "tributary"


def unpacked(program: Path, folder: Path) -> Path:
    """Make an archive with ``package`` and unpack it into the folder; returns its ``tributary``."""
    archive = folder.with_name("tributary.tar.gz")
    written = call(program, "package", str(archive), "--output", "json").expect(0)
    assert written.json["sha256"] == sha256_of(archive)
    folder.mkdir()
    with tarfile.open(archive) as opened:
        opened.extractall(folder)  # the archive is ours
    archive.unlink()
    return folder / "bin" / "tributary"


def call(program: Path, *arguments: str, **environment: str) -> Ran:
    """Call a command, by default with this process's environment variables; returns the result."""
    done = subprocess.run(
        [str(program), *arguments],
        env=environment or None,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    return Ran(arguments, done.returncode, done.stdout, done.stderr)


def _do(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=_LIMIT_S)
