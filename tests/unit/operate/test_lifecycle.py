"""The leases that commands hold while they change the capture of a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.onboarded_names import captured_by
from cdc.connect import INSTALLATION, ConnectorOwner
from cdc.debezium import CaptureNames
from cdc.errors import CaptureError, ConnectError, LeaseHeldError, OtherConnectorError
from cdc.log.position import Lsn
from cdc.runtime.progress import NullProgress
from cdc.sources.postgres.slot import SlotHealth
from cdc.store.lease import Lease, Leases
from cdc.store.state_store import Store
from cdc.store.table_state import Cause, State, transition
from operate import lifecycle
from operate.table_outcome import Outcome
from schemas.table import TableId
from tests.records import NOW, table_record

NAMES = CaptureNames("shop", "default", "p", "s", "c", "shop", "postgres")
FAST = CaptureNames("shop", "fast", "p2", "s2", "c2", "shop2", "postgres")
TABLE = TableId("shop", "public", "orders")


class Source:
    """A fake source whose slot begins at a position."""

    def __init__(self, begins: int) -> None:
        end = Lsn(900)
        at = Lsn(begins)
        self._health = SlotHealth("s", False, "reserved", at, at, 0, None, end, lambda: end)

    def capture(self, _names: CaptureNames) -> Any:
        return SimpleNamespace(log_health=lambda: self._health)


class Connect:
    """A fake Connect with a failed connector; a restart without the capture's lease is an error."""

    def __init__(self, store: Store, failed: str = "c") -> None:
        self._store = store
        self._failed = failed
        self.restarted: list[bool] = []
        self.owner = ConnectorOwner(lambda: "here")
        self.made_by = "here"

    def require_own(self, name: str) -> None:
        if (error := self.owner.other({"name": name, INSTALLATION: self.made_by})) is not None:
            raise error

    def status(self, name: str) -> Any:
        failure = "it failed" if name == self._failed else None
        return SimpleNamespace(failure=failure, running=False, state="FAILED")

    def wake(self, _name: str) -> bool:
        return False

    def offset(self, _name: str) -> dict[str, int]:
        return {"lsn_commit": 400}

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


def retry(store: Store, connect: Connect, begins: int = 400) -> Outcome:
    source = SimpleNamespace(kind="postgres")
    services = SimpleNamespace(
        store=store,
        connect=connect,
        config=SimpleNamespace(source=lambda _: source),
        sent=SimpleNamespace(
            exactly_once=True, certain_position=lambda _names, _log, stored: stored
        ),
        leases=Leases(store),
        capture_of=lambda _record: NAMES,
        source=lambda _name: Source(begins),
        progress=NullProgress(),
        take_over=False,
    )
    return lifecycle.retry(cast("Any", services), TABLE)


def test_a_connector_of_another_installation_is_not_restarted(store: Store) -> None:
    store.put(table_record(TABLE, state=State.INCREMENTAL))
    connect = Connect(store)
    connect.made_by = "elsewhere"
    with pytest.raises(OtherConnectorError, match="is of installation elsewhere"):
        retry(store, connect)
    assert connect.restarted == []


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


def test_a_connector_whose_slot_has_lost_changes_is_not_restarted(store: Store) -> None:
    """A run must see the loss first, since the connector's next commit would hide it."""
    following = store.put(table_record(TABLE, state=State.INCREMENTAL))
    connect = Connect(store)
    with pytest.raises(CaptureError, match="connector c was not restarted, since") as refused:
        retry(store, connect, begins=500)
    assert "something other than the connector moved it" in refused.value.message
    assert refused.value.remedy.startswith("Run `tributary run`, which marks the tables")

    cause = Cause(error=CaptureError("it failed", remedy="Wait."))
    store.put(transition(following, State.FAILED, at=NOW, cause=cause))
    released = retry(store, connect, begins=500)
    assert released.state is State.INCREMENTAL, "a run marks it only if it is not FAILED"
    (note,) = released.details["notes"]
    assert "connector c was not restarted" in note
    assert connect.restarted == []


def test_the_connector_of_a_move_whose_slot_has_lost_changes_waits_for_the_move(
    store: Store,
) -> None:
    store.put(table_record(TABLE, other=captured_by(FAST, TABLE)))
    connect = Connect(store, "c2")
    with pytest.raises(CaptureError, match="connector c2 was not restarted, since") as refused:
        retry(store, connect, begins=500)
    assert refused.value.remedy == f"Run `tributary move {TABLE}` again."
    assert connect.restarted == []
