"""Sessions on a real PostgreSQL server that several blocks use in turn."""

from __future__ import annotations

import psycopg
import pytest

from cdc.errors import SourceError
from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.own_session import OwnSession
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import source_config


@pytest.fixture
def connections(database: Database) -> Connections:
    return Connections(database.name, source_config(database))


def pid(session: OwnSession) -> int:
    return session.info.backend_pid


def test_the_next_block_of_a_login_uses_its_session_again(connections: Connections) -> None:
    seen = dict[bool, set[int]]()
    for on_replica in (False, True):
        for _ in range(3):
            with connections.open("snapshot", on_replica=on_replica) as session:
                seen.setdefault(on_replica, set()).add(pid(session))
        with connections.open("admin") as other:
            assert pid(other) not in seen[on_replica]
    assert [len(pids) for pids in seen.values()] == [1, 1]
    with connections.open("admin") as one, connections.open("admin") as another:
        assert pid(one) != pid(another)


def test_nothing_of_a_block_is_left_for_the_next(connections: Connections) -> None:
    facts = (
        "SELECT current_setting('statement_timeout'), current_setting('row_security'),"
        " current_setting('work_mem'), to_regclass('pg_temp.left_here') IS NULL,"
        " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'),"
        " (SELECT count(*) FROM pg_prepared_statements)"
    )
    with connections.open("admin", statement_timeout_s=7) as session:
        first, fresh = pid(session), session.execute(facts).fetchone()
        session.execute("SET statement_timeout = 1; SET row_security = on; SET work_mem = '1MB'")
        session.execute("CREATE TEMP TABLE left_here (id int)")
        session.execute("SELECT pg_advisory_lock(1)")
        session.execute("PREPARE left_here AS SELECT 1")
    with connections.open("admin", statement_timeout_s=7) as session:
        assert pid(session) == first
        assert session.execute(facts).fetchone() == fresh
    with connections.open("admin", statement_timeout_s=9) as session:
        assert session.execute("SHOW statement_timeout").fetchone() == ("9s",)


def test_a_session_that_is_not_as_new_is_closed(connections: Connections) -> None:
    pids = list[int]()
    with connections.open("admin") as session:
        pids.append(pid(session))
        session.close()

    def fail() -> None:
        with connections.open("admin") as session:
            pids.append(pid(session))
            session.execute("SELECT 1 / 0")

    with pytest.raises(SourceError, match="division by zero"):
        fail()
    with connections.open("admin") as session:
        pids.append(pid(session))
        session.execute("BEGIN")
    with connections.open("admin") as session:
        pids.append(pid(session))
        session.autocommit = False
    with connections.open("admin") as session:
        pids.append(pid(session))
        session.pgconn.send_query(b"SELECT pg_sleep(0.1)")
    with connections.open("admin") as session:
        pids.append(pid(session))
    assert len(set(pids)) == len(pids)


def test_a_session_that_the_server_ended_is_replaced(
    database: Database, connections: Connections
) -> None:
    with connections.open("admin") as session:
        ended = pid(session)
    with psycopg.connect(database.dsn()) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (ended,))
    with connections.open("admin") as session:
        assert pid(session) != ended
        assert session.execute("SELECT 1").fetchone() == (1,)
