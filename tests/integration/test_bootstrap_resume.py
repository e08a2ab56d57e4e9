"""Bootstraps that are killed, and tables larger than the driver's memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from bootstrap import copying
from cdc.sources.postgres import key_order
from tests.integration.rigs.bootstrapping import Bootstrapping, fill_wide
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project
from tests.integration.rigs.running import spark as spark

ROWS = 10_000
LARGE_ROWS = int(os.environ.get("TRIBUTARY_LARGE_ROWS", "400000"))
"""The number of rows of a table that is larger than the driver's memory: 3.2 GiB, 8 kB a row."""


@pytest.fixture
def project(database: Database, tmp_path: Path) -> Project:
    return Project.create(tmp_path, database)


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Bootstrapping]:
    with closing(Bootstrapping(database, spark, tmp_path)) as opened:
        yield opened


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


@pytest.mark.breadth
def test_a_key_that_sorts_otherwise_meanwhile_begins_the_copy_again(
    shop: Bootstrapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the order of a newer library, rows that are not copied yet can be in copied chunks."""
    for name in ("orders", "parts"):
        shop.database.execute(
            f'CREATE TABLE {name} (code text COLLATE "und-x-icu" PRIMARY KEY, v int)',
            f"INSERT INTO {name} SELECT 'k' || g, g FROM generate_series(1, 5000) g",
        )
    shop.add("orders", "parts")
    shop.configure(public__orders={"chunk_rows": 500}, public__parts={"chunk_rows": 500})
    monkeypatch.setattr(copying, "SINGLE_WAVE_BYTES", 0)

    def interrupted(point: str) -> None:
        if point == "bootstrap.after_chunk_commit":
            raise KeyboardInterrupt

    for name in ("orders", "parts"):
        with monkeypatch.context() as patch:
            patch.setattr(copying, "crash", interrupted)
            with pytest.raises(KeyboardInterrupt):
                shop.bootstrap(name)
    assert shop.bootstrap("orders").rows < 5000, "the copy continues"
    newer = key_order.LibraryVersion("999", recorded=None)
    monkeypatch.setattr(key_order, "versions", lambda *_: {"code": newer})
    assert shop.bootstrap("parts").rows == 5000, "not one row of the former copy was kept"
    shop.catch_up_and_compare("parts", "code", "v")
