"""Fetches pinned Java artifacts once into a cache folder, and verifies them by checksum.

The resolver is Ivy, which comes with pyspark. Its default repository is Maven Central. For a
company's mirror, ``TRIBUTARY_IVY_SETTINGS`` names an Ivy settings file. Lock files name every file,
so Ivy resolves no dependencies and trusts no POM.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import platformdirs
import stamina
from filelock import FileLock, Timeout

from cdc.runtime.java import find_java
from schemas.errors import TributaryError

Report = Callable[[str], None]
"""A function that takes one line of text about the progress of a fetch."""

CACHE_VARIABLE = "TRIBUTARY_CACHE"
SETTINGS_VARIABLE = "TRIBUTARY_IVY_SETTINGS"
_FETCH_LIMIT_S = 1800.0
_ATTEMPTS = 3
_REPORT_EVERY_S = 3.0
_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


class ArtifactError(TributaryError):
    """The error for a jar or archive that cannot be fetched, or is not the pinned file."""


@dataclass(frozen=True)
class Artifact:
    """One pinned jar or archive of a Maven repository.

    Args:
        organisation: Maven's group id.
        name: Maven's artifact id.
        revision: Version.
        sha256: Checksum of the file, in hex.
        classifier: Maven's classifier, or empty.
        extension: File name's extension without the dot.
    """

    organisation: str
    name: str
    revision: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def filename(self) -> str:
        """The jar's file name in a Maven repository."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{classifier}.{self.extension}"

    @property
    def coordinates(self) -> str:
        """The jar's Maven coordinates, ``organisation:name:revision``."""
        return f"{self.organisation}:{self.name}:{self.revision}"

    @classmethod
    def parse(cls, line: str) -> Artifact:
        """Return the artifact that one line of a lock file pins.

        The line is ``sha256  organisation:name:revision[:classifier][@extension]``.

        Raises:
            ArtifactError: The line has a different syntax.
        """
        checksum, _, text = line.partition("  ")
        text, _, extension = text.partition("@")
        parts = text.split(":")
        if len(checksum) != 64 or len(parts) not in (3, 4) or not all(parts):
            raise ArtifactError(
                f"lock file line {line!r} does not pin an artifact",
                remedy="Restore the lock file from the release.",
            )
        organisation, name, revision, *classifier = parts
        return cls(organisation, name, revision, checksum, "".join(classifier), extension or "jar")


def read_lock(path: Path) -> dict[str, tuple[Artifact, ...]]:
    """Return a mapping from the name of each bundle in ``jars.lock`` to all files of the bundle."""
    bundles: dict[str, list[Artifact]] = {}
    current: list[Artifact] = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("["):
            current = bundles.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            current.append(Artifact.parse(line))
    return {name: tuple(artifacts) for name, artifacts in bundles.items()}


BUNDLED = Path(__file__).with_name("artifacts")
"""Folder of the jars in an environment that `tributary package` has packed."""
LOCK = read_lock(Path(__file__).with_name("jars.lock"))
SPARK: tuple[Artifact, ...] = LOCK["spark"]
"""The jars that a Spark session needs in addition to pyspark's own."""
STORES: dict[str, tuple[Artifact, ...]] = {name: LOCK[name] for name in ("s3", "gcs")}
"""The jars that a session needs besides `SPARK` for a lake on an object store.

The jars for S3 take 270 MiB.
"""


def cache_folder() -> Path:
    """Return the folder of fetched jars: ``TRIBUTARY_CACHE``, or the user's cache folder."""
    override = os.environ.get(CACHE_VARIABLE)
    return Path(override).expanduser() if override else platformdirs.user_cache_path("tributary")


def spark_jars(
    cache: Path | None = None, report: Report | None = None, *, store: str | None = None
) -> list[Path]:
    """Return local paths of the jars for ``spark.jars``; fetch the jars that the cache lacks.

    Args:
        cache: Cache folder; by default ``cache_folder()``.
        report: Called with each message of progress, for example ``fetched spark``.
        store: The object store that the lake is on (a key of ``STORES``); None for another file
            system.

    Raises:
        ArtifactError: The jars cannot be fetched or verified.
    """
    found: list[Path] = []
    for bundle, artifacts in {"spark": SPARK, **({store: STORES[store]} if store else {})}.items():
        folder = fetch(bundle, artifacts, cache=cache, report=report)
        found += [folder / artifact.filename for artifact in artifacts]
    return found


def fetch(
    bundle: str,
    artifacts: Sequence[Artifact],
    *,
    cache: Path | None = None,
    report: Report | None = None,
    prepare: Callable[[Path], None] | None = None,
) -> Path:
    """Return the folder of a bundle's jars; fetch the jars if they are neither packed nor cached.

    Packed jars are in an environment that `tributary package` has packed. Each call verifies them.

    Args:
        bundle: Name of the bundle, for progress and the folder's name.
        artifacts: All files of the bundle.
        cache: Cache folder; by default ``cache_folder()``.
        report: Called with each message of progress, for example ``fetched spark``.
        prepare: Called once after a fetch, with the folder of the verified files; unpacks them.

    Raises:
        ArtifactError: A file cannot be fetched, or its checksum is not the pinned one.
    """
    report = report or _report_nothing
    folder = (cache or cache_folder()) / "artifacts"
    pins = "\n".join(f"{artifact.sha256} {artifact.filename}" for artifact in artifacts)
    name = f"{bundle}-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"
    if (packed := BUNDLED / name).is_dir():
        return _as_packed(artifacts, packed)
    target = folder / name
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    ivy_cache = folder / "ivy" / bundle
    with locked(folder / f"{bundle}.lock", report):
        if target.is_dir():
            return target
        report(f"fetching {bundle}")
        for leftover in folder.glob(f".{bundle}-*"):  # from a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        # On the cache's own file system, so that the rename below is atomic.
        with tempfile.TemporaryDirectory(prefix=f".{bundle}-", dir=folder) as staging:
            files = Path(staging) / "files"
            for attempt in stamina.retry_context(
                on=ArtifactError, attempts=_ATTEMPTS, timeout=None
            ):
                with attempt:
                    _download_jars(bundle, artifacts, ivy_cache, files, report)
            try:
                verify(artifacts, files)
            except ArtifactError:
                # Otherwise the next attempt would take the same wrong file from Ivy's cache.
                shutil.rmtree(ivy_cache, ignore_errors=True)
                raise
            if prepare is not None:
                prepare(files)
            files.rename(target)
        # Ivy's cache holds the same files again; it only served to resume a broken download.
        shutil.rmtree(ivy_cache, ignore_errors=True)
    report(f"fetched {bundle}")
    return target


def _as_packed(artifacts: Sequence[Artifact], folder: Path) -> Path:
    """Return the folder of packed jars, after a check of each jar's checksum.

    Raises:
        ArtifactError: A file is missing, or its checksum is not the pinned one.
    """
    try:
        verify(artifacts, folder)
    except ArtifactError as error:
        raise ArtifactError(
            f"{folder} is not as it was packed: {error.message}",
            remedy="Compare the archive's sha256 with the one that `tributary package` printed, and"
            " unpack it again.",
        ) from error
    return folder


def verify(artifacts: Sequence[Artifact], folder: Path) -> None:
    """Compare every jar with its pinned checksum.

    Raises:
        ArtifactError: A file is missing, or has another checksum; the message names the file.
    """
    for artifact in artifacts:
        path = folder / artifact.filename
        if not path.is_file():
            raise ArtifactError(
                f"{artifact.coordinates}: {artifact.filename} was not downloaded",
                remedy="Check the repository that Ivy reads (TRIBUTARY_IVY_SETTINGS).",
            )
        checksum = sha256_of(path)
        if checksum != artifact.sha256:
            raise ArtifactError(
                f"{artifact.filename} has checksum {checksum}, but {artifact.sha256} is pinned",
                remedy="The repository or a proxy serves another file under this name: find out "
                "which before you trust it, then empty the cache and fetch again.",
            )


def ivy_module(bundle: str, artifacts: Sequence[Artifact]) -> str:
    """Return the Ivy module that names exactly these jars and none of their dependencies."""
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        f'  <info organisation="tributary" module={quoteattr(bundle)}/>',
        '  <configurations><conf name="files"/></configurations>',
        "  <dependencies>",
    ]
    # One element per module, since Ivy keeps only one of two elements with the same name.
    modules: dict[tuple[str, str, str], list[Artifact]] = {}
    for artifact in artifacts:
        key = (artifact.organisation, artifact.name, artifact.revision)
        modules.setdefault(key, []).append(artifact)
    for (organisation, name, revision), files in modules.items():
        lines.append(
            f"    <dependency org={quoteattr(organisation)} name={quoteattr(name)} "
            f'rev={quoteattr(revision)} conf="files->default" transitive="false">'
        )
        for file in files:
            classifier = f" m:classifier={quoteattr(file.classifier)}" if file.classifier else ""
            extension = quoteattr(file.extension)
            lines.append(
                f"      <artifact name={quoteattr(name)} type={extension} ext={extension}"
                f"{classifier}/>"
            )
        lines.append("    </dependency>")
    return "\n".join([*lines, "  </dependencies>", "</ivy-module>", ""])


def _download_jars(
    bundle: str, artifacts: Sequence[Artifact], ivy_cache: Path, files: Path, report: Report
) -> None:
    """Let Ivy download jars into a folder.

    Ivy's default settings are not used: with them, Ivy would also take jars from ``~/.m2``.

    Raises:
        ArtifactError: Ivy did not fetch every jar.
    """
    java = find_java()
    with tempfile.TemporaryDirectory(prefix="tributary-ivy-") as work:
        module, settings = Path(work) / "ivy.xml", Path(work) / "settings.xml"
        module.write_text(ivy_module(bundle, artifacts), "utf-8")
        settings.write_text(_SETTINGS, "utf-8")
        command: list[str | Path] = [
            java.executable,
            *java.options,
            *("-cp", f"{pyspark_jars()}/*", "org.apache.ivy.Main"),
            *("-settings", os.environ.get(SETTINGS_VARIABLE) or settings),
            *("-cache", ivy_cache),
            *("-ivy", module),
            *("-retrieve", f"{files}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        output = []
        arrived, reported = 0, time.monotonic()
        for line in _output_of_ivy(command):
            output.append(line)
            arrived += "[SUCCESSFUL" in line
            if time.monotonic() - reported > _REPORT_EVERY_S:
                reported = time.monotonic()
                report(f"fetching {bundle}: {arrived} of {len(artifacts)} files")
    if failures := [line.strip() for line in output if "FAILED" in line or "not found" in line]:
        raise ArtifactError(
            f"fetching {bundle} failed: {'; '.join(failures[:5])}",
            remedy="Check the network, the proxy and the repository that Ivy reads "
            f"({SETTINGS_VARIABLE} names a settings file for a mirror), then run again.",
        )
    if not files.is_dir():
        raise ArtifactError(
            f"fetching {bundle} failed: {' '.join(output[-3:]).strip() or 'Ivy said nothing'}",
            remedy=f"Check that Java works ({java.executable}) and the disk is not full.",
        )


def _output_of_ivy(command: Sequence[str | Path]) -> Iterator[str]:
    """Run Ivy's command, yield its output line by line, and kill the command after a time limit."""
    with subprocess.Popen(  # noqa: S603 - an argument list of our own, no shell
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        watchdog = threading.Timer(_FETCH_LIMIT_S, process.kill)
        watchdog.start()
        try:
            for line in process.stdout or ():
                yield line.decode("utf-8", "replace").rstrip()
        finally:
            watchdog.cancel()


@contextlib.contextmanager
def locked(path: Path, report: Report) -> Iterator[None]:
    """Hold a lock in the block, so that only one process fetches a bundle of jars at a time.

    Raises:
        ArtifactError: Another process held the lock for too long.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"waiting for another process that fetches the same files ({path})")
        try:
            lock.acquire(timeout=_FETCH_LIMIT_S)
        except Timeout as error:
            raise ArtifactError(
                f"another process held {path} for {_FETCH_LIMIT_S:.0f} s",
                remedy="End that process, then run again.",
            ) from error
    try:
        yield
    finally:
        lock.release()


def pyspark_jars() -> Path:
    """Return the folder of pyspark's jars, found without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ArtifactError(
            "pyspark is not installed, so there is no Ivy to fetch jars with",
            remedy="Install this package with its dependencies.",
        )
    return Path(spec.origin).parent / "jars"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 checksum of a jar, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _report_nothing(_line: str) -> None:
    """Ignore a line of progress, for a caller that passes no `Report`."""
