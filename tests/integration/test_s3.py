"""A lake on S3: all commands on a table, and stores that refuse requests or do not answer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from stack.object_store import BUCKET
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project
from tests.integration.rigs.s3 import CANARY, S3
from tests.integration.rigs.s3 import s3 as s3
from tributary_reader import changes, open_table

ORDERS = "public.orders"
BOUND_S = 120.0
"""Limit for `check`, in seconds, if the store refuses requests or does not answer."""


@pytest.fixture
def project(database: Database, s3: S3, tmp_path: Path) -> Project:
    made = Project.create(tmp_path, database)
    s3.move(made)
    return made


def test_a_table_lives_on_s3_from_its_first_command_to_its_last(project: Project, s3: S3) -> None:
    project.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 500) g",
    )
    outputs = [project.run("onboard", ORDERS).expect(0)]
    files = S3FileSystem(
        endpoint_override=s3.store.endpoint, access_key="a", secret_key="b", region="us-east-1"
    )
    first = project.run("path", ORDERS).expect(0).stdout.strip()
    assert first.startswith(f"s3a://{BUCKET}/lake/{project.database.name}/public/orders/attempt=")
    folder = first.rpartition("/")[0]
    copied = changes(folder, filesystem=files)
    assert (copied.whole, copied.rows.num_rows) == (True, 500)
    project.execute(
        "UPDATE orders SET v = -1 WHERE id <= 10",
        "DELETE FROM orders WHERE id = 11",
        "INSERT INTO orders VALUES (501, 501)",
    )
    before = len(s3.requests())
    outputs.append(project.run("run").expect(0))
    assert_few_requests(s3.requests()[before:])
    before = len(s3.requests())
    outputs.append(project.run("run").expect(0))
    idle = s3.requests()[before:]
    # The pointer (two), whether the newest commit is there, and the files of readers (two).
    assert len(idle) <= 5, "\n".join(idle)
    listed = project.run("path", ORDERS, "--files", "--output", "json").expect(0).json["files"]
    assert sum(one["rows"] for one in listed) == 500
    assert all(one["path"].startswith(f"{first}/") and one["size"] for one in listed)
    found = open_table(folder, filesystem=files).read(["id", "v"]).to_pylist()
    assert {row["id"]: row["v"] for row in found} == {
        **{key: key for key in range(1, 502) if key != 11},
        **dict.fromkeys(range(1, 11), -1),
    }
    changed = changes(folder, copied.position, filesystem=files)
    assert {row["id"] for row in changed.rows.to_pylist()} == {*range(1, 11), 501}
    assert [row["id"] for row in changed.deleted.to_pylist()] == [11]
    outputs.append(project.run("resync", ORDERS).expect(0))
    second = project.run("path", ORDERS).expect(0).stdout.strip()
    assert second != first
    pointers = [one for one in s3.requests() if "_current.json" in one and one.startswith("PUT")]
    assert len(pointers) == 2, "each generation is published by one put"
    outputs.append(project.run("verify", ORDERS).expect(0))
    outputs.append(project.run("generations", "remove", ORDERS, "1").expect(0))
    assert not [key for key in s3.objects() if first.partition("lake/")[2] in key]
    (told,) = project.run("status", ORDERS, "--output", "json").expect(0).json["tables"]
    assert (told["state"], told["lake_size"]["other_generations_bytes"]) == ("incremental", 0)
    outputs.append(project.run("offboard", ORDERS, "--delete-data").expect(0))
    assert [key for key in s3.objects() if "orders" in key] == []
    assert not [one for one in outputs if CANARY in one.stdout + one.stderr]


def assert_few_requests(asked: list[str]) -> None:
    """Assert the number of S3 requests of a run with one commit, as in docs/deploy.md.

    The product opens the table three times, in addition to Hudi.
    """
    assert len([one for one in asked if one.startswith("PUT") and one.endswith(".commit")]) == 1
    kinds = [one.split()[0] for one in asked if one.endswith("/.hoodie/hoodie.properties")]
    text = " ".join(kinds)
    # We look whether the table is there before Hudi opens it; Hudi opens it with one HEAD.
    ours, all_opens = text.count("HEAD HEAD GET"), text.count("GET")
    assert (ours, all_opens - ours) == (3, 8), text
    assert len(asked) <= 105, "\n".join(asked)


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
