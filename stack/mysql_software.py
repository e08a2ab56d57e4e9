"""Finds MySQL and MariaDB by an environment variable, on the PATH, or in Debian's packages.

Debian's stable release has MariaDB, but not MySQL. Debian's unstable release has MySQL, in changing
versions. If the unstable release no longer has the tested version, the stack raises an
UnavailableError.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cdc.runtime.jars import Report
from cdc.store.documents import Part
from stack.debian import Package, unpack, unpacked
from stack.errors import StackError, UnavailableError

MYSQL = "mysql"
MARIADB = "mariadb"

# Debian's folders of servers, which are not on every user's PATH.
_SBIN = ("/usr/local/sbin", "/usr/sbin")


@dataclass(frozen=True)
class Product:
    """The names and versions by which the stack finds MySQL or MariaDB, or fetches its package.

    Args:
        title: The product's name.
        programs: The file names that the server program can have.
        variable: Environment variable that names the server to use.
        oldest: Oldest version that works with the stack's settings and statements.
        tested: Release series that the tests use.
        package: The Debian package, for machines that lack the product.
    """

    title: str
    programs: tuple[str, ...]
    variable: str
    oldest: tuple[int, ...]
    tested: str
    package: Package


PRODUCTS = {
    MYSQL: Product(
        "MySQL",
        ("mysqld",),
        "TRIBUTARY_MYSQLD",
        (8, 0, 23),
        "9.7",
        Package(
            "mysql-server-core",
            suite="sid",
            version="9.7.4-2",
            sha256={"amd64": "628d2d7d2dc827507bcae80677a9950766b002bec2c658cb96343d9f324f8660"},
            without=("perl", "libperl"),
        ),
    ),
    MARIADB: Product(
        "MariaDB",
        ("mariadbd", "mysqld"),
        "TRIBUTARY_MARIADBD",
        (10, 6, 1),
        "10.11",
        # The client's package has a program that the script for data directories runs.
        Package("mariadb-server-core", also=("mariadb-client-core",)),
    ),
}
"""The products MySQL and MariaDB, by kind of source as `stack up --source` names the kind."""


@dataclass(frozen=True)
class Installation(Part):
    """A MySQL or MariaDB on this machine, either installed or unpacked in the cache.

    Args:
        kind: A key of ``PRODUCTS``.
        server: The server program.
        version: The version, for example ``10.11.19``.
        root: The folder of the unpacked packages; None if the product is installed.
    """

    kind: str
    server: Path
    version: str
    root: Path | None = None

    @property
    def title(self) -> str:
        """The product's name and version, for messages."""
        return f"{PRODUCTS[self.kind].title} {self.version}"

    @property
    def command(self) -> tuple[str, ...]:
        """The beginning of the command line of the stack's MySQL or MariaDB."""
        if (loader := self._loader) is None:
            return (str(self.server),)
        # The server was built for another release of Debian. It needs that release's C library,
        # which this machine's loader could not load.
        return (str(loader), "--library-path", str(loader.parent), str(self.server))

    @property
    def program(self) -> str:
        """File name of the program that is started: the server, or the loader that loads it."""
        return self.server.resolve().name if self._loader is None else self._loader.name

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that an unpacked MySQL or MariaDB of the stack needs."""
        # With a C library in that folder, other programs could not be loaded any more.
        if self.root is None or self._loader is not None:
            return {}
        return {"LD_LIBRARY_PATH": str(_library_folder(self.root))}

    @property
    def places(self) -> dict[str, Path]:
        """The settings that name an unpacked MySQL's folders; empty if MySQL is installed."""
        if self.root is None:
            return {}
        share = self.root / "usr" / "share" / "mysql"
        return {
            "basedir": self.root / "usr",
            "lc_messages_dir": share,
            "character_sets_dir": share / "charsets",
            "plugin_dir": self.root / "usr" / "lib" / "mysql" / "plugin",
        }

    @property
    def _loader(self) -> Path | None:
        """The C library's loader that was unpacked with the stack's MySQL, or None."""
        if self.root is None:
            return None
        return next(_library_folder(self.root).glob("ld-linux*.so*"), None)


def find_installation(
    kind: str, *, cache: Path | None = None, report: Report | None = None
) -> Installation:
    """Return the MySQL or MariaDB for the stack; if this machine lacks it, fetch Debian's packages.

    Args:
        kind: A key of ``PRODUCTS``.
        cache: Cache of downloads; by default the cache of ``cdc.runtime.jars``.
        report: Receives lines of progress.

    Raises:
        UnavailableError: This machine lacks the product, and the product cannot be fetched.
        StackError: The environment variable names an unusable program, or the fetched files are
            unusable.
    """
    product = PRODUCTS[kind]
    if named := os.environ.get(product.variable):
        found = _inspect_program(kind, Path(named))
        if isinstance(found, str):
            raise StackError(
                f"{product.variable}: {found}",
                remedy=f"Name the server program of {product.title}"
                f" {_dotted_version(product.oldest)} or later, or unset {product.variable}.",
            )
        return found
    refused = []
    for server in _installed_programs(product):
        found = _inspect_program(kind, server)
        if not isinstance(found, str):
            return found
        refused.append(found)
    try:
        root = unpacked(product.package, cache=cache)
        root = root or unpack(product.package, cache=cache, report=report)
    except UnavailableError as error:
        # A mysqld of MariaDB is not worth a message.
        seen = "; ".join(text for text in refused if "is not " not in text)
        raise UnavailableError(
            f"{product.title} {_dotted_version(product.oldest)} or later is not available"
            f"{f' ({seen})' if seen else ''}: {error.message}",
            remedy=f"Install {product.title}, or name its server with {product.variable}.",
        ) from None
    found = _inspect_program(kind, root / "usr" / "sbin" / product.programs[0], root)
    if isinstance(found, str):
        raise StackError(
            f"the unpacked {product.title} does not run here: {found}",
            remedy=f"Remove {root} and run again, or name a server with {product.variable}.",
        )
    return found


def _installed_programs(product: Product) -> Iterator[Path]:
    """Yield MySQL's or MariaDB's server programs for the stack, from PATH and Debian's folders."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN))
    for name in product.programs:
        if found := shutil.which(name, path=path):
            yield Path(found).resolve()


def _inspect_program(kind: str, server: Path, root: Path | None = None) -> Installation | str:
    """Return the installation of a server program, or why the stack cannot use the program."""
    product = PRODUCTS[kind]
    candidate = Installation(kind, server, "", root)
    try:
        answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
            [*candidate.command, "--no-defaults", "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **candidate.environment},
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{server} cannot be run: {error}"
    found = re.search(r"Ver (\d+(?:\.\d+)+)", answer.stdout)
    if answer.returncode != 0 or found is None:
        said = (answer.stderr or answer.stdout).strip()
        return f"{server} --version fails on {platform.machine()}: {said}"
    if ("MariaDB" in answer.stdout) != (kind == MARIADB):
        return f"{server} is not {product.title}"
    if tuple(map(int, found[1].split("."))) < product.oldest:
        return f"{server} is version {found[1]}"
    return Installation(kind, server, found[1], root)


def _library_folder(root: Path) -> Path:
    """Return the folder with the libraries of an unpacked MySQL for the stack."""
    return next((root / "usr" / "lib").glob("*-linux-gnu*"), root / "usr" / "lib")


def _dotted_version(version: tuple[int, ...]) -> str:
    """Return the version of a MySQL or MariaDB for the stack as text, with dots."""
    return ".".join(map(str, version))
