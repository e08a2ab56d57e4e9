"""What the commands of a table's life hold while they change its capture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.onboarded_names import captured_by
from cdc.debezium import CaptureNames
from cdc.errors import ConnectError, LeaseHeldError
from cdc.runtime.progress import NullProgress
from cdc.store.lease import Lease, Leases
from cdc.store.state_store import Store
from cdc.store.table_state import State
from operate import lifecycle
from operate.table_outcome import Outcome
from schemas.table import TableId
from tests.records import table_record

NAMES = CaptureNames("shop", "default", "p", "s", "c", "shop", "postgres")
FAST = CaptureNames("shop", "fast", "p2", "s2", "c2", "shop2", "postgres")
TABLE = TableId("shop", "public", "orders")


class Connect:
    """A worker with a connector that has failed; each change asks who holds the capture."""

    def __init__(self, store: Store, failed: str = "c") -> None:
        self._store = store
        self._failed = failed
        self.restarted: list[bool] = []

    def status(self, name: str) -> Any:
        failure = "it failed" if name == self._failed else None
        return SimpleNamespace(failure=failure, running=False, state="FAILED")

    def wake(self, _name: str) -> bool:
        return False

    def offset(self, _name: str) -> None:
        return None

    def restart(self, _name: str, *, only_failed: bool) -> None:
        try:
            held = {"c": NAMES, "c2": FAST}[self._failed]
            Lease(self._store, held.resource, "another command").acquire()
        except LeaseHeldError:
            self.restarted.append(only_failed)
            return
        raise AssertionError("another command could change the connector meanwhile")

    def wait_running(self, _name: str, **_: Any) -> None:
        return None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    yield opened
    opened.close()


def retry(store: Store, connect: Connect) -> Outcome:
    source = SimpleNamespace(kind="postgres")
    services = SimpleNamespace(
        store=store,
        connect=connect,
        config=SimpleNamespace(source=lambda _: source),
        leases=Leases(store),
        capture_of=lambda _record: NAMES,
        progress=NullProgress(),
    )
    return lifecycle.retry(cast("Any", services), TABLE)


def test_a_connector_is_restarted_under_its_captures_lease(store: Store) -> None:
    store.put(table_record(TABLE, state=State.INCREMENTAL))
    connect = Connect(store)
    done = retry(store, connect)
    assert done.action == "restarted connector c"
    assert connect.restarted == [True]


def test_the_connector_of_an_unfinished_move_is_restarted_too(store: Store) -> None:
    store.put(table_record(TABLE, other=captured_by(FAST, TABLE)))
    connect = Connect(store, "c2")
    assert retry(store, connect).action == "restarted connector c2"
    assert connect.restarted == [True]


def test_a_failed_table_is_tried_again_although_the_connector_of_its_move_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"resume_to": State.INCREMENTAL, "other": captured_by(FAST, TABLE)}
    store.put(table_record(TABLE, state=State.FAILED, **facts))
    connect = Connect(store, "c2")

    def fails(*_: object, **__: object) -> None:
        raise ConnectError("connector c2 failed: no right", remedy="Grant it.")

    monkeypatch.setattr(connect, "wait_running", fails)
    done = retry(store, connect)
    assert done.state is State.INCREMENTAL
    assert done.details["notes"] == ["connector c2 failed: no right. Grant it."]
    with pytest.raises(ConnectError, match="no right"):
        retry(store, connect)
