"""How a failed connector is restarted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from cdc.capture.recovery import FailedConnector, explained, restart, restart_connector
from cdc.store.connector_restarts import LIMIT, Restarts
from cdc.store.state_store import Store
from cdc.store.tables import restart_rows

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
    restart_connector(cast("Any", connect), restarts, "c", FailedConnector("why", "what to do"))
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
    found = restart_connector(cast("Any", connect), Restarts(store), "c", failed)
    assert connect.asked == (["restart failed"] if goes_on else [])
    assert found.given_up is not goes_on
    store.close()
