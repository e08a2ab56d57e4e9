"""How long shards of one lake table wait for another process that holds the table."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from cdc.config import TableSettings
from cdc.errors import FencedError, LakeError, LeaseHeldError
from cdc.lake import shards
from cdc.lake.commit import CommitRecord
from cdc.lake.shard_write import ShardWrite
from cdc.lake.shards import SharedTable
from cdc.store.lease import Lease, Leases
from cdc.store.state_store import Store
from cdc.store.tables import leases
from schemas.table import Column, Shard, TableId, TableSchema

TABLE = TableId("shop", "public", "orders")
SCHEMA = TableSchema(TABLE, (Column("id", "int", "int"),), ("id",))
LAKE = "lake table /lake/orders"


def wanted(shard: str = "eu", **facts: Any) -> ShardWrite:
    commit = CommitRecord(kind="run", table=TABLE, attempt="a")
    owner = Shard("sales.orders", shard, "_shard", "/lake/orders")
    return ShardWrite(owner, SCHEMA, TableSettings(), None, commit, lambda _: None, **facts)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path}/state.db")
    yield opened
    opened.close()


@pytest.fixture
def shared(store: Store, monkeypatch: pytest.MonkeyPatch) -> SharedTable:
    def reached(*_: object) -> None:
        raise LakeError("the lease was taken", remedy="None.")

    monkeypatch.setattr(shards, "Timeline", reached)
    monkeypatch.setattr(shards, "TRY_S", 0.3)
    return SharedTable(lambda: cast("Any", None), Leases(store), "/lake/orders")


def test_a_run_makes_one_try_and_a_command_waits(store: Store, shared: SharedTable) -> None:
    assert shared.held_by_other() is None
    with Leases(store, owner="other").hold(LAKE):
        began = time.monotonic()
        with pytest.raises(LeaseHeldError, match="lake table /lake/orders is held by other"):
            shared.write(wanted(), wait_s=0.0)
        assert 0.3 <= time.monotonic() - began < 5.0
        held = shared.held_by_other()
        assert held is not None
        assert "other" in held.message
        with pytest.raises(LeaseHeldError):
            shared.write(wanted(), wait_s=1.0)
        assert time.monotonic() - began > 1.3
    with pytest.raises(LakeError, match="the lease was taken"):
        shared.write(wanted(), wait_s=0.0)


def test_a_command_that_waits_does_not_keep_runs_waiting(store: Store, shared: SharedTable) -> None:
    """Command and runs can be in one process: a resync in a thread beside continuous runs."""
    errors: list[Exception] = []

    def joins() -> None:
        try:
            shared.write(wanted("us", replaces=True), wait_s=30.0)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    patient = threading.Thread(target=joins)
    with Leases(store, owner="other").hold(LAKE):
        patient.start()
        began = time.monotonic()
        with pytest.raises(LeaseHeldError):
            shared.write(wanted(), wait_s=0.0)
        assert time.monotonic() - began < 5.0
        assert not errors, "it still waits"
    patient.join(20.0)
    assert [str(error) for error in errors] == ["the lease was taken"]


def test_a_wait_for_a_shared_table_ends_when_the_command_is_stopped(
    store: Store, shared: SharedTable
) -> None:
    stop = threading.Event()
    stopped = SharedTable(shared._spark, Leases(store), shared.path, stop=stop)
    began = time.monotonic()
    with Leases(store, owner="other").hold(LAKE):
        threading.Timer(0.5, stop.set).start()
        with pytest.raises(LeaseHeldError, match="is held by other"):
            stopped.write(wanted(), wait_s=60.0)
    assert time.monotonic() - began < 10.0


def test_a_process_that_slept_deletes_nothing_of_the_process_that_took_its_lease(
    store: Store, shared: SharedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process saw no lake table before it slept, and another process has created it since."""

    def sleeps(*_: object) -> None:
        with store.transaction() as connection:
            connection.execute(sa.update(leases).values(expires_at=0.0))
        Lease(store, LAKE, "other").acquire()

    monkeypatch.setattr(shards, "Timeline", lambda *_: SimpleNamespace(exists=False))
    monkeypatch.setattr(shards, "current_path", sleeps)
    monkeypatch.setattr(shards, "folder_exists", lambda *_: True)
    monkeypatch.setattr(shards, "delete_path", lambda *_: pytest.fail("it was deleted"))
    with pytest.raises(FencedError, match="another process has taken it over"):
        shared.write(wanted(), wait_s=0.0)
