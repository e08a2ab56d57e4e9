"""A metastore that hangs delays a request by a bounded time; a team's own settings stay."""

from __future__ import annotations

from pyspark.sql import SparkSession

from cdc.lake.metastore import _hive_conf

TIMEOUT, RETRIES = "hive.metastore.client.socket.timeout", "hive.metastore.connect.retries"


def test_requests_are_bounded_unless_the_settings_have_bounds(spark: SparkSession) -> None:
    bounded = _hive_conf(spark, "thrift://metastore:9083")
    assert (bounded.get(TIMEOUT), bounded.get(RETRIES)) == ("60s", "1")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(TIMEOUT, "90s")
    try:
        own = _hive_conf(spark, "thrift://metastore:9083")
        assert (own.get(TIMEOUT), own.get(RETRIES)) == ("90s", "1")
    finally:
        hadoop.unset(TIMEOUT)
