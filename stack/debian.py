"""Unpacks Debian's packages into the cache, without installing them and without root.

APT itself finds, fetches and authenticates the packages, with the mirrors and keys of this
machine's configuration. The fetched lists and packages are in a temporary folder of the cache. So
the system's own lists stay unchanged, and can even be old or empty.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cdc.runtime.jars import Report, cache_folder, locked, sha256_of
from stack.errors import StackError, UnavailableError

_UPDATE_LIMIT_S = 300.0
_DOWNLOAD_LIMIT_S = 1200.0
_UNPACK_LIMIT_S = 300.0
_SYSTEM_STATUS = Path("/var/lib/dpkg/status")


@dataclass(frozen=True)
class Package:
    """A Debian package and the conditions for accepting it.

    Args:
        name: The package's name.
        suite: The suite of Debian from which the package is fetched with all of its dependencies,
            even the C library. If None, the package is fetched from the suites that this machine's
            configuration names, without the dependencies that are already installed.
        version: The only accepted version; None accepts the suite's version.
        sha256: By architecture, the checksum of the only accepted file of the package; empty to
            accept every file.
        also: Further packages to fetch.
        without: Prefixes of the names of dependencies that are not fetched, since the program does
            not need them.
    """

    name: str
    suite: str | None = None
    version: str | None = None
    sha256: dict[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def unpacked(package: Package, *, cache: Path | None = None) -> Path | None:
    """Return the cache's folder of a Debian package of the stack; None if the cache has none.

    If the cache has several accepted versions, the folder of the newest version is returned.
    """
    # A version of Debian's begins with a digit; a suite's name does not.
    folders = [
        folder
        for folder in _folder(cache).glob(
            f"{_folder_prefix(package)}_{package.version or '[0-9]*'}"
        )
        if folder.is_dir()
    ]
    return max(folders, key=lambda folder: _by_number(folder.name), default=None)


def unpack(package: Package, *, cache: Path | None = None, report: Report | None = None) -> Path:
    """Return the folder of the stack's unpacked Debian package; fetch it if the cache lacks it.

    Args:
        package: The package.
        cache: Cache folder; by default the cache of ``cdc.runtime.jars``.
        report: Receives lines of progress.

    Raises:
        UnavailableError: This machine has no APT, the fetch fails, or the mirror lacks an accepted
            version or file.
        StackError: A file does not have the pinned checksum, or cannot be unpacked.
    """
    report = report or _silent
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise UnavailableError(
                f"Debian's package {package.name} cannot be fetched: {program} is not installed"
            )
    folder = _folder(cache)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f"{_folder_prefix(package)}.lock", report):
        if found := unpacked(package, cache=cache):
            return found
        with tempfile.TemporaryDirectory(prefix=f".{package.name}-", dir=folder) as staging:
            return _fetch_package(package, Path(staging), folder, report)


def _fetch_package(package: Package, staging: Path, folder: Path, report: Report) -> Path:
    """Fetch, verify and unpack a Debian package with its dependencies; return the new folder."""
    report(f"fetching Debian's package {package.name}")
    apt = _Apt(staging / "apt", package)
    apt.update()
    if package.suite is not None:
        apt.narrow_to(package.suite)
    if package.version is not None and apt.candidate() != package.version:
        raise UnavailableError(
            f"{package.name} {package.version} was tested, but Debian's"
            f" {package.suite or 'configured suites'} has version {apt.candidate() or 'none'}"
        )
    files = apt.download()
    own = next(file for file in files if file.name.startswith(f"{package.name}_"))
    if package.sha256:
        pinned = package.sha256.get(own.stem.rpartition("_")[2])
        if pinned is None:
            raise UnavailableError(f"{own.name} is for an architecture that was not tested")
        if (found := sha256_of(own)) != pinned:
            raise StackError(
                f"{own.name} has checksum {found}, but {pinned} is pinned",
                remedy="The mirror or a proxy serves another file under this name: find out which"
                " one before you trust it.",
            )
    root = staging / "root"
    root.mkdir()
    for file in files:
        _run_apt(["dpkg-deb", "--extract", str(file), str(root)], _UNPACK_LIMIT_S)
    # Debian writes an epoch's colon as %3a.
    version = own.name.split("_")[1].rpartition("%3a")[2]
    target = folder / f"{_folder_prefix(package)}_{version}"
    root.rename(target)
    report(f"fetched Debian's package {package.name} {version}")
    return target


class _Apt:
    """Runs APT with this machine's configuration, but with separate lists and downloads.

    Args:
        folder: Holds the lists and downloads.
        package: The wanted package.
    """

    def __init__(self, folder: Path, package: Package) -> None:
        self._folder = folder
        self._package = package
        self._config = folder / "apt.conf"
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        self._settings: dict[str, object] = {
            "Dir::State": folder / "state",
            "Dir::State::status": _SYSTEM_STATUS,
            "Dir::Cache": folder / "cache",
            # The lists belong to this process alone: the system's lock is not needed or allowed.
            "Debug::NoLocking": "1",
            # Otherwise root's APT fetches as another user, who cannot enter this folder.
            "APT::Sandbox::User": "",
            "APT::Install-Recommends": "false",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled": "false",
            "Acquire::Retries": "3",
            "Acquire::http::Timeout": "60",
        }
        self._configure()

    def update(self) -> None:
        """Fetch APT's lists of the configured suites."""
        self._apt("update", limit_s=_UPDATE_LIMIT_S)

    def narrow_to(self, suite: str) -> None:
        """Let APT use only the given suite, from the configured mirror of Debian."""
        targets = self._apt(
            "indextargets",
            "--format",
            "$(ORIGIN)|$(LABEL)|$(REPO_URI)",
            "Created-By: Packages",
        )
        mirrors = [
            line.split("|")[2] for line in targets.splitlines() if line.startswith("Debian|Debian|")
        ]
        if not mirrors:
            raise UnavailableError(
                f"Debian's package {self._package.name} of {suite} cannot be fetched: APT is not"
                " configured for a mirror of Debian"
            )
        sources = self._folder / "sources.list"
        sources.write_text(f"deb {mirrors[0]} {suite} main\n", "utf-8")
        # APT takes all dependencies from this suite, as if no package were installed here.
        self._settings["Dir::Etc::SourceList"] = sources
        self._settings["Dir::Etc::SourceParts"] = "/dev/null"
        self._settings["Dir::State::status"] = self._folder / "status"
        self._configure()
        self.update()

    def _configure(self) -> None:
        lines = [f'{name} "{value}";' for name, value in self._settings.items()]
        # On some systems these hooks remove APT's files after every run.
        lines += [f"#clear {hooks};" for hooks in ("APT::Update::Post-Invoke", "DPkg::Post-Invoke")]
        self._config.write_text("\n".join(lines) + "\n", "utf-8")

    def candidate(self) -> str | None:
        """Return the version of the package that APT would fetch; None if no suite has it."""
        answer = _run_apt(
            ["apt-cache", f"--config-file={self._config}", "policy", self._package.name], 60
        )
        found = re.search(r"Candidate: (\S+)", answer)
        return None if found is None or found[1] == "(none)" else found[1]

    def download(self) -> list[Path]:
        """Fetch the Debian package and its dependencies; return the fetched files."""
        plan = self._apt("install", "--simulate", self._package.name, *self._package.also)
        names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
        wanted = [name for name in names if not name.startswith(self._package.without or "\0")]
        files = self._folder / "files"
        files.mkdir()
        self._apt("download", *wanted, limit_s=_DOWNLOAD_LIMIT_S, folder=files)
        return sorted(files.glob("*.deb"))

    def _apt(self, *arguments: str, limit_s: float = 60.0, folder: Path | None = None) -> str:
        try:
            command = ["apt-get", f"--config-file={self._config}", "--quiet", *arguments]
            return _run_apt(command, limit_s, folder)
        except StackError as error:
            raise UnavailableError(
                f"Debian's package {self._package.name} cannot be fetched: {error.message}"
            ) from error


def _run_apt(command: Sequence[str], limit_s: float, folder: Path | None = None) -> str:
    """Run a command of APT or dpkg with a time limit in seconds, and return its output."""
    what = f"{Path(command[0]).name} {next((a for a in command[1:] if a.isalpha()), '')}".strip()
    try:
        answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )
    except subprocess.TimeoutExpired:
        raise StackError(
            f"{what} did not end within {limit_s:.0f} s",
            remedy="Check the network and the mirrors that APT is configured for.",
        ) from None
    except OSError as error:
        raise StackError(f"{what}: {error.strerror}", remedy="Install apt and dpkg.") from None
    if answer.returncode != 0:
        said = (answer.stderr or answer.stdout).strip().splitlines()
        raise StackError(
            f"{what} failed: {' '.join(said[-3:])}",
            remedy="Check the network and the mirrors that APT is configured for.",
        )
    return answer.stdout


def _folder(cache: Path | None) -> Path:
    """Return the folder of the cache that has the unpacked Debian packages of the stack."""
    return (cache or cache_folder()) / "debian"


def _folder_prefix(package: Package) -> str:
    """Return the part before the version in the names of a Debian package's folders."""
    return "_".join(filter(None, (package.name, package.suite)))


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a sort key for Debian versions, by which 10.11.9 comes before 10.11.19."""
    return [(int(number or 0), text) for number, text in re.findall(r"(\d*)(\D*)", name)]


def _silent(_line: str) -> None:
    """Ignore progress of Debian packages, for callers that pass no reporter."""
