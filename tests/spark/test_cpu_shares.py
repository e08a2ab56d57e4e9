"""The CPU time of a run includes that of the session's JVM, in which most of its work is done."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from cdc.runtime.cpu_shares import CpuShares


def test_the_jvms_cpu_time_counts_for_a_run(spark: SparkSession) -> None:
    shares = CpuShares()
    shares.include(spark)
    assert shares.cores >= 1
    begun, own = shares.begin(), time.process_time()
    spark.range(3_000_000).selectExpr("max(sha2(cast(id as string), 256))").collect()
    own = time.process_time() - own
    assert shares.used(begun) > own + 0.5, "hashes of 3,000,000 rows take the JVM some seconds"
    shares.end()
