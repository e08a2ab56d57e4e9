"""No period is announced falsely, and each late row is counted, whatever goes wrong."""

from __future__ import annotations

from itertools import pairwise

from tests.unit.cdc.store.completeness_simulation import simulated

SEEDS = range(1_000)


def test_no_period_is_announced_falsely_over_a_thousand_schedules() -> None:
    announced = withheld = late = copies = 0
    for seed in SEEDS:
        world = simulated(seed)
        assert world.false == []
        periods = [one.period for one in world.said]
        assert all(one.end <= other.start for one, other in pairwise(periods))
        for said in world.said:
            assert said.late == world.late(said), f"seed {seed}: late rows of {said.period.name}"
        announced += len(world.said)
        withheld += world.withheld
        late += sum(said.late for said in world.said)
        copies += world.attempts - 1
    # The schedules have what they are for.
    assert announced > 5_000
    assert withheld > 500
    assert late > 1_000
    assert copies > 1_000
