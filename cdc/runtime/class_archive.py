"""Keeps an archive of loaded Java classes, from which a Spark session starts faster.

The JVM maps the archive (Java's "class data sharing") into memory instead of reading, parsing and
verifying each class. An archive is valid for one Java and one class path. Without a valid archive,
the JVM loads all classes from the jars, without a message.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cdc.runtime.jars import CACHE_VARIABLE, cache_folder, pyspark_jars
from cdc.runtime.java import JavaInstallation
from cdc.runtime.progress import Progress, shown_as
from cdc.runtime.waiting import wait_while
from schemas.errors import TributaryError

_RECORDING = "-XX:ArchiveClassesAtExit="
_QUIET = "-Xlog:cds=off,cds+dynamic=off"
_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
"""Environment variables that add folders to the class path; unset while an archive is made."""
_PATH_OF_DRIVER = re.compile(r"^\s*spark\.driver\.extraClassPath[\s=:]", re.MULTILINE)
_LAST_LINES = 5
_POLL_S = 0.5
_SUFFIX = ".jsa"
_STAGING = ".recording-"
_LEFT_S = 3600.0
"""Age in seconds above which a folder of unfinished work belongs to a killed process."""


class ClassArchiveError(TributaryError):
    """The error if no archive of classes can be made or kept."""


def spark_home_jars() -> Path:
    """Return the folder of Spark's own jars, in ``SPARK_HOME`` or else in the package pyspark."""
    home = os.environ.get("SPARK_HOME")
    return Path(home, "jars") if home else pyspark_jars()


def path_of_machine() -> bool:
    """Return whether ``spark-defaults.conf`` sets the driver's class path."""
    return _PATH_OF_DRIVER.search(defaults_of_machine()) is not None


def defaults_of_machine() -> str:
    """Return the texts of ``spark-defaults.conf`` and ``java-opts``, if these files exist."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (None if home is None else f"{home}/conf")
    if folder is None:
        return ""
    texts = []
    for name in ("spark-defaults.conf", "java-opts"):
        with suppress(OSError):
            texts.append(Path(folder, name).read_text("utf-8", "replace"))
    return "\n".join(texts)


def class_path(jars: Sequence[Path], given: str = "") -> str:
    """Return the value of ``spark.driver.extraClassPath`` for these jars.

    Only classes of the class path can be in an archive. Spark's own jars come before the other
    jars, since the Hudi bundle has other versions of some of Spark's classes. Spark appends
    folders of configuration to the class path, and an archive stays valid nevertheless.

    Args:
        jars: The jars of the lock file that the session needs.
        given: The user's ``spark.driver.extraClassPath``. It comes before all jars.
    """
    return os.pathsep.join(filter(None, [given, f"{spark_home_jars()}/*", *map(str, jars)]))


def archive_prefix(java: JavaInstallation, jars: Sequence[Path]) -> Path:
    """Return the path of an archive of classes, without the size and suffix of the file name.

    The path differs for each Java and for each class path.

    Args:
        java: The Java that runs Spark.
        jars: The jars that every session needs. The class path can have an object store's jars
            after these.
    """
    digest = hashlib.sha256(f"{java.home} {java.version}".encode())
    parts = [java.home / "release", java.home / "lib" / "server" / "libjvm.so"]
    for part in [*parts, *sorted(spark_home_jars().glob("*.jar")), *jars]:
        digest.update(f"\n{part} ".encode())
        if part.exists():
            stat = part.stat()
            # Whole seconds, as the JVM compares: the layers of an image keep no smaller part.
            digest.update(f"{stat.st_size} {int(stat.st_mtime)}".encode())
    return cache_folder() / "class-archives" / digest.hexdigest()[:16]


def find_archive(prefix: Path) -> Path | None:
    """Return the complete archive of classes with this prefix; None if there is none.

    An archive is complete if it has the size that its file name contains. The JVM would crash with
    a truncated archive.

    Args:
        prefix: The result of `archive_prefix`.
    """
    for archive in prefix.parent.glob(f"{prefix.name}-*{_SUFFIX}"):
        with suppress(FileNotFoundError):  # another process has just replaced it
            if archive == _archive_of_size(prefix, archive.stat().st_size):
                return archive
    return None


def _archive_of_size(prefix: Path, size: int) -> Path:
    """Return the path of an archive of classes of ``size`` bytes; the file name has the size."""
    return prefix.with_name(f"{prefix.name}-{size}{_SUFFIX}")


def archive_options(archive: Path | None, given: str = "") -> str:
    """Return the JVM's options to start from an archive of classes; empty if there is none.

    With these options, the JVM verifies the archive's checksum, since a damaged archive would crash
    the JVM.

    Args:
        archive: The archive; None if there is none.
        given: The user's JVM options. If these options make the JVM record an archive, the result
            is empty, since such a JVM cannot start from an archive.
    """
    if archive is None or _RECORDING in given:
        return ""
    return f'"-XX:SharedArchiveFile={archive}" -Xshare:auto -XX:+VerifySharedSpaces {_QUIET}'


def recording_options(archive: Path) -> str:
    """Return the options of a JVM that writes an archive of its loaded classes when it ends."""
    return f'"{_RECORDING}{archive}" {_QUIET}'


def record(prefix: Path, module: str, progress: Progress, *, timeout_s: float) -> Path:
    """Make an archive of classes by running a Spark session in a child process.

    The complete archive is moved to its path in one step, so several processes can make the same
    archive at the same time.

    Args:
        prefix: The result of `archive_prefix`.
        module: The Python module that the child runs, with two arguments: the archive to write, and
            a folder for data. The child ends only after its JVM has ended.
        progress: Shows that the child process is running.
        timeout_s: Longest duration of the child, in seconds.

    Returns:
        The archive.

    Raises:
        ClassArchiveError: The cache cannot be written, or the child wrote no archive.
    """
    with _staging_folder(prefix.parent) as staging:
        made, log = staging / f"made{_SUFFIX}", staging / "log"
        code = _run_recording(
            [sys.executable, "-m", module, str(made), str(staging)], log, progress, timeout_s
        )
        if code != 0 or not made.is_file():
            how = f"exit code {code}" if code is not None else f"no end within {timeout_s:.0f} s"
            said = log.read_text("utf-8", "replace").strip().splitlines()[-_LAST_LINES:]
            raise ClassArchiveError(
                f"the session that records the loaded classes left no archive: {how};"
                f" {' / '.join(said)}",
                remedy="Check that 3 GiB of memory and 1 GiB of disk are free, and that Java has a"
                " basic archive (lib/server/classes.jsa; `java -Xshare:dump` makes it). Without an"
                " archive, commands work as well and start slower.",
            )
        with made.open("rb") as file:
            os.fsync(file.fileno())  # no crash of the machine leaves a damaged archive
        made.chmod(0o644)
        archive = _archive_of_size(prefix, made.stat().st_size)
        made.replace(archive)
    for former in prefix.parent.glob(f"{prefix.name}-*{_SUFFIX}"):
        if former != archive:  # a damaged one, or that of another process
            former.unlink(missing_ok=True)
    return archive


def _run_recording(
    command: Sequence[str], log: Path, progress: Progress, timeout_s: float
) -> int | None:
    """Run a process that records an archive of classes, and return the process's exit code.

    Return None if the process had to be killed.
    """
    environment = {key: value for key, value in os.environ.items() if key not in _FOLDERS}
    with log.open("wb") as output, shown_as("record loaded classes", progress) as task:
        child = subprocess.Popen(  # noqa: S603 - an argument list of our own, no shell
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )

        def running() -> str:
            return "" if child.poll() is not None else "a session of Spark writes a small table"

        try:
            wait_while(running, timeout_s=timeout_s, poll_s=_POLL_S, task=task)
            return child.poll()
        finally:
            child.kill()  # its JVM ends soon after it
            child.wait()


@contextmanager
def _staging_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder for an archive of classes in ``folder``, and delete it after the block.

    Raises:
        ClassArchiveError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"{_STAGING}*"):  # of a process that was killed
            if time.time() - leftover.stat().st_mtime > _LEFT_S:
                shutil.rmtree(leftover, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=folder))
    except OSError as error:
        raise ClassArchiveError(
            f"{folder} cannot be written: {error.strerror}",
            remedy=f"Name a folder that you can write with {CACHE_VARIABLE}, or run this command as"
            " the user who filled the cache.",
        ) from error
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
