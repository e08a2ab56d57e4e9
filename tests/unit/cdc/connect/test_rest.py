"""After which answers of a Connect worker the request is repeated."""

from __future__ import annotations

import pytest

from cdc.connect.rest import rebalancing


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (409, "Cannot complete request momentarily due to stale configuration", True),
        # A worker's own words, to GET connectors/NAME/config.
        (500, "Request cannot be completed because a rebalance is expected", True),
        (500, "Request timed out", False),
        (404, "Connector a not found", False),
    ],
)
def test_a_group_that_rebalances_is_asked_again(status: int, text: str, expected: bool) -> None:
    assert rebalancing(status, text) is expected
