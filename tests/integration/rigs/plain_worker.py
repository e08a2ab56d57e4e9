"""A second worker of Kafka Connect, without exactly-once source support."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import stamina

from cdc.config import ConnectConfig, parse
from cdc.connect import ConnectClient
from cdc.errors import ConnectError
from stack.local import LocalStack
from stack.ports import choose
from tests.integration.rigs.captured import wait_until

FLUSH_S = 3.0
"""Seconds after which the worker stores the positions of its connectors."""


@dataclass
class PlainWorker:
    """A Kafka Connect worker with the stack's software and the stack's Kafka.

    Args:
        config: The address and login of the worker.
        command: The command that starts the worker.
        folder: The worker's folder, with the file of users that may log in.
        log: The file for the worker's output.
    """

    config: ConnectConfig
    command: list[str]
    folder: Path
    log: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the worker, and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command, cwd=self.folder, stdout=log, stderr=log)
        with contextlib.closing(ConnectClient(self.config)) as client:
            wait_until(lambda: self._answers(client), "the worker")

    def kill(self) -> None:
        """End the worker as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self, client: ConnectClient) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-3000:]
        with stamina.set_testing(True, attempts=1), contextlib.suppress(ConnectError):
            client.names()
            return True
        return False


@pytest.fixture
def plain_worker(stack: LocalStack, tmp_path: Path) -> Iterator[PlainWorker]:
    text = (stack.folder / "connect" / "worker.properties").read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    port = choose(["connect"])["connect"]
    settings |= {
        "group.id": "plain",
        "listeners": f"http://127.0.0.1:{port}",
        "exactly.once.source.support": "disabled",
        "offset.flush.interval.ms": str(int(FLUSH_S * 1000)),
        **{f"{kind}.storage.topic": f"plain-{kind}" for kind in ("config", "offset", "status")},
    }
    properties = tmp_path / "worker.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    pid = stack.server("connect").pid
    assert pid is not None
    worker = PlainWorker(
        parse(stack.config_text()).connect.model_copy(update={"url": f"http://127.0.0.1:{port}"}),
        [*psutil.Process(pid).cmdline()[:-1], str(properties)],
        stack.folder / "connect",
        tmp_path / "worker.log",
    )
    try:
        worker.start()
        yield worker
    finally:
        worker.kill()
