"""The schedule keeps the deadlines that a clairvoyant order keeps, in simulated fleets."""

from __future__ import annotations

import pytest

from cdc.run.schedule import Rules, Schedule
from tests.unit.cdc.run.fleet_simulation import Clairvoyant, Names, Order, Outcome, fleet, simulate

SEEDS = 1000
PARTS = 10
LONGEST_WAIT = 4.0
"""The longest allowed wait of any table for a worker, in freshness targets of the table."""


def run(
    seed: int,
    order: Order,
    *,
    tables: int = 50,
    workers: int = 2,
    duration: float = 480.0,
) -> Outcome:
    """Simulate one fleet under an order of its runs."""
    return simulate(
        fleet(seed, tables, workers, duration),
        order,
        workers=workers,
        duration=duration,
        clairvoyant=isinstance(order, Clairvoyant) and not isinstance(order, Names),
    )


def missed_without_need(seed: int, **size: float) -> list[str]:
    """The tables that miss deadlines under the schedule and keep them under the clairvoyant order.

    The clairvoyant order knows each run's true length and each event's arrival. It never runs the
    giant, nor a table whose deadline it cannot keep.
    """
    workers = int(size.get("workers", 2))
    found = run(seed, Schedule(Rules(workers)), **size)  # type: ignore[arg-type]
    assert found.giant_events > 0, "the giant has its turns"
    assert found.longest_wait < LONGEST_WAIT, "no table starves"
    if not found.missed:
        return []
    possible = run(seed, Clairvoyant(), **size)  # type: ignore[arg-type]
    return [table.name for table in found.missed if table not in possible.missed]


@pytest.mark.parametrize("part", range(PARTS))
def test_no_deadline_is_missed_that_a_clairvoyant_order_keeps(part: int) -> None:
    """The load is 70 %, with noise, bursts, failures, new tables and a giant table.

    In each of 1,000 fleets, no table misses a deadline under the schedule that keeps it under the
    clairvoyant order. A deadline counts as missed only if it is exceeded by more than a round,
    since no order sees an event before the next round.
    """
    bad = {seed: lost for seed in range(part, SEEDS, PARTS) if (lost := missed_without_need(seed))}
    assert bad == {}


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.breadth) for seed in (3, 4, 5))]
)
def test_three_thousand_tables_keep_their_deadlines(seed: int) -> None:
    assert missed_without_need(seed, tables=3000, workers=16) == []


def test_the_order_of_names_misses_deadlines_in_the_same_fleets() -> None:
    """This shows that the simulation can fail: the order delays the last tables of the alphabet."""
    seeds = range(20)
    assert all(run(seed, Names()).missed for seed in seeds)
    kept = sum(not run(seed, Clairvoyant()).missed for seed in seeds)
    assert kept >= 18, "the fleets can be kept"
