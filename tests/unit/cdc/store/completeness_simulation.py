"""A simulated source with its connector, a lake and runs, with everything that can go wrong.

Each step of a run and of a look is a separate action. So the steps of several processes mix in any
order, and a process can be killed between any two steps. The product's code makes all decisions,
and the simulation knows whether they are right.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from cdc.run import plan
from cdc.store.completeness import (
    Calendar,
    CompletenessRules,
    Covered,
    Period,
    Seen,
    proven_until,
    rows_of,
    slot_of,
    thinned,
)

UTC = timezone.utc
STARTS = (
    datetime(2026, 11, 23, 8, 20, tzinfo=UTC),
    datetime(2026, 10, 24, 20, 5, tzinfo=UTC),  # the clocks of Europe go back
    datetime(2026, 3, 28, 19, 40, tzinfo=UTC),  # and forward
)
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe")
MINUTE = timedelta(minutes=1)
Steps = Generator[None, None, None]


@dataclass(frozen=True)
class Change:
    """A row of the source's log.

    Args:
        at: The time of the commit, by the source's clock.
        stated: The commit time in the log, which a session can choose.
        event: The event time of the row.
        beat: Whether the row is a heartbeat.
    """

    at: datetime
    stated: datetime
    event: datetime
    beat: bool = False


@dataclass(frozen=True)
class Commit:
    """A commit of the lake, with its instant, its metadata and its rows."""

    instant: str
    attempt: str
    offset: int
    watermark: datetime | None
    late: dict[int, int]
    rows: tuple[Change, ...]


@dataclass
class Said:
    """The announcement of a complete period, as the state store has it."""

    period: Period
    attempt: str
    instant: str
    late: int = 0
    noted: str | None = None

    @property
    def covered(self) -> Covered:
        return Covered(self.attempt, self.instant, self.noted)


@dataclass
class World:
    """The state of the whole simulation, including facts that the product cannot see."""

    seed: int
    log: list[Change] = field(default_factory=list)
    topic: list[Change] = field(default_factory=list)
    captured: int = 0
    running: bool = True
    lost: bool = False
    commits: list[Commit] = field(default_factory=list)
    stored: Commit | None = None
    incremental: bool = True
    attempts: int = 0
    instants: int = 0
    seen: list[Seen] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    noted: str = ""
    uncounted: set[str] = field(default_factory=set)
    false: list[str] = field(default_factory=list)
    withheld: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        some = self.random.choice
        lateness = some((timedelta(), 5 * MINUTE, 20 * MINUTE))
        self.by_event = some((True, False))
        zone = some(ZONES)
        self.rules = CompletenessRules(
            Calendar(some(("hour", "hour", "day")), zone),
            lateness if self.by_event else timedelta(),
        )
        self.lateness_s = some((0, 0, 60))
        self.skewed = some((True, False))
        self.now = some(STARTS)
        self.run_skew = timedelta(seconds=some((0, 0, -40, 30)))
        self.run: Steps = iter(())
        self.look: Steps = iter(())
        self.copy()

    @property
    def clock(self) -> datetime:
        """The present time by the clock of the machine on which runs work."""
        return self.now + self.run_skew

    def moment(self, change: Change) -> datetime:
        """The time that decides to which period a change belongs."""
        return change.event if self.by_event else change.stated

    # The source and its connector.

    def write(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            stated = self.now
            if self.skewed and self.random.random() < 0.1:
                stated += timedelta(minutes=self.random.randint(-90, 180))
            old = self.random.choice((0, 0, 1, 8, 70, 200))
            event = self.now - timedelta(minutes=old * self.random.random())
            self.log.append(Change(self.now, stated, event))

    def capture(self) -> None:
        if self.running:
            last = self.random.randint(self.captured, len(self.log))
            self.topic += self.log[self.captured : last]
            self.captured = last

    def beat(self) -> None:
        if self.running:
            self.log.append(Change(self.now, self.now, self.now, beat=True))

    def stop(self) -> None:
        self.running = False

    def start(self) -> None:
        self.running = True

    def lose(self) -> None:
        """Let the log drop the changes that the stopped connector has not read."""
        if not self.running and self.captured < len(self.log):
            self.captured, self.lost, self.running = len(self.log), True, True

    # Copies, and what a run finds out.

    def copy(self) -> None:
        """Copy all rows again; the stream begins with the connector's next record."""
        self.attempts += 1
        if self.commits and self.commits[-1].instant > self.noted:
            self.uncounted.add(self.commits[-1].instant)
        self.lost, self.incremental = False, True
        self.captured = len(self.log) if self.running else self.captured
        seen = tuple(self.log)
        self.commit(Commit(self.instant(), f"a{self.attempts}", len(self.topic), None, {}, seen))
        self.stored, self.run = self.commits[-1], iter(())

    def resync(self) -> None:
        if self.running:
            self.capture()
            self.copy()

    def find_loss(self) -> None:
        if self.lost:
            self.incremental, self.run = False, iter(())

    def bootstrap(self) -> None:
        if not self.incremental and self.running:
            self.copy()

    def instant(self) -> str:
        self.instants += 1
        return f"{self.instants:09}"

    def commit(self, commit: Commit) -> None:
        self.commits.append(commit)

    # A run, step by step. A killed one ends after any of them.

    def step_run(self) -> None:
        if next(self.run, self) is self and self.incremental:
            self.run = self.steps_of_run()

    def kill(self) -> None:
        self.run = iter(())

    def steps_of_run(self) -> Steps:
        newest = self.commits[-1]
        self.note(newest)
        yield
        self.stored = newest
        self.note(newest)
        yield
        end = min(len(self.topic), newest.offset + self.random.randint(1, 40))
        batch = self.topic[newest.offset : end]
        if not batch:
            return
        rows = tuple(one for one in batch if not one.beat)
        times = {0: max(one.stated for one in rows)} if rows else {}
        reached = plan.watermark(newest.watermark, times, self.lateness_s, now=self.clock)
        late = self.slots(rows, newest)
        yield
        made = Commit(self.instant(), newest.attempt, end, reached, late, rows)
        self.commit(made)
        yield
        self.stored = made
        yield
        self.note(made)

    def slots(self, rows: tuple[Change, ...], newest: Commit) -> dict[int, int]:
        cut = self.rules.cut(self.clock)
        first = self.rules.earliest(newest.watermark, self.clock)
        first = min([first, *(one.period.start for one in self.said)])
        found: dict[int, int] = {}
        for moment in map(self.moment, rows):
            if first <= moment < cut:
                found[slot_of(moment)] = found.get(slot_of(moment), 0) + 1
        return found

    def note(self, commit: Commit) -> None:
        self.noted = commit.instant
        for one in self.said:
            count = rows_of(one.period.start, one.period.end, commit.late)
            if count and one.covered.counts(commit.attempt, commit.instant):
                one.late, one.noted = one.late + count, commit.instant

    # A look, step by step.

    def step_look(self) -> None:
        if next(self.look, self) is self:
            self.look = self.steps_of_look()

    def steps_of_look(self) -> Steps:
        if not self.incremental:
            return
        attempt = f"a{self.attempts}"
        newest = max((one.period.end for one in self.said), default=None)
        beats = [one.at for one in self.topic if one.beat]
        yield
        if beats and (not self.seen or self.seen[-1].beat != beats[-1]):
            self.seen = thinned([*self.seen, Seen(beats[-1], "t", {0: len(self.topic)})], 4)
        yield
        if self.stored is None or not self.incremental:
            return
        proven = proven_until(
            self.seen,
            {0: self.stored.offset},
            topic_id="t",
            lateness_s=self.lateness_s,
            now=self.clock,
        )
        periods = [] if proven is None else list(self.rules.due(proven, newest))
        yield
        if self.lost or not self.running:
            self.withheld += bool(periods)
            return
        yield
        if not self.incremental or attempt != f"a{self.attempts}" or self.stored is None:
            return
        self.announce(periods, attempt, self.stored.instant)

    def announce(self, periods: list[Period], attempt: str, instant: str) -> None:
        known = {one.period for one in self.said}
        if known & {*periods}:
            return  # another look was faster
        for period in periods:
            self.said.append(Said(period, attempt, instant))
            self.false += self.missing(period)

    # The truth.

    def missing(self, period: Period) -> Iterator[str]:
        """Yield each change from before a period's end plus lateness, if no commit has it."""
        there = {id(row) for commit in self.commits for row in commit.rows}
        until = period.end + self.rules.lateness
        for one in self.log:
            if one.at < until and not one.beat and id(one) not in there:
                yield f"seed {self.seed}: {period.name} lacks the change of {one.at}"

    def late(self, said: Said) -> int:
        """The rows of a period in commits of runs after its announcement.

        Rows that a killed run has left are not counted if the table is copied before its next run.
        """
        return sum(
            said.period.start <= self.moment(row) < said.period.end
            for commit in self.commits
            if commit.watermark is not None
            and commit.instant > said.instant
            and commit.instant not in self.uncounted
            for row in commit.rows
        )

    def finish(self) -> None:
        """Let all processes finish; rows that a killed run has left are counted by the next run."""
        self.running = True
        if not self.incremental:
            self.copy()
        for _ in range(120):
            self.now += MINUTE / 4
            self.beat()
            self.topic += self.log[self.captured :]
            self.captured = len(self.log)
            self.step_run()
            self.step_look()


ACTIONS = {
    World.write: 12,
    World.capture: 14,
    World.beat: 12,
    World.stop: 2,
    World.start: 6,
    World.lose: 1,
    World.find_loss: 4,
    World.resync: 0.5,
    World.bootstrap: 4,
    World.step_run: 40,
    World.kill: 1,
    World.step_look: 30,
}


def simulated(seed: int, actions: int = 400) -> World:
    """A simulated world after many random actions, and after all processes have then finished."""
    world = World(seed)
    weights = list(ACTIONS.values())
    for act in world.random.choices(list(ACTIONS), weights, k=actions):
        world.now += timedelta(seconds=world.random.choice((0, 1, 20, 90, 300)))
        act(world)
    world.finish()
    return world
