"""Kill a shard's copy where its rows join the lake table, and a shard's run where it commits."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cdc.config import load
from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.onboard import onboard
from operate.verify.batch import verify_tables
from stack.postgres import POSTGRES
from tests.integration.rigs.kinds import database_of
from tests.integration.rigs.project import Project
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import settle

POINTS = ["bootstrap.before_publish", "shards.after_join", "bootstrap.after_publish"]
RUN_POINTS = ["run.in_commit", "run.after_commit"]


@pytest.fixture(scope="module")
def project(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    with database_of(request, POSTGRES) as database:
        sharded = {"from": ["*.crash_*"], "shard": "{table}"}
        yield Project.create(tmp_path_factory.mktemp("shards"), database, tables={"all": sharded})


@pytest.mark.breadth
@pytest.mark.parametrize("point", POINTS + RUN_POINTS)
def test_a_shard_killed_at_each_point_and_repeated(
    point: str, project: Project, spark: SparkSession
) -> None:
    name = "crash_" + point.replace(".", "_")
    table = project.table(name)
    project.execute(f"create table {name} (id int primary key, t text)")
    project.database.load(name, ((n, name) for n in range(500)))
    onboarded = project.run("onboard", project.label(name), crash_at=point)
    if point in POINTS:
        assert onboarded.code == -signal.SIGKILL, onboarded.stderr[-3000:]
    else:
        # The catch-up of a copy commits, too.
        assert onboarded.code in (0, -signal.SIGKILL), onboarded.stderr[-3000:]
    project.execute(
        f"update {name} set t = 'changed' where id < 9", f"delete from {name} where id = 9"
    )
    services = Services(load(project.folder / "tributary.yaml"), NullProgress(), spark=spark)
    try:
        (outcome,) = onboard(services, [table])
        assert outcome.error is None, outcome.error
        if point in RUN_POINTS:
            project.execute(f"update {name} set t = 'again' where id = 1")
            settle(services, table)
            killed = project.run("run", project.label(name), crash_at=point)
            assert killed.code == -signal.SIGKILL, killed.stderr[-3000:]
        everyone = [record.table for record in services.store.tables()]
        found, failures = verify_tables(services, everyone)
        assert not failures
        assert [one for one in found if not one.equal or not one.rows_compared] == []
        assert table in everyone
    finally:
        services.close()
