"""Values that a run must read from the source by key, of rows that the source no longer has.

Apicurio's converter sends a nullable column's default instead of NULL. So a run reads each such
value from the source.
"""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from cdc.lake import key_lookup
from cdc.run import batch
from tests.integration.rigs.running import Orders, settings
from tests.integration.rigs.running import orders as orders
from tests.integration.rigs.running import shared as shared
from tests.integration.rigs.running import spark as spark

STATUS = "ALTER TABLE T ADD COLUMN status text DEFAULT 'new'"
LARGE = "ALTER TABLE T ALTER COLUMN body SET STORAGE EXTERNAL"


@pytest.mark.breadth
@settings(on_truncate="ignore")
def test_rows_that_an_ignored_truncate_took_before_the_run_stay_in_the_lake(orders: Orders) -> None:
    orders.execute(STATUS, "INSERT INTO T (id, note, price) VALUES (1, 'a', 1)")
    assert orders.run().error is None
    assert orders.lake("id", "status") == [(1, "new")]
    orders.execute(
        "UPDATE T SET price = 2 WHERE id = 1",
        "INSERT INTO T (id, note, price) VALUES (2, 'b', 2)",
        "TRUNCATE T",
    )
    assert orders.run().error is None
    # The source cannot say any more whether the status was NULL.
    assert orders.lake("id", "price", "status") == [(1, 2, None), (2, 2, None)]


@settings(on_truncate="ignore")
def test_an_unclear_value_of_one_row_costs_no_other_row_its_large_value(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table counts as large, so the files of the rows are found first."""
    monkeypatch.setattr(key_lookup, "_LARGE_BYTES", 0)
    read = Mock(wraps=key_lookup.rows_with_keys)
    monkeypatch.setattr(batch, "rows_with_keys", read)
    inserts = [
        f"INSERT INTO T (id, body, price, status) VALUES ({id}, repeat('x', 9000), 1, 'paid')"
        for id in (1, 2, 3)
    ]
    orders.execute(STATUS, LARGE, *inserts[:2])
    assert orders.run().error is None
    orders.execute(
        "UPDATE T SET price = 2 WHERE id = 1",
        "UPDATE T SET price = 2, status = 'new' WHERE id = 2",
        inserts[2],
        "UPDATE T SET status = 'new' WHERE id = 3",
        "TRUNCATE T",
    )
    assert orders.run().error is None
    found = orders.lake("id", "body", "price", "status")
    assert [call.kwargs["files_first"] for call in read.call_args_list] == [True]
    large = "x" * 9000
    assert found == [(1, large, 2, "paid"), (2, large, 2, None), (3, large, 1, None)]


@settings(delete_mode="soft")
def test_a_kept_deleted_row_never_shows_a_value_from_before_its_last_change(orders: Orders) -> None:
    orders.execute(
        STATUS,
        "INSERT INTO T (id, body, note, price, status) VALUES (1, 'a', 'n', 1, 'paid')",
        "INSERT INTO T (id, body, note, price, status) VALUES (2, 'b', 'n', 2, 'paid')",
    )
    assert orders.run().error is None
    orders.execute(
        "UPDATE T SET status = 'new' WHERE id = 1",
        "DELETE FROM T WHERE id = 1",
        "UPDATE T SET status = 'new' WHERE id = 2",
        "UPDATE T SET status = 'sent' WHERE id = 2",
        "DELETE FROM T WHERE id = 2",
    )
    assert orders.run().error is None
    assert orders.lake("id", "note", "status", "_cdc_deleted") == [
        (1, "n", None, True),
        (2, "n", "sent", True),
    ]
