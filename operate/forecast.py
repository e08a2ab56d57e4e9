"""``plan``: which tables would run next and when, and whether all freshness targets can be kept.

The command reads the state store and the ends of topics. It needs neither Spark nor the sources.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cdc.capture.position_check import TopicFacts
from cdc.run import plan
from cdc.run.lane import Entry
from cdc.run.overdue import note_freshness
from cdc.run.predictions import Predictions
from cdc.run.schedule import TURN_S, Rules, Schedule
from operate.capture_load import CaptureLoad, capture_loads
from operate.needs import Capacity, Need, capacities, need_of
from operate.targets import PLANNED, Late, Shortfall, late_tables, shortfalls, with_bursts
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.context import Services


@dataclass(frozen=True)
class Forecast:
    """The prediction that ``plan`` shows: the next runs, and the work that freshness targets need.

    Args:
        rules: The number of workers, and the shares of tiers.
        needs: For each table, the predicted work to keep the table's freshness target.
        order: The tables that would run next, each with the seconds until its run starts.
        problems: Tables whose need cannot be predicted, each with the reason.
        captures: The predicted load of each capture.
        late: The tables that are late now.
        cores: Number of cores that runs have; 0 if it is not known.
    """

    rules: Rules
    needs: tuple[Need, ...]
    order: tuple[tuple[TableId, float], ...] = ()
    problems: tuple[tuple[TableId, str], ...] = ()
    captures: tuple[CaptureLoad, ...] = ()
    late: Mapping[TableId, Late] = field(default_factory=dict)
    cores: int = 0

    @property
    def workers(self) -> int:
        """Number of tables that run at a time."""
        return self.rules.workers

    @cached_property
    def capacity(self) -> Capacity:
        """What limits the tables: the workers, or the cores."""
        return capacities(self.needs, self.workers, self.cores)[0]

    @property
    def load(self) -> float:
        """The load that ``plan`` predicts; at 1.0, all workers or all cores are always busy."""
        return self.capacity.load(self.needs)

    @property
    def tiers(self) -> dict[str, float]:
        """For each tier, the load that ``plan`` predicts, as a fraction of `capacity`."""
        found: dict[str, list[Need]] = {}
        for need in self.needs:
            found.setdefault(need.tier, []).append(need)
        return {tier: self.capacity.load(needs) for tier, needs in sorted(found.items())}

    @cached_property
    def short(self) -> list[Shortfall]:
        """The freshness targets that are missed now, or that, by prediction, may be missed."""
        return shortfalls(self.needs, self.rules, PLANNED, self.late, cores=self.cores)

    @property
    def kept(self) -> bool:
        """Whether ``plan`` can predict all needs, and predicts that all targets are kept."""
        return not self.short and not self.problems

    def advice(self) -> list[str]:
        """Return the changes that ``plan`` advises; empty if all targets are kept."""
        return [f"{one.reason}: {one.remedy}" for one in self.short]

    def to_json(self) -> dict[str, Any]:
        """The forecast of ``plan`` as plain values."""
        return {
            "workers": self.workers,
            "cores": self.cores,
            "load": self.load,
            "load_of": self.capacity.unit,
            "kept": self.kept,
            "tiers": self.tiers,
            "next": [{"table": str(table), "starts_in_s": at} for table, at in self.order],
            "tables": [need.to_json() for need in self.needs],
            "targets": [one.to_json() for one in self.short],
            "advice": self.advice(),
            "captures": [one.to_json() for one in self.captures],
            "problems": {str(table): reason for table, reason in self.problems},
        }


def order_of(
    entries: Iterable[Entry], rules: Rules, now: float, count: int
) -> list[tuple[TableId, float]]:
    """Return the tables that run next, as ``plan`` predicts, each with the seconds until its run.

    Args:
        entries: The tables that have work.
        rules: The settings of the schedule.
        now: The current time, in seconds on the clock of the entries' deadlines.
        count: Maximum number of tables to return.
    """
    schedule = Schedule(rules, is_new=False)
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


def forecast(
    services: Services,
    tables: Sequence[TableId],
    *,
    count: int = 20,
    ends: Mapping[str, Mapping[int, int] | TributaryError] | None = None,
) -> Forecast:
    """Return the forecast that ``plan`` shows for the given tables; if none is given, for all.

    Tables that runs do not follow now are left out, for example paused tables. The load of a
    capture counts all of its tables that runs follow, also those that are not given.

    Args:
        services: The services of the command.
        tables: The tables.
        count: Maximum number of tables in the forecast's list of next runs.
        ends: For each topic, the end offset of each partition, or why the topic cannot be read. By
            default, Kafka is asked for the last stable offsets.

    Raises:
        KafkaError: The ends of topics cannot be read.
    """
    wanted, now = set(tables), services.store.now()
    on_plan = [one for one in services.store.tables() if plan.runnable(one, now)]
    records = [one for one in on_plan if not wanted or one.table in wanted]
    if ends is None:
        topics = [one.topic for one in records]
        ends = services.kafka.ends_now(topics, committed=True) if topics else {}
    predictions = Predictions(services.store)
    if count:  # the metrics show no single table
        _note_freshness(services, predictions, records, ends, now)
    needs, entries, problems = list[Need](), list[Entry](), list[tuple[TableId, str]]()
    suspects: dict[TableId, tuple[TableRecord, datetime]] = {}
    for record in records:
        try:
            need, entry = _predict_need(services, predictions, record, ends.get(record.topic), now)
        except TributaryError as error:
            problems.append((record.table, error.message))
            continue
        needs.append(need)
        if need.behind:
            entries.append(entry)
        # An open Kafka transaction can hide changes: then the table is late, and not behind.
        if record.applied_offsets and entry.deadline < now.timestamp():
            suspects[record.table] = (record, now - timedelta(seconds=entry.target_s))
    rules = Rules(services.config.spark.parallel_tables, services.config.pool_shares)
    order = order_of(entries, rules, now.timestamp(), count)
    # A process can be older than a source's settings, and a source's settings can be gone.
    known = services.config.sources
    captures = capture_loads(
        [one for one in on_plan if one.table.source in known],
        lambda record: services.capture_of(record).connector,
        predictions.rate,
        services.config.connect.events_per_s,
    )
    late = late_tables(services.kafka, predictions, suspects, now) if count else {}
    needs = with_bursts(needs, late) if count else needs
    facts = (tuple(order), tuple(problems), captures, late, predictions.cores)
    return Forecast(rules, tuple(needs), *facts)


def _note_freshness(
    services: Services,
    predictions: Predictions,
    records: Sequence[TableRecord],
    ends: Mapping[str, Mapping[int, int] | TributaryError],
    now: datetime,
) -> None:
    """Find out, for ``plan``, which tables are fresh although their last commits are old.

    Raises:
        KafkaError: The cluster does not answer.
    """
    topics = [record.topic for record in records]
    # The last stable offsets leave out the changes of open transactions.
    everything = services.kafka.ends_now(topics, committed=False) if topics else {}
    targets: dict[TableId, tuple[TableRecord, float]] = {}
    for record in records:
        end = ends.get(record.topic)
        if record.applied_offsets and everything.get(record.topic) == record.applied_offsets:
            predictions.note_whole(record.table, now.timestamp())
        if not end or isinstance(end, TributaryError) or end == record.applied_offsets:
            continue
        with suppress(TributaryError):  # the need of the table reports it
            settings = services.config.settings_on_plan(record.table, record.tier)
            targets[record.table] = (record, float(settings.freshness_target_s))
    note_freshness(services.kafka, predictions, targets, now.timestamp())


def _predict_need(
    services: Services,
    predictions: Predictions,
    record: TableRecord,
    ends: Mapping[int, int] | TributaryError | None,
    now: datetime,
) -> tuple[Need, Entry]:
    """Return, for ``plan``, a table's predicted need and its entry in the schedule of runs.

    Raises:
        TributaryError: The table's settings are not valid, or its topic cannot be read now.
    """
    if isinstance(ends, TributaryError):
        raise ends
    settings = services.config.settings_on_plan(record.table, record.tier)
    topic = TopicFacts(id=None, earliest={}, stable=ends or {})
    entry = predictions.entry(record, settings, topic, TURN_S)
    behind = entry.behind
    cost, rate = predictions.estimate(record.table), predictions.rate(record.table)
    each = predictions.events_per_commit(record.table)
    need = need_of(entry.table, entry.tier, entry.target_s, cost, rate, each)
    need = replace(need, bytes_per_commit=predictions.written_bytes_per_commit(record.table))
    if behind:
        slack, work = entry.starts_by - now.timestamp(), entry.seconds + entry.rest
        need = replace(need, behind=behind, slack_s=slack, seconds=work)
    return need, entry
