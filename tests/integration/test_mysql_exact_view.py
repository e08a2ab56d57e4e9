"""Sessions that open while a replica's applier is stopped share one view at a known position."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pymysql
import pytest

from cdc.config import TableSettings
from cdc.errors import ReplicaError, SnapshotLostError
from cdc.runtime.progress import NullProgress
from cdc.sources.mysql.lock_gate import Gate
from cdc.sources.mysql.reader import session_init
from cdc.sources.mysql.source import MysqlSource
from cdc.sources.source_facts import KeyRange
from cdc.sources.views import View
from schemas.table import TableId
from stack.roles import SNAPSHOT
from tests.integration.rigs.bootstrapping import Watch
from tests.integration.rigs.mysql import MysqlDatabase
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_lab import Lab
from tests.integration.rigs.mysql_lab import lab as lab
from tests.integration.rigs.sources import capture_of

pytestmark = pytest.mark.breadth

SESSIONS = 4


@pytest.fixture
def source(lab: Lab) -> Iterator[MysqlSource]:
    lab.database.let_pause()
    source = MysqlSource(lab.connections.source, lab.connections.config)
    capture_of(source, "of nobody").prepare()
    lab.database.catch_up()
    yield source
    assert not source.replay_paused(), "the replica's applier is stopped"


@contextmanager
def resuming(source: MysqlSource) -> Iterator[None]:
    try:
        yield
    finally:
        source.resume_replay()


def opened(
    source: MysqlSource,
    *,
    sessions: int = SESSIONS,
    timeout_s: float = 60.0,
    progress: Any = None,
    around: Callable[[MysqlSource], AbstractContextManager[None]] = resuming,
) -> AbstractContextManager[View]:
    return source.open_exact_view(
        source.write_marker(),
        sessions=sessions,
        from_primary=False,
        resuming=lambda: around(source),
        timeout_s=timeout_s,
        progress=progress or NullProgress(),
    )


def seen(database: MysqlDatabase, view: View, go_on: threading.Event, query: str) -> list[Any]:
    """The rows that a session of the view reads long after it has opened."""
    with database.connect(SNAPSHOT, replica=True) as connection, connection.cursor() as cursor:
        for statement in session_init(view, database.kind).split("; "):
            cursor.execute(statement)
        assert go_on.wait(60)
        cursor.execute(query)
        return list(cursor.fetchall())


@contextmanager
def writing(database: MysqlDatabase) -> Iterator[None]:
    """Run transactions, while a block runs, each of which changes two rows in the same way."""
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with database.begin() as connection, connection.cursor() as cursor:
                cursor.execute("UPDATE twins SET n = n + 1")
                connection.commit()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            yield
        finally:
            stop.set()
        writer.result(30)


def test_all_sessions_see_exactly_what_s_contains(lab: Lab, source: MysqlSource) -> None:
    database = lab.database
    lab.make(
        "twins", "CREATE TABLE twins (id int PRIMARY KEY, n int, gtid text)",
        "INSERT INTO twins VALUES (1, 0, ''), (2, 0, '')",
    )  # fmt: skip
    go_on = threading.Event()
    with writing(database), ThreadPoolExecutor(SESSIONS) as pool, opened(source) as view:
        waiting = [
            pool.submit(seen, database, view, go_on, "SELECT n FROM twins ORDER BY id")
            for _ in range(SESSIONS)
        ]
        assert view.split is not None
        split = view.split.known()
        assert not source.replay_paused(), "it goes on while the sessions read"
        later = source.position(database.position())
        database.catch_up()
        go_on.set()
        images = [one.result(60) for one in waiting]
    assert len({tuple(image) for image in images}) == 1, images
    (first,), (second,) = images[0]
    assert first == second
    assert later.reaches(split)
    assert not split.reaches(later), "there were commits since"


def test_a_session_that_comes_late_gives_up(lab: Lab, source: MysqlSource) -> None:
    go_on = threading.Event()
    go_on.set()
    with opened(source, sessions=1) as view:
        assert seen(lab.database, view, go_on, "SELECT 1") == [(1,)]
        assert view.split is not None
        view.split.known()
        with pytest.raises(pymysql.MySQLError, match="more than 1 row"):
            seen(lab.database, view, go_on, "SELECT 1")


def test_where_not_all_come_nothing_is_stopped_and_the_remedy_is_named(
    lab: Lab, source: MysqlSource
) -> None:
    go_on = threading.Event()

    @contextmanager
    def never(_: MysqlSource) -> Iterator[None]:
        raise AssertionError("the replica was stopped")
        yield

    with (
        ThreadPoolExecutor(1) as pool,
        opened(source, sessions=2, timeout_s=3.0, around=never) as view,
    ):
        only = pool.submit(seen, lab.database, view, go_on, "SELECT 1")
        assert view.split is not None
        with pytest.raises(ReplicaError, match="1 of the 2 sessions") as raised:
            view.split.known()
        assert "parallel_chunks" in raised.value.remedy
        assert isinstance(only.exception(60), pymysql.MySQLError), "and it does not wait for ever"


def test_a_replica_that_was_let_go_on_meanwhile_gives_no_view(
    lab: Lab, source: MysqlSource
) -> None:
    go_on = threading.Event()
    go_on.set()

    @contextmanager
    def with_somebody(of: MysqlSource) -> Iterator[None]:
        with resuming(of):
            yield

    started = threading.Event()
    genuine = Gate.open

    def meddled(gate: Gate, session: Any) -> None:
        lab.database.root("START REPLICA SQL_THREAD", replica=True)
        started.set()
        genuine(gate, session)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gate, "open", meddled)
        with (
            ThreadPoolExecutor(1) as pool,
            opened(source, sessions=1, around=with_somebody) as view,
        ):
            pool.submit(seen, lab.database, view, go_on, "SELECT 1")
            assert view.split is not None
            with pytest.raises(ReplicaError, match="ran while the sessions took their views"):
                view.split.known()
    assert started.is_set()


def test_an_applier_that_an_operator_stops_meanwhile_is_not_started(
    lab: Lab, source: MysqlSource
) -> None:
    @contextmanager
    def just_after_somebody(of: MysqlSource) -> Iterator[None]:
        lab.database.root("STOP REPLICA SQL_THREAD", replica=True)
        with resuming(of):
            yield

    go_on = threading.Event()
    go_on.set()
    try:
        with (
            ThreadPoolExecutor(1) as pool,
            opened(source, sessions=1, around=just_after_somebody) as view,
        ):
            pool.submit(seen, lab.database, view, go_on, "SELECT 1")
            assert view.split is not None
            with pytest.raises(ReplicaError, match="is stopped, and not by Tributary"):
                view.split.known()
        assert source.replay_paused()
        kept = lab.database.root("SELECT info FROM information_schema.PROCESSLIST", replica=True)
        assert not [row for row in kept if "DO SLEEP" in str(row)], "nor 20 s later"
    finally:
        lab.database.root("START REPLICA SQL_THREAD", replica=True)


def test_another_channel_that_is_stopped_stays_so(lab: Lab, source: MysqlSource) -> None:
    if lab.kind != "mysql":
        pytest.skip("on MariaDB, the statements concern the default connection only")
    other = "FOR CHANNEL 'other'"
    port = lab.database.stack.addresses().ports[lab.kind]
    there = f"SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}"
    lab.database.root(f"CHANGE REPLICATION SOURCE TO {there} {other}", replica=True)

    def states() -> dict[str, str]:
        query = (
            "SELECT CHANNEL_NAME, SERVICE_STATE FROM performance_schema.replication_applier_status"
        )
        return dict(lab.database.root(query, replica=True))

    go_on = threading.Event()
    go_on.set()
    try:
        assert states() == {"": "ON", "other": "OFF"}
        with ThreadPoolExecutor(1) as pool, opened(source, sessions=1) as view:
            read = pool.submit(seen, lab.database, view, go_on, "SELECT 1")
            assert view.split is not None
            view.split.known()
            assert read.result(60) == [(1,)]
        assert states() == {"": "ON", "other": "OFF"}
    finally:
        lab.database.root(f"STOP REPLICA {other}", f"RESET REPLICA ALL {other}", replica=True)


@pytest.mark.parametrize("statement", ["ALTER TABLE held ADD INDEX by_n (n)", "DROP TABLE held"])
def test_a_statement_that_waits_for_the_sessions_ends_them(
    lab: Lab, source: MysqlSource, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """If the sessions did not end, replication would stop for as long as the copy reads."""
    monkeypatch.setattr("cdc.sources.mysql.lock_watch.WATCH_S", 0.5)
    database = lab.database
    lab.make(
        "held", "CREATE TABLE held (id int PRIMARY KEY, n int)", "INSERT INTO held VALUES (1, 1)"
    )
    table = source.table(TableId(source.name, database.name, "held"))
    schema = source.schema(table, TableSettings())
    reading, go_on = threading.Event(), threading.Event()

    def read(view: View) -> None:
        with database.connect(SNAPSHOT, replica=True) as connection, connection.cursor() as cursor:
            for one in session_init(view, database.kind).split("; "):
                cursor.execute(one)
            cursor.execute(f"SELECT * FROM {database.name}.held")
            assert list(cursor.fetchall()) == [(1, 1)]
            reading.set()
            assert go_on.wait(90)
            cursor.execute(f"SELECT * FROM {database.name}.held")

    with ThreadPoolExecutor(1) as pool, opened(source, sessions=1) as view:
        source.snapshot_query(table, schema, [KeyRange(None, None)], view=view)
        session = pool.submit(read, view)
        assert view.split is not None
        view.split.known()
        assert reading.wait(60)
        database.execute(statement)
        database.catch_up()
        go_on.set()
        assert isinstance(session.exception(60), pymysql.MySQLError)
        error = source.read_failure(table.table, "org.mariadb.jdbc: (conn=7) killed", view)
        assert isinstance(error, SnapshotLostError)
        assert f"waited for the sessions that read table {table.table}" in error.message
        # MySQL does not show what its applier executes.
        shown = f"{statement.split()[0]} TABLE" if lab.kind == "mariadb" else "such as ALTER TABLE"
        assert shown in error.message
        assert error.remedy.startswith("Run the command again")


def test_a_session_that_reads_while_other_tables_are_altered_goes_on(
    lab: Lab, source: MysqlSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc.sources.mysql.lock_watch.WATCH_S", 0.2)
    database = lab.database
    lab.make("held", "CREATE TABLE held (id int PRIMARY KEY, n int)")
    lab.make("free", "CREATE TABLE free (id int PRIMARY KEY, n int)")
    table = source.table(TableId(source.name, database.name, "held"))
    schema = source.schema(table, TableSettings())
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as pool, opened(source, sessions=1) as view:
        source.snapshot_query(table, schema, [KeyRange(None, None)], view=view)
        session = pool.submit(
            seen, database, view, go_on, f"SELECT count(*) FROM {database.name}.held"
        )
        assert view.split is not None
        view.split.known()
        database.execute("ALTER TABLE free ADD INDEX by_n (n)", "DROP TABLE free")
        database.catch_up()
        threading.Event().wait(2)
        go_on.set()
        assert session.result(60) == [(0,)]
        assert view.split.failure() is None


def test_without_the_right_the_statement_that_grants_it_is_named(
    lab: Lab, source: MysqlSource
) -> None:
    assert source.exact_view_obstacle(from_primary=False) is None
    right = "REPLICATION_SLAVE_ADMIN" if lab.kind == "mysql" else "REPLICATION SLAVE ADMIN"
    lab.database.root(f"REVOKE {right} ON *.* FROM {SNAPSHOT}@'127.0.0.1'")
    lab.database.catch_up()
    try:
        obstacle = source.exact_view_obstacle(from_primary=False)
        assert obstacle is not None
        told = re.search(r"GRANT [^;]+", obstacle[1])
        assert told
        assert told[0] == f"GRANT {right} ON *.* TO '{SNAPSHOT}'@'127.0.0.1'"
        lab.database.root(told[0])
        lab.database.catch_up()
        assert source.exact_view_obstacle(from_primary=False) is None
    finally:
        lab.database.let_pause()


def test_the_primary_gives_no_such_view(source: MysqlSource) -> None:
    obstacle = source.exact_view_obstacle(from_primary=True)
    assert obstacle is not None
    assert "Set `replica`" in obstacle[1]


def test_waits_are_shown(lab: Lab, source: MysqlSource) -> None:
    started: list[str] = []
    watch = Watch(on_start={"open 1 sessions at once": lambda: started.append("shown")})
    go_on = threading.Event()
    go_on.set()
    with opened(source, sessions=1, progress=watch) as view:
        assert seen(lab.database, view, go_on, "SELECT 1") == [(1,)]
    assert started == ["shown"]
