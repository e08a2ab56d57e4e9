"""The local stack's MySQL and MariaDB do what the product and the tests rely on."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pymysql
import pytest

from stack.errors import StackError
from stack.local import LocalStack
from stack.mysql_software import MARIADB, MYSQL, PRODUCTS
from stack.ports import HOST
from stack.roles import ADMIN, CAPTURE, MARKER, SNAPSHOT
from tests.integration.rigs.mysql import MysqlDatabase, capture, mysql_stack_of, own_mysql_database
from tests.integration.rigs.servers import consume, leaks, pids, processes_in

pytestmark = pytest.mark.breadth


@pytest.fixture(scope="module")
def mysql_stack(pytestconfig: pytest.Config) -> Iterator[LocalStack]:
    """A stack with MariaDB, and with MySQL if it is available."""
    with mysql_stack_of(pytestconfig) as running:
        yield running


@pytest.fixture(params=list(PRODUCTS))
def kind(request: pytest.FixtureRequest, mysql_stack: LocalStack) -> str:
    """Each kind of server; tests are skipped for a kind that the stack does not have."""
    if request.param not in mysql_stack.versions():
        pytest.skip(f"no {PRODUCTS[request.param].title} on this machine; see the report's end")
    return str(request.param)


@pytest.fixture
def database(mysql_stack: LocalStack, kind: str) -> Iterator[MysqlDatabase]:
    with own_mysql_database(mysql_stack, kind) as created:
        yield created


def test_every_server_is_healthy_and_up_again_changes_nothing(
    mysql_stack: LocalStack, kind: str
) -> None:
    before = {server.name: server for server in mysql_stack.status()}
    for name in (kind, f"{kind}_replica"):
        assert before[name].state == "healthy"
        assert before[name].memory_bytes > 10 * 2**20
    mysql_stack.up(sources=[kind])
    assert pids(mysql_stack) == {name: server.pid for name, server in before.items()}


def test_the_servers_are_set_up_for_capture(database: MysqlDatabase) -> None:
    for replica in (False, True):
        row = database.query(
            "SELECT @@binlog_format, @@binlog_row_image, @@log_bin, @@binlog_expire_logs_seconds,"
            " @@time_zone",
            replica=replica,
        )
        assert row == [("ROW", "FULL", 1, 2592000, "+00:00")]
    assert database.query("SELECT @@read_only", replica=True) == [(1,)]
    ids = [database.query("SELECT @@server_id", replica=replica) for replica in (False, True)]
    assert ids == [[(1,)], [(2,)]]


def test_a_row_reaches_the_replica_under_the_primarys_gtid(database: MysqlDatabase) -> None:
    database.query("CREATE TABLE t (id int PRIMARY KEY, note varchar(20))")
    before = database.position()
    database.query("INSERT INTO t VALUES (1, 'größe')")
    assert database.position() != before
    database.catch_up()
    assert database.query("SELECT * FROM t", SNAPSHOT, replica=True) == [(1, "größe")]
    name = "gtid_executed" if database.kind == MYSQL else "gtid_binlog_pos"
    assert database.root(f"SELECT @@global.{name}", replica=True) == [(database.position(),)]
    with pytest.raises(pymysql.MySQLError, match=r"read.only"):
        database.query("INSERT INTO t VALUES (2, '')", replica=True)


@pytest.mark.parametrize("which", ["", "_replica"], ids=["primary", "replica"])
def test_a_killed_server_is_reported_and_comes_back_where_it_was(
    database: MysqlDatabase, which: str
) -> None:
    stack, name = database.stack, f"{database.kind}{which}"
    before = {server.name: server for server in stack.status()}
    database.query("CREATE TABLE t (id int PRIMARY KEY)")
    database.query("INSERT INTO t VALUES (1)")
    stack.server(name).kill()

    dead = {server.name: server for server in stack.status()}[name]
    assert (dead.state, dead.pid) == ("dead", None)
    assert "ended by itself" in dead.detail
    assert dead.detail.splitlines()[-1] in (stack.folder / "logs" / f"{name}.log").read_text()

    after = {server.name: server for server in stack.up()}
    assert {after[one].state for one in before} == {"healthy"}
    assert after[name].pid != before[name].pid
    assert {one: after[one].port for one in before} == {one: before[one].port for one in before}
    database.query("INSERT INTO t VALUES (2)")
    database.catch_up()
    assert database.query("SELECT id FROM t ORDER BY id", replica=True) == [(1,), (2,)]


def test_no_role_of_the_product_has_a_right_that_it_does_not_need(database: MysqlDatabase) -> None:
    rows = database.root(
        "SELECT grantee, group_concat(privilege_type ORDER BY privilege_type)"
        " FROM information_schema.user_privileges WHERE grantee LIKE '''tributary%'"
        " GROUP BY grantee"
    )
    if database.kind == MYSQL:
        watch, read = "REPLICATION CLIENT", "REPLICATION CLIENT,REPLICATION SLAVE"
        audit = "PROCESS,REPLICATION CLIENT,XA_RECOVER_ADMIN"
    else:
        watch, read = "BINLOG MONITOR,SLAVE MONITOR", "BINLOG MONITOR,REPLICATION SLAVE"
        audit = "BINLOG MONITOR,PROCESS"
    assert dict(rows) == {
        f"'{role}'@'{HOST}'": rights
        for role, rights in ((ADMIN, audit), (CAPTURE, read), (SNAPSHOT, watch), (MARKER, "USAGE"))
    }
    database.query("CREATE TABLE t (id int PRIMARY KEY)")
    for role in (CAPTURE, SNAPSHOT):
        assert database.query("SELECT * FROM t", role) == []
        with pytest.raises(pymysql.MySQLError, match="denied"):
            database.query("INSERT INTO t VALUES (1)", role)
    with pytest.raises(pymysql.MySQLError, match="denied"):
        database.query("SELECT 1", MARKER)


def test_debezium_captures_changes_with_their_gtids(database: MysqlDatabase) -> None:
    database.query("CREATE TABLE goods (id int PRIMARY KEY, title varchar(50))")
    database.query("INSERT INTO goods VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    topic = capture(database, "goods")
    consume(database.stack, topic, 3)  # the snapshot: from here on, changes come from the binlog
    database.query("UPDATE goods SET title = 'zwei' WHERE id = 2")
    *_, (key, value) = consume(database.stack, topic, 4)
    texts = []
    for message in (key, value):
        assert message[0] == 0
        url = database.stack.addresses().registry_url
        schema_id = int.from_bytes(message[1:5], "big")
        answer = httpx.get(f"{url}/schemas/ids/{schema_id}", timeout=30).raise_for_status()
        texts.append(json.loads(answer.json()["schema"]))
    assert f"{texts[0]['namespace']}.{texts[0]['name']}" == f"{topic}.Key"
    assert b"two" in value
    assert b"zwei" in value
    # Its GTID: the last one of the primary, which nobody else writes to.
    executed = database.position()
    gtid = executed if database.kind == MARIADB else executed.split(":")[0]
    assert gtid.encode() in value


def test_no_password_leaves_its_file(mysql_stack: LocalStack) -> None:
    assert leaks(mysql_stack) == []
    for file in mysql_stack.passwords.folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


@pytest.fixture
def other(tmp_path: Path) -> Iterator[LocalStack]:
    """A second stack, not yet up."""
    second = LocalStack(tmp_path / "other")
    yield second
    second.down(delete=True)
    assert not second.folder.exists()


def test_down_leaves_no_process_and_up_finds_the_data_on_another_port(
    mysql_stack: LocalStack, other: LocalStack
) -> None:
    started = {server.name: server for server in other.up(sources=[MARIADB])}
    assert list(started) == ["mariadb", "mariadb_replica", "kafka", "registry", "connect"]
    assert {server.state for server in started.values()} == {"healthy"}
    mine = pids(mysql_stack)
    with pytest.raises(StackError) as lacking:
        other.psql("SELECT 1")
    assert "--source postgres" in lacking.value.remedy
    other.mysql(MARIADB, "CREATE TABLE t (id int PRIMARY KEY)", database="shop")

    other.down()

    assert processes_in(other.folder) == []
    assert {server.state for server in other.status()} == {"stopped"}
    assert pids(mysql_stack) == mine

    with socket.socket() as squatter:
        # As servers do: connections of the server that was there in TIME_WAIT do not count.
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind((HOST, started["mariadb"].port))
        squatter.listen()
        after = {server.name: server for server in other.up()}
    # The folder is closed to the user who runs it, and MariaDB still finds its own files again.
    assert "moved table" not in (other.folder / "logs" / "mariadb.log").read_text()
    assert {server.state for server in after.values()} == {"healthy"}
    assert after["mariadb"].port != started["mariadb"].port
    other.mysql(MARIADB, "INSERT INTO t VALUES (1)", database="shop")
    deadline = time.monotonic() + 60
    while not (rows := rows_of(other)):
        assert time.monotonic() < deadline, "the replica does not follow to the new port"
        time.sleep(0.1)
    assert rows == [(1,)]


def rows_of(stack: LocalStack) -> list[tuple[Any, ...]]:
    return stack.mysql(MARIADB, "SELECT id FROM t", database="shop", replica=True)
