"""The schedule keeps the deadlines that a clairvoyant order keeps, in simulated fleets."""

from __future__ import annotations

import pytest

from cdc.run.schedule import Rules, Schedule
from tests.unit.cdc.run.fleet_simulation import Clairvoyant, Names, Order, Outcome, fleet, simulate

SEEDS = 1000
PARTS = 10
LONGEST_WAIT = 4.0
"""Longest wait for a worker, in targets of the table, also of late and of failing tables."""


def run(
    seed: int,
    order: Order,
    *,
    tables: int = 50,
    workers: int = 2,
    duration: float = 480.0,
) -> Outcome:
    """One fleet under an order."""
    return simulate(
        fleet(seed, tables, workers, duration),
        order,
        workers=workers,
        duration=duration,
        clairvoyant=isinstance(order, Clairvoyant) and not isinstance(order, Names),
    )


def missed_without_need(seed: int, **size: float) -> int:
    """Tables whose deadlines the schedule misses, beyond those that the clairvoyant order misses.

    The clairvoyant order knows each run's true length and each event's arrival, and neither runs
    the giant nor any table that it cannot keep.
    """
    workers = int(size.get("workers", 2))
    found = run(seed, Schedule(Rules(workers)), **size)  # type: ignore[arg-type]
    assert found.giant_events > 0, "the giant has its turns"
    assert found.longest_wait < LONGEST_WAIT, "no table starves"
    if not found.missed:
        return 0
    possible = run(seed, Clairvoyant(), **size)  # type: ignore[arg-type]
    return max(0, len(found.missed) - len(possible.missed))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_deadline_is_missed_that_a_clairvoyant_order_keeps(part: int) -> None:
    """At a load of 70 %, with noise, bursts, failures, new tables and a giant beside it.

    In each of 1,000 fleets, the schedule misses no deadline if the clairvoyant order misses none,
    and otherwise the deadlines of no more tables than that order. A deadline counts as missed from
    one round on, since no order sees an event before the next round.
    """
    bad = {seed: lost for seed in range(part, SEEDS, PARTS) if (lost := missed_without_need(seed))}
    assert bad == {}


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.breadth) for seed in (3, 4, 5))]
)
def test_three_thousand_tables_keep_their_deadlines(seed: int) -> None:
    assert missed_without_need(seed, tables=3000, workers=16, duration=250.0) == 0


def test_the_order_of_names_misses_deadlines_in_the_same_fleets() -> None:
    """So the simulation can fail: this order delays the tables at the end of the alphabet."""
    seeds = range(20)
    assert all(run(seed, Names()).missed for seed in seeds)
    kept = sum(not run(seed, Clairvoyant()).missed for seed in seeds)
    assert kept >= 18, "the fleets can be kept"
