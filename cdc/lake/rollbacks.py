"""Reads which commits a lake table's rollbacks have undone; reads a completed rollback only once.

Hudi keeps up to `hoodie.keep.max.commits` rollbacks in a table's active timeline, however old they
are. Each reading of the table's timeline needs the commits that the rollbacks have undone, and each
rollback is a file of its own. A completed rollback never changes, so a process remembers what the
rollback's file says.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from cdc.lake.instants import actions_of
from cdc.runtime.java_calls import items_of
from cdc.runtime.spark import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_CACHED_ROLLBACKS = 10_000
"""Maximum number of rollbacks whose commits a process remembers. A table has about 40 at most,
unless its setting ``readers_keep`` retains more commits."""


class _Cache:
    """What completed rollbacks have undone, by table and rollback. Safe to share among threads."""

    def __init__(self) -> None:
        self._undone: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str, rollback: str) -> frozenset[str] | None:
        """Return the instants that a completed rollback has undone; None if they are not known."""
        with self._lock:
            found = self._undone.get((path, rollback))
            if found is not None:
                self._undone.move_to_end((path, rollback))
            return found

    def put(self, path: str, rollback: str, undone: frozenset[str]) -> None:
        """Cache what a completed rollback has undone; drop the least recently used entries."""
        with self._lock:
            self._undone[path, rollback] = undone
            self._undone.move_to_end((path, rollback))
            while len(self._undone) > MOST_CACHED_ROLLBACKS:
                self._undone.popitem(last=False)


_cache = _Cache()


def undone_by(spark: SparkSession, path: str, client: Any) -> frozenset[str]:
    """Return the instants of the Hudi commits that were, or are being, rolled back.

    Args:
        spark: The session whose JVM is used.
        path: Base path of the Hudi table.
        client: Hudi's meta client of the table.

    Raises:
        Py4JJavaError: A rollback cannot be read.
    """
    timeline = client.getActiveTimeline()
    undone: set[str] = set()
    rollbacks = timeline.getRollbackTimeline().getInstants()
    for place, one in enumerate(actions_of(rollbacks)):
        if one.state != "COMPLETED":
            undone.add(_read_rollback_plan(spark, client, rollbacks.get(place)))
            continue
        known = _cache.get(path, one.instant)
        if known is None:
            known = _read_rollback(timeline, rollbacks.get(place))
            _cache.put(path, one.instant, known)
        undone |= known
    return frozenset(undone)


def _read_rollback(timeline: Any, rollback: Any) -> frozenset[str]:
    """Return the instants that a completed rollback of Hudi names; read them from storage."""
    named = timeline.readRollbackMetadata(rollback).getCommitsRollback()
    return frozenset(map(str, items_of(named)))


def _read_rollback_plan(spark: SparkSession, client: Any, rollback: Any) -> str:
    """Return the instant that an unfinished rollback of Hudi undoes; read it from its plan."""
    plans = java_class(spark, "org.apache.hudi.table.action.rollback.RollbackUtils")
    plan = plans.getRollbackPlan(client, rollback)
    return str(plan.getInstantToRollback().getCommitTime())
