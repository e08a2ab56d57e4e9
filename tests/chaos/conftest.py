"""A Spark session with which tests read the lake, apart from the processes that they kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc import spark as spark_module
from tests.spark.local import local_config


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # py4j leaves the socket of a finished thread to the garbage collector.
    unclosed = pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
        "ignore:unclosed <socket:ResourceWarning",
    )
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(unclosed)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    yield spark_module.session(local_config(tmp_path_factory.mktemp("spark")), "tributary-tests")
    spark_module.stop()
