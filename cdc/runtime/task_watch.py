"""Cancels Spark jobs whose tasks make no progress, so that only the tables of these jobs fail.

Spark counts, for each stage, its running and ended tasks, and the rows and bytes that its tasks
read, shuffled, spilled and wrote. A stage makes progress if one of these counts changes. No count
changes while Hudi writes a file, so a task that writes one file for longer than the time limit is
cancelled, too.
CPU time is not compared, since a thread in an endless loop also uses it.

A task that does not end after its job is cancelled holds its core until the process ends. So `run
--continuous` ends if there are such tasks.

A stage that waits for a core is cancelled only in two cases: if the cluster gives this application
no executor at all, or if cancelled tasks hold all cores, so that the stage could never begin.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_LOOK_S = 10.0
"""Pause between two checks, in seconds. Executors report their counts at the same interval."""

_ENDING_S = 15.0
"""How long tasks may take to end once their job is cancelled, in seconds.

This time is less than the wait of a failed table before its next try, since that try would take
another core.
"""

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

_ACTIVE = _COUNTS.index("numActiveTasks")

Stage = tuple[int, int]
"""The number of a Spark stage, and the number of the stage's attempt."""


class StageProgress:
    """Detects Spark stages whose counts of tasks, rows and bytes have not changed for too long.

    Args:
        timeout_s: How long the counts of a stage may stay unchanged, in seconds.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._seen: dict[Stage, tuple[tuple[int, ...], float]] = {}

    def stuck(self, stages: Mapping[Stage, tuple[int, ...]], at: float) -> list[Stage]:
        """Return the Spark stages whose counts have not changed for ``timeout_s``.

        Args:
            stages: For each stage to watch, the values of Spark's counts in `_COUNTS`.
            at: The current time in seconds, on a clock that never goes back.
        """
        before = self._seen
        self._seen = {
            stage: known
            if (known := before.get(stage)) is not None and known[0] == counts
            else (counts, at)
            for stage, counts in stages.items()
        }
        return [one for one, (_, since) in self._seen.items() if at - since >= self._timeout_s]


class CancelledStages:
    """The cancelled Spark stages that still have running tasks.

    Args:
        ending_s: How long tasks may run on after their stage is cancelled, in seconds.
    """

    def __init__(self, ending_s: float) -> None:
        self._ending_s = ending_s
        self._stages: dict[Stage, float] = {}

    def add(self, stage: Stage, at: float) -> None:
        """Remember a Spark stage that is cancelled now.

        Args:
            stage: The stage.
            at: The current time in seconds, on a clock that never goes back.
        """
        self._stages.setdefault(stage, at)

    def held(self, running: Callable[[Stage], int], at: float) -> int:
        """Return how many tasks still run ``ending_s`` or longer after their stage was cancelled.

        Each of these tasks holds a core.

        Args:
            running: Returns the number of running tasks of a stage.
            at: The current time in seconds, on the clock of `add`.
        """
        counts = {stage: running(stage) for stage in self._stages}
        self._stages = {stage: since for stage, since in self._stages.items() if counts[stage]}
        late = [one for one, since in self._stages.items() if at - since >= self._ending_s]
        return sum(counts[stage] for stage in late)


_held = 0
"""The number of cores that cancelled tasks held at the last check."""


def held_cores() -> int:
    """Return how many cores are occupied by cancelled Spark tasks that do not end.

    Only the end of this process frees these cores.
    """
    return _held


def watch_tasks(spark: SparkSession, timeout_s: float) -> None:
    """Start a thread that watches Spark's stages until the session ends.

    The thread cancels each stage that makes no progress for ``timeout_s``.

    Args:
        spark: The session.
        timeout_s: How long a stage may make no progress, in seconds.
    """
    watch = threading.Thread(
        target=_watch_stages, args=(spark, timeout_s), name="tasks", daemon=True
    )
    watch.start()


def _watch_stages(spark: SparkSession, timeout_s: float) -> None:
    """Until the session ends, cancel each stage of Spark that makes no progress.

    If a check of the stages fails, the error is only logged.
    """
    progress, pause = StageProgress(timeout_s), threading.Event()
    cancelled = CancelledStages(min(_ENDING_S, timeout_s))
    while not pause.wait(min(_LOOK_S, timeout_s)) and spark.sparkContext._jsc is not None:
        try:
            _cancel_stuck_stages(spark.sparkContext._jsc.sc(), progress, cancelled, timeout_s)
        except (Py4JError, OSError) as error:
            _log.debug("Spark's stages were not checked: %s", error)


def _cancel_stuck_stages(
    context: Any, progress: StageProgress, cancelled: CancelledStages, timeout_s: float
) -> None:
    """Cancel stages that make no progress; count the cores that cancelled tasks hold.

    If cancelled tasks hold all cores, cancel all stages.
    """
    global _held
    now, status = time.monotonic(), context.statusStore()
    stages = _unfinished_stages(status)
    slots = _task_slots(status)
    running = {stage: counts for stage, counts in stages.items() if counts[_ACTIVE] or not slots}
    for stage in progress.stuck(running, now):
        cancelled.add(stage, now)
        _cancel_stage(
            context,
            stage,
            f"its tasks have made no progress for {timeout_s:g} s (spark.task_timeout_s); a task"
            " that never ends holds its core until this process ends"
            if slots
            else f"the cluster has given no executor for {timeout_s:g} s (spark.task_timeout_s)",
        )
    held = cancelled.held(lambda stage: _running_tasks(status, stage), now)
    if held > _held:
        _log.error(
            "%d of the %d tasks that Spark runs at a time were cancelled and do not end: only the"
            " end of this process frees their cores",
            held,
            slots,
        )
    _held = held
    if 0 < slots <= held:
        for stage in stages:
            _cancel_stage(
                context,
                stage,
                "no core is left that could run its tasks: cancelled tasks that never end hold"
                " all of them until this process ends",
            )


def _unfinished_stages(status: Any) -> dict[Stage, tuple[int, ...]]:
    """Return the values of `_COUNTS` for each Spark stage that runs or waits for a core."""
    active = status.activeStages()
    stages = [active.apply(number) for number in range(active.size())]
    return {
        (stage.stageId(), stage.attemptId()): tuple(getattr(stage, name)() for name in _COUNTS)
        for stage in stages
    }


def _running_tasks(status: Any, stage: Stage) -> int:
    """Return the number of running tasks of a cancelled Spark stage.

    Spark does not start a cancelled stage again.
    """
    try:
        return int(status.lastStageAttempt(stage[0]).numActiveTasks())
    except Py4JJavaError:
        # Spark has forgotten the stage, since it keeps only the newest thousand. The last
        # check still found a running task of the stage.
        return 1


def _task_slots(status: Any) -> int:
    """Return the number of Spark tasks that can run at a time."""
    executors = status.executorList(True)
    return sum(executors.apply(number).maxTasks() for number in range(executors.size()))


def _cancel_stage(context: Any, stage: Stage, reason: str) -> None:
    """Cancel a stage of Spark, and log the reason."""
    _log.warning("stage %d of Spark is cancelled: %s", stage[0], reason)
    context.cancelStage(stage[0], reason)
