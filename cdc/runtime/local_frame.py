"""Makes data frames from values of this process, without Python on the executors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, _make_type_verifier, _parse_datatype_string

from cdc.runtime.spark import java_class


def local_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], ddl: str) -> DataFrame:
    """Return a Spark data frame of these rows, without Python on the executors.

    With ``SparkSession.createDataFrame``, a Python worker on an executor serializes the rows again,
    and the executor's JVM reads the result. This function skips the Python worker. So the executors
    of a cluster need no Python, and a local session starts no Python worker.

    Args:
        spark: The session.
        rows: The rows, each with its values in the order of the columns.
        ddl: The columns in Spark's DDL syntax, for example ``id BIGINT, name STRING``.

    Raises:
        PySparkTypeError: A value is not of its column's type.
        PySparkValueError: A row has more or fewer values than there are columns.
    """
    schema = cast(StructType, _parse_datatype_string(ddl))
    verify = _make_type_verifier(schema)
    packed = []
    for row in rows:
        verify(row)
        packed.append(schema.toInternal(tuple(row)))
    pickled: Any = spark.sparkContext.parallelize(packed)
    serde = java_class(spark, "org.apache.spark.api.python.SerDeUtil")
    unpickled = serde.toJavaArray(serde.pythonToJava(pickled._jrdd, True))
    frame = spark._jsparkSession.applySchemaToPythonRDD(unpickled.rdd(), schema.json())
    return DataFrame(frame, spark)
