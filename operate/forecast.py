"""``plan``: which tables would run next, how long, and whether all freshness targets can be kept.

The command reads the state store and the ends of topics. It needs neither Spark nor the sources.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cdc.capture.position_check import TopicFacts
from cdc.run import plan
from cdc.run.predictions import Predictions
from cdc.run.schedule import TURN_S, Entry, Rules, Schedule
from operate.targets import PLANNED, Need, Shortfall, load_of, need_of, shortfalls
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.context import Services


@dataclass(frozen=True)
class Forecast:
    """What ``plan`` shows: what runs would do next, and what the targets need.

    Args:
        rules: The workers and the shares of tiers.
        needs: What each table needs.
        order: The tables that would run next, each with the seconds until its start.
        problems: Tables that cannot be judged, each with the reason.
    """

    rules: Rules
    needs: tuple[Need, ...]
    order: tuple[tuple[TableId, float], ...] = ()
    problems: tuple[tuple[TableId, str], ...] = ()

    @property
    def workers(self) -> int:
        """Number of tables that run at a time."""
        return self.rules.workers

    @property
    def load(self) -> float:
        """Work that the targets need, as a part of the workers' work, for ``plan``."""
        return load_of(self.needs, self.workers)

    @property
    def tiers(self) -> dict[str, float]:
        """The predicted load of each tier, for ``plan``."""
        found: dict[str, list[Need]] = {}
        for need in self.needs:
            found.setdefault(need.tier, []).append(need)
        return {tier: load_of(needs, self.workers) for tier, needs in sorted(found.items())}

    @cached_property
    def short(self) -> list[Shortfall]:
        """The targets that, by ``plan``, are not kept for sure."""
        return shortfalls(self.needs, self.rules, PLANNED)

    @property
    def kept(self) -> bool:
        """Whether, by ``plan``, all targets can be kept."""
        return not self.short

    def advice(self) -> list[str]:
        """Return what ``plan`` advises to change so that all targets are kept, if anything."""
        return [f"{one.reason}: {one.remedy}" for one in self.short]

    def to_json(self) -> dict[str, Any]:
        """The forecast of ``plan`` as plain values."""
        return {
            "workers": self.workers,
            "load": self.load,
            "kept": self.kept,
            "tiers": self.tiers,
            "next": [{"table": str(table), "starts_in_s": at} for table, at in self.order],
            "tables": [need.to_json() for need in self.needs],
            "targets": [one.to_json() for one in self.short],
            "advice": self.advice(),
            "problems": {str(table): reason for table, reason in self.problems},
        }


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
    rules = Rules(services.config.spark.parallel_tables, services.config.pool_shares)
    order = order_of(entries, rules, now.timestamp(), count)
    return Forecast(rules, tuple(needs), tuple(order), tuple(problems))


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
    cost, rate = predictions.estimate(record.table), predictions.rate(record.table)
    need = need_of(entry.table, entry.tier, entry.target_s, cost, rate)
    if behind:
        slack, work = entry.starts_by - now.timestamp(), entry.seconds + entry.rest
        need = replace(need, behind=behind, slack_s=slack, seconds=work)
    return need, entry
