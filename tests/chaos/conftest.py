"""A Spark session with which tests read the lake, apart from the processes that they kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cdc.runtime import spark as spark_module
from tests.spark.local import local_config


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    yield spark_module.session(local_config(tmp_path_factory.mktemp("spark")), "tributary-tests")
    spark_module.stop()
