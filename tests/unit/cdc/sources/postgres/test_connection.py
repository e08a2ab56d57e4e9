"""When a login to PostgreSQL is tried again, and when idle sessions make room for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from cdc.sources.postgres.connection import Connections

NO_ROOM = (
    "FATAL:  sorry, too many clients already",
    'FATAL:  too many connections for role "tributary_snapshot"',
    "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
    "FATAL:  no more connections allowed (max_client_conn)",
)
AWAY = ("connection refused", "FATAL:  the database system is starting up")
WRONG = ('FATAL:  password authentication failed for user "tributary_snapshot"',)


@pytest.mark.parametrize("text", [*NO_ROOM, *AWAY, *WRONG])
def test_idle_sessions_make_room_only_where_room_lacks(text: str) -> None:
    closed = list[object]()
    connections: Any = SimpleNamespace(_idle=SimpleNamespace(close=closed.append))
    again = Connections._can_try_again(
        cast("Connections", connections), psycopg.OperationalError(text)
    )
    assert again == (text not in WRONG)
    assert len(closed) == (text in NO_ROOM)
