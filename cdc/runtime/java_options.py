"""The options with which the JVMs of Spark's driver and executors start."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_LOGGING = Path(__file__).with_name("spark_log4j2.properties")

_PROPERTIES = {
    # Avro allocates the size that a length prefix claims before it reads. Without a limit, one
    # damaged message ends the JVM and with it every other table's run. Kafka records are far
    # smaller than this.
    "org.apache.avro.limits.string.maxLength": 128 * 1024 * 1024,
    "org.apache.avro.limits.bytes.maxLength": 128 * 1024 * 1024,
    "org.apache.avro.limits.collectionItems.maxLength": 10_000_000,
    # Before its first commit, Hudi asks JOL for the sizes of objects. JOL starts two more JVMs that
    # attach to this one, in vain, which took almost two seconds; then it assumes the usual sizes.
    "jol.skipDynamicAttach": "true",
    "jol.skipHotspotSAAttach": "true",
}
"""System properties of the driver and of executors."""

_COLLECTOR = "-XX:+UseParallelGC"
"""Batches need throughput: this collector takes a twentieth less CPU than the JVM's default."""

_OTHER_COLLECTOR = re.compile(r"-XX:\+Use(?:Epsilon|G1|Parallel|Serial|Shenandoah|Z)GC\b")
OF_SPARK_DRIVERS = ("SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
"""Environment variables whose options Spark adds to those of a driver's JVM."""
OF_ALL_JVMS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables whose options a JVM adds to its own."""

_LATE_COMPILER = {
    "Tier4InvocationThreshold": 50_000,
    "Tier4MinInvocationThreshold": 6_000,
    "Tier4CompileThreshold": 150_000,
    "Tier4BackEdgeThreshold": 400_000,
}
"""Settings of a driver that ends soon: the second compiler (C2) begins ten times later than usual.

Until the first commits, most of the CPU time goes to compilers, and the code that C2 makes is used
too seldom to be worth its time. Loops over the rows of a long backlog still reach these thresholds.
"""


def executor_options(given: str = "", others: Iterable[str] = ()) -> str:
    """Return the Java options of an executor.

    Args:
        given: The user's own options. They come last, so that the JVM prefers them.
        others: Texts with other options that can reach the JVM.
    """
    return _joined(_properties(), _collector(given, *others), given)


def driver_options(given: str = "", others: Iterable[str] = (), *, ends_soon: bool = False) -> str:
    """Return the Java options of the driver.

    Args:
        given: The user's own options. They come last, so that the JVM prefers them.
        others: Texts with other options that can reach the JVM.
        ends_soon: Whether the process does not repeat its runs, so that a fast start counts most.
    """
    compiler = " ".join(f"-XX:{name}={value}" for name, value in _LATE_COMPILER.items())
    return _joined(
        f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        _properties(),
        _collector(given, *others),
        compiler if ends_soon else "",
        given,
    )


def _properties() -> str:
    return " ".join(f"-D{key}={value}" for key, value in _PROPERTIES.items())


def _collector(*given: str) -> str:
    """Return the option of the collector; empty if ``given`` has one, since the JVM allows one."""
    return "" if any(map(_OTHER_COLLECTOR.search, given)) else _COLLECTOR


def _joined(*options: str) -> str:
    return " ".join(filter(None, options))
