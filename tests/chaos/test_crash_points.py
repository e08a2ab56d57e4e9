"""Kill the process at each named point; the same command again must repair what was left."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.config import load
from cdc.failpoints import FAILPOINTS
from cdc.position import Lsn
from cdc.progress import NullProgress
from cdc.run import run_tables
from operate.context import Services
from operate.onboard import onboard
from schemas.table import TableId
from stack.local import LocalStack
from tests.integration.conftest import own_database
from tests.integration.project import Project

COLUMNS = ("id", "v", "t")
ONE_OF_EACH_KIND = frozenset(
    {
        "onboard.after_connector",
        "bootstrap.after_view",
        "bootstrap.after_chunk_commit",
        "bootstrap.before_handoff_commit",
        "bootstrap.after_publish",
        "run.in_commit",
        "run.after_commit",
    }
)
"""What every run of the tests fires: before data, amid data, between data and state."""


def each(points: list[str]) -> list[Any]:
    """All points; those that are not of a kind of their own run in `make test-all`."""
    marks = {point: () if point in ONE_OF_EACH_KIND else pytest.mark.breadth for point in points}
    return [pytest.param(point, marks=mark) for point, mark in marks.items()]


ONBOARD_POINTS = [name for name in FAILPOINTS if name.startswith("onboard.")]
BOOTSTRAP_POINTS = [name for name in FAILPOINTS if name.startswith("bootstrap.")]
RUN_POINTS = [name for name in FAILPOINTS if name.startswith("run.")]


@pytest.fixture(scope="module")
def project(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("crash")
    # A tier of its own gives each of the onboard points a new connector, slot and publication.
    tiers = {
        f"public.{table_name(name)}": {"tier": f"t{n}"} for n, name in enumerate(ONBOARD_POINTS)
    }
    # Several chunks and commits per table, so that "in the middle" exists.
    with own_database(stack) as database:
        yield Project.create(
            folder,
            stack.config_text(database=database.name),
            database.dsn(),
            source=database.name,
            tables=tiers,
            defaults={"chunk_rows": 500},
        )


def table_name(point: str) -> str:
    return "crash_" + point.replace(".", "_")


def create(project: Project, name: str) -> None:
    project.execute(
        f"create table public.{name} (id bigint primary key, v int not null, t text)",
        f"insert into public.{name} select g, g % 7, repeat('x', g % 50) "
        "from generate_series(1, 3000) g",
    )


def change(project: Project, name: str) -> None:
    project.execute(
        f"update public.{name} set v = v + 1 where id % 3 = 0",
        f"delete from public.{name} where id % 10 = 1",
        f"insert into public.{name} select g, 0, null from generate_series(10001, 10050) g",
        f"update public.{name} set id = id + 50000 where id % 100 = 2",
    )


def killed_at(project: Project, point: str, *arguments: str) -> None:
    """Run the command in a process that is to die at the point, and see that it did."""
    killed = project.run(*arguments, crash_at=point)
    assert killed.code == -signal.SIGKILL, (
        f"{point} was not passed by `tributary {' '.join(arguments)}` (exit {killed.code}):\n"
        f"{killed.stdout[-3000:]}\n{killed.stderr[-3000:]}"
    )


@contextmanager
def opened(project: Project, spark: SparkSession) -> Iterator[Services]:
    """What the command works with in another process: nothing of the first one is left."""
    config = load(project.folder / "tributary.yaml")
    services = Services(config, NullProgress(), spark=spark)
    try:
        yield services
    finally:
        services.close()


def run(services: Services, table: TableId) -> None:
    record = services.store.get(table)
    assert record is not None
    results = run_tables(services.run_context, [record])
    assert not [result.error for result in results if result.error or result.skipped]


@pytest.mark.parametrize("point", each(ONBOARD_POINTS + BOOTSTRAP_POINTS))
def test_onboard_killed_at_each_point_and_repeated(
    point: str, project: Project, spark: SparkSession
) -> None:
    name = table_name(point)
    create(project, name)
    killed_at(project, point, "onboard", f"public.{name}")
    change(project, name)
    with opened(project, spark) as services:
        table = TableId(project.source, "public", name)
        (outcome,) = onboard(services, [table])
        assert outcome.error is None, outcome.error
        wait_until_captured(project, services, table)
        run(services, table)
    project.assert_equal(spark, f"public.{name}", COLUMNS)


@pytest.fixture(scope="module")
def running(project: Project, spark: SparkSession) -> str:
    name = "crash_runs"
    create(project, name)
    with opened(project, spark) as services:
        (outcome,) = onboard(services, [TableId(project.source, "public", name)])
        assert outcome.error is None, outcome.error
    return name


@pytest.mark.parametrize("point", each(RUN_POINTS))
def test_run_killed_at_each_point_and_repeated(
    point: str, project: Project, running: str, spark: SparkSession
) -> None:
    table = TableId(project.source, "public", running)
    change(project, running)
    with opened(project, spark) as services:
        wait_until_captured(project, services, table)
        killed_at(project, point, "run", f"public.{running}")
        run(services, table)
    project.assert_equal(spark, f"public.{running}", COLUMNS)
    project.execute(f"delete from public.{running} where id >= 10001")  # so the next can insert


def wait_until_captured(project: Project, services: Services, table: TableId) -> None:
    """Wait until everything that was written so far is in Kafka: a run takes what is there."""
    with project.connect() as connection:
        row = connection.execute("select pg_current_wal_insert_lsn()").fetchone()
    assert row is not None
    source = services.source(table.source)
    source.write_marker()
    target, slot = Lsn.parse(row[0]), services.capture(table).slot
    deadline = time.monotonic() + 60
    while (health := source.slot_health(slot)) is None or health.confirmed_flush_lsn < target:
        assert time.monotonic() < deadline, f"slot {slot} did not get to {target}: {health}"
        time.sleep(0.1)
