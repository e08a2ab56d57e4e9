"""``plan``: which tables would run next, how long, and whether all freshness targets can be kept.

The command reads the state store and the ends of topics. It needs neither Spark nor the sources.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cdc.capture.position_check import TopicFacts
from cdc.run import plan
from cdc.run.cost import Estimate
from cdc.run.predictions import Predictions
from cdc.run.schedule import TURN_S, Entry, Rules, Schedule
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.context import Services

FULL = 0.7
"""Part of the workers above which targets are not kept for sure: the load of the simulations."""
_PART_OF_TARGET = 0.8
"""Part of its target in which a table has to commit, since predictions are not exact."""


@dataclass(frozen=True)
class Need:
    """What a table needs to keep its target, as ``plan`` predicts it.

    Args:
        table: The table.
        tier: Its tier.
        target_s: Its freshness target, in seconds.
        behind: Number of offsets that its lake lacks.
        slack_s: Seconds for which the start of its next run can wait; None if it has no work.
        seconds: Predicted seconds of all its work now.
        events_per_s: Events that arrive per second, as learned.
        commits_load: Part of a worker for its commits, if it commits as rarely as the target
            allows.
        events_load: Part of a worker for its events.
    """

    table: TableId
    tier: str
    target_s: float
    behind: int
    slack_s: float | None
    seconds: float
    events_per_s: float
    commits_load: float
    events_load: float

    @property
    def load(self) -> float:
        """Part of a worker that the table needs, as ``plan`` predicts it."""
        return self.commits_load + self.events_load

    def to_json(self) -> dict[str, Any]:
        """The table's need as plain values."""
        return {**asdict(self), "table": str(self.table), "load": self.load}


@dataclass(frozen=True)
class Forecast:
    """What ``plan`` shows: what runs would do next, and what the targets need.

    Args:
        workers: Number of tables that run at a time.
        needs: What each table needs.
        order: The tables that would run next, each with the seconds until its start.
        problems: Tables that cannot be judged, each with the reason.
    """

    workers: int
    needs: tuple[Need, ...]
    order: tuple[tuple[TableId, float], ...] = ()
    problems: tuple[tuple[TableId, str], ...] = ()

    @property
    def load(self) -> float:
        """Work that the targets need, as a part of the workers' work, for ``plan``."""
        return sum(need.load for need in self.needs) / self.workers

    @property
    def tiers(self) -> dict[str, float]:
        """The predicted load of each tier, for ``plan``."""
        found: dict[str, float] = {}
        for need in self.needs:
            found[need.tier] = found.get(need.tier, 0.0) + need.load / self.workers
        return dict(sorted(found.items()))

    @property
    def alone(self) -> list[Need]:
        """The tables that, by ``plan``, miss their targets even with a worker of their own."""
        return [need for need in self.needs if need.load > _PART_OF_TARGET]

    @property
    def kept(self) -> bool:
        """Whether, by ``plan``, all targets can be kept."""
        return self.load <= FULL and not self.alone

    def advice(self) -> list[str]:
        """Return what ``plan`` advises to change so that all targets are kept, if anything."""
        found = [
            f"table {need.table} needs {need.load:.2f} of one worker by itself: raise its"
            " freshness_target_s"
            for need in self.alone
        ]
        if self.load <= FULL:
            return found
        times = self.load / FULL
        found.append(
            f"{times:.1f} times the cores, with spark.parallel_tables:"
            f" {math.ceil(self.workers * times)}"
        )
        commits = sum(need.commits_load for need in self.needs)
        left = FULL * self.workers - sum(need.events_load for need in self.needs)
        if left > 0.0:
            found.append(f"or freshness_target_s of all tables {commits / left:.1f} times as long")
            tier, most = max(self.tiers.items(), key=lambda pair: pair[1])
            found.append(
                f"the tier {tier} has {most / self.load:.0%} of the load: a longer target for it,"
                " or a job of its own for some of its tables, helps most"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """The forecast of ``plan`` as plain values."""
        return {
            "workers": self.workers,
            "load": self.load,
            "kept": self.kept,
            "tiers": self.tiers,
            "next": [{"table": str(table), "starts_in_s": at} for table, at in self.order],
            "tables": [need.to_json() for need in self.needs],
            "advice": self.advice(),
            "problems": {str(table): reason for table, reason in self.problems},
        }


def need_of(
    entry: Entry, estimate: Estimate, rate: float, *, behind: int, slack_s: float | None
) -> Need:
    """Return what a table needs to keep its target, for ``plan``.

    Args:
        entry: The table, as the schedule sees it.
        estimate: The predicted cost of its runs.
        rate: Events that arrive per second.
        behind: Number of offsets that its lake lacks.
        slack_s: Seconds for which its next run can wait; None if it has no work.
    """
    commits_per_s = min(rate, 1.0 / (entry.target_s * _PART_OF_TARGET))
    return Need(
        *(entry.table, entry.tier, entry.target_s, behind, slack_s),
        seconds=entry.seconds + entry.rest if behind else 0.0,
        events_per_s=rate,
        commits_load=commits_per_s * estimate.commit_s,
        events_load=rate * estimate.event_s,
    )


def order_of(
    entries: Iterable[Entry], rules: Rules, now: float, count: int
) -> list[tuple[TableId, float]]:
    """Return the tables that start next by ``plan``, each with the seconds until then.

    Args:
        entries: The tables that have work.
        rules: The settings of the schedule.
        now: The time, in seconds on the clock of the deadlines.
        count: The most tables to return.
    """
    schedule = Schedule(rules)
    schedule.offer(entries)
    found: list[tuple[TableId, float]] = []
    running: list[tuple[float, int, Entry]] = []
    at = now
    while len(found) < count:
        entry = schedule.take(at)
        if entry is not None:
            heapq.heappush(running, (at + entry.seconds, len(found), entry))
            found.append((entry.table, at - now))
        elif running:
            at, _, ended = heapq.heappop(running)
            schedule.end(ended.table, ended.seconds)
        else:
            break
    return found


def forecast(services: Services, tables: Sequence[TableId], *, count: int = 20) -> Forecast:
    """Return what ``plan`` shows of the given tables; if none is given, of all tables.

    Args:
        services: The services of the command.
        tables: The tables.
        count: The most tables of the order.

    Raises:
        KafkaError: The ends of topics cannot be read.
    """
    wanted, now = set(tables), datetime.now(timezone.utc)
    records = [
        record
        for record in services.store.tables()
        if plan.runnable(record, now) and (not wanted or record.table in wanted)
    ]
    ends = services.kafka.stable_offsets_many([one.topic for one in records]) if records else {}
    predictions = Predictions(services.store)
    needs, entries, problems = list[Need](), list[Entry](), list[tuple[TableId, str]]()
    for record in records:
        try:
            need, entry = _look(services, predictions, record, ends.get(record.topic), now)
        except TributaryError as error:
            problems.append((record.table, error.message))
            continue
        needs.append(need)
        if need.behind:
            entries.append(entry)
    workers = services.config.spark.parallel_tables
    rules = Rules(workers, services.config.pool_shares)
    order = order_of(entries, rules, now.timestamp(), count)
    return Forecast(workers, tuple(needs), tuple(order), tuple(problems))


def _look(
    services: Services,
    predictions: Predictions,
    record: TableRecord,
    ends: dict[int, int] | None,
    now: datetime,
) -> tuple[Need, Entry]:
    """Return what a table needs for ``plan``, and the table as the schedule sees it."""
    settings = services.config.settings_on_plan(record.table, record.tier)
    topic = TopicFacts(id=None, earliest={}, stable=ends or {})
    entry = predictions.entry(record, settings, topic, TURN_S)
    behind = entry.behind
    slack = entry.starts_by - now.timestamp() if behind else None
    rate = predictions.rate(record.table)
    known = predictions.estimate(record.table)
    need = need_of(entry, known, rate, behind=behind, slack_s=slack)
    return need, entry
