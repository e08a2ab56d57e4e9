"""Secrets of the lake are passed to Hadoop, but not on the command line of the JVM."""

from __future__ import annotations

import psutil
from pyspark.sql import SparkSession

from tests.spark.local import SECRETS


def test_hadoop_has_the_secrets_of_the_lake(spark: SparkSession) -> None:
    of_context = spark.sparkContext._jsc.hadoopConfiguration()
    of_plans = spark._jsparkSession.sessionState().newHadoopConf()
    for hadoop in (of_context, of_plans):
        assert {key: hadoop.get(key) for key in SECRETS} == SECRETS


def test_no_command_line_and_no_setting_of_spark_has_them(spark: SparkSession) -> None:
    children = psutil.Process().children(recursive=True)
    # What other tests have ended and nobody has waited for has no command line.
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    lines = [" ".join(child.cmdline()) for child in alive]
    assert any("spark.sql.extensions" in line for line in lines), "this is not the JVM's"
    shown = "\n".join([*lines, *map(str, spark.sparkContext.getConf().getAll())])
    assert "canary-of-" not in shown
