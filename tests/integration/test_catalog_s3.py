"""Reads by name of tables on S3: the settings that a metastore, Trino and Spark need for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from cdc.config import load
from cdc.runtime import spark as spark_module
from stack.artifacts import fetch_software
from stack.metastore import Metastore
from stack.object_store import StoreLogin
from stack.ports import HOST
from stack.postgres import POSTGRES
from stack.trino import CATALOG, REDIRECTING_CATALOG, Trino
from stack.trino_software import fetch_trino
from tests.integration.rigs import engines
from tests.integration.rigs.object_store import own_port, started
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project
from tests.integration.rigs.s3 import CANARY, S3
from tests.integration.rigs.s3 import s3 as s3

ORDERS = "public.orders"
PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
pytestmark = [pytest.mark.breadth, pytest.mark.timeout(1500)]


@pytest.fixture
def login(s3: S3) -> StoreLogin:
    return StoreLogin(s3.store.endpoint, lambda: CANARY)


@pytest.fixture
def metastore(login: StoreLogin, tmp_path: Path) -> Iterator[int]:
    """The port of a Hive Metastore that can reach the object store."""
    server = Metastore(
        folder=tmp_path / "metastore",
        port=own_port("metastore"),
        software=partial(fetch_software, (POSTGRES,)),
        store=login,
    )
    server.prepare()
    with started(server, tmp_path):
        yield server.port


@pytest.fixture
def trino(login: StoreLogin, metastore: int, tmp_path: Path) -> Iterator[list[engines.Trino]]:
    """Engines for both catalogs of a Trino server that can reach the object store."""
    server = Trino(
        folder=tmp_path / "trino",
        port=own_port("trino"),
        metastore_port=metastore,
        software=fetch_trino,
        store=login,
    )
    server.prepare()
    with started(server, tmp_path):
        yield [
            engines.Trino(HOST, server.port, catalog, "Trino")
            for catalog in (CATALOG, REDIRECTING_CATALOG)
        ]


@pytest.fixture
def project(database: Database, s3: S3, metastore: int, tmp_path: Path) -> Project:
    database.execute(
        "CREATE TABLE orders (id int, day date, v int, PRIMARY KEY (id, day))",
        "INSERT INTO orders SELECT g, date '2026-01-01' + g % 3, g FROM generate_series(1, 300) g",
    )
    made = Project.create(tmp_path, database, tables={ORDERS: {"partition_by": ["day"]}})
    s3.move(made)
    document = yaml.safe_load(made.file.read_text())
    document["catalog"] = {"metastore": f"thrift://{HOST}:{metastore}"}
    made.file.write_text(yaml.safe_dump(document))
    return made


def test_a_table_on_s3_is_read_by_name_through_changes_and_a_resync(
    trino: list[engines.Trino], project: Project, metastore: int, login: StoreLogin
) -> None:
    name = f"{project.database.name}_public.orders"

    def assert_same_rows() -> None:
        rows = project.database.rows("SELECT id, v FROM orders ORDER BY id")
        expected = [list(row) for row in rows]
        for engine in trino:
            query = f"SELECT id, v FROM {engine.catalog}.{name} ORDER BY id"
            assert engine.ask(query) == expected, engine.catalog
        with session(project, metastore) as spark:
            found = spark.table(name).select("id", "v").orderBy("id").collect()
            assert [list(row) for row in found] == expected

    assert "databases" in project.run("check").expect(0).stdout
    project.run("onboard", ORDERS).expect(0)
    assert not (project.folder / "lake").exists()
    assert_same_rows()
    project.execute(
        "UPDATE orders SET v = -1 WHERE id <= 10",
        "DELETE FROM orders WHERE id = 11",
        "INSERT INTO orders VALUES (301, '2026-02-01', 1)",
    )
    project.run("run").expect(0)
    project.run("resync", ORDERS).expect(0)
    assert_same_rows()
    text = PAGE.read_text("utf-8")
    for setting in (*login.hadoop_settings(), *login.trino_settings()):
        assert setting in text, f"docs/deploy.md names {setting}"


@contextmanager
def session(project: Project, metastore: int) -> Iterator[SparkSession]:
    """A Spark session with which tests read tables by name; the product needs no such session."""
    config = load(project.file)
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": f"thrift://{HOST}:{metastore}",
        "spark.local.dir": str(project.folder / "spark"),
    }
    spark = config.spark.model_copy(update={"conf": conf})
    try:
        yield spark_module.session(config.model_copy(update={"spark": spark}), "tributary-tests")
    finally:
        spark_module.stop()
