"""The part of the workers and of the cores that tables need to keep their freshness targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cdc.run.cost import Estimate
    from schemas.table import TableId

PART_OF_TARGET = 0.8
"""The part of a table's target that a prediction allows between two commits.

The rest of the target is a reserve, since predictions are not exact.
"""
_RARE = 4.0
"""Mean time between commits, in freshness targets, above which events count as rare bursts.

A long time below this bound can also mean that the workers are too slow.
"""


@dataclass(frozen=True)
class Need:
    """The work that a table needs to keep its freshness target, as predicted from earlier runs.

    Args:
        table: The table.
        tier: The table's tier.
        target_s: The table's freshness target, in seconds.
        commit_s: Predicted duration of a commit, in seconds.
        events_per_s: Number of events that arrive per second.
        commits_load: Fraction of a worker's time that commits take, if the table has as few commits
            as the target allows.
        events_load: Fraction of a worker's time that the events take.
        behind: Number of offsets between the table's last commit and the end of its topic.
        slack_s: Seconds for which the next run can wait and still keep the target; None if no event
            waits.
        seconds: Predicted duration of all work that waits now, in seconds.
        rare_load: The value in place of ``commits_load`` if the table's events come in rare bursts,
            for example once a night; None if they do not.
        cpu: CPU seconds that a run of the table takes per second of its duration; 0 if not known.
        bytes_per_commit: Mean size of the data files that a commit writes; 0 if it is not known.
    """

    table: TableId
    tier: str
    target_s: float
    commit_s: float
    events_per_s: float
    commits_load: float
    events_load: float
    behind: int = 0
    slack_s: float | None = None
    seconds: float = 0.0
    rare_load: float | None = None
    cpu: float = 0.0
    bytes_per_commit: float = 0.0

    @property
    def load(self) -> float:
        """The predicted fraction of a worker's time that the table needs."""
        return self.commits_load + self.events_load

    def to_json(self) -> dict[str, Any]:
        """The table's need as plain values."""
        return {**asdict(self), "table": str(self.table), "load": self.load}


def need_of(
    table: TableId,
    tier: str,
    target_s: float,
    cost: Estimate,
    rate: float,
    per_commit: float = 0.0,
) -> Need:
    """Return how much of the workers a table needs to keep its freshness target, by prediction.

    The result's fields for the work that waits now are not set.

    Args:
        table: The table.
        tier: The table's tier, as the configuration names it.
        target_s: The table's freshness target, in seconds.
        cost: The predicted cost of the table's runs.
        rate: Number of events that arrive per second.
        per_commit: Mean number of events in a commit; 0 if it is not known. It shows whether the
            events come in rare bursts, for example once a night.
    """
    commits_per_s = min(rate, 1.0 / (target_s * PART_OF_TARGET))
    loads = (commits_per_s * cost.commit_s, rate * cost.event_s)
    need = Need(table, tier, target_s, cost.commit_s, rate, *loads, cpu=cost.cpu)
    if per_commit and (bursts_per_s := rate / per_commit) * target_s * _RARE < 1.0:
        return replace(need, rare_load=min(commits_per_s, bursts_per_s) * cost.commit_s)
    return need


@dataclass(frozen=True)
class Capacity:
    """What all runs share, and what limits them: the workers, or the CPU time of the cores.

    While few tables run, a run is quick, and the workers seem to suffice for many tables. If all
    workers are busy, runs wait for cores. So both are compared with what tables need.

    Args:
        unit: ``workers`` or ``cores``.
        count: Number of workers or cores.
    """

    unit: Literal["workers", "cores"]
    count: int

    def part(self, need: Need, load: float) -> float:
        """Convert a load in workers into a load in this capacity's unit: workers or cores.

        Args:
            need: The need of the table that makes the load.
            load: The load; 0.5 is half of one worker's time.
        """
        return load if self.unit == "workers" else load * need.cpu

    def load(self, needs: Iterable[Need]) -> float:
        """Return the fraction of all workers or cores that tables need, by prediction.

        A table counts as one worker at most.
        """
        return sum(self.part(need, min(1.0, need.load)) for need in needs) / self.count

    def __str__(self) -> str:
        """The capacity in words, for example ``8 workers``."""
        return f"{self.count} {self.unit}"


def capacities(needs: Sequence[Need], workers: int, cores: int) -> list[Capacity]:
    """Return the workers and the cores; the one of which tables need the greater part is first.

    Args:
        needs: The need of each table.
        workers: Number of tables that run at a time.
        cores: Number of cores that runs have; 0 if it is not known, and they are then left out.
    """
    found = [Capacity("workers", workers), *([Capacity("cores", cores)] if cores else [])]
    return sorted(found, key=lambda one: one.load(needs), reverse=True)
