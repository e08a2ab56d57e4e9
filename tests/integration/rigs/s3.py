"""A test's own S3-compatible server, and a project whose lake is on that server."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from stack.object_store import BUCKET, ObjectStore
from stack.process import ServerProcess
from tests.integration.rigs.object_store import move_lake, own_port, started
from tests.integration.rigs.project import Project

CANARY = "canary-of-the-secret-key"


@dataclass(frozen=True)
class S3:
    """A running S3-compatible server."""

    store: ObjectStore
    process: ServerProcess

    def objects(self) -> list[str]:
        """The keys of all objects in the bucket."""
        listed = httpx.get(f"{self.store.endpoint}/{BUCKET}?list-type=2", timeout=30).text
        assert "<IsTruncated>false" in listed, "one page has them all"
        return re.findall(r"<Key>([^<]*)</Key>", listed)

    def requests(self) -> list[str]:
        """Method and path of every request to the bucket so far, as the server logged them."""
        log = self.process.log.read_text("utf-8", "replace")
        lines = re.sub(r"\x1b\[\d+m", "", log).splitlines()  # it colours what is not 200
        asked = [line.split('"')[1] for line in lines if f" /{BUCKET}/" in line]
        return [one.removesuffix(" HTTP/1.1") for one in asked]

    @contextlib.contextmanager
    def denied(self, *actions: str) -> Iterator[None]:
        """Forbid these actions to everybody, by a policy of the bucket, while a block runs."""
        place = f"arn:aws:s3:::{BUCKET}"
        rule = {"Effect": "Deny", "Principal": "*", "Action": list(actions)}
        statement = [{**rule, "Resource": [place, f"{place}/*"]}]
        url = f"{self.store.endpoint}/{BUCKET}?policy"
        httpx.put(url, content=json.dumps({"Statement": statement})).raise_for_status()
        try:
            yield
        finally:
            httpx.delete(url).raise_for_status()

    @contextlib.contextmanager
    def knowing_nobody(self) -> Iterator[None]:
        """Let the server refuse all credentials while a block runs."""
        url = f"{self.store.endpoint}/moto-api/reset-auth"
        httpx.post(url, content="0").raise_for_status()
        try:
            yield
        finally:
            httpx.post(url, content="inf").raise_for_status()

    def move(self, project: Project) -> None:
        """Configure a project's lake in the bucket of this server."""
        secret = project.folder / "s3.secret"
        secret.write_text(CANARY)
        hadoop = {
            "fs.s3a.endpoint": self.store.endpoint,
            "fs.s3a.path.style.access": True,
            "fs.s3a.access.key": "somebody",
            "fs.s3a.secret.key": f"${{file:{secret}}}",
        }
        move_lake(project, f"s3a://{BUCKET}/lake", hadoop)


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3]:
    """The S3-compatible server of one test, with an empty bucket."""
    with own_s3(tmp_path) as server:
        yield server


@contextlib.contextmanager
def own_s3(folder: Path) -> Iterator[S3]:
    """A server with an empty bucket; the server is stopped at the end of the block."""
    store = ObjectStore(folder=folder / "server", port=own_port("s3"))
    store.prepare()
    with started(store, folder) as process:
        store.create_bucket()
        yield S3(store, process)
