"""Sessions on a real PostgreSQL server that several blocks use in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from cdc.config import PostgresSourceConfig
from cdc.errors import SourceError
from cdc.sources.postgres import connection, primary
from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.own_session import OwnSession
from cdc.sources.postgres.source import PostgresSource
from cdc.sources.servers import Role
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.proxy import Pooler, Proxy
from tests.integration.rigs.sources import capture_of, source_config


@pytest.fixture
def connections(database: Database) -> Connections:
    return Connections(database.name, source_config(database))


def kept(connections: Connections) -> bool:
    """Whether the login ``admin`` has an idle session, which is closed."""
    found = connections._idle.take(("admin", False))
    if found is not None:
        found[0].close()
    return found is not None


def pid(session: OwnSession) -> int:
    return session.info.backend_pid


def test_a_block_can_ask_for_a_new_session(connections: Connections) -> None:
    """It replaces one idle session; the others go on."""
    with connections.open("admin") as one, connections.open("admin") as another:
        before = {pid(one), pid(another)}
    with connections.open("admin", new_login=True) as session:
        new = pid(session)
    with connections.open("admin") as one, connections.open("admin") as another:
        now = {pid(one), pid(another)}
    assert new not in before
    assert new in now
    assert len(now & before) == 1


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


def test_the_server_compiles_no_query(connections: Connections) -> None:
    # JIT: compiling a fingerprint's query took two seconds of the primary's CPU time at each run.
    with connections.open("admin") as session:
        session.execute("SET jit_above_cost = 0")
        explained = "EXPLAIN (ANALYZE) SELECT sum(a.attnum + 1) FROM pg_attribute a"
        plan = [row[0] for row in session.execute(explained)]
    assert plan
    assert not [line for line in plan if "JIT" in line]


def test_nothing_of_a_block_is_left_for_the_next(connections: Connections) -> None:
    facts = (
        "SELECT current_setting('statement_timeout'), current_setting('row_security'),"
        " current_setting('work_mem'), to_regclass('pg_temp.left_here') IS NULL,"
        " (SELECT count(*) FROM pg_locks"
        " WHERE locktype = 'advisory' AND pid = pg_backend_pid()),"
        " (SELECT count(*) FROM pg_prepared_statements)"
    )
    with connections.open("admin", statement_timeout_s=7) as session:
        first, fresh = pid(session), session.execute(facts).fetchone()
        session.execute("SET statement_timeout = '11s'; SET row_security = on")
        session.execute("SET work_mem = '1MB'")
        session.execute("CREATE TEMP TABLE left_here (id int)")
        session.execute("SELECT pg_advisory_lock(1)")
        session.execute("PREPARE left_here AS SELECT 1")
    with connections.open("admin", statement_timeout_s=7) as session:
        assert pid(session) == first
        assert session.execute(facts).fetchone() == fresh
    with connections.open("admin", statement_timeout_s=9) as session:
        assert session.execute("SHOW statement_timeout").fetchone() == ("9s",)


def _end_it(session: OwnSession) -> None:
    session.close()


def _begin(session: OwnSession) -> None:
    session.execute("BEGIN")


def _leave_autocommit(session: OwnSession) -> None:
    session.autocommit = False


def _only_read(session: OwnSession) -> None:
    session.read_only = True


def _leave_a_statement(session: OwnSession) -> None:
    session.pgconn.send_query(b"SELECT pg_sleep(1)")


@pytest.mark.parametrize(
    "leave", [_end_it, _begin, _leave_autocommit, _only_read, _leave_a_statement]
)
def test_a_session_that_is_not_as_new_is_closed(
    connections: Connections, leave: Callable[[OwnSession], None]
) -> None:
    with connections.open("admin") as session:
        pass
    assert kept(connections)
    with connections.open("admin") as session:
        leave(session)
    assert session.closed
    assert not kept(connections)


def test_a_session_of_a_block_that_failed_is_closed(connections: Connections) -> None:
    opened = list[OwnSession]()

    def fail() -> None:
        with connections.open("admin") as session:
            opened.append(session)
            session.execute("SELECT 1 / 0")

    with pytest.raises(SourceError, match="division by zero"):
        fail()
    assert opened[0].closed
    assert not kept(connections)


def test_a_session_through_a_pooler_is_closed(database: Database) -> None:
    with Pooler(database.dsn()) as pooler:
        pooled = Connections(database.name, behind(pooler, database))
        with pooled.open("admin") as session:
            assert session.is_pooled
        assert session.closed
        assert not kept(pooled)


def behind(proxy: Proxy, database: Database) -> PostgresSourceConfig:
    """The database's source, with a proxy before the primary and no replica."""
    primary = source_config(database).primary
    moved = {"host": "127.0.0.1", "port": make_url(proxy.url).port}
    return source_config(database, primary={**primary.model_dump(), **moved}, replica=None)


def test_a_server_that_no_longer_answers_holds_up_no_block(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that still answers hides from TCP that the server behind it is gone."""
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 2)
    with Proxy(database.dsn()) as proxy:
        connections = Connections(database.name, behind(proxy, database))
        with connections.open("admin") as session:
            first = pid(session)
        proxy.stall()
        threading.Timer(4, proxy.go_on).start()
        with connections.open("admin") as session:
            assert pid(session) != first


def test_no_session_of_another_server_is_used_again(database: Database) -> None:
    with Proxy(database.dsn()) as proxy:
        source = PostgresSource(database.name, behind(proxy, database))
        assert not source.identity().in_recovery
        connections = source._connections
        with connections.open("snapshot") as one, connections.open("snapshot") as another:
            pass
        with connections.open("snapshot") as busy:
            (idle,) = {one, another} - {busy}
            proxy.lead_to(database.dsn(replica=True))
            assert not idle.closed
            assert source.identity().in_recovery, "this question logs in"
            assert idle.closed
            assert not busy.closed
        assert busy.closed
        with connections.open("snapshot") as session:
            assert session.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)


def test_a_session_that_was_kept_too_late_is_not_used_again(connections: Connections) -> None:
    """A block can end just after a login has reached another server and closed idle sessions."""
    with connections.open("admin") as session:
        first = pid(session)
    connections._server_since[False] = 1.0
    with connections.open("admin") as session:
        assert pid(session) != first


@pytest.mark.parametrize("ask", [PostgresSource.identity, PostgresSource.write_marker])
def test_a_question_about_the_server_logs_in(
    database: Database, ask: Callable[[PostgresSource], object]
) -> None:
    source = PostgresSource(database.name, source_config(database))
    capture_of(source).prepare()
    logins = list[str]()
    connect = source._connections._connect

    def counted(role: Role, **more: Any) -> OwnSession:
        logins.append(role)
        return connect(role, **more)

    source._connections._connect = counted
    for _ in range(2):
        ask(source)
    assert len(logins) == 2


@pytest.mark.parametrize("on_replica", [False, True])
def test_the_identity_of_a_server_is_one_statement(
    connections: Connections, monkeypatch: pytest.MonkeyPatch, on_replica: bool
) -> None:
    asked, execute = list[object](), psycopg.Cursor.execute

    def counted(cursor: Any, query: Any, *values: Any, **named: Any) -> Any:
        asked.append(query)
        return execute(cursor, query, *values, **named)

    with connections.open("snapshot", on_replica=on_replica) as session:
        monkeypatch.setattr(psycopg.Cursor, "execute", counted)
        found = primary.identity(session)
        assert len(asked) == 1
        assert found.in_recovery is on_replica
        assert found.system_identifier
        assert found.timeline == 1
        # As on a server that withholds one of the functions.
        monkeypatch.setattr(primary, "_IDENTITY", "SELECT pg_catalog.withheld()")
        assert primary.identity(session) == found


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
