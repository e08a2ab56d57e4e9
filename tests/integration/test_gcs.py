"""All commands on a table whose lake is on a server with Google Cloud Storage's interface."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.ports import HOST, choose
from tests.integration.rigs.gcs import BUCKET, Gcs, own_gcs
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project
from tributary_reader import open_table

ORDERS = "public.orders"
BOUND_S = 300.0
"""Limit for a run, in seconds, while the store does not answer; each request takes 33 s then."""
pytestmark = pytest.mark.breadth


@pytest.fixture
def gcs(tmp_path: Path) -> Iterator[Gcs]:
    with own_gcs(tmp_path / "gcs") as opened:
        yield opened


@pytest.fixture
def project(database: Database, gcs: Gcs, tmp_path: Path) -> Project:
    made = Project.create(tmp_path, database)
    gcs.move(made)
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 500) g",
    )
    return made


@pytest.mark.timeout(1800)
def test_a_table_lives_on_gcs_from_its_first_command_to_its_last(
    project: Project, gcs: Gcs
) -> None:
    assert "/lake is writable" in project.run("check").expect(0).stdout
    project.run("onboard", ORDERS).expect(0)
    first = project.run("path", ORDERS).expect(0).stdout.strip()
    assert first.startswith(f"gs://{BUCKET}/lake/{project.database.name}/public/orders/attempt=")
    project.execute(
        "UPDATE orders SET v = -1 WHERE id <= 10",
        "DELETE FROM orders WHERE id = 11",
        "INSERT INTO orders VALUES (501, 501)",
    )
    project.run("run", crash_at="run.in_commit").expect(-signal.SIGKILL)
    project.run("run").expect(0)
    verified = project.run("verify", ORDERS, "--output", "json").expect(0)
    assert '"rows_compared": 500' in verified.stdout, verified.stdout
    found = open_table(first.rpartition("/")[0], filesystem=gcs.files()).read(["id", "v"])
    assert {row["id"]: row["v"] for row in found.to_pylist()} == {
        **{key: key for key in range(1, 502) if key != 11},
        **dict.fromkeys(range(1, 11), -1),
    }
    listed = project.run("path", ORDERS, "--files", "--output", "json").expect(0).json["files"]
    assert sum(one["rows"] for one in listed) == 500

    project.run("resync", ORDERS, crash_at="bootstrap.after_publish").expect(-signal.SIGKILL)
    project.run("resync", ORDERS).expect(0)
    second = project.run("path", ORDERS).expect(0).stdout.strip()
    assert second != first, "one put replaced the pointer"
    project.run("verify", ORDERS).expect(0)
    project.run("generations", "remove", ORDERS, "1").expect(0)
    assert not [one for one in gcs.objects() if first.partition("lake/")[2] in one]
    (shown,) = project.run("status", ORDERS, "--output", "json").expect(0).json["tables"]
    assert (shown["state"], shown["lake_size"]["other_generations_bytes"]) == ("incremental", 0)
    project.run("offboard", ORDERS, "--delete-data").expect(0)
    assert [one for one in gcs.objects() if "orders" in one] == []


def test_a_store_that_is_away_stops_a_run_by_name_and_loses_nothing(
    project: Project, gcs: Gcs
) -> None:
    project.run("onboard", ORDERS).expect(0)
    project.execute("UPDATE orders SET v = -1 WHERE id <= 10")
    kept = project.file.read_text()
    nobody = f"http://{HOST}:{choose(['nobody'])['nobody']}"
    project.file.write_text(kept.replace(gcs.server.endpoint, nobody))
    started = time.monotonic()
    ran = project.run("run").expect(1, 3)
    assert time.monotonic() - started < BOUND_S
    assert "The store does not answer" in ran.stdout + ran.stderr
    project.file.write_text(kept)
    project.run("retry", ORDERS)
    project.run("run").expect(0)
    project.run("verify", ORDERS).expect(0)


def test_check_says_that_the_bucket_is_missing_and_is_content_once_it_is_there(
    project: Project, gcs: Gcs
) -> None:
    text = project.file.read_text()
    project.file.write_text(text.replace(f"gs://{BUCKET}/", "gs://nowhere/"))
    refused = project.run("check").expect(1)
    assert "Create the bucket" in refused.stdout + refused.stderr
    gcs.create_bucket("nowhere")
    assert "nowhere/lake is writable" in project.run("check").expect(0).stdout
