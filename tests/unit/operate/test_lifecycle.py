"""What the commands of a table's life hold while they change its capture."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cdc.debezium import CaptureNames
from cdc.errors import LeaseHeldError
from cdc.runtime.progress import NullProgress
from cdc.store.lease import Lease, Leases
from cdc.store.state_store import Store
from cdc.store.table_state import State
from operate import lifecycle
from schemas.table import TableId
from tests.records import table_record

NAMES = CaptureNames("shop", "default", "p", "s", "c", "shop", "postgres")
TABLE = TableId("shop", "public", "orders")


class Connect:
    """A worker with a connector that has failed; each change asks who holds the capture."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.restarted: list[bool] = []

    def status(self, _name: str) -> Any:
        return SimpleNamespace(failure="it failed", running=False, state="FAILED")

    def wake(self, _name: str) -> bool:
        return False

    def offset(self, _name: str) -> None:
        return None

    def restart(self, _name: str, *, only_failed: bool) -> None:
        try:
            Lease(self._store, NAMES.resource, "another command").acquire()
        except LeaseHeldError:
            self.restarted.append(only_failed)
            return
        raise AssertionError("another command could change the connector meanwhile")

    def wait_running(self, _name: str, **_: Any) -> None:
        return None


def test_a_connector_is_restarted_under_its_captures_lease(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    store.put(table_record(TABLE, state=State.INCREMENTAL))
    connect = Connect(store)
    services = SimpleNamespace(
        store=store,
        connect=connect,
        leases=Leases(store),
        capture_of=lambda _record: NAMES,
        progress=NullProgress(),
    )
    done = lifecycle.retry(cast("Any", services), TABLE)
    assert done.action == "restarted connector c"
    assert connect.restarted == [True]
    store.close()
