from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from cdc.store.connector_restarts import LIMIT, Restarts
from cdc.store.state_store import Store
from cdc.store.tables import restart_rows


def pass_time(store: Store, seconds: float) -> None:
    with store.transaction() as connection:
        later = restart_rows.c.next_at - seconds
        connection.execute(sa.update(restart_rows).values(next_at=later))


def test_a_poisoned_connector_is_not_restarted_for_ever(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    restarts, times = Restarts(store), []

    def let_pass(seconds: float) -> None:
        pass_time(store, seconds)

    for pause in (30, 60, 120, 240, 480, 960, 1920, 3600, 3600):
        taken = restarts.claim("c")
        assert not restarts.claim("c").now, "nobody else takes the same"
        times.append((taken.times, taken.now))
        let_pass(pause - 5)
        assert not restarts.claim("c").now, "it is not yet due"
        restarts.forget_if_stable("c")
        let_pass(6)
    assert times == [*((n, True) for n in range(1, LIMIT + 1)), (LIMIT, False)]
    let_pass(600)
    restarts.forget_if_stable("c")
    begun = restarts.claim("c")
    assert (begun.times, begun.now) == (1, True), "it ran for long enough"
    restarts.forget("c")
    assert restarts.claim("c").now
    store.close()


def test_a_connector_is_restarted_for_as_long_as_its_source_is_away(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    restarts = Restarts(store)
    for times in range(1, 3 * LIMIT):
        taken = restarts.claim("c", outage=True)
        assert (taken.times, taken.now, taken.next_at is None) == (times, True, False)
        assert not restarts.claim("c", outage=True).now, "it is not yet due"
        pass_time(store, 301)
    assert not restarts.claim("c").now, "another failure has its limit"
    store.close()
