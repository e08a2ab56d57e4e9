"""When an update can change the lake's key in one event, instead of a delete and an insert."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.config import TableSettings
from cdc.run.batch import has_own_key


@pytest.mark.parametrize(
    ("settings", "from_binlog", "own"),
    [
        ({}, False, False),
        ({"key_columns": ["a"]}, False, True),
        # The connector may have another key than the server: it has what statements say.
        ({}, True, True),
        ({"key_columns": ["a"]}, True, True),
        ({"mode": "append"}, True, False),
        ({"mode": "append"}, False, False),
    ],
)
def test_a_connector_of_a_binlog_may_have_another_key(
    settings: dict[str, Any], from_binlog: bool, own: bool
) -> None:
    assert has_own_key(TableSettings.model_validate(settings), from_binlog=from_binlog) is own
