"""What is read as a lease is taken, and stored as it is released, needs no further transaction."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
import sqlalchemy as sa

from cdc.errors import StateError
from cdc.store.lease import Leases
from cdc.store.loss_counts import Loss, Losses, newest_losses
from cdc.store.run_facts import RunFacts
from cdc.store.state_store import Store
from cdc.store.tables import paused_replay_rows
from schemas.table import TableId
from tests.records import table_record

TABLE = TableId("shop", "public", "orders")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path}/state.db")


def noted(connection: sa.Connection, source: str) -> None:
    connection.execute(sa.insert(paused_replay_rows).values(source=source))


def test_what_is_stored_last_is_stored_with_the_release(store: Store) -> None:
    begun = list[object]()
    with Leases(store).hold(TABLE) as lease:
        lease.at_release(lambda connection: noted(connection, "a"))
        lease.at_release(lambda connection: noted(connection, "b"))
        sa.event.listen(store._engine, "begin", begun.append)
    assert len(begun) == 1
    assert store.paused_replays() == ["b"]
    lease.release()
    assert store.paused_replays() == ["b"], "it is stored once"
    with Leases(store).hold(TABLE) as again:
        assert again.token == 2


@pytest.mark.parametrize(
    "error", [StateError("full", remedy="Empty it."), ValueError("no text"), None]
)
def test_a_lease_is_released_even_if_what_is_stored_last_fails(
    store: Store, caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    store.note_paused_replay("a")

    def fails(connection: sa.Connection) -> None:
        noted(connection, "b")
        if error is not None:
            raise error
        noted(connection, "a")  # the database refuses a second row

    with caplog.at_level(logging.WARNING), Leases(store).hold(TABLE) as lease:
        lease.at_release(fails)
    assert "the last facts about table shop:public.orders are not stored" in caplog.text
    assert store.paused_replays() == ["a"], "nothing of it is stored"
    with Leases(store).hold(TABLE) as again:
        assert again.token == 2


def test_more_is_read_with_the_newest_record_as_the_lease_is_taken(store: Store) -> None:
    before = store.put(table_record(TABLE), 0)
    last = store.put(replace(before, topic="another"))
    losses = Losses(store)
    losses.note("capture", "once")
    losses.note("capture", "twice")
    losses.note("of another capture", "never")
    facts, begun = RunFacts(lambda record: (record.topic, "capture")), list[object]()
    losses.note("another", "by the newest record")
    sa.event.listen(store._engine, "begin", begun.append)
    with Leases(store).hold_record(before, read=facts.read) as (_, newest):
        assert len(begun) == 1
    assert newest == last
    assert {name: one.times for name, one in facts.losses.items()} == {"capture": 2, "another": 1}
    assert facts.quarantined == set()


def test_of_counts_that_were_read_at_several_times_the_greatest_is_the_newest() -> None:
    at = datetime(2026, 1, 2, tzinfo=timezone.utc)
    once, twice, other = Loss(1, "a", at), Loss(2, "b", at), Loss(1, "c", at)
    joined = {"capture": twice, "table": other}
    assert newest_losses({"capture": once}, {"capture": twice, "table": other}) == joined
    assert newest_losses({"capture": twice, "table": other}, {"capture": once}) == joined
    assert newest_losses({}, {}) == {}
