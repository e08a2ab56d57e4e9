"""In simulated fleets, a failing or lagging tier does not make another tier less fresh."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import NamedTuple

import pytest

from cdc.run.schedule import Rules, Schedule
from tests.unit.cdc.run.fleet_simulation import Table, fleet, simulate

SEEDS = range(12)
WORKERS = 8
TABLES = 120
CORES = [8, 2]
"""The runs that are executed at full speed at a time: all, or a quarter of them."""
DURATION = 600.0
SHARE = 0.35
"""The critical tier's share of the workers: about as much as its tables need."""


class Freshness(NamedTuple):
    """Statistics over all seeds: ages of oldest events at a tier's commits, in targets."""

    mean: float
    p95: float
    missed: int


def poisoned(table: Table) -> None:
    """Let each run of a table fail."""
    table.fails_until = DURATION


def lagging(table: Table) -> None:
    """Give a table a backlog of two minutes of work; all together exceed the workers' capacity."""
    table.arrivals = [(0.0, int(120.0 / table.event_s)), *table.arrivals]


def healthy(table: Table) -> None:
    """Leave a table as it is."""


def of_critical(fault: Callable[[Table], None], rules: Rules, cores: int) -> Freshness:
    """The freshness of the critical tier while all tables of the other tiers have a fault."""
    ages, missed = list[float](), 0
    for seed in SEEDS:
        tables = fleet(seed, TABLES, cores, DURATION)
        for one in tables:
            if one.tier == "critical":
                one.fails_until = 0.0
            else:
                fault(one)
        critical = {one.id for one in tables if one.tier == "critical"}
        found = simulate(tables, Schedule(rules), workers=WORKERS, duration=DURATION, cores=cores)
        ages += [age for table in critical for age in found.ages.get(table, ())]
        missed += len(critical & found.missed.keys())
    return Freshness(statistics.mean(ages), statistics.quantiles(ages, n=20)[-1], missed)


@pytest.fixture(scope="module", params=CORES)
def cores(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def usual(cores: int) -> Freshness:
    return of_critical(healthy, Rules(WORKERS, {"critical": SHARE}), cores)


@pytest.mark.parametrize("fault", [poisoned, lagging])
def test_a_tier_with_a_share_is_as_fresh_beside_a_tier_that_fails_or_lags(
    usual: Freshness, cores: int, fault: Callable[[Table], None]
) -> None:
    found = of_critical(fault, Rules(WORKERS, {"critical": SHARE}), cores)
    assert found.mean <= 1.1 * usual.mean
    assert found.p95 <= 1.1 * usual.p95
    assert found.missed <= usual.missed
    assert usual.missed == 0 or cores < WORKERS, "a run can wait for a core longer than predicted"


def test_without_a_share_a_lagging_tier_makes_the_critical_tables_late(
    usual: Freshness, cores: int
) -> None:
    """This shows that the share isolates the tiers, and that the test above can fail."""
    found = of_critical(lagging, Rules(WORKERS), cores)
    assert found.p95 > 1.1 * usual.p95
    assert found.missed > usual.missed
