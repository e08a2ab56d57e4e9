"""A fleet of tables, simulated event by event; the caller chooses the order of the runs.

The simulation has everything that makes a good order hard: costs that are not known beforehand, a
heavy tail, bursts, a giant backlog, failing tables, and commits that are seen only at the next
round.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Protocol

from cdc.run.cost import PRIOR, Estimate, Observation, estimate, learned, prior_of
from cdc.run.lane import Entry
from cdc.store.table_cost import TableCost
from schemas.table import TableId

EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)
TURN_S = 30.0
ROUND_S = 10.0
SMALLEST_COMMIT = 1_000
"""Number of events that one commit may always have."""
LARGEST = 0.3
"""The largest fraction of a worker's time that the events of one table may need."""
LONGEST_COMMIT_S = 10.0
"""The longest commit without events, in seconds.

A commit also takes at most a tenth of its table's freshness target.
"""
FAILED_S = 5.0
"""The duration of a run that fails, in seconds."""
TARGETS = {"critical": 0.2, "standard": 0.5, "bulk": 0.75}
"""Each tier's freshness target, as a fraction of the duration, so that each can be missed."""
LOAD = 0.7
"""The work that the freshness targets require, as a fraction of the workers' capacity."""


class Order(Protocol):
    """Decides the order of runs; the tests are about the implementation `Schedule`."""

    def offer(self, entries: Iterable[Entry]) -> None: ...
    def take(self, now: float) -> Entry | None: ...
    def end(self, table: TableId, seconds: float) -> None: ...


@dataclass(eq=False)
class Table:
    """A table of the fleet, and how far its lake is.

    Args:
        id: The name of the table.
        tier: The tier of the table.
        target_s: The freshness target, in seconds.
        commit_s: The true duration of a commit without events, in seconds.
        event_s: The true time that each event adds, in seconds.
        arrivals: Pairs of a time and the number of events that arrive then, in order.
        fails_until: The time until which each run of the table fails.
        giant: Whether the table begins with a giant backlog.
    """

    id: TableId
    tier: str
    target_s: float
    commit_s: float
    event_s: float
    arrivals: list[tuple[float, int]]
    fails_until: float = 0.0
    giant: bool = False
    noise: tuple[float, ...] = (1.0,)
    times: list[float] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    done: int = 0
    """The number of events that are applied."""
    oldest: float = 0.0
    """The arrival time of the oldest event that is not applied; infinite if there is none."""
    fresh_at: float = 0.0
    """The time up to which all events are known to be applied."""
    seen: tuple[float, int] = (0.0, 0)
    """The time of the last look at the table, and the number of events at that time."""
    waits_since: float = -1.0
    running: bool = False
    ran_at: float = 0.0
    committed_at: float = -1e9
    retry_at: float = 0.0
    failures: int = 0
    runs: int = 0
    cost: TableCost | None = None
    known: Estimate = field(default_factory=lambda: estimate(None))

    def begin(self) -> None:
        """Prepare the look-up of events by time."""
        self.times = [at for at, _ in self.arrivals]
        self.sums = list(itertools.accumulate(count for _, count in self.arrivals))
        self.oldest = self.times[0]

    def events(self, now: float) -> int:
        """The number of events that have arrived by a time."""
        return self.sums[bisect_right(self.times, now) - 1]

    def apply(self, upto: int) -> None:
        """Apply the table's events up to a number."""
        self.done = upto
        place = bisect_right(self.sums, upto)
        self.oldest = self.times[place] if place < len(self.times) else math.inf


@dataclass
class Outcome:
    """The result of an order for a fleet; ``missed`` has the largest delay of each late table."""

    missed: dict[TableId, float] = field(default_factory=dict)
    longest_wait: float = 0.0
    """The longest time that a table with work has waited for a worker, in freshness targets."""
    runs: int = 0
    giant_events: int = 0
    ages: dict[TableId, list[float]] = field(default_factory=dict)
    """By table: the age of its oldest unapplied event at each commit, in freshness targets."""


def fleet(seed: int, tables: int, workers: float, duration: float) -> list[Table]:
    """Return a random fleet, by a seed, whose targets require `LOAD` of the capacity.

    Args:
        seed: The seed.
        tables: Number of tables.
        workers: The capacity: the number of runs that are executed at full speed at a time.
        duration: Length of the simulation, in seconds.
    """
    rng = random.Random(seed)
    found = []
    for number in range(tables):
        tier = rng.choices(tuple(TARGETS), (1, 5, 3))[0]
        target = TARGETS[tier] * duration
        # Events per second have a heavy tail: few tables have almost all of them.
        rate = min(0.02 * rng.paretovariate(0.7), 20.0)
        arrivals, at = [], rng.uniform(0.0, min(duration / 2, 2.0 / rate))
        while at < duration:
            arrivals.append((at, rng.randint(1, 3) if rate < 0.2 else int(rate * 500)))
            at += rng.expovariate(rate / 2.0) if rate < 0.2 else 5.0
        costs = (0.5 * rng.paretovariate(2.5), 0.00002 * rng.paretovariate(2.0))
        name = TableId("shop", "public", f"t{rng.randrange(10**9):09}_{number}")
        found.append(Table(name, tier, target, *costs, arrivals or [(0.0, 1)]))
    for _ in range(4):
        scale = LOAD * workers / sum(_load(one, duration) for one in found)
        for one in found:
            one.commit_s = min(one.commit_s * scale, one.target_s / 10, LONGEST_COMMIT_S)
            one.event_s *= scale * min(1.0, LARGEST / _load(one, duration) / scale)
    for one in found:
        one.noise = tuple(rng.lognormvariate(0.0, 0.25) for _ in range(7))
    for one in rng.sample(found, max(1, tables // 20)):
        _burst(one, rng.uniform(duration / 4, duration / 2), rng)
    for one in rng.sample(found, max(1, tables // 30)):
        one.fails_until = rng.uniform(0.0, duration / 2)
    for one in found:
        one.fresh_at = one.committed_at = one.ran_at = -rng.uniform(0.0, one.target_s / 2)
        for events in (1, 1000):  # two runs of before
            seconds = (one.commit_s + one.event_s * events) * rng.lognormvariate(0.0, 0.25)
            one.cost = learned(one.cost, Observation(1, events, seconds, EPOCH))
        one.known = estimate(one.cost)
    for one in rng.sample(found, max(1, tables // 20)):
        one.cost = None  # it is new
    giant = found[0]
    giant.giant, giant.fails_until, giant.tier = True, 0.0, "bulk"
    giant.arrivals, giant.fresh_at = [(0.0, int(duration / giant.event_s))], -duration
    found.sort(key=lambda one: str(one.id))
    return found


def _load(table: Table, duration: float) -> float:
    """The fraction of a worker's time that a table needs if it commits as rarely as allowed."""
    events = sum(count for _, count in table.arrivals)
    commits = min(float(len(table.arrivals)), duration / table.target_s)
    return (commits * table.commit_s + events * table.event_s) / duration


def _burst(table: Table, at: float, rng: random.Random) -> None:
    """Let many events of a table arrive at one time; to apply them takes a few seconds."""
    events = int(rng.uniform(1.0, 8.0) / table.event_s)
    table.arrivals = sorted([*table.arrivals, (at, events)])


def simulate(
    tables: list[Table],
    order: Order,
    *,
    workers: int,
    duration: float,
    clairvoyant: bool = False,
    cores: float = math.inf,
) -> Outcome:
    """Let an order run a fleet.

    Args:
        tables: The fleet; changed in place.
        order: Chooses the next table.
        workers: Number of tables that run at a time.
        duration: Length of the simulation, in seconds.
        clairvoyant: Whether the order gets true costs and deadlines, instead of learned ones.
        cores: Number of runs that are executed at full speed at a time. If more tables run, all of
            them are slower.
    """
    run = _Run(tables, order, workers, clairvoyant)
    now, work, next_round, count = 0.0, 0.0, 0.0, 0
    # Each run in progress has done the same work since the last event. A run ends once the sum of
    # this work is as large as it was at the run's start, plus the run's own work.
    ends: list[tuple[float, int, float, TableId]] = []
    while True:
        speed = min(1.0, cores / len(ends)) if ends else 1.0
        until = now + (ends[0][0] - work) / speed if ends else math.inf
        at = min(next_round, until)
        if at > duration:
            return run.outcome_at(duration)
        work, now = work + (at - now) * speed, at
        if next_round <= until:
            run.round(now)
            next_round = now + ROUND_S
        else:
            work, _, began, ended = heapq.heappop(ends)
            run.end(ended, began, now)
        for seconds, table in run.start(now):
            count += 1
            heapq.heappush(ends, (work + seconds, count, now, table))


class _Run:
    """The state of one simulation."""

    def __init__(self, tables: list[Table], order: Order, workers: int, clairvoyant: bool) -> None:
        self.tables = {one.id: one for one in tables}
        self.order = order
        self.free = workers
        self.clairvoyant = clairvoyant
        self.outcome = Outcome()
        self.prior = PRIOR
        for one in tables:
            one.begin()

    def round(self, now: float) -> None:
        """Look at all topics, and offer the tables that have work."""
        if self.outcome.runs < 100:
            self.prior = prior_of(one.cost for one in self.tables.values() if one.cost is not None)
        entries = []
        for one in self.tables.values():
            if one.running or one.retry_at > now:
                continue
            if one.oldest > now:
                one.fresh_at = now
                continue
            early = now - one.committed_at < one.target_s / 10
            if early and now - one.fresh_at < one.target_s:
                continue
            events = one.events(now)
            one.seen = (now, events)
            if one.waits_since < 0.0:
                one.waits_since = now
            entries.append(self.entry(one, events - one.done))
        self.order.offer(entries)

    def entry(self, one: Table, events: int) -> Entry:
        """Return the facts on a table that the order gets."""
        if self.clairvoyant:
            seconds, fresh_at, rest = self.true_seconds(one, events)[0], one.oldest, 0.0
        else:
            whole = (self.prior if one.cost is None else one.known).seconds(events)
            seconds, fresh_at = min(whole, TURN_S), one.fresh_at
            rest = whole - seconds
        deadline = fresh_at + one.target_s
        failing = one.failures > 0
        return Entry(
            *(one.id, one.tier, deadline, one.target_s, seconds),
            failing=failing,
            ran_at=one.ran_at,
            rest=rest,
        )

    def true_seconds(self, one: Table, events: int) -> tuple[float, int]:
        """The true duration of the next run, in seconds, and the number of events it applies."""
        whole = (one.commit_s + one.event_s * events) * one.noise[one.runs % len(one.noise)]
        if whole <= TURN_S:
            return whole, events
        return TURN_S, max(1, int(events * TURN_S / whole))

    def start(self, now: float) -> Iterable[tuple[float, TableId]]:
        """Start tables on all free workers; yield the work of each run, in seconds."""
        while self.free and (entry := self.order.take(now)) is not None:
            one = self.tables[entry.table]
            # As in a run, the number of events by which a commit takes a turn is a prediction.
            fits = math.inf if self.clairvoyant else one.known.events_within(TURN_S)
            events = int(min(one.seen[1] - one.done, max(fits, SMALLEST_COMMIT)))
            fails = now < one.fails_until
            seconds, applied = (FAILED_S, 0) if fails else self.true_seconds(one, events)
            self.free -= 1
            one.running, one.seen = True, (one.seen[0], one.done + applied)
            self.started_after(one, now)
            one.waits_since = -1.0
            self.outcome.runs += 1
            yield seconds, one.id

    def end(self, table: TableId, began: float, now: float) -> None:
        """Note the end of a run."""
        one = self.tables[table]
        one.running, self.free = False, self.free + 1
        self.order.end(table, now - began)
        seen_at, upto = one.seen
        one.runs, one.ran_at = one.runs + 1, now
        if upto == one.done:
            one.failures += 1
            one.retry_at = now + 30.0 * 2 ** (one.failures - 1)
            return
        self.judge(one, now)
        if one.giant:
            self.outcome.giant_events += upto - one.done
        at = EPOCH + timedelta(seconds=began)
        one.cost = learned(one.cost, Observation(1, upto - one.done, now - began, at))
        one.known = estimate(one.cost)
        one.failures, one.committed_at = 0, now
        one.apply(upto)
        one.fresh_at = min(one.oldest, seen_at)

    def started_after(self, one: Table, now: float) -> None:
        """Note the time that a table has waited for a worker."""
        wait = (now - one.waits_since) / one.target_s
        self.outcome.longest_wait = max(self.outcome.longest_wait, wait)

    def judge(self, one: Table, now: float) -> None:
        """Note the age of the oldest event, and whether its deadline was missed.

        A deadline counts as missed if it is exceeded by more than a round. Failing tables and the
        giant have no deadline.
        """
        age = now - one.oldest
        if age > 0.0:
            self.outcome.ages.setdefault(one.id, []).append(age / one.target_s)
        late = age - one.target_s
        if late > ROUND_S and not (one.giant or one.fails_until):
            self.outcome.missed[one.id] = max(late, self.outcome.missed.get(one.id, 0.0))

    def outcome_at(self, now: float) -> Outcome:
        """Return the outcome, including the tables that still wait."""
        for one in self.tables.values():
            self.judge(one, now)
            if one.waits_since >= 0.0:
                self.started_after(one, now)
        return self.outcome


class Clairvoyant:
    """The order by least slack, with the true costs.

    The giant and tables whose deadlines cannot be kept never run.
    """

    def __init__(self) -> None:
        self.waiting: list[Entry] = []

    def offer(self, entries: Iterable[Entry]) -> None:
        self.waiting = sorted(entries, key=lambda one: one.starts_by)

    def take(self, now: float) -> Entry | None:
        for place, entry in enumerate(self.waiting):
            if entry.starts_by >= now and not entry.failing:
                return self.waiting.pop(place)
        return None

    def end(self, table: TableId, seconds: float) -> None:
        pass


class Names(Clairvoyant):
    """The alphabetical order of the tables, like a queue without deadlines."""

    def offer(self, entries: Iterable[Entry]) -> None:
        self.waiting = list(entries)

    def take(self, now: float) -> Entry | None:
        return self.waiting.pop(0) if self.waiting else None
