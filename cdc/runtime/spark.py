"""Starts, configures and ends the one Spark session of a process."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc.config.lake import HADOOP_PREFIX
from cdc.config.value_types import is_sensitive
from cdc.errors import ClusterError, ConfigError, LakeError
from cdc.runtime import class_archive, jvm_guard, task_watch
from cdc.runtime.jars import spark_jars
from cdc.runtime.java import find_java
from cdc.runtime.java_calls import known_class, remember_names
from cdc.runtime.java_connections import close_with_threads
from cdc.runtime.java_options import (
    OF_ALL_JVMS,
    OF_SPARK_DRIVERS,
    driver_options,
    executor_options,
)
from cdc.runtime.object_stores import store_defaults
from cdc.runtime.waiting import wait_while

if TYPE_CHECKING:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from cdc.config import Config

_REASON_CHARACTERS = 2000
_START = threading.Lock()
_STOP_S = 60.0
"""Bound of the wait for a session to end, in seconds. An endless task keeps its session alive."""
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_DRIVER_PATH = "spark.driver.extraClassPath"

_REQUIRED = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Values that do not fit must fail, not turn into NULL.
    "spark.sql.ansi.enabled": "true",
    # A task's second attempt can leave a file after the commit, and readers then count this file.
    # Hudi refuses to write with speculation.
    "spark.speculation": "false",
    "spark.sql.caseSensitive": "false",
    # Drivers report MySQL's enums and texts of a fixed length as CHAR(n). Spark would pad each such
    # value with spaces, which the stream does not have.
    "spark.sql.legacy.charVarcharAsString": "true",
    # Parquet's old form of lists, the default of its Avro writer, cannot hold NULL elements.
    "spark.hadoop.parquet.avro.write-old-list-structure": "false",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # All dates are of the ISO calendar, as in PostgreSQL. By default Spark refuses to write dates
    # before 1582 and times before 1900.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}
"""Settings that results depend on; ``spark.conf`` may not change them."""

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Tables run side by side, so a table must not wait for another's long stage.
    "spark.scheduler.mode": "FAIR",
    # A run has few changes; the default of 200 would make 200 almost empty tasks per table.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",
    # A batch is kept in memory for seconds: compressing it costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.cleaner.periodicGC.interval": "10min",
    # A broadcast waits for a core, and copies of other tables can hold all cores for a while.
    "spark.sql.broadcastTimeout": "1800",
}
"""Settings that ``spark.conf`` may change."""

_LEAST_ENTRIES, _ENTRIES_PER_TABLE, _MOST_ENTRIES = 2_000, 10, 20_000
"""Entries of Spark's cache of generated code: the minimum, the number per table, and the maximum.

The generated code of a table's batches is always the same. If the cache is too small for the tables
that take turns, each commit compiles its code again. The cache makes each entry only when the entry
is first used.
"""

_JVM_POLL_S = 0.5
"""Seconds between two searches for a JVM to kill, after the time limit of Spark's start."""

_AT_START = ("fs.defaultFS", "hadoop.security.authentication", "hadoop.security.authorization")
"""Settings of Hadoop that Spark needs at its start to log in and to find files; no secrets."""


def session(
    config: Config, app_name: str = "tributary", *, tables: int = 0, ends_soon: bool = False
) -> SparkSession:
    """Return the process's Spark session, started on first use.

    Args:
        config: The configuration; only its ``spark`` and ``lake`` sections are used. If a session
            already runs, the call returns that session and ignores the configuration.
        app_name: Name in Spark's own UI and logs.
        tables: Number of known tables. It determines the size of the cache of generated code.
        ends_soon: Whether the process does not repeat its runs, so that a fast start counts most.

    Raises:
        LakeError: A local Spark does not start, or ``spark.conf`` changes a setting on which the
            written data depends.
        ClusterError: The cluster does not answer, or refuses the application.
        ConfigError: ``spark.conf`` holds a secret that is not a setting of Hadoop.
        JavaError: There is no Java 17.
        ArtifactError: The jars cannot be fetched.
    """
    with _START:
        active = SparkSession.getActiveSession() or SparkSession._instantiatedSession
        if active is not None and active.sparkContext._jsc is not None:
            return active
        settings = session_settings(config, tables, ends_soon=ends_soon)
        # py4j logs each error that it raises, with a stack trace, even for a refused commit, which
        # is not an incident.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        # The JVM is a child of this process: it takes Java and Python from the environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started the JVM
            os.environ["JAVA_HOME"] = str(find_java().home)
        builder = SparkSession.builder.appName(app_name).master(config.spark.master)
        for key, value in settings.items():
            builder = builder.config(key, value)
        started = _started_session(builder, config)
        remember_names(started)
        close_with_threads(started)
        _set_in_hadoop(started, hadoop_settings(config), store_defaults(config))
        gateway: Any = started.sparkContext._gateway
        if (jvm := gateway.proc) is not None:
            jvm_guard.guard(jvm)
        task_watch.watch_tasks(started, config.spark.task_timeout_s)
        return started


def _started_session(builder: SparkSession.Builder, config: Config) -> SparkSession:
    """Start Spark and return its session.

    Raises:
        LakeError: A local Spark does not start.
        ClusterError: Spark does not start on the cluster, or takes longer than
            ``spark.start_timeout_s``.
    """
    master, limit_s = config.spark.master, config.spark.start_timeout_s
    late, over = threading.Event(), threading.Event()

    if not config.spark.local:
        threading.Thread(
            target=_kill_late_jvm,
            args=(limit_s, late, over),
            name="limit of Spark's start",
            daemon=True,
        ).start()
    try:
        with _stdout_kept(), _interrupts_kept(), _py4j_quiet_once(late):
            return builder.getOrCreate()
    except Exception as error:  # Java, py4j and pyspark each have errors of their own
        reason = java_reason(error) if isinstance(error, Py4JError) else str(error)
        if config.spark.local:
            raise LakeError(
                f"Spark did not start: {reason}",
                remedy="Check spark.master, spark.driver_memory and the log above.",
                field="spark",
            ) from error
        within = f" within {limit_s:.0f} s (spark.start_timeout_s)" if late.is_set() else ""
        raise ClusterError(
            f"Spark did not start on {master}{within}" + ("" if within else f": {reason}"),
            remedy="Check that spark.master names a cluster that runs and that this machine"
            " reaches; the log above has Spark's own reason.",
            field="spark.master",
        ) from error
    finally:
        over.set()


def _kill_late_jvm(limit_s: float, late: threading.Event, over: threading.Event) -> None:
    """Kill Spark's JVM if Spark has not started within a time.

    Args:
        limit_s: The time, in seconds. If this process has no JVM yet when the time is over, the JVM
            is killed as soon as it appears. A JVM that spark-submit has started is not killed.
        late: Set before the JVM is killed.
        over: Set by the caller once the start has succeeded or failed; ends the wait.
    """

    def no_jvm() -> bool:
        return not over.is_set() and getattr(SparkContext._gateway, "proc", None) is None

    if over.wait(limit_s):
        return
    wait_while(no_jvm, timeout_s=math.inf, poll_s=_JVM_POLL_S, stop=over)
    jvm = getattr(SparkContext._gateway, "proc", None)
    if jvm is not None and not over.is_set():
        late.set()
        jvm.kill()


@contextmanager
def _py4j_quiet_once(killed: threading.Event) -> Iterator[None]:
    """In the ``with`` block, drop py4j's log records once this process has killed the JVM.

    These records have stack traces of calls to the killed JVM.

    Args:
        killed: The event that is set when this process kills the JVM.
    """

    def is_news(record: logging.LogRecord) -> bool:
        return not (killed.is_set() and record.module == "java_gateway")

    root = logging.getLogger()  # py4j logs this by the root logger itself
    root.addFilter(is_news)
    try:
        yield
    finally:
        root.removeFilter(is_news)


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Restore the handler of SIGINT after the ``with`` block, in which Spark starts.

    pyspark's own handler would cancel all jobs at SIGINT, and each run with a job would fail.
    """
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, kept)


@contextmanager
def _stdout_kept() -> Iterator[None]:
    """Redirect standard output to standard error in the ``with`` block, in which the JVM starts.

    Java libraries print to standard output. A command with JSON output prints its JSON to standard
    output, too. Further lines would make this output invalid.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def session_settings(config: Config, tables: int = 0, *, ends_soon: bool = False) -> dict[str, str]:
    """Return the session's Spark settings, without secrets, master and application name.

    pyspark puts these settings on the JVM's command line, which every user of the machine can read.
    Secrets are in `hadoop_settings`.

    Raises:
        LakeError: ``spark.conf`` changes a setting on which the written data depends.
        ConfigError: ``spark.conf`` holds a secret that is not a setting of Hadoop.
    """
    clashes = sorted(
        key for key, value in config.spark.conf.items() if _REQUIRED.get(key, value) != value
    )
    if clashes:
        raise LakeError(
            f"spark.conf may not change {', '.join(clashes)}: what is written depends on it",
            remedy="Remove it from spark.conf.",
            field=f"spark.conf.{clashes[0]}",
        )
    for path, reason in config.spark.conflicts():
        field = ".".join(("spark", *path))
        raise ConfigError(f"{field}: {reason}", remedy=f"Remove {field}.", field=field)
    settings = {
        **_DEFAULTS,
        "spark.sql.codegen.cache.maxEntries": str(_cached_classes(tables)),
        "spark.driver.memory": config.spark.driver_memory,
        # For other settings of Hadoop, the name does not show whether the value is a secret.
        **{
            f"spark.hadoop.{key}": str(value)
            for key, value in config.lake.hadoop.items()
            if key in _AT_START
        },
        **{key: value for key, value in config.spark.conf.items() if not is_sensitive(key)},
        **_REQUIRED,
    }
    settings[_DRIVER_OPTIONS] = driver_options(
        str(config.spark.conf.get(_DRIVER_OPTIONS, "")),
        _other_options(config, _DRIVER_OPTIONS, os.environ.get),
        ends_soon=ends_soon,
    )
    settings[_EXECUTOR_OPTIONS] = executor_options(
        str(config.spark.conf.get(_EXECUTOR_OPTIONS, "")),
        _other_options(
            config,
            _EXECUTOR_OPTIONS,
            lambda name: config.spark.conf.get(f"spark.executorEnv.{name}"),
        ),
    )
    if config.spark.jars == "bundled":
        jars = [str(path) for path in spark_jars(store=config.lake.store)]
        if "spark.jars" in config.spark.conf:
            jars.append(str(config.spark.conf["spark.jars"]))
        settings["spark.jars"] = ",".join(jars)
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started the JVM
            settings.update(_settings_for_archive(config, settings[_DRIVER_OPTIONS]))
    return {key: str(value) for key, value in settings.items()}


def _other_options(config: Config, key: str, environment: Callable[[str], object]) -> Iterator[str]:
    """Yield texts with Java options that can reach a JVM besides those of the setting ``key``.

    Args:
        config: The configuration.
        key: The setting with the options of the driver or of executors.
        environment: Returns the value of a variable in the environment of the JVM, or None.
    """
    yield class_archive.defaults_of_machine()
    yield str(config.spark.conf.get(key.replace("extraJavaOptions", "defaultJavaOptions"), ""))
    for name in (*OF_ALL_JVMS, *OF_SPARK_DRIVERS):
        yield str(environment(name) or "")


def _cached_classes(tables: int) -> int:
    """Return the number of generated classes that Spark keeps for this number of tables."""
    return min(max(_LEAST_ENTRIES, _ENTRIES_PER_TABLE * tables), _MOST_ENTRIES)


def _settings_for_archive(config: Config, options: str) -> dict[str, str]:
    """Return Spark's settings by which the driver's JVM starts from an archive of Java classes.

    These settings are the driver's class path and Java options. If there is no archive, the Java
    options are just ``options``. If ``spark-defaults.conf`` sets the driver's class path and
    ``spark.conf`` does not, the result is empty: a class path in the result would replace the
    class path of ``spark-defaults.conf``.

    Args:
        config: The configuration.
        options: The Java options that the driver's JVM needs in any case.
    """
    path = str(config.spark.conf.get(_DRIVER_PATH, ""))
    if not path and class_archive.path_of_machine():
        return {}
    archive = class_archive.find_archive(class_archive.archive_prefix(find_java(), spark_jars()))
    # The user's own options are the last ones, and so go before these.
    added = class_archive.archive_options(archive, options)
    return {
        _DRIVER_PATH: class_archive.class_path(spark_jars(store=config.lake.store), path),
        _DRIVER_OPTIONS: " ".join(filter(None, (added, options))),
    }


def hadoop_settings(config: Config) -> dict[str, str]:
    """Return a mapping from names to values of the Hadoop settings to set after Spark's start.

    The names are Hadoop's own. These settings are secrets, or could be secrets. All settings of
    ``lake.hadoop`` are included, since the settings' names do not show which of them are secrets.
    Hadoop settings of ``spark.conf`` are included if their names show that they are secrets.
    """
    given = {
        key.removeprefix(HADOOP_PREFIX): value
        for key, value in config.spark.conf.items()
        if key.startswith(HADOOP_PREFIX) and is_sensitive(key)
    }
    given.update(config.lake.hadoop)
    return {key: str(value) for key, value in given.items() if HADOOP_PREFIX + key not in _REQUIRED}


def _set_in_hadoop(
    spark: SparkSession, settings: Mapping[str, str], defaults: Mapping[str, str]
) -> None:
    """Change the Hadoop configuration that Spark and Hudi use for all jobs of the session.

    Args:
        spark: The session.
        settings: Values that replace any earlier values.
        defaults: Values for settings that the cluster's own configuration files do not have.
    """
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in defaults.items():
        origins = hadoop.getPropertySources(key)
        if origins is None or list(origins)[-1] == "core-default.xml":
            hadoop.set(key, value)
    for key, value in settings.items():
        hadoop.set(key, value)


def in_this_thread(spark: SparkSession) -> SparkSession:
    """Make the Spark session the current session of this thread, and return the session.

    Spark takes settings from the thread's current session, and a new thread has no current session.
    Without a session, a cast would return NULL instead of an error. A persisted frame would be
    computed again, since its plan would differ from the persisted plan.
    """
    java_class(spark, "org.apache.spark.sql.SparkSession").setActiveSession(spark._jsparkSession)
    return spark


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a class of the Spark session's JVM, for calls to methods without a Python API.

    If code names a class with dots, as in ``jvm.org.apache``, py4j calls the JVM once for each dot.
    These calls took a twentieth of a commit's time.

    Args:
        spark: The session.
        name: Full name of the class. The names of nested classes and of Scala objects contain a
            ``$``.
    """
    gateway: Any = spark.sparkContext._gateway
    return known_class(name, gateway._gateway_client)


def java_reason(error: Py4JError | PySparkException) -> str:
    """Return the class and the message of the Java exception that is an error's root cause.

    If a Spark job failed, the result also has the exception of the failed task.
    """
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        return str(error)[:_REASON_CHARACTERS]
    while cause.getCause() is not None:
        cause = cause.getCause()
    text = str(cause.toString()).split("Driver stacktrace:")[0]
    inner = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    first = text.splitlines()[0] if text else ""
    return "; ".join([first, *inner[-1:]])[:_REASON_CHARACTERS]


def has_ended() -> bool:
    """Return whether Spark has ended, although this process has neither stopped nor killed it."""
    active = SparkSession._instantiatedSession
    if active is None or active.sparkContext._jsc is None or jvm_guard.was_killed():
        return False
    try:
        return bool(active.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def cancel_jobs(spark: SparkSession) -> None:
    """Cancel all Spark jobs; do nothing if the JVM has ended."""
    with suppress(Py4JError):
        spark.sparkContext.cancelAllJobs()


def stop() -> None:
    """End the Spark session and its SparkContext; do nothing without a session."""
    with _START:
        active = SparkSession._instantiatedSession
        if active is None:
            return
        limit = jvm_guard.end_soon(_STOP_S)
        try:
            active.stop()
        except (Py4JError, OSError):
            if not jvm_guard.was_killed():
                raise
        finally:
            limit.cancel()


def end_jvm(timeout_s: float) -> int:
    """End the session and its JVM, and return the JVM's exit code.

    Args:
        timeout_s: Longest wait for the JVM to end by itself, in seconds.

    Raises:
        LakeError: The JVM has not ended in time.
    """
    gateway: Any = SparkContext._gateway
    stop()
    gateway.proc.stdin.close()  # Spark's JVM ends with its input
    try:
        return int(gateway.proc.wait(timeout_s))
    except subprocess.TimeoutExpired:
        raise LakeError(
            f"Spark's JVM did not end within {timeout_s:.0f} s", remedy="Run the command again."
        ) from None
