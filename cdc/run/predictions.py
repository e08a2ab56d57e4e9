"""Predicts the cost and the freshness of tables, by which the schedule orders the tables' runs."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from cdc.config.tables import configured_tier
from cdc.errors import KafkaError
from cdc.run.cost import (
    PRIOR,
    Estimate,
    Observation,
    arrival_rate,
    cold_factor,
    estimate,
    events_per_commit,
    learned,
    passed_offsets,
    prior_of,
    written_bytes_per_commit,
)
from cdc.run.lane import Entry
from cdc.store.table_state import State

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cdc.capture.position_check import TopicFacts
    from cdc.config import TableSettings
    from cdc.run.context import RunResult
    from cdc.store.state_store import Store
    from cdc.store.table_cost import TableCost
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_SMALLEST_COMMIT = 50_000
"""Number of events that one commit may always have, even if they take longer than a turn."""
_CORES_KNOWN = timedelta(days=1)
_PRIOR_EVERY = 100
"""Number of runs after which the prior of new tables is computed again."""


@dataclass(frozen=True)
class Demand:
    """The work of a table, by prediction.

    Args:
        behind: Number of the topic's offsets that the lake table lacks.
        seconds: Predicted seconds of the table's next run.
        rest: Predicted seconds of the work that the next run leaves to later runs.
    """

    behind: int
    seconds: float
    rest: float


class Predictions:
    """The learned costs of tables, and for each table the time up to which the lake has all events.

    Safe to share among threads.

    Args:
        store: The state store, which keeps the costs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._costs: dict[TableId, TableCost] | None = None
        self._prior = PRIOR
        self._runs = 0
        self._whole_at: dict[TableId, float] = {}
        self._lock = threading.Lock()

    def estimate(self, table: TableId) -> Estimate:
        """Return the predicted cost of a table's runs."""
        with self._lock:
            known = self._known().get(table)
            return estimate(known, self._prior)

    def rate(self, table: TableId) -> float:
        """Return how many of a table's events arrive per second; 0 if this is not known."""
        with self._lock:
            known = self._known().get(table)
            since = 0.0 if known is None else known.measured_at.timestamp()
            return arrival_rate(known, max(0.0, self._whole_at.get(table, 0.0) - since))

    def events_per_commit(self, table: TableId) -> float:
        """Return the mean number of events in a commit of a table; 0 if this is not known."""
        with self._lock:
            return events_per_commit(self._known().get(table))

    def written_bytes_per_commit(self, table: TableId) -> float:
        """Return the mean bytes that a commit of a table writes; 0 if this is not known."""
        with self._lock:
            return written_bytes_per_commit(self._known().get(table))

    @property
    def cores(self) -> int:
        """Number of cores that runs have; 0 if it is not known.

        The result is the largest number of cores in the newest runs of all tables. It leaves out
        runs that began more than a day before the newest one. The newest run of all can be that of
        a command on a small machine.
        """
        with self._lock:
            known = self._known().values()
            newest = max((one.measured_at for one in known), default=None)
            if newest is None:
                return 0
            return max(one.cores for one in known if newest - one.measured_at <= _CORES_KNOWN)

    def events_of_turn(self, table: TableId, turn_s: float) -> int | None:
        """Return the largest number of events that one commit can have and still fit into a turn.

        The result is at least `_SMALLEST_COMMIT`. It is None if runs have no turns.

        Args:
            table: The table.
            turn_s: Length of a turn, in seconds; infinite if runs have no turns.
        """
        if math.isinf(turn_s):
            return None
        return max(_SMALLEST_COMMIT, self.estimate(table).events_within(turn_s))

    def knows(self, table: TableId) -> bool:
        """Whether `note_whole` was called for a table."""
        with self._lock:
            return table in self._whole_at

    def forget_whole(self) -> None:
        """Forget all calls of `note_whole`: their times are those of a clock that was set back."""
        with self._lock:
            self._whole_at.clear()

    def note_whole(self, table: TableId, at: float) -> None:
        """Record that the lake table has all events that the table's topic had at the time ``at``.

        Args:
            table: The table.
            at: The time, in seconds since 1970.
        """
        with self._lock:
            self._whole_at[table] = max(at, self._whole_at.get(table, at))

    def learn(self, record: TableRecord, result: RunResult, cores: int = 0) -> TableCost | None:
        """Learn a table's costs from a run of the table.

        Args:
            record: The table's record before the run.
            result: The result of the run.
            cores: Number of cores that this process may use; 0 if it is not known.

        Returns:
            The regression's new sums over the table's runs (`cdc.run.cost`); None if the run does
            not count, for example because it failed or made no commit.
        """
        last = record.last_commit
        with self._lock:
            cold, self._runs = cold_factor(self._runs), self._runs + 1
            if result.error is not None or not result.commits or last is None:
                return None
            if result.started_at is None:
                return None
            events = passed_offsets(last.offsets, result.offsets)
            span = _span_s(last.watermark, result.watermark)
            began, worked = result.started_at, result.seconds - result.steps.get("wait", 0.0)
            seen = Observation(
                *(result.commits, events, worked, began, cold, span),
                cpu_s=result.cpu_s,
                cores=cores,
                written_bytes=result.written_bytes,
            )
            costs = self._known()
            costs[record.table] = found = learned(costs.get(record.table), seen, self._prior)
            if self._runs % _PRIOR_EVERY == 0:
                self._prior = prior_of(costs.values())
            return found

    def demand(
        self, record: TableRecord, settings: TableSettings, ends: Mapping[int, int], turn_s: float
    ) -> Demand:
        """Return the predicted work of a table.

        Args:
            record: The table's record.
            settings: The table's settings.
            ends: The end offsets of the table's topic, by partition.
            turn_s: Seconds after which a run leaves the remaining work to the next run; infinite if
                each run continues to the end offsets.
        """
        done = record.applied_offsets or {}
        behind = sum(max(0, end - done.get(partition, 0)) for partition, end in ends.items())
        known, most = self.estimate(record.table), settings.max_events_per_run
        if (fits := self.events_of_turn(record.table, turn_s)) is not None:
            most = min(most, fits)
        commits = max(1, -(-behind // most))
        whole = known.seconds(behind, commits)
        # A turn ends with the first commit after its time.
        one = known.seconds(min(behind, most))
        seconds = min(whole, max(turn_s, one))
        return Demand(behind, seconds, whole - seconds)

    def entry(
        self,
        record: TableRecord,
        settings: TableSettings | None,
        topic: TopicFacts | KafkaError,
        turn_s: float,
    ) -> Entry:
        """Return the schedule's entry for a table that has work.

        Args:
            record: The table's record.
            settings: The table's settings; None if they are invalid, which the table's run reports.
            topic: The `TopicFacts` of the table's topic, or the error of reading them, which the
                table's run reports.
            turn_s: Seconds after which a run leaves the remaining work to the next run.
        """
        target = 900.0 if settings is None else float(settings.freshness_target_s)
        lateness = 0.0 if settings is None else float(settings.allowed_lateness_s)
        demand = Demand(0, self.estimate(record.table).seconds(0), 0.0)
        if settings is not None and not isinstance(topic, KafkaError):
            demand = self.demand(record, settings, topic.stable, turn_s)
        last, shard, attempt = record.last_commit, record.shard, record.attempt
        shared = shard is not None and attempt is not None and attempt.shard is not None
        failed = record.state is State.FAILED
        return Entry(
            record.table,
            configured_tier(record.tier),
            deadline=self.fresh_at(record, lateness) + target,
            target_s=target,
            seconds=demand.seconds,
            lake=attempt.path if shared and attempt is not None else None,
            failing=failed,
            ran_at=(record.updated_at if failed or last is None else last.committed_at).timestamp(),
            rest=demand.rest,
            behind=demand.behind,
        )

    def fresh_at(self, record: TableRecord, lateness_s: float = 0.0) -> float:
        """Return the time up to which the lake has all events of a table, in seconds since 1970.

        This is the later of two times: the last commit's watermark plus ``lateness_s``, and the
        time that the last call of `note_whole` for the table recorded.

        Args:
            record: The table's record.
            lateness_s: The seconds that the settings subtract from the table's watermarks.
        """
        last = record.last_commit
        mark = 0.0 if last is None or last.watermark is None else last.watermark.timestamp()
        with self._lock:
            return max(mark + lateness_s if mark else 0.0, self._whole_at.get(record.table, 0.0))

    def _known(self) -> dict[TableId, TableCost]:
        """Return the learned costs of each table. The state store is read only once."""
        if self._costs is None:
            self._costs = self._store.costs()
            self._prior = prior_of(self._costs.values())
        return self._costs


def _span_s(before: datetime | None, after: datetime | None) -> float:
    """Return the seconds between two watermarks; 0 if one of them is not known."""
    return 0.0 if before is None or after is None else (after - before).total_seconds()
