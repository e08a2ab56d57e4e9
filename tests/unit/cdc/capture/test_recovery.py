"""How a failed connector is restarted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from cdc.capture.recovery import (
    FailedConnector,
    explained,
    lost_before_restart,
    restart,
    restart_connector,
)
from cdc.capture.sent_records import SentRecords
from cdc.debezium import CaptureNames
from cdc.errors import KafkaError, SourceError
from cdc.log.position import Lsn
from cdc.sources.postgres.slot import SlotHealth
from cdc.store.connector_restarts import LIMIT, Restarts
from cdc.store.state_store import Store
from cdc.store.tables import restart_rows
from tests.unit.cdc.task_topics import Registry, Sender, Topics

BEHIND = {
    "messageType": "TRUNCATE",
    "lsn_events_processed": 2,
    "lsn_proc": 434,
    "lsn": 434,
    "lsn_commit": 400,
}


class Connect:
    """A worker with one connector.

    Args:
        stored: The connector's stored offset.
    """

    def __init__(self, stored: Mapping[str, Any] | None) -> None:
        self.stored = stored
        self.asked: list[str] = []

    def offset(self, _: str) -> Mapping[str, Any] | None:
        return self.stored

    def change_offset(
        self, _: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> None:
        assert self.stored is not None
        self.stored = change(self.stored)
        self.asked.append("change")

    def restart(self, _: str, *, only_failed: bool) -> None:
        self.asked.append("restart failed" if only_failed else "restart all")


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {},
        {**BEHIND, "lsn_events_processed": 1},
        {**BEHIND, "lsn_proc": 400},  # not all events of the statement are sent
        {**BEHIND, "messageType": "INSERT"},
        {"file": "binlog.000007", "pos": 154, "row": 2},
    ],
)
@pytest.mark.parametrize("only_failed", [True, False])
def test_a_connector_is_restarted_where_it_was(
    stored: Mapping[str, Any] | None, only_failed: bool
) -> None:
    connect = Connect(stored)
    restart(cast("Any", connect), "c", only_failed=only_failed)
    assert connect.asked == ["restart failed" if only_failed else "restart all"]


def test_a_connector_behind_a_truncate_of_several_tables_goes_on_after_it() -> None:
    connect = Connect(BEHIND)
    restart(cast("Any", connect), "c")
    assert connect.asked == ["change"]
    assert connect.stored == {**BEHIND, "lsn_events_processed": 1}
    restart(cast("Any", connect), "c")
    assert connect.asked == ["change", "restart failed"]


def test_a_run_lets_a_failed_connector_go_on_after_a_truncate(tmp_path: Path) -> None:
    connect, restarts = Connect(BEHIND), Restarts(Store(f"sqlite:///{tmp_path / 'state.db'}"))
    failed = FailedConnector("why", "what to do")
    restart_connector(cast("Any", connect), restarts, "c", failed, lambda: None)
    assert connect.asked == ["change"]


@pytest.mark.parametrize(
    ("cause", "goes_on"),
    [("Connection to db:5432 refused", True), ('column "x" does not exist', False)],
)
def test_only_a_connector_whose_source_is_away_is_restarted_beyond_the_limit(
    tmp_path: Path, cause: str, goes_on: bool
) -> None:
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    connect, failed = Connect(None), explained("c", f"a.b.SomeException: {cause}\n\tat x")
    with store.transaction() as connection:
        due = {"connector": "c", "times": LIMIT, "next_at": 0.0}
        connection.execute(sa.insert(restart_rows).values(due))
    found = restart_connector(cast("Any", connect), Restarts(store), "c", failed, lambda: None)
    assert connect.asked == (["restart failed"] if goes_on else [])
    assert found.given_up is not goes_on
    store.close()


NAMES = CaptureNames("shop", "default", "p", "s", "c", "shop", "postgres")
MOVED = SlotHealth(
    name="s",
    active=False,
    wal_status="reserved",
    confirmed_flush_lsn=Lsn(500),
    restart_lsn=Lsn(300),
    retained_bytes=0,
    safe_wal_size=None,
    end=Lsn(900),
    current=lambda: Lsn(900),
)


def look(
    connect: Connect,
    log: Callable[[], SlotHealth],
    *,
    exactly_once: bool,
    topics: Topics | None = None,
    store: Store | None = None,
) -> str | None:
    on_source, client = SimpleNamespace(log_health=log), cast("Any", connect)
    sent = SentRecords(
        cast("Any", store or SimpleNamespace(topics=lambda *_: [])),
        lambda: cast("Any", topics or Topics()),
        lambda: cast("Any", Registry()),
        exactly_once=exactly_once,
    )
    return lost_before_restart(cast("Any", on_source), client, NAMES, sent)


def test_a_connector_whose_slot_another_reader_has_moved_is_not_restarted(tmp_path: Path) -> None:
    """The connector would go on after the gap, and its next commit would hide the gap from runs."""
    connect, store = Connect(BEHIND), Store(f"sqlite:///{tmp_path / 'state.db'}")
    failed = FailedConnector("replication slot s is active", "what to do")
    found = restart_connector(
        cast("Any", connect),
        Restarts(store),
        "c",
        failed,
        lambda: look(connect, lambda: MOVED, exactly_once=False),
    )
    assert connect.asked == []
    assert "something other than the connector moved it" in found.reason
    assert found.remedy.startswith("Run `tributary run`, which marks the tables")
    assert found.given_up
    assert Restarts(store).claim("c").times == 1, "it is the first one"
    store.close()


@pytest.mark.parametrize(
    ("active", "exactly_once", "lost"),
    [(False, False, True), (False, True, True), (True, True, True), (True, False, False)],
)
def test_a_slot_that_is_read_is_compared_only_with_transactions(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    active: bool,
    exactly_once: bool,
    lost: bool,
) -> None:
    log, store = replace(MOVED, active=active), Store(f"sqlite:///{tmp_path / 'state.db'}")
    if exactly_once:
        with pytest.raises(KafkaError, match="can be late in Kafka"):
            look(Connect(BEHIND), lambda: log, exactly_once=True, store=store)
        monkeypatch.setattr("cdc.capture.sent_records.LATE_S", 0.0)
    found = look(Connect(BEHIND), lambda: log, exactly_once=exactly_once, store=store)
    assert (found is not None) is lost
    store.close()


def test_a_connector_whose_stored_position_became_older_is_restarted() -> None:
    sender = Sender()
    sender.send("a", 0, range(10, 700, 10))
    assert look(Connect(BEHIND), lambda: MOVED, exactly_once=False, topics=sender.topics) is None
    ahead = replace(MOVED, confirmed_flush_lsn=Lsn(690))
    assert look(Connect(BEHIND), lambda: ahead, exactly_once=False, topics=sender.topics)


def test_a_connector_is_restarted_while_its_source_does_not_answer(tmp_path: Path) -> None:
    """Only the restart shows when the connector reaches its source again."""

    def away() -> SlotHealth:
        raise SourceError("it is away", remedy="Wait.")

    assert look(Connect(BEHIND), away, exactly_once=True) is None
    kept = replace(MOVED, confirmed_flush_lsn=Lsn(400))
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    assert look(Connect(BEHIND), lambda: kept, exactly_once=True, store=store) is None
    store.close()
