"""Finds where executors are, and compares a cluster's with the driver before any table is touched.

The versions come from one small Spark job that calls only Spark's built-in functions. So the
executors need no Python and no code of Tributary.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cdc.errors import ClusterError
from cdc.runtime.spark import java_class, java_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CALLS: Mapping[str, tuple[str, ...]] = {
    "Java": ("java.lang.System", "getProperty", "java.specification.version"),
    "Spark": ("org.apache.spark.package", "SPARK_VERSION"),
    "Hudi": ("org.apache.hudi.HoodieVersion", "get"),
    "Kafka's client": ("org.apache.kafka.common.utils.AppInfoParser", "getVersion"),
}
"""The call that returns a program's version, by the program's name in messages.

A call is a class, a static method and its arguments.
"""

_COMMAND = ("java.lang.System", "getProperty", "sun.java.command")
"""The call that returns an executor's command line, which has the executor's id and host."""
_OPTION = re.compile(r"--(executor-id|hostname) (\S+)")
_GROUP = "tributary-executors"
_ROUNDS = 3
"""Maximum number of jobs that are run until each executor has run a task."""


@dataclass(frozen=True)
class Executor:
    """One process that runs tasks on a Spark cluster.

    Args:
        name: The executor's id in the Spark session.
        host: The executor's machine.
        versions: The executor's versions, by the name of a program, such as ``Spark``; see
            `_CALLS`.
    """

    name: str
    host: str
    versions: Mapping[str, str]

    def differences(self, driver: Mapping[str, str]) -> list[str]:
        """Return a phrase for each version in which this Spark executor differs from the driver.

        For example: ``Java 11 instead of 17``.
        """
        return [
            f"{part} {self.versions.get(part) or 'of no known version'} instead of {version}"
            for part, version in driver.items()
            if self.versions.get(part) != version
        ]


def require_same_versions(spark: SparkSession, timeout_s: float) -> list[Executor]:
    """Check that Spark's executors have the driver's versions; return the started executors.

    Args:
        spark: The session on a cluster.
        timeout_s: Longest wait for the cluster to start an executor, in seconds.

    Raises:
        ClusterError: No executor started in time, tasks cannot run, or a version differs.
    """
    master = str(spark.sparkContext.master)
    seen: dict[str, Executor] = {}
    for _ in range(_ROUNDS):
        seen |= {one.name: one for one in _executors_that_ran(spark, master, timeout_s)}
        if _registered_executors(spark) <= len(seen):
            break
    driver = {part: _version_of_driver(spark, *call) for part, call in _CALLS.items()}
    found = sorted(seen.values(), key=lambda one: one.name)
    if wrong := wrong_versions(driver, found):
        raise ClusterError(
            f"executors of {master} differ from this process: {'; '.join(wrong)}",
            remedy="Give the machines of the cluster the versions that this process has, and no"
            " other jars of these programs.",
        )
    return found


def wrong_versions(driver: Mapping[str, str], executors: Iterable[Executor]) -> list[str]:
    """Return a message for each set of wrong versions, with the hosts of executors that have it.

    For example: ``host1, host2: Java 11 instead of 17``.
    """
    hosts: dict[str, set[str]] = {}
    for one in executors:
        if different := one.differences(driver):
            hosts.setdefault(", ".join(different), set()).add(one.host)
    return [f"{', '.join(sorted(on))}: {what}" for what, on in hosts.items()]


def _executors_that_ran(spark: SparkSession, master: str, timeout_s: float) -> list[Executor]:
    """Run one task per core in one Spark job, and return the executors that ran a task.

    If all cores are free, each executor gets a task.

    Raises:
        ClusterError: No executor started in time, or tasks cannot run.
    """
    context = spark.sparkContext
    tasks = context.defaultParallelism
    calls = [_COMMAND, *_CALLS.values()]
    late = threading.Event()

    def give_up() -> None:
        late.set()
        context.cancelJobGroup(_GROUP)

    limit = threading.Timer(timeout_s, give_up)
    limit.daemon = True
    limit.start()
    context.setJobGroup(_GROUP, "versions of the executors")
    try:
        rows = spark.range(0, tasks, 1, tasks).selectExpr(*map(_java_call, calls)).collect()
    except (Py4JError, PySparkException) as error:
        if late.is_set():
            raise ClusterError(
                f"{master} started no executor within {timeout_s:.0f} s (spark.start_timeout_s)",
                remedy="Check that the cluster has cores and memory free for an executor of"
                " spark.executor.cores and spark.executor.memory, and that its machines reach this"
                " one (spark.driver.host); the logs of its workers and executors have the reason.",
            ) from error
        raise ClusterError(
            f"the executors of {master} cannot run tasks: {java_reason(error)}",
            remedy=f"Give the cluster's machines Spark {context.version} and Java 17, and with"
            " spark.jars: provided also the jars that Tributary needs; the logs of the executors"
            " have the whole error.",
        ) from error
    finally:
        limit.cancel()
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context._jsc.setLocalProperty(name, None)
    return [_executor(str(row[0]), dict(zip(_CALLS, row[1:], strict=True))) for row in rows]


def _java_call(call: Sequence[str]) -> str:
    """Return Spark SQL by which an executor calls a static Java method.

    Spark evaluates the call in each task, and does not replace the call with a constant.

    Args:
        call: The class, the method and its arguments; see `_CALLS`.
    """
    return f"java_method({', '.join(repr(word) for word in call)})"


def _executor(command: str, versions: Mapping[str, str]) -> Executor:
    """Return the Spark executor whose process has this command line.

    Args:
        command: The command line of the executor's process. Its options have the executor's id and
            host.
        versions: The executor's versions.
    """
    options = dict(_OPTION.findall(command))
    return Executor(options.get("executor-id", "?"), options.get("hostname", "?"), versions)


def _version_of_driver(spark: SparkSession, name: str, method: str, *arguments: str) -> str:
    """Return a version of Spark's driver: the result of a static Java method in its JVM."""
    found: Any = getattr(java_class(spark, name), method)(*arguments)
    return str(found)


def _registered_executors(spark: SparkSession) -> int:
    """Return how many executors are registered with Spark's driver."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    return int(executors.size()) - 1  # the driver is in the list


def is_local(spark: SparkSession) -> bool:
    """Whether a session's executors are threads of its driver."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")
