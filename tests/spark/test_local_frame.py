"""Data frames from rows of this process: equal to `createDataFrame`, but without Python workers."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from pyspark.errors import PySparkValueError
from pyspark.sql import SparkSession

from cdc.runtime.local_frame import local_frame

DDL = (
    "a int, b bigint, c string, d decimal(38,5), e timestamp, f timestamp_ntz, g date, h binary,"
    " i array<int>, j double, k float, l boolean, m smallint"
)
TIME = datetime(2020, 1, 1, 1, tzinfo=timezone.utc)
NUMBERS = (1, 2**40, "\u00e4\U0001f600", Decimal("-1.50000"))
TIMES = (TIME, TIME.replace(year=1, tzinfo=None), date(9999, 12, 31))
ROW = (*NUMBERS, *TIMES, b"\x00\xff", [1, None], -0.0, 1.5, True, -3)


def test_values_of_every_type_arrive_as_they_are(spark: SparkSession) -> None:
    rows = [ROW, (None,) * len(ROW), *[ROW] * 2000]
    found, expected = local_frame(spark, rows, DDL), spark.createDataFrame(rows, DDL)
    assert found.schema == expected.schema
    assert found.collect() == expected.collect()
    assert local_frame(spark, [], DDL).collect() == []


def test_a_value_that_does_not_fit_is_refused(spark: SparkSession) -> None:
    with pytest.raises(PySparkValueError, match="OUT_OF_BOUND"):
        local_frame(spark, [(2**40,)], "a int")


def test_no_worker_of_python_is_started(spark: SparkSession) -> None:
    frame = local_frame(spark, [(1,)], "a int")
    lineage = frame._jdf.queryExecution().toRdd().toDebugString()
    assert "PythonRDD[" not in lineage
    worker = spark.createDataFrame([(1,)], "a int")._jdf.queryExecution().toRdd().toDebugString()
    assert "PythonRDD[" in worker
