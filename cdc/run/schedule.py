"""Decides which waiting table a free worker runs next, without a clock and without side effects.

The rules, in this order:

1. **Shares.** Tables wait in lanes. Each tier with a share of the workers has a lane of its own,
   and all other tiers have one lane together. The lane with the least work in relation to its share
   comes first. If no table of a lane may start, other lanes use the lane's workers. The lane does
   not get this time of its workers back later.
2. **Long runs.** A run is long if it takes more than `LONG_S` by prediction, or if the table's last
   run failed. Long runs do not hold all workers, so that a worker is soon free for short runs. This
   limit has three exceptions. A single worker takes long runs, too. If the command ends once all
   offered tables have run (`Rules.ends`), long runs may hold all workers while no short run waits.
   If the command goes on, a long run may take a further worker if its table would miss the deadline
   by waiting, and the table's last run did not fail. In any case, a lane that has a long run starts
   another one only within its part: lanes with waiting tables divide, by share, the workers that
   the other lanes do not need. Without this limit, a lane with a backlog would slow down the other
   lanes' runs, above all if there are more workers than cores. `cdc.run.core_gate` divides the
   cores in the same way.
3. **Deadlines.** A table that does not commit exceeds its freshness target at a certain time. This
   time is the table's deadline. A table's slack is the time until the deadline, less the predicted
   seconds of the table's work. A table's age is the time since the lake table had all events,
   divided by the freshness target. The oldest table comes first, so that all tables commit equally
   early in relation to their targets. If the oldest table's run would make another table late, the
   table with the least slack comes first instead.
4. **Late tables.** A table is late if its run would miss the deadline, by prediction, by more than
   `GRACE` of its target or `GRACE_S`. With less, it keeps its place, and does not wait until the
   rush that made it late is over. Late tables have `LATE_SHARE` of the lane's work in any case, so
   that they always make progress. They have up to `LATE_SHARE_OF_SLACK` of it as long as the lane's
   other tables commit before their deadlines, early by at least `MARGIN`. A late table starves if
   it has waited for its next run for longer than its target, unless its last run failed. A starving
   table comes first while late tables have at most `STARVING_SHARE` of the work. So if there is a
   little too much work, all tables are a little late, and late tables with much work leave a part
   to the others. A late table's rank is its target plus the later one of its deadline and the end
   of its last run. The lowest rank comes first: of two tables that have waited equally long, the
   one with the shorter target. A table with a backlog of many runs takes turns with others.

If the command ends once all offered tables have run, a lane's long run comes before the lane's
other runs, provided that the lane's other tables keep their deadlines without the workers of long
runs. So the command does not end with a long run on one worker while all other workers are idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.run.lane import RECENT_S, Entry, Lane, latest_start

if TYPE_CHECKING:
    from schemas.table import TableId

TURN_S = 30.0
"""Seconds after which a table with a backlog gives way to other tables, in continuous runs."""
LATE_SHARE = 0.05
"""The fraction of a lane's work for late tables in any case, even if other tables cannot wait."""
LATE_SHARE_OF_SLACK = 0.25
"""The fraction of a lane's work for late tables while the lane's other tables can wait."""
STARVING_SHARE = 0.75
"""While late tables have at most this fraction of a lane's work, a starving table comes first."""
SMALL_MARGIN = 0.1
"""Replaces `MARGIN` in the decision whether a lane's oldest table may run first."""
COMING = 0.5
"""Part of a lane's workers that a prediction assigns to the tables that are waiting now.

The other workers are left to tables that get work later.
"""
HANGS_AFTER_TURNS = 4.0
"""A run hangs if it takes more than twice its predicted seconds plus this number of turns."""
NEGLIGIBLE = 0.2
"""The mean number of workers up to which recent work of other lanes leaves a lane all cores."""
REST = ""
"""Name of the lane for all tiers without a share of the workers."""
_REST_SHARE = 0.05
"""Smallest share of the lane `REST`."""


@dataclass(frozen=True)
class Rules:
    """The settings of a schedule of runs.

    Args:
        workers: Number of tables that run at a time.
        shares: For each tier with a share of the workers, this share, between 0 and 1. A tier
            without a share of its own is not a key; it waits in the lane `REST`.
        ends: Whether the command ends once all offered tables have run. Its last offer has all long
            runs.
        turn_s: Seconds after which a run leaves its remaining work to the table's next run.
    """

    workers: int
    shares: Mapping[str, float] = field(default_factory=dict)
    ends: bool = False
    turn_s: float = TURN_S

    def lane(self, tier: str) -> str:
        """Return the name of the lane in which a tier's tables wait."""
        return tier if tier in self.shares else REST

    def share(self, lane: str) -> float:
        """Return the lane's share of the workers in the schedule of runs."""
        if lane != REST:
            return self.shares[lane]
        return max(_REST_SHARE, 1.0 - sum(self.shares.values()))

    @property
    def long_places(self) -> int:
        """The maximum number of long runs at a time.

        About a quarter of the workers, at least one, is left to short runs. A single worker takes
        long runs, too.
        """
        return max(1, self.workers - max(1, self.workers // 4))


@dataclass(frozen=True)
class _Run:
    """A run in progress.

    Args:
        entry: The table.
        late: Whether the table was late when the run started.
        started: The value of `Lane.starts` after the run's start.
        began: When the run started.
    """

    entry: Entry
    late: bool
    started: int
    began: float

    def hangs(self, now: float, rules: Rules) -> bool:
        """Whether the run takes much longer than predicted, or the clock was set far back."""
        return abs(now - self.began) > 2.0 * self.entry.seconds + HANGS_AFTER_TURNS * rules.turn_s


class Schedule:
    """The schedule of runs: the tables that wait and those that run.

    A caller offers the waiting tables, takes a table for each free worker, and reports the end of
    each run. This class is not safe to share among threads.

    Args:
        rules: The settings.
        is_new: Whether the process has just begun, so that nobody knows which lanes get work. Until
            this is known, long runs leave each lane its share.
    """

    def __init__(self, rules: Rules, *, is_new: bool = True) -> None:
        self._rules = rules
        self._is_new = is_new and not rules.ends
        self._lanes = {lane: Lane(rules.share(lane)) for lane in (*rules.shares, REST)}
        self._running: dict[TableId, _Run] = {}
        self._clock = 0.0
        """The value of `Lane.used` of the last started run's lane before this start."""

    @property
    def waiting(self) -> list[Entry]:
        """The tables that wait for a run, those with the least slack first."""
        entries = (one for lane in self._lanes.values() for one in lane.by_start)
        return sorted(entries, key=latest_start)

    @property
    def running(self) -> frozenset[TableId]:
        """The tables of the schedule that run."""
        return frozenset(self._running)

    def offer(self, entries: Iterable[Entry]) -> None:
        """Replace the tables that wait for a run. Tables that run now are left out."""
        sorted_out: dict[str, list[Entry]] = {lane: [] for lane in self._lanes}
        for entry in entries:
            if entry.table not in self._running:
                sorted_out[self._rules.lane(entry.tier)].append(entry)
        for name, lane in self._lanes.items():
            lane.fill(sorted_out[name])

    def take(self, now: float) -> Entry | None:
        """Start the run of the next table; return this table, or None if no table may start now.

        Args:
            now: The time on the clock of the deadlines, in seconds.
        """
        if self._is_new:
            for lane in self._lanes.values():
                lane.recent_s, lane.recent_at = self._part(lane) * RECENT_S, now
        self._is_new = False
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

    def part_of_cores(self, entry: Entry, now: float) -> float:
        """Return the part of Spark's cores that the tasks of a lane's large batches may have now.

        The part is 1 if no table of other lanes waits, and their recent work is `NEGLIGIBLE`. It is
        also 1 for a run that is not long: any number of such runs can take place at a time, and
        if they waited for cores, other lanes would wait for their workers.

        Args:
            entry: A table of the lane, which runs.
            now: The time.
        """
        workers, places = self._rules.workers, self._places(entry, now)
        if not entry.long:
            return 1.0
        others_wait = any(
            lane.by_start and lane is not self._lane(entry) for lane in self._lanes.values()
        )
        if workers == 1 or not (others_wait or workers - places > 2.0 * NEGLIGIBLE):
            return 1.0
        return places / workers

    def end(self, table: TableId, seconds: float) -> None:
        """Record that a table's run has ended after ``seconds``."""
        run = self._running.pop(table)
        lane = self._lane(run.entry)
        # A lane can use workers that other lanes do not need. If runs on them hang, the bound lets
        # the lane's tables wait for minutes, not for hours, until others have caught up.
        more = min(seconds - run.entry.seconds, self._rules.turn_s)
        ended = max(run.began + seconds, lane.recent_at)  # the machine can have slept meanwhile
        lane.correct(more, late=run.late, started=run.started, now=ended)

    def _begin(self, lane: Lane, entry: Entry, now: float) -> None:
        lane.remove(entry)
        late = entry.late(now)
        self._clock = lane.used
        lane.begin(entry.seconds, late=late, now=now)
        self._running[entry.table] = _Run(entry, late, lane.starts, now)

    def _next(self, lane: Lane, now: float) -> Entry | None:
        if self._rules.ends and (entry := self._long_first(lane, now)) is not None:
            return entry
        late = next((one for one in lane.late(now) if self._may_start(one, now)), None)
        least = next((one for one in lane.kept(now) if self._may_start(one, now)), None)
        if least is None or late is None:
            return late or (least and self._oldest(lane, least, now))
        share = LATE_SHARE
        if lane.can_wait(now, late.seconds, COMING * self._workers(lane)):
            share = LATE_SHARE_OF_SLACK
        if lane.late_s <= share * lane.all_s:
            return late
        if lane.late_s <= STARVING_SHARE * lane.all_s:
            starving = (e for e in lane.late(now) if e.starves(now) and self._may_start(e, now))
            if (first := next(starving, None)) is not None:
                return first
        return self._oldest(lane, least, now)

    def _oldest(self, lane: Lane, least: Entry, now: float) -> Entry:
        """Return the lane's table with the greatest `Entry.age`, or ``least`` instead.

        The result is ``least`` if the oldest table's run would make other tables of the lane late.

        Args:
            lane: The lane.
            least: The lane's table with the least slack.
            now: The time.
        """
        heads = (
            next((e for e in entries if not e.late(now) and self._may_start(e, now)), None)
            for entries in lane.by_age.values()
        )
        oldest = max(filter(None, heads), key=lambda one: one.age(now), default=least)
        workers = self._workers(lane)
        return oldest if lane.can_wait(now, oldest.seconds, workers, SMALL_MARGIN) else least

    def _long_first(self, lane: Lane, now: float) -> Entry | None:
        """Return the table of the lane's longest long run; None if that run may not come first.

        The run may come first only if the lane's tables can keep their deadlines without this run's
        worker and the workers of the long runs in progress.
        """
        allowed = [one for one in lane.by_start if one.long and self._may_start(one, now)]
        if not allowed:
            return None
        left = self._rules.workers - self._long_runs() - 1
        if left < 1 or not lane.can_wait(now, 0.0, left):
            return None
        return max(allowed, key=lambda one: one.seconds)

    def _workers(self, lane: Lane) -> float:
        """Return the number of workers that a lane has by its share.

        Lanes without waiting tables leave their shares to the other lanes.
        """
        busy = [one.share for one in self._lanes.values() if one.by_start]
        return max(0.5, self._rules.workers * lane.share / sum(busy))

    def _may_start(self, entry: Entry, now: float) -> bool:
        """Whether a table's run may start: enough workers must be left to other tables' runs."""
        rules = self._rules
        if entry.lake is not None and rules.workers > 1:
            # Another process can keep the shards of a lake table waiting.
            together = sum(run.entry.lake == entry.lake for run in self._running.values())
            if together >= rules.workers - 1:
                return False
        if entry.long and not self._leaves_shares(entry, now):
            return False
        if not entry.long or self._long_runs() < rules.long_places:
            return True
        if rules.ends:
            return not any(not one.long for lane in self._lanes.values() for one in lane.by_start)
        return not entry.failing and not entry.late(now) and entry.starts_by - now < rules.turn_s

    def _leaves_shares(self, entry: Entry, now: float) -> bool:
        """Whether a further long run of a lane leaves the other lanes the workers that they need.

        One hanging run of the entry's lane does not count.
        """
        rules, own = self._rules, self._lane(entry)
        held = [
            run.hangs(now, rules)
            for run in self._running.values()
            if run.entry.long and self._lane(run.entry) is own
        ]
        places = self._places(entry, now)
        # A command that ends leaves no worker idle for a part of a place.
        return len(held) - any(held) < max(1, math.ceil(places) if rules.ends else int(places))

    def _places(self, entry: Entry, now: float) -> float:
        """Return the number of workers that the other lanes leave to the entry's lane.

        A lane whose tables do not wait needs twice the workers that it has used recently, but at
        most its share. If the command ends once all offered tables have run, such a lane needs
        none. The lanes whose tables wait divide all other workers by their shares.
        """
        rules, own = self._rules, self._lane(entry)
        free, waiting = float(rules.workers), own.share
        for lane in self._lanes.values():
            if lane is not own and lane.by_start:
                waiting += lane.share
            elif lane is not own and not rules.ends:
                free -= min(self._part(lane), 2.0 * lane.recent_workers(now))
        return round(free * own.share / waiting, 9)

    def _part(self, lane: Lane) -> float:
        """Return a lane's share as a number of workers."""
        return self._rules.workers * lane.share / sum(one.share for one in self._lanes.values())

    def _long_runs(self) -> int:
        return sum(run.entry.long for run in self._running.values())

    def _lane(self, entry: Entry) -> Lane:
        return self._lanes[self._rules.lane(entry.tier)]
