"""Which former generations let the next one take their place."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from bootstrap.resync import lacks_changes
from cdc.errors import LostHistoryError, MissingTableError, SchemaChangeError
from cdc.store.table_state import Cause, State, TableRecord, transition
from schemas.errors import TributaryError
from schemas.table import TableId

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
FOLLOWED = TableRecord(
    table=TableId("shop", "public", "orders"),
    state=State.INCREMENTAL,
    base_path="/lake/orders",
    tier="default",
    topic="t",
    publication="p",
    updated_at=NOW,
)


@pytest.mark.parametrize(
    ("error", "lacks"),
    [(LostHistoryError, True), (MissingTableError, True), (SchemaChangeError, False)],
)
def test_a_loss_that_a_run_has_seen_outlives_what_caused_it(
    error: type[TributaryError], lacks: bool
) -> None:
    cause = Cause(reason="seen", error=error("seen", remedy=""))
    stopped = transition(FOLLOWED, State.NEEDS_BOOTSTRAP, at=NOW, cause=cause)
    assert (lacks_changes(FOLLOWED), lacks_changes(stopped)) == (False, lacks)
    unexplained = transition(FOLLOWED, State.NEEDS_BOOTSTRAP, at=NOW, cause=Cause(reason="asked"))
    assert lacks_changes(unexplained)
