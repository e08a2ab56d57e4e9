"""One local Spark session for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc import spark as spark_module
from cdc.config import Config


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # py4j leaves the socket of a finished thread to the garbage collector.
    unclosed = pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
        "ignore:unclosed <socket:ResourceWarning",
    )
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(unclosed)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder: Path = tmp_path_factory.mktemp("spark")
    config = Config.model_validate(
        {
            "sources": {
                "shop": {
                    "kind": "postgres",
                    "primary": {"host": "localhost", "database": "shop"},
                    "credentials": {"admin": {"user": "admin"}},
                }
            },
            "kafka": {
                "bootstrap_servers": "localhost:9092",
                "registry": {"url": "http://localhost:8081"},
            },
            "connect": {"url": "http://localhost:8083"},
            "lake": {"url": (folder / "lake").as_uri()},
            "spark": {
                "master": "local[2]",
                "driver_memory": "2g",
                "conf": {
                    "spark.sql.shuffle.partitions": "2",
                    "spark.local.dir": str(folder / "scratch"),
                    "spark.sql.warehouse.dir": str(folder / "warehouse"),
                },
            },
        }
    )
    yield spark_module.session(config, "tributary-tests")
    spark_module.stop()
