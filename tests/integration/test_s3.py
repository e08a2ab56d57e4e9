"""A lake on S3: a store that refuses, or does not answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.object_store import BUCKET
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project
from tests.integration.rigs.s3 import CANARY, S3, own_s3

BOUND_S = 120.0
"""The longest time that a store that refuses or does not answer may hold `check`."""


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3]:
    with own_s3(tmp_path) as server:
        yield server


@pytest.fixture
def project(database: Database, s3: S3, tmp_path: Path) -> Project:
    made = Project.create(tmp_path, database)
    s3.move(made)
    return made


@pytest.mark.breadth
def test_check_says_what_the_store_lacks_and_is_content_once_it_has_it(
    project: Project, s3: S3
) -> None:
    def refused(*, url: str | None = None) -> str:
        if url is not None:
            text = project.file.read_text()
            project.file.write_text(text.replace(f"s3a://{BUCKET}/", f"s3a://{url}/"))
        started = time.monotonic()
        ran = project.run("check").expect(1)
        assert time.monotonic() - started < BOUND_S
        assert CANARY not in ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    with s3.denied("s3:PutObject"):
        assert "Allow s3:ListBucket" in refused()
    with s3.knowing_nobody():
        assert "does not accept the credentials" in refused()
    s3.process.kill()
    assert "The store does not answer" in refused()
    s3.process.start(s3.store.command())
    assert "Create the bucket" in refused(url="nowhere")
    s3.store.create_bucket("nowhere")
    assert "nowhere/lake is writable" in project.run("check").expect(0).stdout
