"""The tables that wait for a run in one lane of the schedule, and the lane's work so far.

`cdc.run.schedule` has the rules.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from schemas.table import TableId

LONG_S = 10.0
"""Predicted seconds above which a run is long."""
GRACE, GRACE_S = 0.1, 10.0
"""By this part of its target, or these seconds, a table misses its deadline without being late."""
MARGIN = 0.2
"""How early before its deadline a waiting table must commit, as a part of its freshness target."""
RECENT_S = 120.0
"""Age of work, in seconds, at which the work counts with weight 1/e in its lane's recent work."""
_FORGET = 0.98
"""Factor by which each start of a run multiplies a lane's counts of earlier work."""


@dataclass(frozen=True)
class Entry:
    """A table with work, and what the schedule needs to know about the table.

    All times are in seconds on one clock, for example since 1970.

    Args:
        table: The table.
        tier: The table's tier, as the configuration names it.
        deadline: Time at which the table's freshness target is exceeded.
        target_s: The freshness target, in seconds.
        seconds: Predicted seconds of the table's next run.
        lake: Path of the lake table that the table shares with other source tables; None if the
            table has a lake table of its own.
        failing: Whether the table's last run failed.
        ran_at: Time of the end of the table's last run.
        rest: Predicted seconds of the work that the next run leaves to later runs.
        behind: Number of the topic's offsets that the lake table lacks; 0 if it is not known.
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
        """The latest time to start the table's work so that it ends by the deadline."""
        return self.deadline - self.seconds - self.rest

    def age(self, now: float) -> float:
        """Return the table's age at the time ``now``, in freshness targets: 1 at the deadline."""
        return 1.0 - (self.deadline - now) / self.target_s

    def starves(self, now: float) -> bool:
        """Whether the table has waited for its run, and not for a retry, longer than its target."""
        whole_at = self.deadline - self.target_s
        return not self.failing and now - max(self.ran_at, whole_at) > self.target_s

    def late(self, now: float) -> bool:
        """Whether the table's work would end well after the deadline if it started at ``now``."""
        return now > self.starts_by + min(GRACE_S, GRACE * self.target_s)

    @property
    def long(self) -> bool:
        """Whether the run is long by prediction, or may be long because the last run failed."""
        return self.failing or self.seconds > LONG_S


latest_start = operator.attrgetter("starts_by")
"""Returns the latest time to start a table's work so that it ends by the deadline."""


def _rank_among_late(entry: Entry) -> float:
    """Return the rank of a table among late tables; the smallest rank runs first."""
    return max(entry.deadline, entry.ran_at) + entry.target_s


@dataclass
class Lane:
    """The tables that wait in a lane of the schedule, in three orders, and the lane's work.

    Args:
        share: The lane's share of the workers.
        by_start: The waiting tables, ordered by `starts_by`.
        by_rank: The waiting tables, ordered by their rank among late tables.
        by_age: For each freshness target, the waiting tables with this target, the oldest first.
        used: Seconds of the lane's work, divided by the share.
        late_s: Seconds of the lane's work for late tables. The work of earlier runs counts less.
        all_s: Seconds of the lane's work for all tables. The work of earlier runs counts less.
        starts: Number of runs that the lane has started.
        recent_s: Seconds of the lane's work. The longer ago it was done, the less it counts.
        recent_at: The time of the last change of ``recent_s``.
    """

    share: float
    by_start: list[Entry] = field(default_factory=list)
    by_rank: list[Entry] = field(default_factory=list)
    by_age: dict[float, list[Entry]] = field(default_factory=dict)
    used: float = 0.0
    late_s: float = 0.0
    all_s: float = 0.0
    starts: int = 0
    recent_s: float = 0.0
    recent_at: float = 0.0

    def fill(self, entries: Iterable[Entry]) -> None:
        """Replace the waiting tables."""
        self.by_start = sorted(entries, key=latest_start)
        self.by_rank = sorted(self.by_start, key=_rank_among_late)
        self.by_age = {}
        for entry in sorted(self.by_start, key=lambda one: one.deadline):
            self.by_age.setdefault(entry.target_s, []).append(entry)

    def remove(self, entry: Entry) -> None:
        """Remove a waiting table."""
        self.by_start.remove(entry)
        self.by_rank.remove(entry)
        self.by_age[entry.target_s].remove(entry)

    def begin(self, seconds: float, *, late: bool, now: float) -> None:
        """Add a new run's work to the lane's work; all earlier work counts less from now on.

        Args:
            seconds: The run's predicted seconds.
            late: Whether the run's table is late.
            now: The time.
        """
        self.starts += 1
        self.late_s *= _FORGET
        self.all_s *= _FORGET
        self.correct(seconds, late=late, started=self.starts, now=now)

    def correct(self, seconds: float, *, late: bool, started: int, now: float) -> None:
        """Correct the lane's work when a run ends.

        Args:
            seconds: How many seconds more than predicted the run took; negative if it took less.
            late: Whether the run's table was late when the run started.
            started: The value of ``starts`` after the run's start.
            now: The time.
        """
        self.recent_s = max(0.0, self.recent_workers(now) * RECENT_S + seconds)
        self.recent_at = now if self._set_back(now) else max(self.recent_at, now)
        self.used += seconds / self.share
        counts = seconds * _FORGET ** (self.starts - started)
        if late:
            self.late_s = max(0.0, self.late_s + counts)
        self.all_s = max(self.late_s, self.all_s + counts)

    def recent_workers(self, now: float) -> float:
        """Return the mean number of workers that have recently worked for the lane."""
        if self._set_back(now):
            return 0.0
        return self.recent_s * math.exp(min(0.0, self.recent_at - now) / RECENT_S) / RECENT_S

    def _set_back(self, now: float) -> bool:
        """Whether the clock was set back since the lane's last work."""
        return self.recent_at - now > RECENT_S

    def kept(self, now: float) -> Iterator[Entry]:
        """Yield the lane's tables that are not late by prediction, the least slack first."""
        first = bisect_left(self.by_start, now - GRACE_S, key=latest_start)
        return (entry for entry in islice(self.by_start, first, None) if not entry.late(now))

    def late(self, now: float) -> Iterator[Entry]:
        """Yield the lane's tables that are late by prediction, by their rank."""
        return (entry for entry in self.by_rank if entry.late(now))

    def can_wait(self, now: float, seconds: float, workers: float, margin: float = MARGIN) -> bool:
        """Whether the lane's tables that are not late keep their deadlines after a delay.

        The answer is by prediction.

        Args:
            now: The time.
            seconds: The delay until the tables start.
            workers: Number of workers that run the lane's tables.
            margin: How early before its deadline each table must commit, as a part of its target.
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
