"""A Spark task that never ends stops its table with an error that names the table.

The JVM still ends with the command, and other tables do not wait for the task's core forever.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

_CHILD = """
import sys, time
from pathlib import Path
from pyspark.errors import PySparkException
from py4j.protocol import Py4JError
from cdc.runtime import spark as spark_module
from cdc.runtime import task_watch
from cdc.errors import LakeError
from tests.spark.lake import ONE_COMMIT, ORDERS, accept, lake, record, rows
from tests.spark.local import local_config

folder = Path(sys.argv[1])
config = local_config(folder)
config = config.model_copy(
    update={"spark": config.spark.model_copy(update={"task_timeout_s": 2})}
)
spark = spark_module.session(config)
print(spark.sparkContext._gateway.proc.pid, flush=True)
table = lake(spark, folder / "t", ORDERS)
# Hudi's reading of such a key never ends.
spins = (
    "reflect('org.apache.hudi.index.bucket.BucketIdentifier', 'getBucketId', '=0:1:2,3', 'k', 4)"
)
snapshot = rows(spark, table, [("r", -1, (1, "a"))]).selectExpr(
    *(name for name, _ in table.layout.input_columns if name != "name"), spins + " AS name"
)
try:
    table.bulk_insert(snapshot, record("chunk", chunk_ids=(0,)), accept, ONE_COMMIT)
except LakeError as error:
    print(" ".join(error.message.split()), flush=True)
one = spark.range(0, 1, 1, 1)
while task_watch.held_cores() < 2:  # it takes the other core, too
    try:
        one.selectExpr(spins).collect()
    except (PySparkException, Py4JError):
        pass
try:
    print(one.collect(), flush=True)
except (PySparkException, Py4JError) as error:
    print(" ".join(spark_module.java_reason(error).split()), flush=True)
time.sleep(600)
"""
_LIMIT_S = 240.0


def test_a_task_that_never_ends_stops_its_table_and_dies_with_the_command(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            jvm = psutil.Process(int(child.stdout.readline()))
            message = child.stdout.readline()
            assert f"{tmp_path}/t failed" in message
            assert "no progress for 2 s" in message
            assert "spark.task_timeout_s" in message
            assert "no core is left" in child.stdout.readline(), "it would wait without end"
            before = jvm.cpu_times().user
            assert not psutil.wait_procs([jvm], timeout=2)[0], "its thread spins on"
            assert jvm.cpu_times().user > before
        finally:
            child.kill()
    psutil.wait_procs([jvm], timeout=60)
    assert not jvm.is_running()
