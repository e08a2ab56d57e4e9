"""Sessions on MySQL and MariaDB, and what their errors say."""

from __future__ import annotations

import pytest

from cdc.config import MysqlSourceConfig, parse
from cdc.errors import SourceError
from cdc.sources.mysql.connection import Connections, Session, quoted
from stack.mysql_software import MARIADB
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.mysql import MysqlDatabase
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack

pytestmark = pytest.mark.breadth


@pytest.fixture
def config(database: MysqlDatabase) -> MysqlSourceConfig:
    text = database.stack.config_text(database=database.name, kinds=[database.kind])
    (source,) = parse(text).sources.values()
    assert isinstance(source, MysqlSourceConfig)
    return source


@pytest.fixture
def connections(config: MysqlSourceConfig) -> Connections:
    return Connections("shop", config)


def test_every_role_logs_in_where_it_works(
    connections: Connections, database: MysqlDatabase
) -> None:
    for role in ("admin", "capture", "snapshot", "marker"):
        with connections.open(role) as session:  # type: ignore[arg-type]
            assert session.value("SELECT current_user()") == f"tributary_{role}@127.0.0.1"
            assert session.value("SELECT @@session.time_zone") == "+00:00"
    with connections.open("snapshot", on_replica=True) as session:
        assert session.named("SELECT @@server_id AS id, 'größe 😀' AS text") == [
            {"id": 2, "text": "größe 😀"}
        ]


def number(session: Session) -> int:
    return int(session.value("SELECT connection_id()"))


def one_look(connections: Connections, statement: str = "SELECT 1") -> int:
    with connections.look("admin") as session:
        session.rows(statement)
        return number(session)


def test_looks_of_a_series_use_one_session_and_others_log_in(
    connections: Connections, database: MysqlDatabase
) -> None:
    assert one_look(connections) != one_look(connections), "there is no series"
    with connections.series():
        first = one_look(connections)
        with connections.series(), connections.look("admin", statement_timeout_s=7) as session:
            assert number(session) == first
            limit = "max_statement_time" if session.kind == MARIADB else "max_execution_time"
            assert float(session.value(f"SELECT @@{limit}")) in (7, 7000)
            with connections.look("admin") as another, connections.look("snapshot") as other:
                assert len({first, number(another), number(other)}) == 3
        with connections.open("admin") as session:
            assert number(session) != first
    its_own = f"SELECT id FROM information_schema.processlist WHERE id = {first}"
    wait_until(lambda: not database.root(its_own), "the end of the session")


def test_a_session_that_failed_or_ended_is_not_used_again(
    connections: Connections, database: MysqlDatabase
) -> None:
    database.query("CREATE TABLE t (id int PRIMARY KEY)")
    with connections.series():
        first = one_look(connections)
        with pytest.raises(SourceError):
            one_look(connections, "SELECT nothing")
        second = one_look(connections, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        database.query("INSERT INTO t VALUES (1)")
        with connections.look("admin") as session:
            assert number(session) == second != first
            found = session.value(f"SELECT count(*) FROM {database.name}.t")
            assert found == 1, "it is in no transaction any more"
        database.root(f"KILL {second}")
        assert one_look(connections) not in (first, second)


def test_names_and_values_survive_whatever_they_hold(
    connections: Connections, database: MysqlDatabase
) -> None:
    name, value = "a `b` 'c' \"d\" %s", "back\\slash 'quote' 100 % é 😀"
    table = f"{database.name}.{quoted(name)}"
    with connections.open("admin") as session:
        session.rows(f"CREATE TABLE {table} (id int PRIMARY KEY, t varchar(99))")
        escaped = table.replace("%", "%%")
        session.rows(f"INSERT INTO {escaped} VALUES (%s, %s)", (1, value))
        assert session.rows(f"SELECT t FROM {table}") == [(value,)]


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("CREATE TABLE {name}.t (id int)", "Grant tributary_snapshot what it lacks"),
        ("SELECT nothing", "Look at the server's log"),
    ],
)
def test_a_refused_statement_says_where_and_what_to_do(
    connections: Connections, database: MysqlDatabase, statement: str, remedy: str
) -> None:
    place = r"primary 127\.0\.0\.1:\d+ of source shop"
    with (
        pytest.raises(SourceError, match=place) as error,
        connections.open("snapshot") as session,
    ):
        session.rows(statement.format(name=database.name))
    assert remedy in error.value.remedy


def test_writing_to_a_replica_says_which_server_takes_writes(
    config: MysqlSourceConfig, database: MysqlDatabase
) -> None:
    wrong = Connections("shop", config.model_copy(update={"primary": config.replica}))
    with pytest.raises(SourceError) as error, wrong.open("admin") as session:
        session.rows(f"CREATE TABLE {database.name}.t (id int)")
    assert "Point `primary` at the server that takes writes" in error.value.remedy


def test_a_statement_and_a_lock_have_their_limits(
    connections: Connections, database: MysqlDatabase
) -> None:
    table = f"{database.name}.t"
    # MySQL ends a sleep early without an error, so it has to be work.
    work = "SELECT count(*) FROM {0} a, {0} b, {0} c".format("information_schema.columns")
    with (
        pytest.raises(SourceError) as slow,
        connections.open("snapshot", statement_timeout_s=0.5) as session,
    ):
        session.rows(work)
    assert "reached its time limit" in slow.value.remedy
    with connections.open("admin") as holder:
        holder.rows(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        holder.rows(f"LOCK TABLES {table} WRITE")
        with (
            pytest.raises(SourceError) as locked,
            connections.open("admin", lock_timeout_s=1) as session,
        ):
            session.rows(f"SELECT * FROM {table}")
    assert "holds a lock" in locked.value.remedy


def test_a_wrong_login_and_a_wrong_kind_are_named(
    config: MysqlSourceConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG", "not-it")
    admin = config.credentials.admin
    nobody = admin.model_copy(update={"user": "nobody"})
    logins = config.credentials.model_copy(update={"admin": nobody})
    wrong = Connections("shop", config.model_copy(update={"credentials": logins}))
    with (
        pytest.raises(SourceError, match="as nobody: Access denied") as denied,
        wrong.open("admin"),
    ):
        pass
    assert admin.password is not None
    assert admin.password.resolve() not in str(denied.value.to_dict())

    other = "mysql" if config.kind == "mariadb" else "mariadb"
    mistaken = Connections("shop", config.model_copy(update={"kind": other}))
    with (
        pytest.raises(SourceError, match=f"its kind is set to {other}") as error,
        mistaken.open("snapshot"),
    ):
        pass
    assert f"kind to {config.kind}" in error.value.remedy


def test_tls_is_what_the_mode_asks_for(config: MysqlSourceConfig, database: MysqlDatabase) -> None:
    def cipher(mode: str) -> str:
        primary = config.primary.model_copy(update={"ssl_mode": mode})
        with Connections("s", config.model_copy(update={"primary": primary})).open("admin") as one:
            return str(one.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1])

    if database.kind == "mariadb":  # without certificates, as Debian's is
        assert cipher("preferred") == cipher("disabled") == ""
        with pytest.raises(SourceError, match="SSL"):
            cipher("required")
    else:
        assert cipher("preferred")
        assert cipher("required")
        with pytest.raises(SourceError, match="certificate"):
            cipher("verify_identity")
