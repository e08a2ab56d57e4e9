"""Predicts the seconds of a table's run, and learns from each run, without side effects.

A run takes some seconds for each commit and some for each event. Both numbers are learned per
table: the state store keeps the sums of a regression (`cdc.store.table_cost`). For a table without
runs, both numbers are the prior: the median of the other tables' numbers. For a table with runs,
the prior still has a small weight, since the runs alone may not determine both numbers. For
example, if each run had one commit and one event, only the sum of both numbers is known.

Seconds are measured by the clock, so they include waits for cores that other tables use. The CPU
time of runs does not depend on other tables, so it shows how many tables the cores can take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING

from cdc.store.table_cost import TableCost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PRIOR_WEIGHT = 0.2
"""Weight of the median cost of the other tables' runs, relative to one run of the table."""
_KEPT = 0.85
"""Factor by which each new run multiplies the weights of the earlier runs."""
_REMEMBERED = 6
"""Sum of the weights of all runs of a table with many runs, about ``1 / (1 - _KEPT)``."""
_KEPT_AFTER_SURPRISE = 0.6
"""Replaces `_KEPT` after a run that took more than twice, or less than half, the predicted time."""
_MOST = 4.0
"""Largest ratio of a run's seconds to its predicted seconds; a longer run counts with this ratio.

So one run that waited for a server changes the prediction little, and a table that has become slow
is known to be slow after a few runs.
"""
_LEAST_S = 0.05
_CLOCK_S = 0.001
"""Shortest duration with which a run counts, in seconds; a prediction cannot divide by zero."""
_COLD_RUNS = 10
_COLD = 4.0
"""Factor by which a process's first run is slower because Java has compiled nothing yet."""
_RATE_MEMORY_S = 1800.0
"""Seconds after which the weight of a measured arrival rate has fallen to about a third (1/e)."""
_FADES_AFTER_COMMITS = 4.0
"""If a table gets no events, its rate fades to 0 in so many times the mean time between commits.

It takes at least as long as the rate was observed, up to `_RATE_MEMORY_S`.
"""
_FADES_AT_MOST_S = 2 * 86400.0
"""Longest time in which the rate of a table without new events fades to 0, in seconds."""
_RATE_SURE_S = 300.0
"""Seconds of observation after which an arrival rate counts in full.

Before this time, the observed events can be a mere burst.
"""


@dataclass(frozen=True)
class Estimate:
    """The predicted cost of a table's runs.

    Args:
        commit_s: Seconds for each commit.
        event_s: Seconds for each event.
        cpu: CPU seconds for each of these seconds; 0 if this is not known.
    """

    commit_s: float
    event_s: float
    cpu: float = 0.0

    def seconds(self, events: int, commits: int = 1) -> float:
        """Return the predicted seconds of a run that has these numbers of events and commits."""
        return self.commit_s * commits + self.event_s * events

    def events_within(self, seconds: float) -> int:
        """Return the number of events for which one commit is predicted to take ``seconds``."""
        left = max(0.0, seconds - self.commit_s)
        return int(left / max(self.event_s, 1e-9))


PRIOR = Estimate(commit_s=1.0, event_s=0.00005)
"""The predicted cost of a table's runs before any table has run."""


@dataclass(frozen=True)
class Observation:
    """One run of a table that ended without an error.

    Args:
        commits: Number of commits.
        events: Number of offsets that the run passed.
        seconds: Duration of the run.
        at: When the run began.
        cold: Factor by which the run was slower because its process was young (`cold_factor`).
        span_s: Seconds between the lake's watermarks before and after the run; 0 if not known.
        cpu_s: The run's share of the CPU time, in seconds; 0 if it was not measured.
        cores: Number of cores that the run's process may use; 0 if it is not known.
        written_bytes: Size of the data files that the run wrote.
    """

    commits: int
    events: int
    seconds: float
    at: datetime
    cold: float = 1.0
    span_s: float = 0.0
    cpu_s: float = 0.0
    cores: int = 0
    written_bytes: int = 0


def cold_factor(runs: int) -> float:
    """Return by which factor a run is slower if its process has made only ``runs`` runs so far."""
    return 1.0 + (_COLD - 1.0) * max(0.0, 1.0 - runs / _COLD_RUNS)


def estimate(known: TableCost | None, prior: Estimate = PRIOR) -> Estimate:
    """Return the predicted cost of a table's runs.

    Args:
        known: The regression's sums over the table's runs; None if the table has no runs yet.
        prior: The cost of a table without runs.
    """
    if known is None:
        return prior
    # The prior is two more observations, as heavy as a part of one run: a commit without events,
    # and events without a commit that take as long as a commit of this table.
    level = known.commits_seconds / known.commits_commits
    many = level / prior.event_s
    weight = _PRIOR_WEIGHT * known.commits_commits / min(known.runs, _REMEMBERED)
    cc = known.commits_commits + weight
    ee = known.events_events + weight * many**2
    cs = known.commits_seconds + weight * prior.commit_s
    es = known.events_seconds + weight * many * level
    ce = known.commits_events
    determinant = cc * ee - ce * ce
    commit_s = (cs * ee - es * ce) / determinant
    event_s = (es * cc - cs * ce) / determinant
    if event_s < 0.0:
        commit_s, event_s = cs / cc, 0.0
    elif commit_s < _LEAST_S:
        commit_s, event_s = _LEAST_S, max(0.0, (es - _LEAST_S * ce) / ee)
    cpu = known.cpu_s / known.clock_s if known.clock_s else 0.0
    return Estimate(commit_s, event_s, cpu or prior.cpu)


def prior_of(known: Iterable[TableCost]) -> Estimate:
    """Return the predicted cost of runs of a new table: the median of the other tables' costs."""
    found = [estimate(one) for one in known]
    if not found:
        return PRIOR
    commit_s = median(one.commit_s for one in found)
    event_s = median(one.event_s for one in found)
    cpu = median([one.cpu for one in found if one.cpu] or [0.0])
    return Estimate(max(commit_s, _LEAST_S), max(event_s, PRIOR.event_s / 10), cpu)


def learned(known: TableCost | None, run: Observation, prior: Estimate = PRIOR) -> TableCost:
    """Return the sums of a table's regression with ``run`` added; earlier runs lose weight.

    Args:
        known: The sums before the run; None if it is the table's first run.
        run: The run.
        prior: The cost of a table without runs.
    """
    predicted = estimate(known, prior).seconds(run.events, run.commits)
    seconds = max(run.seconds / run.cold, _CLOCK_S)
    if known is not None or prior != PRIOR:  # else the lake can be slower than any guess
        seconds = min(seconds, predicted * _MOST)
    # Errors count relative to the run's length; else one large run would outweigh all small ones.
    level = max(predicted, _LEAST_S, seconds if known is None else 0.0)
    weight = 1.0 / level**2
    expected = 0.5 * predicted <= seconds <= 2.0 * predicted
    kept = _KEPT if expected else _KEPT_AFTER_SURPRISE
    commits, events = float(run.commits), float(run.events)
    clock_s, cpu_s = _learned_cpu_time(known, run, seconds, kept, prior)
    rate, observed_s = _learned_arrival_rate(known, run)
    if known is None:
        known = TableCost(
            *(0, 0.0, 0.0, 0.0, 0.0, 0.0, rate, observed_s, run.at),
            *(0.0, 0.0, run.cores, 0.0, 0.0),
        )
    return replace(
        known,
        runs=known.runs + 1,
        commits_commits=known.commits_commits * kept + weight * commits * commits,
        commits_events=known.commits_events * kept + weight * commits * events,
        events_events=known.events_events * kept + weight * events * events,
        commits_seconds=known.commits_seconds * kept + weight * commits * seconds,
        events_seconds=known.events_seconds * kept + weight * events * seconds,
        events_per_s=rate,
        observed_s=observed_s,
        measured_at=run.at,
        clock_s=clock_s,
        cpu_s=cpu_s,
        cores=run.cores,
        commits=known.commits * kept + commits,
        written_bytes=known.written_bytes * kept + run.written_bytes,
    )


def _learned_cpu_time(
    known: TableCost | None, run: Observation, seconds: float, kept: float, prior: Estimate
) -> tuple[float, float]:
    """Return the sums of the seconds and of the CPU seconds of a table's runs, including ``run``.

    A run whose CPU time was not measured changes nothing. In a young process, Java still compiles,
    so a run of such a process has less weight.

    Args:
        known: The sums before the run; None if it is the table's first run.
        run: The run.
        seconds: The seconds with which the run counts. A run that has waited for a server counts
            with fewer seconds than it took.
        kept: Factor by which the earlier runs lose weight.
        prior: The cost of a table without runs.
    """
    before = (0.0, 0.0) if known is None else (known.clock_s, known.cpu_s)
    if not run.cpu_s:
        return before
    weight = 1.0 / run.cold
    measured = run.cpu_s / run.cold
    most = max(1.0, run.cores)
    if seconds < run.seconds / run.cold:
        # While the run waited for a server, it got its part of the CPU time that others used.
        most = min(most, before[1] / before[0] if before[0] else prior.cpu or 1.0)
    cpu_s = min(measured, seconds * most)
    kept **= weight
    return before[0] * kept + weight * seconds, before[1] * kept + weight * cpu_s


def arrival_rate(known: TableCost | None, idle_s: float = 0.0) -> float:
    """Return how many of a table's events arrive per second, by its runs; 0 if not known.

    If a table was observed for less than five minutes, its events may be a burst. The returned rate
    is then lower: the number of observed events, divided by five minutes.

    Args:
        known: The sums over the table's runs.
        idle_s: For how many seconds after the start of the newest run no event has arrived.
    """
    if known is None:
        return 0.0
    observed_s = min(_RATE_MEMORY_S, known.observed_s + idle_s)
    still = 1.0
    if idle_s > 0.0:
        # A table that one commit loads each hour still has most of its rate when the hour ends.
        between_s = events_per_commit(known) / known.events_per_s if known.events_per_s else 0.0
        fades_s = min(_FADES_AT_MOST_S, _FADES_AFTER_COMMITS * between_s)
        still -= min(1.0, idle_s / max(observed_s, fades_s))
    return known.events_per_s * still * min(1.0, observed_s / _RATE_SURE_S)


def events_per_commit(known: TableCost | None) -> float:
    """Return the mean number of events in a commit of a table, by its runs; 0 if not known."""
    if known is None or not known.commits_commits:
        return 0.0
    return known.commits_events / known.commits_commits


def written_bytes_per_commit(known: TableCost | None) -> float:
    """Return the mean bytes that a commit of a table writes to the lake; 0 if not known."""
    return known.written_bytes / known.commits if known is not None and known.commits else 0.0


def _learned_arrival_rate(known: TableCost | None, run: Observation) -> tuple[float, float]:
    """Return a table's arrival rate including ``run``, and for how long runs have observed it.

    In the first half hour, the rate is the mean. Later, the newest half hour has most of the
    weight, and the returned duration stays at half an hour. The duration is in seconds.

    The runs of a backlog follow each other quickly, but their events have arrived over a longer
    time. The watermarks show this time.
    """
    if known is None:
        return 0.0, 0.0
    passed = max((run.at - known.measured_at).total_seconds(), run.span_s)
    if passed <= 0.0:
        return known.events_per_s, known.observed_s
    observed_s = min(_RATE_MEMORY_S, known.observed_s + passed)
    new = min(1.0, passed / observed_s)
    return known.events_per_s * (1.0 - new) + run.events / passed * new, observed_s


def passed_offsets(before: Mapping[int, int], after: Mapping[int, int]) -> int:
    """Return the number of offsets that a run has passed in a topic."""
    return sum(
        max(0, offset - before.get(partition, offset)) for partition, offset in after.items()
    )
