"""When a primary applies changes of other servers without writing them to its binlog."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cdc.sources.mysql.connection import Session
from cdc.sources.mysql.replicated_changes import unlogged

NO_SERVER = cast(Session, cast(Any, None))
"""Stands for a session in tests where the settings alone decide, so no server is asked."""


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({"log_slave_updates": "OFF", "wsrep_on": "ON"}, "a node of a Galera cluster"),
        ({"log_slave_updates": "ON", "wsrep_on": "ON"}, None),
        # MySQL shows both names of the one setting.
        ({"log_replica_updates": "ON", "log_slave_updates": "ON"}, None),
    ],
)
def test_a_node_of_galera_logs_what_other_nodes_write_or_is_refused(
    variables: dict[str, str], refused: str | None
) -> None:
    found = unlogged(NO_SERVER, "mariadb", variables)
    assert found == refused if refused is None else refused in (found or "")
