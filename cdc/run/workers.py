"""Threads that run tables: each free thread takes the table that the schedule puts first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from cdc.run.core_gate import CoreGate
from cdc.run.schedule import Rules, Schedule

if TYPE_CHECKING:
    from cdc.capture.gathering import Captures
    from cdc.capture.position_check import TopicFacts
    from cdc.errors import KafkaError
    from cdc.run.context import RunResult, Turn
    from cdc.run.lane import Entry
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

_LOOK_S = 1.0
"""Seconds after which a free worker asks the schedule again, since time changes what may start."""
_SHORTEST_S = 0.2
"""Shortest time between two rounds while tables run, in seconds."""
_PART_OF_ROUNDS = 0.2
"""Largest share of the time that rounds may use while tables run."""
FIRST_DEFERRAL_S = 5.0
"""Seconds that shards wait after a run of a shard did not get the shared lake table's lease.

After each further such run, the wait is twice as long, up to `LAST_DEFERRAL_S`.
"""
LAST_DEFERRAL_S = 60.0
"""The longest single wait of shards for a shared lake table's lease, in seconds."""
DEFERRED_S = 900.0
"""Bound of the sum of the waits for one shared lake table's lease, in seconds.

The bound is for a command that ends once all offered tables have run (`Rules.ends`).
"""


@dataclass(frozen=True)
class Work:
    """A table that has work, with the facts that a round has gathered about the table.

    Args:
        record: The table's record.
        topic: The facts of the table's topic, or the error of reading them.
        captures: The evidence of captures, gathered after the facts of the topic.
        entry: The schedule's entry for the table.
        turn: The turn of the table's run.
        seen_at: When the facts of the topic were read, in seconds since 1970.
        found: Whether a round's check of idle tables found this work. Not every round makes this
            check, so the next round may not find the work again. While the table waits, its
            deadline stays that of the round that found the work first.
        deferred: Whether a run of a shard of the same lake table was deferred
            (`RunResult.deferred`), and no shard of this lake table has committed since then.
    """

    record: TableRecord
    topic: TopicFacts | KafkaError
    captures: Captures
    entry: Entry
    turn: Turn
    seen_at: float
    found: bool = False
    deferred: bool = False

    @property
    def table(self) -> TableId:
        """The table."""
        return self.record.table


@dataclass
class _Deferral:
    """A shared lake table whose shards wait, without a worker, for another process's lease to end.

    Args:
        since: When a run was deferred for the first time since the last commit of a shard, in
            seconds on the monotonic clock.
        until: When the shards may run again, on the same clock.
        wait_s: Length of the current wait, in seconds.
    """

    since: float
    until: float
    wait_s: float


class Workers:
    """Runs tables on several threads, in the order of a schedule.

    If another process holds the lease of a shared lake table, a shard's run tries to commit and
    gives up after a short wait. Then all shards of the lake table wait without occupying a worker.

    In each round, the caller calls `begin_round`, reads facts about the tables, and calls `offer`.
    If a table runs between these two calls, its facts can be outdated. So `offer` ignores such a
    table, and the next round offers it again. A round can also check the idle tables, which can
    take longer than several rounds, and then call `offer_found`.

    Args:
        rules: The rules of the schedule.
        run: Runs one table. Its second argument is the number of the calling thread.
        ends: Returns True if no further table may start. The workers then stop as after `close`.
    """

    def __init__(
        self,
        rules: Rules,
        run: Callable[[Work, int], RunResult],
        ends: Callable[[], bool] = lambda: False,
    ) -> None:
        self._rules = rules
        self._run = run
        self._ends = ends
        self._schedule = Schedule(rules)
        self._gate = CoreGate(self._part_of_cores)
        self._waiting: dict[TableId, Work] = {}
        self._deferrals: dict[str, _Deferral] = {}
        self._left_out: frozenset[str] = frozenset()
        self._touched: set[TableId] = set()
        """The tables that ran when the round began, or have started since then."""
        self._touched_since_look: set[TableId] = set()
        self._results: list[RunResult] = []
        self._changed = threading.Condition()
        self._closed = False
        self._pool = ThreadPoolExecutor(rules.workers, thread_name_prefix="run")
        self._threads: list[Future[None]] = []
        self.has_more = False
        """Whether a table has ended its turn with work left, since the last round began."""

    def __enter__(self) -> Workers:
        """Return the workers."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the workers; see `close`."""
        self.close()

    def begin_round(self, *, looks: bool = False) -> frozenset[TableId]:
        """Begin a round, and return the tables that run now, which the round must leave out.

        Args:
            looks: Whether the round also checks the idle tables, and calls `offer_found` later.
        """
        with self._changed:
            self._touched = set(self._schedule.running)
            if looks:
                self._touched_since_look = set(self._touched)
            self.has_more = False
            return frozenset(self._touched)

    def offer(self, work: Iterable[Work]) -> None:
        """Replace the waiting tables, except those that a check of idle tables has found.

        Args:
            work: The tables that have work.
        """
        with self._changed:
            kept = {
                table: one
                for table, one in self._waiting.items()
                if one.found or table in self._touched  # a run in this round was deferred
            }
            new = {one.table: self._aged(one) for one in work if one.table not in self._touched}
            self._wait(kept | new)

    def offer_found(self, work: Iterable[Work]) -> None:
        """Replace the waiting tables that earlier checks of idle tables have found.

        Args:
            work: The tables for which the newest check has found work.
        """
        with self._changed:
            kept = {
                table: one
                for table, one in self._waiting.items()
                if not one.found or one.entry.behind  # it has got events since it was found
            }
            late = self._touched_since_look
            new = {one.table: self._aged(one) for one in work if one.table not in late}
            self._wait(new | kept)

    def _wait(self, waiting: dict[TableId, Work]) -> None:
        """Let tables wait, and start the threads that can run them. The caller holds the lock."""
        if self._closed:
            return
        self._waiting = waiting
        self._schedule_waiting()
        wanted = min(self._rules.workers, len(self._waiting) + len(self._schedule.running))
        while len(self._threads) < wanted:
            self._threads.append(self._pool.submit(self._work, len(self._threads)))
        self._changed.notify_all()

    def _aged(self, work: Work) -> Work:
        """Return a table's new work; if found work of the table waits, keep the earlier deadline.

        The lake table has all events, so each round would give the found work a new deadline, and
        in a busy fleet the table would never be old enough to run.
        """
        before = self._waiting.get(work.table)
        if before is None or not before.found:
            return work
        deadline = min(work.entry.deadline, before.entry.deadline)
        return replace(work, entry=replace(work.entry, deadline=deadline), found=True)

    @property
    def busy(self) -> bool:
        """Whether a table runs or waits."""
        with self._changed:
            return bool(self._schedule.running or self._waiting)

    def interval(self, min_s: float, took_s: float) -> float:
        """Return the seconds from the start of a round to the start of the next round.

        Args:
            min_s: The minimum of the result. It does not apply if a table has ended its turn with
                work left.
            took_s: Duration of the last round, in seconds.
        """
        least = 0.0 if self.has_more else min_s
        return max(least, _SHORTEST_S, took_s / _PART_OF_ROUNDS) if self.busy else least

    def untouched(self, records: Iterable[TableRecord]) -> list[TableRecord]:
        """Return the records of the tables that have not run since the newest look began.

        See `begin_round`.
        """
        with self._changed:
            return [one for one in records if one.table not in self._touched_since_look]

    def results(self) -> list[RunResult]:
        """Return the results of the runs that have ended since the last call.

        Raises:
            Exception: A worker ended by an error that is not the error of a table.
        """
        for thread in self._threads:
            if thread.done():
                thread.result()
        with self._changed:
            found, self._results = self._results, []
            return found

    def finish(self) -> list[RunResult]:
        """Wait until no table runs or waits; then return `results`."""
        with self._changed:
            while (self._schedule.running or self._waiting) and not self._broken:
                self._changed.wait(_LOOK_S)
        return self.results()

    def close(self) -> None:
        """Drop the waiting tables, and wait for the end of the runs in progress."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._schedule.offer(())
            self._changed.notify_all()
        self._pool.shutdown()

    @property
    def _broken(self) -> bool:
        return any(thread.done() for thread in self._threads)

    def _work(self, number: int) -> None:
        """Run tables until the workers are closed."""
        while (work := self._next()) is not None:
            began, result = time.monotonic(), None
            try:
                result = self._run(work, number)
            finally:
                with self._changed:
                    self._schedule.end(work.table, time.monotonic() - began)
                    if result is not None:
                        self._results.append(self._judged(work, result))
                        self.has_more |= _has_more(work, result)
                    self._changed.notify_all()

    def _next(self) -> Work | None:
        """Wait until a table may start, and return its work; None if no further table may start."""
        with self._changed:
            while not (self._closed or self._ends()):
                if self._held() != self._left_out:
                    self._schedule_waiting()
                entry = self._schedule.take(time.time())
                if entry is not None:
                    self._touched.add(entry.table)
                    self._touched_since_look.add(entry.table)
                    work = self._waiting.pop(entry.table)
                    turn = replace(work.turn, cores=partial(self._gate.hold, entry))
                    return replace(work, turn=turn, deferred=entry.lake in self._deferrals)
                self._changed.wait(_LOOK_S)
        return None

    def _part_of_cores(self, entry: Entry) -> tuple[str, float]:
        """Return the name of a table's lane, and the lane's part of the cores now."""
        with self._changed:
            part = self._schedule.part_of_cores(entry, time.time())
        return self._rules.lane(entry.tier), part

    def _held(self) -> frozenset[str]:
        """Return the paths of the shared lake tables whose shards wait without a worker."""
        now = time.monotonic()
        return frozenset(lake for lake, one in self._deferrals.items() if one.until > now)

    def _schedule_waiting(self) -> None:
        """Offer the waiting tables to the schedule, except shards that wait without a worker."""
        held = self._left_out = self._held()
        self._schedule.offer(
            one.entry for one in self._waiting.values() if one.entry.lake not in held
        )

    def _judged(self, work: Work, result: RunResult) -> RunResult:
        """Return a run's result. After a deferred run, let all shards of its lake table wait.

        If the command ends once the tables have run, the waits end after `DEFERRED_S`. Each shard
        then has its last try without a further wait.
        """
        lake = work.entry.lake
        if lake is None or self._closed:
            return result
        if not result.deferred:
            if result.commits:
                self._deferrals.pop(lake, None)
            return result
        now = time.monotonic()
        known = self._deferrals.get(lake)
        if known is None or result.commits:
            known = _Deferral(now, now, 0.0)
        self._deferrals[lake] = known
        if known.until <= now:  # else another shard has just been deferred
            wait_s = min(LAST_DEFERRAL_S, 2.0 * known.wait_s or FIRST_DEFERRAL_S)
            if self._rules.ends and now + wait_s - known.since > DEFERRED_S:
                return result  # each of the other shards has its last try without a further wait
            known.wait_s, known.until = wait_s, now + wait_s
        self._waiting.setdefault(work.table, work)
        self._schedule_waiting()
        note = f"its worker is free for other tables; the next try is in {known.wait_s:.0f} s"
        return replace(result, warnings=(*result.warnings, note))


def _has_more(work: Work, result: RunResult) -> bool:
    """Whether a run left records that its topic already had when the round read the topic."""
    if not result.commits or result.error is not None or result.deferred:
        return False
    stable = getattr(work.topic, "stable", {})
    return any(result.offsets.get(partition, 0) < end for partition, end in stable.items())
