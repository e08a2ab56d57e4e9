"""Divides the CPU time of this process and Spark's JVM among the runs that are in progress.

A run's CPU time cannot be measured directly: threads of the JVM work for all runs. So each moment's
CPU time is divided equally among the runs of this moment. The shares of all runs add up to the CPU
time that was used while any of them was in progress. Copies and comparisons of tables also take CPU
time, so runs beside them are not measured.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Begun:
    """The begin of a run.

    Args:
        share: CPU seconds of a run that had been in progress all the time before this run.
        changes: How often other work had begun or ended before this run.
    """

    share: float
    changes: int


class CpuShares:
    """The CPU time that each of several concurrent runs has used.

    Safe to share among threads.

    Args:
        read: Returns the CPU seconds that have been used so far; by default, by this process.
    """

    def __init__(self, read: Callable[[], float] = time.process_time) -> None:
        self.cores = 0
        """Number of cores that the JVM may use; 0 if it is not known."""
        self._read = read
        self._lock = threading.Lock()
        self._running = 0
        self._read_at = 0.0
        self._share = 0.0
        """CPU seconds of a run that has been in progress all the time."""
        self._others = self._changes = 0

    def include(self, spark: SparkSession) -> None:
        """Count the CPU time of the session's JVM, too.

        On a cluster, the time of executors on other machines is not included.
        """
        from cdc.runtime.spark import java_class  # most commands need no Spark

        gateway: Any = spark.sparkContext._gateway
        # If spark-submit has started the JVM, the JVM has started this process.
        pid = os.getppid() if gateway.proc is None else gateway.proc.pid
        with suppress(psutil.Error), self._lock:  # without the JVM, the cores are not known
            self._read = partial(_used_with, psutil.Process(pid))
            self._read_at = self._read()
            java = java_class(spark, "java.lang.Runtime")
            self.cores = int(java.getRuntime().availableProcessors())

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Do other work, which also takes CPU time, in the ``with`` block."""
        with self._lock:
            self._others += 1
            self._changes += 1
        try:
            yield
        finally:
            with self._lock:
                self._others -= 1
                self._changes += 1

    def begin(self) -> Begun:
        """Begin a run. `used` needs the returned value."""
        with self._lock:
            self._advance()
            self._running += 1
            return Begun(self._share, self._changes)

    def used(self, begun: Begun) -> float:
        """Return a run's share of the CPU time so far, in seconds.

        If other work was in progress during the run, the share is not known, and the result is 0.

        Args:
            begun: The value that `begin` has returned for the run.
        """
        with self._lock:
            self._advance()
            if self._others or self._changes != begun.changes:
                return 0.0
            return self._share - begun.share

    def end(self) -> None:
        """End a run."""
        with self._lock:
            self._advance()
            self._running -= 1

    def _advance(self) -> None:
        now = self._read()
        if self._running:
            # The JVM's time is missing once the JVM has ended.
            self._share += max(0.0, now - self._read_at) / self._running
        self._read_at = now


def _used_with(jvm: psutil.Process) -> float:
    """Return the CPU seconds that this process and the JVM have used so far."""
    seconds = time.process_time()
    with suppress(psutil.Error):  # the JVM has ended
        times = jvm.cpu_times()
        seconds += times.user + times.system
    return seconds
