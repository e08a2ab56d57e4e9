"""A fleet of tables, simulated event by event, whose runs an order of the caller's choice starts.

The simulation has what makes an order hard: costs that are not known before, a heavy tail, bursts,
a giant backlog, tables that fail, and commits that the order sees only at the next round.
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
from cdc.run.schedule import Entry
from cdc.store.table_cost import TableCost
from schemas.table import TableId

EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)
TURN_S = 30.0
ROUND_S = 10.0
LARGEST = 0.3
"""Largest part of a worker that a table's events may need."""
LONGEST_COMMIT_S = 10.0
"""Longest commit without events. A commit also takes at most a tenth of the table's target."""
FAILED_S = 5.0
"""How long a run takes that fails."""
LOAD = 0.7
"""Work that the targets require, as a part of what the workers can do."""


class Order(Protocol):
    """What decides the order of runs; `Schedule` is the one under test."""

    def offer(self, entries: Iterable[Entry]) -> None: ...
    def take(self, now: float) -> Entry | None: ...
    def end(self, table: TableId, seconds: float) -> None: ...


@dataclass(eq=False)
class Table:
    """A table of the fleet, and how far its lake is.

    Args:
        id: Its name.
        tier: Its tier.
        target_s: Its freshness target.
        commit_s: True seconds of a commit.
        event_s: True seconds of an event.
        arrivals: Time and number of events, in order.
        fails_until: Until when each of its runs fails.
        giant: Whether it begins with a backlog.
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
    """Events that are applied."""
    oldest: float = 0.0
    """Arrival of the oldest event that is not applied; infinite if there is none."""
    fresh_at: float = 0.0
    """The time up to which all events are known to be applied."""
    seen: tuple[float, int] = (0.0, 0)
    """When the table was last looked at, and its events at that time."""
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
        """Events that have arrived."""
        return self.sums[bisect_right(self.times, now) - 1]

    def apply(self, upto: int) -> None:
        """Advance to a number of events."""
        self.done = upto
        place = bisect_right(self.sums, upto)
        self.oldest = self.times[place] if place < len(self.times) else math.inf


@dataclass
class Outcome:
    """What an order made of a fleet: how late each deadline was that it missed."""

    missed: dict[TableId, float] = field(default_factory=dict)
    longest_wait: float = 0.0
    """Longest wait of a table with work for its start, in relation to its target."""
    runs: int = 0
    giant_events: int = 0
    ages: dict[TableId, list[float]] = field(default_factory=dict)
    """At each commit of a table, the age of its oldest event, in targets of the table."""


def fleet(seed: int, tables: int, workers: int, duration: float) -> list[Table]:
    """Return a fleet whose targets require `LOAD` of the workers; each seed has another one."""
    rng = random.Random(seed)
    found = []
    for number in range(tables):
        tier, target = rng.choices(
            (("critical", 90.0), ("standard", 240.0), ("bulk", 900.0)), (1, 5, 3)
        )[0]
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
    """The part of a worker that the table needs if it commits as rarely as its target allows."""
    events = sum(count for _, count in table.arrivals)
    commits = min(float(len(table.arrivals)), duration / table.target_s)
    return (commits * table.commit_s + events * table.event_s) / duration


def _burst(table: Table, at: float, rng: random.Random) -> None:
    """Let many events of a table arrive at one time, which take a few seconds."""
    events = int(rng.uniform(1.0, 8.0) / table.event_s)
    table.arrivals = sorted([*table.arrivals, (at, events)])


def simulate(
    tables: list[Table],
    order: Order,
    *,
    workers: int,
    duration: float,
    clairvoyant: bool = False,
) -> Outcome:
    """Let an order run a fleet.

    Args:
        tables: The fleet; changed in place.
        order: Chooses the next table.
        workers: Number of tables that run at a time.
        duration: Length of the simulation, in seconds.
        clairvoyant: Whether the order gets true costs and deadlines, instead of learned ones.
    """
    run = _Run(tables, order, workers, clairvoyant)
    events: list[tuple[float, int, float, TableId | None]] = [(0.0, 0, 0.0, None)]
    count = 0
    while events[0][0] <= duration:
        now, _, began, ended = heapq.heappop(events)
        if ended is None:
            run.round(now)
            heapq.heappush(events, (now + ROUND_S, 0, now, None))
        else:
            run.end(ended, began, now)
        for until, table in run.start(now):
            count += 1
            heapq.heappush(events, (until, count, now, table))
    return run.outcome_at(duration)


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
        """Return what the order knows of a table."""
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
        """Seconds of the next run, and the events that it applies."""
        whole = (one.commit_s + one.event_s * events) * one.noise[one.runs % len(one.noise)]
        if whole <= TURN_S:
            return whole, events
        return TURN_S, max(1, int(events * TURN_S / whole))

    def start(self, now: float) -> Iterable[tuple[float, TableId]]:
        """Start tables on all free workers; yield when each run ends."""
        while self.free and (entry := self.order.take(now)) is not None:
            one = self.tables[entry.table]
            events = one.seen[1] - one.done
            fails = now < one.fails_until
            seconds, applied = (FAILED_S, 0) if fails else self.true_seconds(one, events)
            self.free -= 1
            one.running, one.seen = True, (one.seen[0], one.done + applied)
            self.started_after(one, now)
            one.waits_since = -1.0
            self.outcome.runs += 1
            yield now + seconds, one.id

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
        """Note how long a table waited for a worker."""
        wait = (now - one.waits_since) / one.target_s
        self.outcome.longest_wait = max(self.outcome.longest_wait, wait)

    def judge(self, one: Table, now: float) -> None:
        """Note the age of the oldest event, and count a deadline missed by more than a round.

        Failures and the giant have no deadline.
        """
        age = now - one.oldest
        if age > 0.0:
            self.outcome.ages.setdefault(one.id, []).append(age / one.target_s)
        late = age - one.target_s
        if late > ROUND_S and not (one.giant or one.fails_until):
            self.outcome.missed[one.id] = max(late, self.outcome.missed.get(one.id, 0.0))

    def outcome_at(self, now: float) -> Outcome:
        """Return the outcome, also of the tables that still wait."""
        for one in self.tables.values():
            self.judge(one, now)
            if one.waits_since >= 0.0:
                self.started_after(one, now)
        return self.outcome


class Clairvoyant:
    """Least slack by the true costs; tables that cannot be kept, and the giant, never run."""

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
    """The order of names, as a queue without deadlines would have it."""

    def offer(self, entries: Iterable[Entry]) -> None:
        self.waiting = list(entries)

    def take(self, now: float) -> Entry | None:
        return self.waiting.pop(0) if self.waiting else None
