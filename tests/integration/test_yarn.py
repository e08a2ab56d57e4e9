"""Spark on YARN: the commands as a person types them, on a host with Hadoop's configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.cluster import refusal_of_spark
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project, Ran
from tests.integration.rigs.yarn import Yarn, own_yarn

ORDERS = "public.orders"
ROWS = 2000
pytestmark = [pytest.mark.breadth, pytest.mark.timeout(1500)]


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[Yarn]:
    with own_yarn(tmp_path / "yarn") as running:
        yield running


@pytest.fixture
def project(
    database: Database, yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Project:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")  # where tasks would look for Python
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int, note text)",
        f"INSERT INTO orders SELECT g, g, md5(g::text) FROM generate_series(1, {ROWS}) g",
    )
    made = Project.create(tmp_path, database)
    yarn.serve(made, database.dsn(), {})
    return made


def test_a_table_is_copied_followed_and_verified_by_containers_of_yarn(
    project: Project, yarn: Yarn
) -> None:
    shown = words(project.run("check").expect(0))
    assert re.search(r"Spark: yarn, executors on \S+, Java 17, Spark 3.5.7, Hudi 1.2.0", shown)
    project.run("onboard", ORDERS).expect(0)
    project.execute(
        "UPDATE orders SET v = -1 WHERE id <= 10",
        "DELETE FROM orders WHERE id = 11",
        f"INSERT INTO orders VALUES ({ROWS + 1}, 1, NULL)",
    )
    project.run("run").expect(0)
    (found,) = project.run("verify", ORDERS, "--output", "json").expect(0).json["tables"]
    assert (found["equal"], found["rows_compared"]) == (True, ROWS)
    wait_until(lambda: yarn.figures()["AppsCompleted"] == 4, "an application of each command", 30)
    assert yarn.figures()["AggregateContainersAllocated"] >= 8, "Spark's master and executors"


def test_a_resource_manager_that_is_away_is_named(
    project: Project, yarn: Yarn, database: Database
) -> None:
    yarn.serve(project, database.dsn(), {}, start_timeout_s=30)
    yarn.servers[0][1].kill()
    refused = project.run("run", "--output", "json", timeout=200).expect(1)
    error = json.loads(refused.stdout.splitlines()[-1])
    assert "Spark did not start on yarn within 30 s (spark.start_timeout_s)" in str(error)
    assert "Check that spark.master names" in str(error)
    found = refusal_of_spark(project)
    assert "Spark did not start on yarn within 30 s (spark.start_timeout_s)" in found["detail"]
    assert "Check that spark.master names" in found["remedy"]


def words(ran: Ran) -> str:
    """The output of a command in one line, whatever the width of the terminal."""
    return " ".join((ran.stdout + ran.stderr).split())
