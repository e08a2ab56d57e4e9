"""Bootstraps that are killed, and tables larger than the driver's memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import yaml

from tests.integration.rigs.bootstrapping import fill_wide
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project

ROWS = 10_000
LARGE_ROWS = int(os.environ.get("TRIBUTARY_LARGE_ROWS", "400000"))
"""Of 8 kB each: 3.2 GiB."""


@pytest.fixture
def project(database: Database, tmp_path: Path) -> Project:
    return Project.create(tmp_path, database)


@pytest.mark.breadth
def test_killed_at_80_percent_it_rereads_at_most_a_quarter(
    database: Database, project: Project
) -> None:
    fill_wide(database, "orders", ROWS)
    killed = project.run("onboard", "public.orders", crash_at="bootstrap.before_chunk_commit:3")
    assert killed.code == -signal.SIGKILL, killed.stderr[-3000:]
    database.execute(
        "UPDATE orders SET v = 5 WHERE id % 100 = 0",
        "DELETE FROM orders WHERE id = 17",
        "UPDATE orders SET id = id + 1000000 WHERE id % 1000 = 3",
    )
    again = project.run("bootstrap", "public.orders", "--output", "json").expect(0).json
    (table,) = again["tables"]
    assert table["attempts"] == 0, "the attempt goes on"
    assert 0 < table["rows"] <= 0.25 * ROWS
    project.run("run", "public.orders").expect(0)
    verified = project.run("verify", "public.orders", "--output", "json").expect(0).json
    assert verified["tables"][0]["rows_compared"] == ROWS - 1


@pytest.mark.breadth
def test_a_table_of_3_gib_with_a_driver_of_1_gib(database: Database, project: Project) -> None:
    config = project.folder / "tributary.yaml"
    document = yaml.safe_load(config.read_text())
    document["spark"]["driver_memory"] = "1g"
    config.write_text(yaml.safe_dump(document))
    fill_wide(database, "large", LARGE_ROWS)
    with database.connect() as connection:
        size = connection.execute("SELECT pg_table_size('large')").fetchone()
    assert size is not None
    if "TRIBUTARY_LARGE_ROWS" not in os.environ:
        assert size[0] >= 3 * 1024**3
    done = project.run("onboard", "public.large", "--output", "json", timeout=3600).expect(0)
    assert done.json["tables"][0]["rows"] == LARGE_ROWS
