"""How the CPU time of the process is divided among concurrent runs."""

from __future__ import annotations

import pytest

from cdc.runtime.cpu_shares import CpuShares


def test_the_shares_of_runs_add_up_to_the_cpu_time_of_the_process() -> None:
    """The first run is alone for 10 s, beside the second for 6 s, and the second alone for 3 s."""
    used = 100.0
    shares = CpuShares(lambda: used)
    first = shares.begin()
    used += 10.0
    second = shares.begin()
    used += 6.0
    assert shares.used(first) == pytest.approx(13.0)
    shares.end()
    used += 3.0
    assert shares.used(second) == pytest.approx(6.0)
    shares.end()
    used += 50.0
    assert shares.used(shares.begin()) == 0.0, "no run was in progress meanwhile"


def test_runs_beside_other_work_are_not_measured() -> None:
    used = 100.0
    shares = CpuShares(lambda: used)
    with shares.beside():
        late = shares.begin()
        used += 10.0
    early = shares.begin()
    assert shares.used(late) == 0.0, "it has begun beside the other work"
    with shares.beside():
        used += 10.0
        assert shares.used(early) == 0.0
    used += 10.0
    assert shares.used(early) == 0.0
    alone = shares.begin()
    used += 9.0
    assert shares.used(alone) == pytest.approx(3.0), "three runs are in progress"


def test_a_jvm_that_has_ended_takes_no_time_back() -> None:
    used = 100.0
    shares = CpuShares(lambda: used)
    begun = shares.begin()
    used = 7.0
    assert shares.used(begun) == 0.0
