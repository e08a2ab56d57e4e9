"""Which freshness targets are missed or cannot be kept, why, and what has to change."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from cdc.capture.captured_tables import listed
from cdc.config.tables import configured_tier
from cdc.run import overdue
from cdc.run.schedule import REST, Rules
from cdc.store.table_state import State
from operate.needs import PART_OF_TARGET, Capacity, Need, capacities, need_of
from operate.open_transactions import ended, unreadable
from operate.render import seconds
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.kafka import KafkaAdmin
    from cdc.run.overdue import Held
    from cdc.run.predictions import Predictions
    from cdc.store.table_state import TableRecord

_RUN_OFTEN = (
    "start runs more often than the targets ask, or use `tributary run --continuous`;"
    " `tributary status TABLE` shows the last runs of a table"
)

Cause = Literal["transaction", "table", "workers", "cores", "share", "backlog", "runs"]
"""Why a target is missed or cannot be kept.

``transaction``: an open Kafka transaction, which hides records from all consumers.
``table``: the table's own cost. ``workers``: too few workers for all tables. ``cores``: too few
cores for all tables. ``share``: the tier's part of the workers or cores. ``backlog``: old changes
that wait. ``runs``: no run has committed in time.
"""


@dataclass(frozen=True)
class Limits:
    """The greatest loads at which freshness targets can be kept.

    Args:
        all_tables: The limit for all tables together, as a fraction of all workers and of the CPU
            time of all cores, for example 0.7.
        table: The limit for a single table, as a fraction of one worker.
    """

    all_tables: float
    table: float


PLANNED = Limits(all_tables=0.7, table=0.8)
"""Above these loads, targets may be missed. The simulated fleets of the tests had a load of 0.7."""
POSSIBLE = Limits(all_tables=1.0, table=1.0)
"""Above these loads, targets cannot be kept, even if all workers are always busy."""


def with_bursts(needs: Iterable[Need], late: Mapping[TableId, Late]) -> list[Need]:
    """Return the needs of tables, with ``rare_load`` as ``commits_load`` if events come in bursts.

    A table can also commit rarely because the workers are too slow. Such a table is late most of
    the time. So the need of a late table stays as it is. If at least half of the tables that have
    both a ``rare_load`` and events are late, all needs are returned unchanged. Here, a table with
    changes behind an open Kafka transaction does not count as late.
    """
    found, slow = list(needs), {table for table, one in late.items() if not one.held}
    rare = [one for one in found if one.rare_load is not None and one.events_per_s > 0]
    if 2 * sum(one.table in slow for one in rare) >= len(rare):
        return found
    return [
        one
        if one.rare_load is None or one.table in slow
        else replace(one, commits_load=one.rare_load)
        for one in found
    ]


@dataclass(frozen=True)
class Late:
    """A late table: the lake lacks old changes, that is, changes older than the table's target.

    Args:
        changes: Greatest possible number of the old changes, counted by their offsets.
        seconds: Predicted duration of a run that applies the old changes, in seconds.
        unchanged_s: Seconds since a run last committed; since the copy if no run has committed yet.
        held: The open Kafka transactions that hide old changes.
    """

    changes: int
    seconds: float
    unchanged_s: float
    held: tuple[Held, ...] = ()


@dataclass(frozen=True)
class Shortfall:
    """Tables whose freshness targets are missed, or cannot all be kept, for one cause.

    Args:
        cause: The cause.
        missed: Whether the targets are missed now. If False, the prediction is that they cannot
            all be kept.
        tables: The tables.
        reason: The cause in words, with figures.
        remedies: The changes that would help. One of them is enough.
    """

    cause: Cause
    missed: bool
    tables: tuple[TableId, ...]
    reason: str
    remedies: tuple[str, ...]

    @property
    def message(self) -> str:
        """The message about the tables, with the reason."""
        many = len(self.tables) > 1
        targets = f"freshness target{'s' if many else ''} of {listed(self.tables)}"
        if self.missed:
            return f"{targets} {'are' if many else 'is'} missed: {self.reason}"
        return f"{targets} cannot {'all ' if many else ''}be kept, by prediction: {self.reason}"

    @property
    def remedy(self) -> str:
        """The remedies, joined into one string by ``or``."""
        return ", or ".join(self.remedies)

    def to_json(self) -> dict[str, Any]:
        """The shortfall of freshness as plain values."""
        return {
            "cause": self.cause,
            "missed": self.missed,
            "tables": list(map(str, self.tables)),
            "reason": self.reason,
            "remedies": list(self.remedies),
            "message": self.message,
        }


def shortfalls(
    needs: Sequence[Need],
    rules: Rules,
    limits: Limits,
    late: Mapping[TableId, Late] | None = None,
    *,
    cores: int = 0,
) -> list[Shortfall]:
    """Return the freshness targets that are missed or cannot be kept, grouped by their cause.

    If several causes apply to a table, the table is listed under the first of these: an open Kafka
    transaction; the cost of the table's own runs; the load of the table's lane (queue for workers);
    no commit for longer than the target; a backlog of changes.

    Args:
        needs: The need of each table.
        rules: The number of workers, and the shares of tiers.
        limits: The greatest loads at which targets can be kept.
        late: The tables that are late now.
        cores: Number of cores that runs have; 0 if it is not known.
    """
    left = {table: one for table, one in (late or {}).items() if not one.held}
    found = [
        _open_transaction_shortfall(table, one) for table, one in (late or {}).items() if one.held
    ]
    held = {table for one in found for table in one.tables}
    lanes: dict[str, list[Need]] = {}
    for need in needs:
        lanes.setdefault(rules.lane(need.tier), []).append(need)
        if need.load > limits.table and need.table not in held:
            missed = left.pop(need.table, None) is not None
            found.append(Shortfall("table", missed, (need.table,), *_own_cost_advice(need, limits)))
    alone = {table for one in found for table in one.tables}
    for lane, part, lacking in _short_of_any(lanes, needs, rules, limits, cores):
        cause, reason, remedies = lacking.advice(lane, part, lanes[lane])
        tables = [
            n.table for n in lanes[lane] if n.table not in alone and (n.load or n.table in left)
        ]
        for missed in (True, False):
            if named := tuple(table for table in tables if (table in left) is missed):
                found.append(Shortfall(cause, missed, named, reason, remedies))
        for table in tables:
            left.pop(table, None)
    targets = {need.table: need.target_s for need in needs}
    return found + _other_shortfalls(targets, left)


def _short_of_any(
    lanes: Mapping[str, Sequence[Need]],
    needs: Sequence[Need],
    rules: Rules,
    limits: Limits,
    cores: int,
) -> Iterator[tuple[str, float, _Lacking]]:
    """Yield each lane that lacks workers or cores, the fraction it can have, and what it lacks.

    A lane that lacks both is yielded once, for the capacity that is scarcer for all tables.
    """
    named: set[str] = set()
    for capacity in capacities(needs, rules.workers, cores):
        loads = {lane: capacity.load(ones) for lane, ones in lanes.items()}
        for lane, part in short_lanes(loads, rules, limits.all_tables).items():
            if lane not in named:
                named.add(lane)
                yield lane, part, _Lacking(capacity, rules, loads, limits.all_tables)


def _open_transaction_shortfall(table: TableId, late: Late) -> Shortfall:
    """Return the shortfall of a late table with changes that an open Kafka transaction hides."""
    reason = (
        "changes that are older than the target are behind an open Kafka transaction, so nobody can"
        f" read {listed([*map(unreadable, late.held)])}"
    )
    remedies = (
        "wait, if a worker of Connect hangs only for a moment",
        f"if it hangs, {ended(table, late.held[0])}",
    )
    return Shortfall("transaction", True, (table,), reason, remedies)


def short_lanes(loads: Mapping[str, float], rules: Rules, full: float) -> dict[str, float]:
    """Find the lanes whose tables' targets need more workers or cores than the lanes can have.

    Tables wait for workers in lanes. Each tier with a share of the workers has its own lane. All
    other tiers have one lane together. If a lane needs less than its share, the other lanes get the
    rest, in proportion to their shares.

    Args:
        loads: By lane, the fraction of all workers or cores that the lane needs.
        rules: The shares of tiers.
        full: The fraction of all workers or cores that the lanes can have together.

    Returns:
        For each lane that needs more than it can have, the fraction of all workers or cores that
        it can have.
    """
    short = dict(loads)
    while short:
        total = sum(map(rules.share, short))
        parts = {lane: full * rules.share(lane) / total for lane in short}
        enough = [lane for lane, load in short.items() if load <= parts[lane] + 1e-9]
        if not enough:
            return parts
        full -= sum(short.pop(lane) for lane in enough)
    return {}


def _own_cost_advice(need: Need, limits: Limits) -> tuple[str, tuple[str, ...]]:
    """Return why one worker is not enough for a table to keep its target, and the remedies."""
    reason = f"table {need.table} needs {need.load:.2f} of one worker by itself"
    left = limits.table - need.events_load
    if left <= 0.0:
        return f"{reason}, {need.events_load:.2f} for its changes alone", (
            "give Spark more cores, since a run uses several; a longer target does not help",
        )
    target = math.ceil(need.commit_s / (PART_OF_TARGET * left))
    return reason, (f"set its freshness_target_s to at least {target}",)


@dataclass(frozen=True)
class _Lacking:
    """A capacity of which the tables need more than there is.

    Args:
        capacity: The capacity.
        rules: The number of workers, and the shares of tiers.
        loads: By lane, the fraction of the capacity that the lane needs. A lane is a queue of
            tables that share a part of the workers.
        full: The fraction of the capacity that the lanes can have together.
    """

    capacity: Capacity
    rules: Rules
    loads: Mapping[str, float]
    full: float

    def advice(
        self, lane: str, part: float, needs: Sequence[Need]
    ) -> tuple[Cause, str, tuple[str, ...]]:
        """Return a shortfall's cause, reason and remedies, for a lane that needs too much.

        Args:
            lane: The lane.
            part: The fraction of the capacity that the lane can have.
            needs: The needs of the lane's tables.
        """
        capacity, load = self.capacity, self.loads[lane]
        commits = sum(capacity.part(need, need.commits_load) for need in needs)
        events = sum(capacity.part(need, need.events_load) for need in needs)
        left = part * capacity.count - events
        factor = f"{commits / left:.1f} times as long" if left > 0.0 else None
        if len(self.loads) == 1:
            remedies = [self._more_cores()]
            if factor is not None:
                remedies += [
                    f"freshness_target_s of all tables {factor}",
                    _heaviest_tier_advice(needs),
                ]
            return capacity.unit, f"the tables need {load:.0%} of {capacity}", tuple(remedies)
        if lane == REST:
            who, change = "the tiers without a pool_share need", "a lower pool_share of other tiers"
        else:
            share = f"tiers.{lane}.pool_share"
            change = f"a higher {share} than {self.rules.share(lane):g}, at their cost"
            who = f"tier {lane} needs"
        can = f"and can have {part:.0%} beside the other tiers"
        remedies = [change, self._more_cores()]
        if factor is not None:
            remedies.append(f"freshness_target_s of its tables {factor}")
        return "share", f"{who} {load:.0%} of {capacity}, {can}", tuple(remedies)

    def _more_cores(self) -> str:
        """Return the remedy of more cores, for all lanes together."""
        times = sum(self.loads.values()) / self.full
        if self.capacity.unit == "cores":
            return f"{times:.1f} times the cores, {math.ceil(self.capacity.count * times)} in all"
        workers = math.ceil(self.rules.workers * times)
        return f"{times:.1f} times the cores, with spark.parallel_tables: {workers}"


def _heaviest_tier_advice(needs: Sequence[Need]) -> str:
    """Return advice for the tier with the most load: a longer target, or a separate `run`."""
    tiers: dict[str, float] = {}
    for need in needs:
        tiers[need.tier] = tiers.get(need.tier, 0.0) + need.load
    tier, most = max(tiers.items(), key=lambda pair: pair[1])
    return (
        f"for the tier {tier}, which has {most / sum(tiers.values()):.0%} of the load, a longer"
        " target, or a job of its own for some of its tables"
    )


def _other_shortfalls(
    targets: Mapping[TableId, float], late: Mapping[TableId, Late]
) -> list[Shortfall]:
    """Return the shortfalls of tables that are late although they should have enough workers.

    The cause ``runs``: the table had no commit for longer than its target. The cause ``backlog``:
    the table had a commit, but changes that are older than the target still wait.
    """
    found: list[Shortfall] = []
    waited = {t: one for t, one in late.items() if one.unchanged_s > targets.get(t, math.inf)}
    if waited:
        longest = max(one.unchanged_s for one in waited.values())
        reason = f"no commit for longer than the target, at most for {seconds(longest)}"
        found.append(Shortfall("runs", True, tuple(waited), reason, (_RUN_OFTEN,)))
    behind = {table: one for table, one in late.items() if table not in waited}
    if behind:
        changes = sum(one.changes for one in behind.values())
        work = sum(one.seconds for one in behind.values())
        reason = (
            f"{changes:,} changes that are older than the target wait; they take"
            f" {seconds(work)} by prediction"
        )
        remedies = (
            "wait, if this backlog was expected: runs work it off between other tables",
            "see `tributary plan`",
        )
        found.append(Shortfall("backlog", True, tuple(behind), reason, remedies))
    return found


def shortfalls_now(
    config: Config,
    kafka: KafkaAdmin,
    predictions: Predictions,
    records: Iterable[TableRecord],
    fresh_at: Callable[[TableRecord], float],
    now: datetime,
) -> list[Shortfall]:
    """Return the freshness targets that are missed now, or that, by prediction, cannot be kept.

    Only INCREMENTAL tables with valid settings are checked. Runs do not follow the other tables;
    the state or the error of each such table shows the reason.

    Args:
        config: The configuration.
        kafka: The cluster, which is queried only for tables that may be late.
        predictions: The predicted costs of runs.
        records: The tables.
        fresh_at: Returns a time, in seconds since 1970, up to which the lake has all changes of a
            table. It is a lower bound: the lake may have all changes up to a later time.
        now: The time, by the state store's clock.

    Raises:
        KafkaError: The cluster does not answer.
    """
    needs: list[Need] = []
    suspects: dict[TableId, tuple[TableRecord, datetime]] = {}
    for record in records:
        if record.state is not State.INCREMENTAL:
            continue
        try:
            target = config.settings_on_plan(record.table, record.tier).freshness_target_s
        except TributaryError:
            continue
        cost, rate = predictions.estimate(record.table), predictions.rate(record.table)
        each = predictions.events_per_commit(record.table)
        tier = configured_tier(record.tier)
        needs.append(need_of(record.table, tier, float(target), cost, rate, each))
        if fresh_at(record) + target < now.timestamp():
            suspects[record.table] = (record, now - timedelta(seconds=target))
    late = late_tables(kafka, predictions, suspects, now)
    rules = Rules(config.spark.parallel_tables, config.pool_shares)
    needs = with_bursts(needs, late)
    return shortfalls(needs, rules, POSSIBLE, late, cores=predictions.cores)


def late_tables(
    kafka: KafkaAdmin,
    predictions: Predictions,
    suspects: Mapping[TableId, tuple[TableRecord, datetime]],
    now: datetime,
) -> dict[TableId, Late]:
    """Return the late tables among tables that may be late.

    Args:
        kafka: The cluster. It is not queried if there are no such tables.
        predictions: The predicted costs of runs.
        suspects: For each table, its record and a time. If the table keeps its target, the lake
            lacks no change from before this time.
        now: The time, by the state store's clock.

    Raises:
        KafkaError: The cluster does not answer.
    """
    late: dict[TableId, Late] = {}
    for table, lacking in overdue(kafka, suspects).items():
        at, changes = suspects[table][0].applied_at, lacking.changes
        quiet = math.inf if at is None else (now - at).total_seconds()
        work = predictions.estimate(table).seconds(changes)
        late[table] = Late(changes, work, quiet, lacking.held)
    return late


def of_tables(found: Iterable[Shortfall], tables: Collection[TableId]) -> list[Shortfall]:
    """Return the given tables' freshness shortfalls; remove other tables from each shortfall."""
    kept = (
        replace(one, tables=tuple(table for table in one.tables if table in tables))
        for one in found
    )
    return [one for one in kept if one.tables]
