"""Table records and attempts for tests, as the state store holds them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from cdc.store.attempt import Attempt, Chunk
from cdc.store.table_state import State, TableRecord
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from tests.handoffs import VIEW

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
ORDERS = TableId("shop", "public", "orders")


def table_record(
    table: TableId = ORDERS, state: State = State.INCREMENTAL, **facts: Any
) -> TableRecord:
    """A table record with the given facts; the others have default values."""
    known = {"base_path": "/lake/orders", "tier": "default", "topic": "t", "updated_at": NOW}
    return TableRecord(table, state, **(known | facts))


READY = Attempt(
    id=UUID(int=7),
    started_at=NOW,
    path="s3a://lake/orders/attempt=7",
    topic_id="topic",
    start_offsets={0: 5},
    marker_id=UUID(int=8),
    x0="900",
    chunks=(Chunk(0, None, ("5",), 10, 100),),
    view=VIEW,
    fingerprint=Fingerprint({"oid": 1}),
    reads_upto="0/16B3748",
    handoff_offsets={0: 9},
)
"""An attempt that has recorded all that its table needs to catch up."""
BEGAN = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
ATTEMPT = Attempt(UUID(int=1), BEGAN, "path", start_offsets={0: 1}, handoff_offsets={0: 2})
"""An attempt with no more than the offsets O and H."""
