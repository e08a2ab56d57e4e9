"""Each quarantined record is kept once, and removed when a commit has written it to the lake."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateTable

from cdc.config.tables import TableSettings
from cdc.errors import FencedError, LostHistoryError
from cdc.lake.commit import CommitRecord
from cdc.rows.kafka_records import Range
from cdc.run.quarantining import HeldQuarantine, LeftOut, require_listed
from cdc.store.lease import Lease
from cdc.store.quarantine import Quarantine, Quarantined
from cdc.store.state_store import Store
from cdc.store.tables import quarantine as quarantine_table
from schemas.table import TableId

TABLE = TableId("shop", "public", "orders")
ATTEMPT, OTHER = "a" * 36, "b" * 36
WHEN = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'state.db'}")


@pytest.fixture
def quarantine(store: Store) -> Quarantine:
    return Quarantine(store)


def record(offset: int, **changes: Any) -> Quarantined:
    made = Quarantined(
        table=TABLE,
        attempt=ATTEMPT,
        topic="shop.public.orders",
        topic_id="Xj1",
        partition=0,
        offset=offset,
        schema_id=7,
        reason="the body does not match its schema",
        timestamp=WHEN,
        size=5,
        run_id="run-1",
        quarantined_at=WHEN,
        key=b"\x00k",
        value=b"\x00\xff\x00",
    )
    return replace(made, **changes)


def test_a_record_comes_back_as_it_was_kept(quarantine: Quarantine) -> None:
    kept = record(5)
    bare = record(6, key=None, value=None, timestamp=None, schema_id=None, topic_id=None)
    quarantine.keep([kept, bare])
    assert quarantine.get(ATTEMPT, 5) == kept
    assert quarantine.get(ATTEMPT, 6) == bare
    assert quarantine.get(ATTEMPT, 7) is None
    assert quarantine.get(ATTEMPT, 5, partition=1) is None
    assert quarantine.list([ATTEMPT]) == [replace(kept, key=None, value=None), bare]
    assert quarantine.list([]) == quarantine.list([OTHER]) == []


def test_keeping_again_changes_nothing(quarantine: Quarantine) -> None:
    quarantine.keep([record(5)])
    quarantine.keep([record(5, reason="later"), record(6)])
    assert [kept.reason for kept in quarantine.list([ATTEMPT])] == [record(5).reason] * 2
    assert quarantine.counts() == {ATTEMPT: 2}


def test_a_range_that_was_applied_is_forgotten_but_for_what_it_left_out(
    quarantine: Quarantine,
) -> None:
    quarantine.keep([record(offset) for offset in (4, 5, 6, 7, 8)])
    quarantine.keep([record(6, attempt=OTHER), record(6, partition=1)])
    quarantine.forget_range(ATTEMPT, {0: 5}, {0: 8}, [(0, 6), (1, 7)])
    assert quarantine.offsets(ATTEMPT) == {(0, 4), (0, 6), (0, 8), (1, 6)}
    assert quarantine.offsets(OTHER) == {(0, 6)}


def test_former_attempts_are_forgotten(quarantine: Quarantine) -> None:
    others = replace(TABLE, name="others")
    quarantine.keep([record(1), record(2, attempt=OTHER), record(3, attempt="c", table=others)])
    quarantine.forget(TABLE, but=OTHER)
    assert quarantine.counts() == {OTHER: 1, "c": 1}
    quarantine.forget(TABLE)
    assert quarantine.counts() == {"c": 1}


def test_bytes_keep_their_length_on_mysql() -> None:
    mysql = make_url("mysql://").get_dialect()()
    ddl = str(CreateTable(quarantine_table).compile(dialect=mysql))
    assert ddl.count("LONGBLOB") == 2


def left_out(store: Store, **settings: Any) -> LeftOut:
    context = cast(Any, SimpleNamespace(store=store, run_id="run-2"))
    previous = CommitRecord(kind="run", table=TABLE, attempt=ATTEMPT, offsets={0: 10})
    kept = Quarantine(store).offsets(ATTEMPT)
    held = HeldQuarantine(kept, store.transaction)
    return LeftOut(context, previous, TableSettings.model_validate(settings), held)


def test_a_store_from_a_backup_does_not_forget_what_the_lake_lacks(
    store: Store, quarantine: Quarantine
) -> None:
    quarantine.keep([record(3), record(5), record(12), record(30)])
    piece, later = Range({0: 10}, {0: 20}), SimpleNamespace(partition=0, offset=13)
    batch = cast(Any, SimpleNamespace(piece=piece, left_out=(later,)))
    assert left_out(store).lacking(batch) == 3, "one at 12 is applied, one at 30 is not reached"
    commit = CommitRecord(kind="run", table=TABLE, attempt=ATTEMPT, offsets={0: 20}, lacks=3)
    require_listed(commit, quarantine.offsets(ATTEMPT))
    quarantine.forget_range(ATTEMPT, {0: 3}, {0: 4}, [])
    with pytest.raises(LostHistoryError, match=r"lacks 3 records .* lists 2 of them"):
        require_listed(commit, quarantine.offsets(ATTEMPT))
    require_listed(replace(commit, lacks=2), quarantine.offsets(ATTEMPT))


def test_only_the_policy_tolerates_records_and_only_so_many(
    store: Store, quarantine: Quarantine
) -> None:
    # Offset 12 was kept by a run that died before its commit: it does not count twice.
    quarantine.keep([record(3), record(4), record(12), record(5, attempt=OTHER)])
    piece = Range({0: 10}, {0: 20})
    assert left_out(store).tolerated(piece) == 0
    policy = {"on_bad_message": "quarantine"}
    assert left_out(store, **policy).tolerated(piece) == 98
    assert left_out(store, **policy, max_quarantined=3).tolerated(piece) == 1
    assert left_out(store, **policy, max_quarantined=1).tolerated(piece) == 0
    found = left_out(store, **policy)
    assert (found.outside(piece), found.within(piece)) == ({(0, 3), (0, 4)}, {(0, 12)})


def test_what_a_run_knows_of_the_quarantine_follows_the_store(
    store: Store, quarantine: Quarantine
) -> None:
    """A run reads the quarantine once, and all of its batches share what it knows."""
    quarantine.keep([record(12), record(15), record(30)])
    raw = [SimpleNamespace(timestamp=WHEN, size=1, key=b"k", value=None)]
    reader = cast(Any, SimpleNamespace(topic="t", raw=lambda *_, **__: raw))
    known = quarantine.offsets(ATTEMPT)
    context = cast(Any, SimpleNamespace(store=store, run_id="run-2"))
    previous = CommitRecord(kind="run", table=TABLE, attempt=ATTEMPT, offsets={0: 10})
    lease = Lease(store, TABLE, "this process", ttl_s=0.0)
    lease.acquire()
    held = HeldQuarantine(known, lease.transaction)
    found = LeftOut(context, previous, TableSettings(), held)
    problem = SimpleNamespace(partition=0, offset=13, schema_id=7, reason="unreadable")
    batch = cast(Any, SimpleNamespace(piece=Range({0: 10}, {0: 20}), left_out=(problem,)))
    begun = list[object]()
    sa.event.listen(store._engine, "begin", begun.append)
    found.keep(batch, reader)
    assert len(begun) == 1, "the lease is checked in the transaction that keeps the record"
    assert known == quarantine.offsets(ATTEMPT) == {(0, 12), (0, 13), (0, 15), (0, 30)}
    assert found.outside(batch.piece) == {(0, 30)}
    begun.clear()
    found.drop_applied(batch)
    assert len(begun) == 1
    assert known == quarantine.offsets(ATTEMPT) == {(0, 13), (0, 30)}
    # The process was suspended, and another one has the table now.
    Lease(store, TABLE, "another process", ttl_s=60.0).acquire()
    batch.left_out = ()
    with pytest.raises(FencedError):
        found.drop_applied(batch)
    assert known == quarantine.offsets(ATTEMPT) == {(0, 13), (0, 30)}
    batch.left_out = (SimpleNamespace(partition=0, offset=14, schema_id=7, reason="unreadable"),)
    with pytest.raises(FencedError):
        found.keep(batch, reader)
    assert quarantine.offsets(ATTEMPT) == {(0, 13), (0, 30)}
