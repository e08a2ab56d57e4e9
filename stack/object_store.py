"""Runs moto's S3-compatible server as a process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from stack.errors import StackError
from stack.ports import HOST
from stack.process import Command
from stack.secrets import private_folder

BUCKET = "tributary"
"""The bucket of the stack's lake."""
ACCESS_KEY = "tributary"
"""The access key for the lake.

The secret key is in the stack's folder of secrets.
"""

_REGION = "us-east-1"
"""The region that the server names. Clients need a region to sign requests."""
_PROBE_S = 3.0
_CREATE_S = 10.0


@dataclass(frozen=True)
class StoreLogin:
    """How the stack's Hive Metastore and Trino reach a lake on the S3-compatible server.

    Args:
        endpoint: The URL of the S3-compatible server.
        secret: Returns the secret key that belongs to the access key `ACCESS_KEY`.
    """

    endpoint: str
    secret: Callable[[], str]

    def hadoop_settings(self) -> dict[str, str]:
        """Return the settings of Hadoop's S3A for the Hive Metastore, including the secret key."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": self.secret(),
        }

    def trino_settings(self) -> dict[str, str]:
        """Return the settings of Trino's own file system for S3, including the secret key."""
        return {
            "fs.native-s3.enabled": "true",
            "s3.endpoint": self.endpoint,
            "s3.region": _REGION,
            "s3.path-style-access": "true",
            "s3.aws-access-key": ACCESS_KEY,
            "s3.aws-secret-key": self.secret(),
        }


class ObjectStore:
    """The stack's S3-compatible server, which holds all objects in memory until it stops.

    The server accepts any credentials, since only programs on this machine can reach it.

    Args:
        folder: Working directory.
        port: Port that the server listens on.
    """

    name = "s3"
    program = Path(sys.executable).resolve().name
    stop_signal = signal.SIGTERM
    stop_limit_s = 5.0
    ready_limit_s = 60.0

    def __init__(self, *, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    @property
    def endpoint(self) -> str:
        """The URL of the stack's S3-compatible server."""
        return f"http://{HOST}:{self.port}"

    def prepare(self) -> None:
        """Make the folder of the stack's S3-compatible server."""
        private_folder(self.folder)

    def command(self) -> Command:
        """The command that starts the stack's S3-compatible server."""
        argv = (sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(self.port))
        return Command(argv, self.folder)

    def unhealthy(self) -> str | None:
        """The reason why the stack's S3-compatible server is not ready; None when it is ready."""
        try:
            answer = httpx.get(f"{self.endpoint}/moto-api/data.json", timeout=_PROBE_S)
        except httpx.HTTPError as error:
            return f"no answer ({type(error).__name__})"
        return None if answer.is_success else f"answers with HTTP {answer.status_code}"

    def create_bucket(self, name: str = BUCKET) -> None:
        """Create a bucket in the stack's S3-compatible server; an existing bucket stays.

        Raises:
            StackError: The server refuses, or does not answer.
        """
        try:
            httpx.put(f"{self.endpoint}/{name}", timeout=_CREATE_S).raise_for_status()
        except httpx.HTTPError as error:
            raise StackError(
                f"{self.name}: bucket {name} cannot be created: {error}",
                remedy="Act on the log's last lines, then run `tributary stack up` again.",
            ) from error
