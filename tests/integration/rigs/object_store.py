"""A test's own object store with a lake in it: the part that S3 and Google Cloud Storage share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from stack.ports import choose
from stack.process import ServerProcess
from stack.servers import Server, wait_ready
from tests.integration.rigs.project import Project


def own_port(name: str) -> int:
    """A free port for a server of this name."""
    return choose([name])[name]


@contextlib.contextmanager
def started(server: Server, folder: Path) -> Iterator[ServerProcess]:
    """Start a server with its log in ``folder``, and kill the server after the block."""
    process = ServerProcess(
        server.name,
        program=server.program,
        folder=server.folder,
        record=folder / f"{server.name}.json",
        log=folder / f"{server.name}.log",
    )
    process.start(server.command())
    try:
        wait_ready(server, process)
        yield process
    finally:
        process.kill()


def move_lake(project: Project, url: str, hadoop: Mapping[str, object]) -> None:
    """Configure a project's lake at a URL, with the settings of Hadoop that give access to it."""
    document = yaml.safe_load(project.file.read_text())
    document["lake"] = {"url": url, "hadoop": dict(hadoop)}
    project.file.write_text(yaml.safe_dump(document))
