"""Spark tasks that make no progress: their job is cancelled, so that its table stops by name.

Progress is what Spark counts of a stage while its tasks run: ended tasks, rows and bytes that were
read, shuffled, spilled and written. CPU time is none, since a thread that spins has that, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_LOOK_S = 10.0
"""As often as executors tell their counts, in seconds."""

_COUNTS = (
    "numCompleteTasks",
    "numFailedTasks",
    "numActiveTasks",
    "inputRecords",
    "inputBytes",
    "outputRecords",
    "outputBytes",
    "shuffleReadRecords",
    "shuffleReadBytes",
    "shuffleWriteRecords",
    "shuffleWriteBytes",
    "memoryBytesSpilled",
    "diskBytesSpilled",
    "peakExecutionMemory",
)

Stage = tuple[int, int]
"""Number and attempt of a stage."""


class StageProgress:
    """Since when each stage shows the same counts.

    Args:
        timeout_s: How long a stage may show the same, in seconds.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._seen: dict[Stage, tuple[tuple[int, ...], float]] = {}

    def stuck(self, stages: Mapping[Stage, tuple[int, ...]], at: float) -> list[Stage]:
        """The stages that have made no progress for too long.

        Args:
            stages: The counts of all stages with running tasks.
            at: Now, in seconds of a clock that never goes back.
        """
        before = self._seen
        self._seen = {
            stage: known
            if (known := before.get(stage)) is not None and known[0] == counts
            else (counts, at)
            for stage, counts in stages.items()
        }
        return [one for one, (_, since) in self._seen.items() if at - since >= self._timeout_s]


def watch_tasks(spark: SparkSession, timeout_s: float) -> None:
    """Watch the session's stages from a thread of its own, as long as there is a session.

    Args:
        spark: The session.
        timeout_s: How long a stage may make no progress, in seconds.
    """
    watch = threading.Thread(target=_watch, args=(spark, timeout_s), name="tasks", daemon=True)
    watch.start()


def _watch(spark: SparkSession, timeout_s: float) -> None:
    progress, pause = StageProgress(timeout_s), threading.Event()
    while not pause.wait(min(_LOOK_S, timeout_s)) and spark.sparkContext._jsc is not None:
        try:
            context = spark.sparkContext._jsc.sc()
            for stage in progress.stuck(_stages(context), time.monotonic()):
                _cancel(context, stage, timeout_s)
        except (Py4JError, OSError) as error:
            _log.debug("Spark's stages were not looked at: %s", error)


def _stages(context: Any) -> dict[Stage, tuple[int, ...]]:
    """The counts of all stages that have running tasks."""
    active = context.statusStore().activeStages()
    stages = [active.apply(number) for number in range(active.size())]
    return {
        (stage.stageId(), stage.attemptId()): tuple(getattr(stage, name)() for name in _COUNTS)
        for stage in stages
        if stage.numActiveTasks()
    }


def _cancel(context: Any, stage: Stage, timeout_s: float) -> None:
    reason = (
        f"its tasks have made no progress for {timeout_s:g} s, which is as long as"
        " spark.task_timeout_s lets them; one that never ends holds its core until this process"
        " does"
    )
    _log.warning("stage %d of Spark is cancelled: %s", stage[0], reason)
    context.cancelStage(stage[0], reason)
