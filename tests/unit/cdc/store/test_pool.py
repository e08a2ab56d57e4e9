"""The pool of connections to the state store is large enough for all workers of a process."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy.pool import QueuePool

from cdc.store.engine import open_engine

WORKERS = 24


def test_each_worker_and_the_renewal_of_its_lease_have_a_connection(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'state.db'}", WORKERS)
    assert isinstance(engine.pool, QueuePool)
    with ExitStack() as held:
        for _ in range(2 * WORKERS + 1):  # one more for the main thread
            held.callback(engine.raw_connection().close)
        assert engine.pool.checkedout() == 2 * WORKERS + 1
    assert engine.pool.checkedin() == WORKERS, "so that each worker finds an open one again"
    engine.dispose()


@pytest.mark.parametrize("url", ["postgresql://u@h/d", "mysql+pymysql://u@h/d"])
def test_a_server_has_a_connection_for_each_worker(url: str) -> None:
    assert open_engine(url, WORKERS).pool.size() == WORKERS  # type: ignore[attr-defined]


def test_a_store_in_memory_is_opened_as_before() -> None:
    with open_engine("sqlite://", WORKERS).connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
