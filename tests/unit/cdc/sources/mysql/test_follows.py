"""Whether a replica follows the primary directly, as it must on servers without GTIDs."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.sources.mysql.checks import follows_another

PRIMARY = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
RELAY = "4f22fb58-82db-22f2-af44-d91bba530673"


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        ({"source_uuid": PRIMARY}, None),
        ({"source_uuid": PRIMARY.upper()}, None),
        # A replica of a replica: its places are those of the replica's binlog.
        ({"source_uuid": RELAY, "source_host": "relay", "source_port": 3306}, "follows relay:3306"),
        ({"source_uuid": "", "source_host": "db1", "source_port": 3306}, "not connected yet"),
        ({}, "not connected yet"),
    ],
)
def test_only_a_replica_of_the_primary_itself_will_do(
    status: dict[str, Any], refused: str | None
) -> None:
    found = follows_another(status, PRIMARY)
    assert found == refused if refused is None else refused in (found or "")
