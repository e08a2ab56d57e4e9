"""Table records for tests, as the state store holds them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from cdc.store.table_state import State, TableRecord
from schemas.table import TableId

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
ORDERS = TableId("shop", "public", "orders")


def table_record(
    table: TableId = ORDERS, state: State = State.INCREMENTAL, **facts: Any
) -> TableRecord:
    """A table record with the given facts; the others have default values."""
    known = {"base_path": "/lake/orders", "tier": "default", "topic": "t", "updated_at": NOW}
    return TableRecord(table, state, **(known | facts))
