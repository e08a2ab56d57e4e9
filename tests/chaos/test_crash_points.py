"""Kill the process at each named point; the same command again must repair what was left."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from cdc.failpoints import FAILPOINTS
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
def project(stack: Any, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("crash")
    # A tier of its own gives each of the onboard points a new connector, slot and publication.
    tiers = {f"public.{table(name)}": {"tier": f"t{n}"} for n, name in enumerate(ONBOARD_POINTS)}
    # Several chunks and commits per table, so that "in the middle" exists.
    return Project.create(
        folder,
        stack.config_text(),
        stack.env()["TRIBUTARY_PRIMARY_DSN"],
        source="crash",
        tables=tiers,
        defaults={"chunk_rows": 500},
    )


def table(point: str) -> str:
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


def crash_then_repeat(project: Project, point: str, *arguments: str) -> None:
    killed = project.run(*arguments, crash_at=point)
    assert killed.code == -signal.SIGKILL, (
        f"{point} was not passed by `tributary {' '.join(arguments)}` (exit {killed.code}):\n"
        f"{killed.stdout[-3000:]}\n{killed.stderr[-3000:]}"
    )
    project.run(*arguments).expect(0)


@pytest.mark.parametrize("point", each(ONBOARD_POINTS + BOOTSTRAP_POINTS))
def test_onboard_killed_at_each_point_and_repeated(
    point: str, project: Project, spark: Any
) -> None:
    name = table(point)
    create(project, name)
    killed = project.run("onboard", f"public.{name}", crash_at=point)
    assert killed.code == -signal.SIGKILL, f"{point} was not passed:\n{killed.stderr[-3000:]}"
    change(project, name)
    project.run("onboard", f"public.{name}").expect(0)
    project.run("run", f"public.{name}").expect(0)
    project.assert_equal(spark, f"public.{name}", COLUMNS)


@pytest.fixture(scope="module")
def running(project: Project) -> str:
    name = "crash_runs"
    create(project, name)
    project.run("onboard", f"public.{name}").expect(0)
    return name


@pytest.mark.parametrize("point", each(RUN_POINTS))
def test_run_killed_at_each_point_and_repeated(
    point: str, project: Project, running: str, spark: Any
) -> None:
    change(project, running)
    crash_then_repeat(project, point, "run", f"public.{running}")
    project.assert_equal(spark, f"public.{running}", COLUMNS)
    project.execute(f"delete from public.{running} where id >= 10001")  # so the next can insert
