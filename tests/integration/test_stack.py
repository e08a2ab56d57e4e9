"""The local stack does what the product and the tests rely on."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from stack.errors import ServerDiedError
from stack.local import LocalStack
from stack.roles import CAPTURE, SNAPSHOT
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.servers import (
    connect_rest,
    consume,
    converters,
    leaks,
    pids,
    processes_in,
)

SERVERS = ["primary", "replica", "kafka", "registry", "connect"]


def register(stack: LocalStack, subject: str) -> int:
    """Register a schema under the subject; returns its id."""
    schema = {"type": "record", "name": "R" + subject, "fields": []}
    answer = httpx.post(
        f"{stack.addresses().registry_url}/subjects/{subject}-value/versions",
        json={"schema": json.dumps(schema)},
        timeout=30,
    )
    return int(answer.raise_for_status().json()["id"])


def schema_of(stack: LocalStack, schema_id: int) -> str:
    url = f"{stack.addresses().registry_url}/schemas/ids/{schema_id}"
    return str(httpx.get(url, timeout=30).raise_for_status().json()["schema"])


def test_every_server_is_healthy_and_up_again_changes_nothing(stack: LocalStack) -> None:
    # Others are there when a test before has asked for them, or the stack is a kept one.
    before = [server for server in stack.status() if server.name in SERVERS]
    assert [server.name for server in before] == SERVERS
    assert [server.state for server in before] == ["healthy"] * len(SERVERS)
    assert all(server.memory_bytes > 10 * 2**20 for server in before)

    stack.up()

    after = pids(stack)
    assert {server.name: after[server.name] for server in before} == {
        server.name: server.pid for server in before
    }


def test_the_exports_lead_to_primary_and_replica(stack: LocalStack) -> None:
    env = stack.env()
    mark = uuid.uuid4().hex
    with psycopg.connect(env["TRIBUTARY_PRIMARY_DSN"], autocommit=True) as primary:
        primary.execute(f"CREATE TABLE t{mark} (id int)".encode())
        with psycopg.connect(env["TRIBUTARY_REPLICA_DSN"], autocommit=True) as replica:
            assert replica.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
            deadline = time.monotonic() + 30
            while replica.execute("SELECT to_regclass(%s)", [f"t{mark}"]).fetchone() == (None,):
                assert time.monotonic() < deadline, "the replica does not follow"
                time.sleep(0.05)
        primary.execute(f"DROP TABLE t{mark}".encode())


def test_no_role_of_the_product_is_a_superuser(stack: LocalStack) -> None:
    roles = stack.psql(
        "SELECT rolname, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls"
        " FROM pg_roles WHERE rolname LIKE 'tributary%' ORDER BY 1"
    )
    assert roles.splitlines() == [
        "tributary_admin|f|f|f|t|f",
        "tributary_capture|f|f|f|t|f",
        "tributary_marker|f|f|f|f|f",
        "tributary_snapshot|f|f|f|f|f",
    ]


def test_nobody_else_reads_the_rows_that_pass_through_the_stack(stack: LocalStack) -> None:
    closed = ("run", "logs", "secrets", "kafka", "registry", "connect")
    folders = [*(stack.folder / name for name in closed), stack.folder / "postgres" / "primary"]
    for path in folders:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_connect_tells_nothing_to_who_does_not_log_in(stack: LocalStack) -> None:
    addresses = stack.addresses()
    kind = "io.debezium.connector.postgresql.PostgresConnector"
    path = f"/connector-plugins/{kind}/config/validate"
    reference = f"${{directory:{stack.passwords.folder}:{CAPTURE}.password}}"
    # A wrong value is repeated in the answer, after the reference is resolved.
    asked = {"connector.class": kind, "name": "x", "errors.retry.timeout": reference}
    for login in (None, (addresses.connect_login[0], "wrong")):
        # A refused PUT's connection is closed unread by the server: each request has its own.
        alone = {"Connection": "close"}
        url = addresses.connect_url
        with httpx.Client(base_url=url, auth=login, headers=alone, timeout=60) as stranger:
            answers = [stranger.put(path, json=asked), *map(stranger.get, ("/", "/admin/loggers"))]
        assert not any(stack.passwords.get(CAPTURE) in answer.text for answer in answers)
        assert {answer.status_code for answer in answers} == {401}
    with connect_rest(stack) as connect:
        answer = connect.put(path, json=asked)
    assert stack.passwords.get(CAPTURE) in answer.text, "the question has become harmless"


def test_a_killed_server_is_reported_and_comes_back_where_it_was(stack: LocalStack) -> None:
    before = {server.name: server for server in stack.status()}
    stack.server("primary").kill()

    dead = {server.name: server for server in stack.status()}["primary"]
    assert dead.state == "dead"
    assert dead.pid is None
    assert "ended by itself" in dead.detail
    tail = dead.detail.splitlines()[-1]
    assert "[" in tail, "a line of the server's log, which begins with time and process"
    assert tail in (stack.folder / "logs" / "primary.log").read_text()

    after = {server.name: server for server in stack.up()}
    assert after["primary"].state == "healthy"
    assert after["primary"].pid != before["primary"].pid
    assert {name: server.port for name, server in after.items()} == {
        name: server.port for name, server in before.items()
    }


@pytest.mark.breadth
def test_schema_ids_survive_a_crash_of_the_registry(stack: LocalStack) -> None:
    for _ in range(3):
        subject = uuid.uuid4().hex
        schema_id = register(stack, subject)
        stack.server("registry").kill()
        stack.server("registry").start()
        assert subject in schema_of(stack, schema_id)
        assert register(stack, subject) == schema_id
        assert register(stack, uuid.uuid4().hex) > schema_id


@pytest.mark.breadth
def test_topics_survive_a_crash_of_kafka(stack: LocalStack, database: Database) -> None:
    topic = capture(database)
    first = consume(stack, topic, 3)
    stack.server("kafka").kill()
    stack.server("kafka").start()
    assert consume(stack, topic, 3) == first


def test_events_arrive_as_avro_in_the_confluent_wire_format(
    stack: LocalStack, database: Database
) -> None:
    topic = capture(database)
    for key, value in consume(stack, topic, 3):
        for message in (key, value):
            assert message[0] == 0
            schema = json.loads(schema_of(stack, int.from_bytes(message[1:5], "big")))
            assert schema["type"] == "record"


def test_no_password_leaves_its_file(stack: LocalStack, database: Database) -> None:
    capture(database)
    assert leaks(stack) == []


@pytest.fixture
def other(tmp_path: Path) -> Iterator[LocalStack]:
    """A second stack, not yet up."""
    second = LocalStack(tmp_path / "other")
    yield second
    second.down(delete=True)
    assert not second.folder.exists()


def test_two_stacks_side_by_side_and_down_leaves_no_process(
    stack: LocalStack, other: LocalStack
) -> None:
    assert [server.state for server in other.up()] == ["healthy"] * len(SERVERS)
    ports = {server.port for server in other.status()}
    assert not ports & {server.port for server in stack.status()}
    mine = pids(stack)

    # A postmaster that was killed leaves children for a moment; they must go too.
    other.server("primary").kill()
    other.down()

    assert processes_in(other.folder) == []
    assert [server.state for server in other.status()] == ["stopped"] * len(SERVERS)
    assert pids(stack) == mine

    # The data is still there, but Kafka will refuse it: it ends while the others still start.
    identity = other.folder / "kafka" / "data" / "meta.properties"
    identity.write_text(identity.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(ServerDiedError, match=r"(?s)kafka ended during its start.*node") as died:
        other.up()
    assert "kafka.log" in died.value.message
    states = {server.name: server for server in other.status()}
    assert states["kafka"].state == "dead"
    assert {server.port for server in other.status()} == ports

    killed_under_guard(other)


def killed_under_guard(stack: LocalStack) -> None:
    """Start a process that guards the stack, kill it, and wait until its guard has cleaned up."""
    script = (
        "import os, pathlib, signal, sys; from stack.local import LocalStack;"
        "from tests.conftest import guarded;"
        "guard = guarded(LocalStack(pathlib.Path(sys.argv[1]))); guard.__enter__();"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    folder = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", script, str(stack.folder)], cwd=folder)
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while stack.folder.exists() or processes_in(stack.folder):
        assert time.monotonic() < deadline, processes_in(stack.folder)
        time.sleep(0.1)


def capture(database: Database) -> str:
    """Let Debezium capture a table with three rows; returns its topic."""
    name = database.name
    database.execute(
        "CREATE TABLE goods (id int PRIMARY KEY, title text)",
        "CREATE PUBLICATION goods FOR TABLE goods",
        f"GRANT SELECT ON goods TO {CAPTURE}",
        "INSERT INTO goods SELECT n, 'title ' || n FROM generate_series(1, 3) n",
    )
    addresses = database.stack.addresses(name)
    folder = database.stack.passwords.folder
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(addresses.ports["primary"]),
        "database.dbname": name,
        "database.user": CAPTURE,
        "database.password": f"${{directory:{folder}:{CAPTURE}.password}}",
        "plugin.name": "pgoutput",
        "publication.name": "goods",
        "publication.autocreate.mode": "disabled",
        "slot.name": f"goods_{name}",
        "topic.prefix": name,
        "snapshot.mode": "initial",
        "exactly.once.support": "required",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        **converters(database.stack),
    }
    with connect_rest(database.stack) as connect:
        connect.put(f"/connectors/goods_{name}/config", json=config).raise_for_status()
    return f"{name}.public.goods"


def test_a_snapshot_role_reads_every_table(database: Database) -> None:
    database.execute("CREATE TABLE secretly (id int)", "REVOKE ALL ON secretly FROM PUBLIC")
    with database.connect(SNAPSHOT) as connection:
        assert connection.execute("SELECT count(*) FROM secretly").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO secretly VALUES (1)")
