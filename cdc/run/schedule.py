"""Decides which waiting table a free worker runs next. It reads no clock and has no side effects.

The rules, in this order:

1. **Shares.** Each tier with a share, and all other tiers together, have a lane. The lane that had
   the least work in relation to its share is first. A lane without work that may start leaves its
   workers to the others, and earns no claim for later.
2. **Long runs leave room.** Runs of more than `LONG_S`, and runs of failing tables, never hold all
   workers, so that a worker is always free for short ones soon. The exception is a long run that
   would miss its deadline otherwise.
3. **Deadlines.** A table has to commit before its deadline, when its freshness target is exceeded.
   If all can wait, with `MARGIN`, the table comes first that is oldest in relation to its target.
   So all tables commit equally early, and short targets leave workers to others. If not all can
   wait, the table with the least slack is first: the time until the deadline less the predicted
   seconds.
4. **Late tables** have missed their deadline by prediction. They run whenever the others can wait
   for them, with at most `LATE_SHARE_OF_SLACK` of the lane's work, and have `LATE_SHARE` of it in
   any case. So they make no other table late beyond that share, and they never starve. Among them,
   the order is by the deadline, or the end of the last run if that is later, plus the target. So a
   table with a short target comes first, until another one has waited for longer by the difference
   of the targets. A backlog that needs many runs goes behind the others after each.

A command that ends (`Rules.ends`) prefers long runs while all other tables are kept without the
worker that such a run holds. So it does not end with one worker in a long run and the rest idle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from schemas.table import TableId

TURN_S = 30.0
"""Seconds after which a table with a backlog gives way to other tables, in continuous runs."""
LONG_S = 10.0
"""Predicted seconds above which a run is long."""
LATE_SHARE = 0.05
"""Part of a lane's work that late tables have even if tables that can be kept wait."""
LATE_SHARE_OF_SLACK = 0.25
"""Part of a lane's work that late tables have while the others can wait."""
MARGIN = 0.2
"""Part of its target by which a table is early if it can wait, since predictions are not exact."""
SMALL_MARGIN = 0.1
"""The same for the order among tables that can be kept."""
COMING = 0.5
"""Part of the workers for tables that wait; the others are for those that come meanwhile."""
REST = ""
"""The lane of all tiers without a share."""
_REST_SHARE = 0.05
"""Smallest share of the lane `REST`."""
_FORGET = 0.98
"""Part of a lane's counts of work that remains with each start."""


@dataclass(frozen=True)
class Entry:
    """A table with work, as the schedule of runs sees it.

    Args:
        table: The table.
        tier: Its tier, as the configuration names it.
        deadline: When its freshness target is exceeded, in seconds on the clock of `Schedule`.
        target_s: The freshness target, in seconds.
        seconds: The predicted seconds of its next run.
        lake: The lake table that it shares with other source tables; None if it shares none.
        failing: Whether its last run failed.
        ran_at: When its last run ended.
        rest: The predicted seconds of work that its next run leaves to later runs.
        behind: Number of offsets that its lake lacks, as far as they are known.
    """

    table: TableId
    tier: str
    deadline: float
    target_s: float
    seconds: float
    lake: str | None = None
    failing: bool = False
    ran_at: float = 0.0
    rest: float = 0.0
    behind: int = 0

    @property
    def starts_by(self) -> float:
        """The latest start with which the deadline is kept, by prediction."""
        return self.deadline - self.seconds - self.rest

    def age(self, now: float) -> float:
        """The time since all events were applied, in relation to the target; 1 at the deadline."""
        return 1.0 - (self.deadline - now) / self.target_s

    @property
    def long(self) -> bool:
        """Whether the run may hold a worker for long."""
        return self.failing or self.seconds > LONG_S


@dataclass(frozen=True)
class Rules:
    """The settings of a schedule of runs.

    Args:
        workers: Number of tables that run at a time.
        shares: Share of each tier that has one, between 0 and 1.
        ends: Whether the tables are given once, and the command ends with the last of them.
        turn_s: Seconds after which a run leaves the rest of its work to the next one.
    """

    workers: int
    shares: Mapping[str, float] = field(default_factory=dict)
    ends: bool = False
    turn_s: float = TURN_S

    def lane(self, tier: str) -> str:
        """Return the lane of a tier in the schedule of runs."""
        return tier if tier in self.shares else REST

    def share(self, lane: str) -> float:
        """Return the share of a lane in the schedule of runs."""
        if lane != REST:
            return self.shares[lane]
        return max(_REST_SHARE, 1.0 - sum(self.shares.values()))

    @property
    def long_places(self) -> int:
        """Number of workers that long runs may hold: all but a quarter, and all but one at most."""
        return max(1, self.workers - max(1, self.workers // 4))


def _start(entry: Entry) -> float:
    return entry.starts_by


def _deadline(entry: Entry) -> float:
    return entry.deadline


def _late_rank(entry: Entry) -> float:
    return max(entry.deadline, entry.ran_at) + entry.target_s


@dataclass
class _Lane:
    """The tables that wait in a lane of the schedule, in their orders, and the lane's work.

    Args:
        share: The lane's share.
        by_start: The waiting tables by latest start.
        by_rank: The waiting tables by their rank among late tables.
        by_age: The waiting tables by deadline, for each target: so the oldest is first.
        used: Seconds of work divided by the share.
        late_s: Seconds of work for late tables.
        all_s: Seconds of work.
    """

    share: float
    by_start: list[Entry] = field(default_factory=list)
    by_rank: list[Entry] = field(default_factory=list)
    by_age: dict[float, list[Entry]] = field(default_factory=dict)
    used: float = 0.0
    late_s: float = 0.0
    all_s: float = 0.0

    def fill(self, entries: Iterable[Entry]) -> None:
        self.by_start = sorted(entries, key=_start)
        self.by_rank = sorted(self.by_start, key=_late_rank)
        self.by_age = {}
        for entry in sorted(self.by_start, key=_deadline):
            self.by_age.setdefault(entry.target_s, []).append(entry)

    def remove(self, entry: Entry) -> None:
        self.by_start.remove(entry)
        self.by_rank.remove(entry)
        self.by_age[entry.target_s].remove(entry)

    def kept(self, now: float) -> Iterator[Entry]:
        """Yield the lane's tables that can be kept, those with the least slack first."""
        return islice(self.by_start, bisect_left(self.by_start, now, key=_start), None)

    def late(self, now: float) -> Iterator[Entry]:
        """Yield the lane's tables that are late by prediction, in their order."""
        return (entry for entry in self.by_rank if entry.starts_by < now)

    def can_wait(self, now: float, seconds: float, workers: float, margin: float = MARGIN) -> bool:
        """Whether the lane's tables that can be kept are kept by prediction after a delay.

        Args:
            now: The time.
            seconds: The delay.
            workers: Number of workers that the tables have.
            margin: Part of its target by which each table has to be early.
        """
        work, at = 0.0, now + seconds
        everything = sum(entry.seconds for entry in self.by_start)
        largest = margin * max(self.by_age, default=0.0)
        for entry in self.kept(now):
            if entry.starts_by >= at + everything / workers + largest:
                return True  # this also holds for all that follow
            if entry.starts_by < at + work / workers + margin * entry.target_s:
                return False
            work += entry.seconds
        return True


class Schedule:
    """The schedule of runs: the tables that wait and those that run.

    A caller offers the waiting tables, takes one for each free worker, and reports its end. This
    class is not safe to share among threads.

    Args:
        rules: The settings.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._lanes = {lane: _Lane(rules.share(lane)) for lane in (*rules.shares, REST)}
        self._running: dict[TableId, Entry] = {}
        self._clock = 0.0
        """The work in relation to its share that the lane had which was last served."""

    @property
    def waiting(self) -> list[Entry]:
        """The tables that wait for a run, those with the least slack first."""
        return sorted((one for lane in self._lanes.values() for one in lane.by_start), key=_start)

    @property
    def running(self) -> frozenset[TableId]:
        """The tables of the schedule that run."""
        return frozenset(self._running)

    def offer(self, entries: Iterable[Entry]) -> None:
        """Replace the tables that wait for a run, without those that run."""
        sorted_out: dict[str, list[Entry]] = {lane: [] for lane in self._lanes}
        for entry in entries:
            if entry.table not in self._running:
                sorted_out[self._rules.lane(entry.tier)].append(entry)
        for name, lane in self._lanes.items():
            lane.fill(sorted_out[name])

    def take(self, now: float) -> Entry | None:
        """Start the run of the next table, and return it; None if none may start now.

        Args:
            now: The time, in seconds on the clock of the deadlines.
        """
        if len(self._running) >= self._rules.workers:
            return None
        waiting = [lane for lane in self._lanes.values() if lane.by_start]
        for lane in waiting:
            lane.used = max(lane.used, self._clock)  # an idle lane earns no claim
        for lane in sorted(waiting, key=lambda lane: lane.used):
            if (entry := self._next(lane, now)) is not None:
                self._begin(lane, entry, now)
                return entry
        return None

    def end(self, table: TableId, seconds: float) -> None:
        """Note the end of a run.

        Args:
            table: The table.
            seconds: How long the run took.
        """
        entry = self._running.pop(table)
        lane = self._lanes[self._rules.lane(entry.tier)]
        lane.used += (seconds - entry.seconds) / lane.share

    def _begin(self, lane: _Lane, entry: Entry, now: float) -> None:
        lane.remove(entry)
        self._running[entry.table] = entry
        self._clock = lane.used
        lane.used += entry.seconds / lane.share
        lane.all_s = lane.all_s * _FORGET + entry.seconds
        lane.late_s *= _FORGET
        if entry.starts_by < now:
            lane.late_s += entry.seconds

    def _next(self, lane: _Lane, now: float) -> Entry | None:
        """Return the lane's next table; None if none of its tables may start now."""
        if self._rules.ends and (entry := self._long_first(lane, now)) is not None:
            return entry
        late = next((one for one in lane.late(now) if self._may_start(one, now)), None)
        least = next((one for one in lane.kept(now) if self._may_start(one, now)), None)
        if least is None or late is None:
            return late or (least and self._oldest(lane, least, now))
        share = LATE_SHARE
        if lane.can_wait(now, late.seconds, COMING * self._workers(lane)):
            share = LATE_SHARE_OF_SLACK
        return late if lane.late_s <= share * lane.all_s else self._oldest(lane, least, now)

    def _oldest(self, lane: _Lane, least: Entry, now: float) -> Entry:
        """Return the lane's oldest table in relation to its target, if the others can wait.

        Args:
            lane: The lane.
            least: The lane's table with the least slack, which is returned otherwise.
            now: The time.
        """
        heads = (
            next((e for e in entries if e.starts_by >= now and self._may_start(e, now)), None)
            for entries in lane.by_age.values()
        )
        oldest = max(filter(None, heads), key=lambda one: one.age(now), default=least)
        workers = self._workers(lane)
        return oldest if lane.can_wait(now, oldest.seconds, workers, SMALL_MARGIN) else least

    def _long_first(self, lane: _Lane, now: float) -> Entry | None:
        """Return the lane's longest run, if all other tables are kept without its worker."""
        allowed = [one for one in lane.by_start if one.long and self._may_start(one, now)]
        if not allowed:
            return None
        left = self._rules.workers - self._long_runs() - 1
        if left < 1 or not lane.can_wait(now, 0.0, left):
            return None
        return max(allowed, key=lambda one: one.seconds)

    def _workers(self, lane: _Lane) -> float:
        """Return the least number of workers that a lane has, by its share."""
        busy = [one.share for one in self._lanes.values() if one.by_start]
        return max(0.5, self._rules.workers * lane.share / sum(busy))

    def _may_start(self, entry: Entry, now: float) -> bool:
        """Whether a table may start, by the workers that it would leave to others."""
        rules = self._rules
        if entry.lake is not None and rules.workers > 1:
            # Another process can keep the shards of a lake table waiting.
            together = sum(one.lake == entry.lake for one in self._running.values())
            if together >= rules.workers - 1:
                return False
        if not entry.long or self._long_runs() < rules.long_places:
            return True
        if rules.ends:
            return not any(not one.long for lane in self._lanes.values() for one in lane.by_start)
        return not entry.failing and 0.0 <= entry.starts_by - now < rules.turn_s

    def _long_runs(self) -> int:
        return sum(one.long for one in self._running.values())
