"""Kill the process while a table's metastore name moves to a new generation; a run finishes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from cdc.config import load
from cdc.run import run_tables
from cdc.runtime.failpoints import FAILPOINTS
from cdc.runtime.progress import NullProgress
from cdc.runtime.spark import java_class
from cdc.store.table_state import State
from operate.context import Services
from operate.onboard import onboard
from stack.local import LocalStack
from tests.integration.rigs.postgres import own_database
from tests.integration.rigs.project import Project, killed_at

POINTS = [name for name in FAILPOINTS if name.startswith("catalog.")]


@pytest.fixture(scope="module")
def project(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    stack.up(optional=["metastore"])
    folder = tmp_path_factory.mktemp("catalog")
    with own_database(stack) as database:
        made = Project.create(
            folder,
            database,
            # With partitions, a name moves by two renames.
            defaults={"partition_by": ["part"]},
        )
        file = folder / "tributary.yaml"
        document = yaml.safe_load(file.read_text())
        document["catalog"] = {"metastore": stack.addresses().metastore_url}
        file.write_text(yaml.safe_dump(document))
        yield made


@pytest.mark.breadth
@pytest.mark.parametrize("point", POINTS)
def test_a_move_killed_at_each_point_is_finished_by_a_run(
    point: str, project: Project, spark: SparkSession
) -> None:
    name = point.replace(".", "_")
    project.execute(
        f"create table public.{name} (id int, part int, primary key (id, part))",
        f"insert into public.{name} select g, g % 3 from generate_series(1, 100) g",
    )
    table = project.table(name)
    config = load(project.folder / "tributary.yaml")
    assert config.catalog is not None
    services = Services(config, NullProgress(), spark=spark)
    try:
        assert [one.error for one in onboard(services, [table])] == [None]
        killed_at(project, point, "resync", f"public.{name}")
        before = names(spark, config.catalog.metastore, f"{project.database.name}_public", name)
        assert (name in before) == (point == "catalog.before_move")
        assert f"{name}__next" in before
        record = services.store.get(table)
        assert record is not None
        assert (record.state, record.generation) == (State.INCREMENTAL, 2)
        assert run_tables(services.run_context, [record]) == [], "it has no new changes"
        assert record.attempt is not None
        after = names(spark, config.catalog.metastore, f"{project.database.name}_public", name)
        assert after == {name: record.attempt.path.replace("file:///", "file:/")}
    finally:
        services.close()


def names(spark: SparkSession, url: str, database: str, prefix: str) -> dict[str, str]:
    """The names in the metastore that begin with the prefix, each with the path it leads to."""
    conf: Any = java_class(spark, "org.apache.hadoop.hive.conf.HiveConf")()
    conf.set("hive.metastore.uris", url)
    client = java_class(spark, "org.apache.hadoop.hive.metastore.HiveMetaStoreClient")(conf)
    try:
        return {
            str(name): str(client.getTable(database, str(name)).getSd().getLocation())
            for name in client.getAllTables(database)
            if str(name).startswith(prefix)
        }
    finally:
        client.close()
