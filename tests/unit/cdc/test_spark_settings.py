from __future__ import annotations

import pytest

from cdc.config import Config, SparkConfig
from cdc.spark import session_settings
from tests.unit.cdc.configuration import full

DRIVER = "spark.driver.extraJavaOptions"


def settings(**conf: str) -> dict[str, str]:
    config = Config.model_validate(full())
    spark = SparkConfig(jars="provided", conf=conf)
    return session_settings(config.model_copy(update={"spark": spark}))


def test_batches_get_the_collector_for_throughput() -> None:
    assert "-XX:+UseParallelGC" in settings()[DRIVER]


@pytest.mark.parametrize("collector", ["-XX:+UseZGC", "-XX:+UseG1GC", "-XX:+UseParallelGC"])
def test_a_collector_of_the_users_own_is_the_only_one(collector: str) -> None:
    options = settings(**{DRIVER: f"-Xss4m {collector}"})[DRIVER]
    assert options.count("-XX:+Use") == 1
    assert options.endswith(f"-Xss4m {collector}")
