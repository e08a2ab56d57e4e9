"""Waits for a PostgreSQL server that is gone are limited, and the user's own options are kept."""

from __future__ import annotations

from typing import Any

from cdc.config import PostgresSourceConfig
from cdc.sources.postgres.connection import Connections, connection_parameters
from cdc.sources.postgres.reader import jdbc_properties


def connections(**options: Any) -> Connections:
    document = {
        "primary": {"host": "db", "database": "shop", "options": options},
        "credentials": {"admin": {"user": "admin"}},
    }
    return Connections("shop", PostgresSourceConfig.model_validate(document))


def for_libpq(**options: Any) -> dict[str, Any]:
    opened = connections(**options)
    return connection_parameters(opened.endpoint(on_replica=False), opened.credential("admin"))


def for_jdbc(**options: Any) -> dict[str, str]:
    opened = connections(**options)
    return jdbc_properties(opened, opened.endpoint(on_replica=False))


def test_a_peer_that_is_gone_is_given_up_after_a_minute_and_a_half() -> None:
    found = for_libpq()
    probes = found["keepalives_interval"] * found["keepalives_count"]
    assert found["keepalives_idle"] + probes == 90
    assert found["tcp_user_timeout"] == 90_000


def test_the_users_own_limits_go_before_ours_and_not_before_the_login() -> None:
    found = for_libpq(tcp_user_timeout=5000, keepalives_count=2, user="other", host="other")
    assert found["tcp_user_timeout"] == "5000"
    assert found["keepalives_count"] == "2"
    assert (found["user"], found["host"]) == ("admin", "db")


def test_a_copy_waits_a_quarter_of_an_hour_for_the_next_rows_at_most() -> None:
    assert for_jdbc()["socketTimeout"] == "900"
    assert for_jdbc(gssencmode="disable")["gssEncMode"] == "disable"
