"""An environment that users make of a clone, and an archive of it in another folder."""

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
    """The command of an environment with the locked packages and this project, as built."""
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
    """The command of an archive that a command has made, in this folder."""
    archive = folder.with_name("tributary.tar.gz")
    written = call(program, "package", str(archive), "--output", "json").expect(0)
    assert written.json["sha256"] == sha256_of(archive)
    folder.mkdir()
    with tarfile.open(archive) as opened:
        opened.extractall(folder)  # the archive is ours
    archive.unlink()
    return folder / "bin" / "tributary"


def call(program: Path, *arguments: str, **environment: str) -> Ran:
    """One call of a command; by default with the environment of these tests."""
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
