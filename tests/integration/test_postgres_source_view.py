"""Older transactions, the fence, views and privileges on a real primary and its replica."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from cdc.config import TableSettings
from cdc.errors import ReplicaError, SnapshotLostError, SourceError
from cdc.runtime.progress import NullProgress, NullTask
from cdc.sources.postgres import exact_view
from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.primary import wait_for_older_transactions
from cdc.sources.postgres.source import PostgresSource
from cdc.sources.source_facts import Marker
from cdc.sources.views import View
from stack.roles import ADMIN, SNAPSHOT
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import capture_of, open_source, source_config, table_id

QUIET = NullProgress()
PUBLICATION = "pub_test"


@pytest.fixture
def source(database: Database) -> PostgresSource:
    opened = open_source(database)
    capture_of(opened, PUBLICATION).prepare()
    opened.wait_for_marker_on_replica(opened.write_marker(), timeout_s=60, progress=QUIET)
    return opened


@contextmanager
def view_of(source: PostgresSource) -> Iterator[tuple[Marker, View]]:
    marker = source.write_marker()
    with source.open_view(marker, one_moment=True, timeout_s=30, progress=QUIET) as view:
        yield marker, view


# ---- older transactions


def test_wait_for_older_transactions_names_what_blocks(
    database: Database, source: PostgresSource
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with psycopg.connect(database.dsn(), application_name="slow batch") as open_one:
        open_one.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(SourceError, match=rf"session {open_one.info.backend_pid}.*slow batch"):
            source.wait_for_older_transactions(timeout_s=0.5, progress=QUIET)
        ended = threading.Timer(0.5, open_one.rollback)
        ended.start()
        x0 = int(source.wait_for_older_transactions(timeout_s=20, progress=QUIET).by)
        ended.join()
        # one that began after x0 does not count
        open_one.execute("INSERT INTO t VALUES (2)")
        connections = Connections(database.name, source_config(database))
        with connections.open("admin") as session:
            wait_for_older_transactions(
                session, x0, source=database.name, timeout_s=0.5, progress=QUIET
            )


def test_wait_for_older_transactions_counts_prepared_ones(
    database: Database, source: PostgresSource
) -> None:
    limit = database.stack.psql("SHOW max_prepared_transactions").strip()
    assert int(limit) > 0
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    gid = f"{database.name} prepared"
    with psycopg.connect(database.dsn()) as session:
        session.execute("INSERT INTO t VALUES (1)")
        session.execute(f"PREPARE TRANSACTION '{gid}'".encode())
        session.rollback()
    try:
        with pytest.raises(SourceError, match=f"prepared transaction '{gid}'"):
            source.wait_for_older_transactions(timeout_s=0.5, progress=QUIET)
    finally:
        database.execute(f"ROLLBACK PREPARED '{gid}'")
    source.wait_for_older_transactions(timeout_s=5, progress=QUIET)


# ---- fence and view


class Notes(NullTask, NullProgress):
    """Progress that keeps the notes of a wait."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Notes:
        return self

    def note(self, text: str) -> None:
        self.texts.append(text)


def test_a_paused_replica_is_a_bounded_wait_with_the_lag(
    database: Database, source: PostgresSource
) -> None:
    notes = Notes()
    with database.paused():
        marker = source.write_marker()
        with pytest.raises(ReplicaError, match=r"bytes.*replay paused") as caught:
            source.wait_for_marker_on_replica(marker, timeout_s=0.5, progress=notes)
        told = re.search(r"SELECT \w+\(\)", caught.value.remedy)
        assert told
        (line,) = [line for line in source.checks() if line.name == "replica lag"]
        assert line.remedy.startswith("Resume replay")
        assert any("behind" in text for text in notes.texts)
        position = source.replica_position()
        assert position is not None
        assert position.paused
        assert position.lag_bytes
        database.stack.psql(told[0], replica=True)
    source.wait_for_marker_on_replica(marker, timeout_s=20, progress=QUIET)
    position = source.replica_position()
    assert position is not None
    assert not position.paused


def test_a_replay_that_something_pauses_again_goes_on_after_the_statement_that_is_named(
    database: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.let_pause()
    genuine = exact_view._wait_for

    def paused_again(session: Any, state: str) -> bool:
        database.stack.psql("SELECT pg_wal_replay_pause()", replica=True)
        return genuine(session, state)

    monkeypatch.setattr(exact_view, "_wait_for", paused_again)
    monkeypatch.setattr(exact_view, "_STATE_S", 1.0)
    with pytest.raises(ReplicaError, match="was resumed, but is still 'paused'") as raised:
        source.resume_replay()
    assert source.replay_paused()
    told = re.search(r"SELECT \w+\(\)", raised.value.remedy)
    assert told
    database.stack.psql(told[0], replica=True)
    assert not source.replay_paused()


def test_a_replica_of_another_cluster_is_refused(
    database: Database, source: PostgresSource
) -> None:
    marker = source.write_marker()
    other = Marker(marker.id, "42", marker.timeline, marker.position)
    with pytest.raises(ReplicaError, match="the primary is system 42"):
        source.wait_for_marker_on_replica(other, timeout_s=10, progress=QUIET)
    older = Marker(marker.id, marker.system_identifier, 0, marker.position)
    with pytest.raises(ReplicaError, match="on timeline 0"):
        source.wait_for_marker_on_replica(older, timeout_s=10, progress=QUIET)
    # right after a failover a standby still shows its old timeline
    later = Marker(marker.id, marker.system_identifier, 7, marker.position)
    source.wait_for_marker_on_replica(later, timeout_s=10, progress=QUIET)


def test_a_replica_that_is_no_standby_is_refused(database: Database) -> None:
    config = open_source(database)._config
    source = open_source(database, replica=config.primary.model_dump(exclude_unset=True))
    capture_of(source, PUBLICATION).prepare()
    with pytest.raises(ReplicaError, match="not in recovery"):
        source.wait_for_marker_on_replica(source.write_marker(), timeout_s=5, progress=QUIET)


def test_view_contains_what_committed_before_the_marker_and_nothing_later(
    database: Database, source: PostgresSource
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with view_of(source) as (marker, view):
        assert view.on_replica
        assert view.upper_bound >= marker.position or view.upper_bound <= source.current_position()
        database.execute("INSERT INTO t VALUES (2)", "DELETE FROM t WHERE id = 1")
        later = source.write_marker()
        source.wait_for_marker_on_replica(later, timeout_s=20, progress=QUIET)
        with psycopg.connect(database.dsn(SNAPSHOT, replica=True)) as session:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.execute(f"SET TRANSACTION SNAPSHOT '{view.snapshot_id}'".encode())
            assert session.execute("SELECT id FROM t").fetchall() == [(1,)]
        assert source.current_position() >= view.upper_bound
        assert later.position > view.upper_bound
        source.assert_view_alive(view)
    with pytest.raises(SnapshotLostError, match="closed"):
        source.assert_view_alive(view)


def test_a_replica_that_became_another_server_ends_a_view_of_many_snapshots(
    source: PostgresSource,
) -> None:
    marker = source.write_marker()
    with source.open_view(marker, one_moment=False, timeout_s=30, progress=QUIET) as view:
        assert not view.snapshot_id
        source.assert_view_alive(view)
        identity = replace(view.identity, system_identifier="42")
        with pytest.raises(SnapshotLostError, match="changed while the view was open"):
            source.assert_view_alive(replace(view, identity=identity))
        unknown = replace(view.marker, id=uuid4())
        with pytest.raises(SnapshotLostError, match="changed while the view was open"):
            source.assert_view_alive(replace(view, marker=unknown))


def test_a_snapshot_without_its_open_transactions_is_not_shared(
    database: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Testing a snapshot must not damage rows either, such as a marker that is being written."""
    database.execute("ANALYZE tributary.marker")
    monkeypatch.setattr(exact_view, "_VIEWS", 2)
    open_id = uuid4()
    with database.begin() as open_one:
        open_one.execute("SAVEPOINT s")
        open_one.execute("INSERT INTO tributary.marker (id) VALUES (%s)", (open_id,))
        with (
            pytest.raises(ReplicaError, match="exported 2 views, and each lacks") as caught,
            view_of(source),
        ):
            raise AssertionError("a view was opened")
        assert "remove one_view" in caught.value.remedy
        open_one.commit()
    source.wait_for_marker_on_replica(source.write_marker(), timeout_s=20, progress=QUIET)
    with database.connect(replica=True) as session:
        session.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
        query = "SELECT 1 FROM tributary.marker WHERE id = %s"
        assert session.execute(query, (open_id,)).fetchall() == [(1,)]
    with view_of(source) as (_, view):
        assert view.snapshot_id


def test_another_program_that_imports_a_snapshot_on_the_replica_is_named(
    database: Database, source: PostgresSource
) -> None:
    """Both `check` and a copy name it, and neither does once it has ended."""

    def checked() -> tuple[str, str]:
        (line,) = [one for one in source.checks() if one.name == "replica snapshots"]
        return line.status, line.detail

    with database.connect(replica=True) as exporter, database.connect(replica=True) as importer:
        exporter.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        ((snapshot,),) = exporter.execute("SELECT pg_export_snapshot()").fetchall()
        importer.execute("SET application_name = 'report'")
        importer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        importer.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        status, detail = checked()
        assert status == "warning"
        assert "report (process " in detail
        marker = source.write_marker()
        with source.open_view(marker, one_moment=False, timeout_s=60, progress=QUIET) as view:
            assert any("report (process " in warning for warning in view.warnings)
        importer.execute("ROLLBACK")
        exporter.execute("ROLLBACK")
    assert checked()[0] != "warning"


def test_view_that_would_miss_the_marker_is_not_given_out(
    database: Database, source: PostgresSource
) -> None:
    with database.paused():
        marker = source.write_marker()
        with (
            pytest.raises(ReplicaError, match="did not show the marker"),
            source.open_view(marker, one_moment=False, timeout_s=0.3, progress=QUIET),
        ):
            raise AssertionError("a view was opened")


def test_without_a_replica_the_view_waits_for_transactions_that_may_be_committing(
    database: Database,
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    source = open_source(database, replica=None)
    capture_of(source, PUBLICATION).prepare()
    marker = source.write_marker()
    with psycopg.connect(database.dsn()) as open_one:
        open_one.execute("INSERT INTO t VALUES (1)")
        with (
            pytest.raises(SourceError, match="still open"),
            source.open_view(marker, one_moment=False, timeout_s=0.3, progress=QUIET),
        ):
            raise AssertionError("a view was opened")
        open_one.commit()
    with source.open_view(marker, one_moment=False, timeout_s=10, progress=QUIET) as view:
        assert not view.on_replica
        assert view.upper_bound >= marker.position
        source.assert_view_alive(view)


@contextmanager
def replica_settings(database: Database, settings: dict[str, str]) -> Iterator[None]:
    def run(statement: str) -> None:
        database.stack.psql(statement, replica=True)

    for name, value in settings.items():
        run(f"ALTER SYSTEM SET {name} = '{value}'")
    run("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        for name in settings:
            run(f"ALTER SYSTEM RESET {name}")
        run("SELECT pg_reload_conf()")


def vacuum_until_lost(database: Database, source: PostgresSource, view: View) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        database.execute("DELETE FROM t WHERE id % 2 = 0", "VACUUM t")
        database.execute("INSERT INTO t SELECT generate_series(2, 1000, 2)")
        time.sleep(0.2)
        source.assert_view_alive(view)


def test_a_recovery_conflict_ends_the_view_with_settings_and_lag(
    database: Database, source: PostgresSource
) -> None:
    """Vacuum removes rows that the view still sees; its replay cancels the view's session."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY) WITH (autovacuum_enabled = off)",
        "INSERT INTO t SELECT generate_series(1, 1000)",
    )
    settings = {"max_standby_streaming_delay": "100ms", "hot_standby_feedback": "off"}
    with replica_settings(database, settings), view_of(source) as (_, view):
        source.assert_view_alive(view)
        with pytest.raises(SnapshotLostError) as caught:
            vacuum_until_lost(database, source, view)
    for part in ("conflict with recovery", "max_standby_streaming_delay = 100ms", "behind"):
        assert part in caught.value.message
    assert "hot_standby_feedback" in caught.value.remedy


def test_a_rewrite_under_the_view_is_found_although_the_view_reads_on(
    database: Database, source: PostgresSource
) -> None:
    """After the rewrite, the view reads no rows and no error; only the fingerprint shows it."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    table = table_id(database, "t")
    with view_of(source) as (_, view):
        before = capture_of(source, "none").fingerprint(table, on_replica=True)
        database.execute("ALTER TABLE t ALTER COLUMN v TYPE text USING v || 'x'")
        source.wait_for_marker_on_replica(source.write_marker(), timeout_s=20, progress=QUIET)
        with psycopg.connect(database.dsn(SNAPSHOT, replica=True)) as session:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.execute(f"SET TRANSACTION SNAPSHOT '{view.snapshot_id}'".encode())
            assert session.execute("SELECT count(*) FROM t").fetchone() == (0,)
        source.assert_view_alive(view)
        assert before.diff(capture_of(source, "none").fingerprint(table, on_replica=True))


# ---- privileges and errors


def test_every_role_works_with_the_printed_grants_only(database: Database) -> None:
    """The roles have only LOGIN and the printed grants, and the tables have another owner."""
    roles = {key: f"{database.name}_{key}" for key in ("admin", "capture", "snapshot", "marker")}
    owner = f"{database.name}_owner"
    psql = database.stack.psql
    for role in (*roles.values(), owner):
        psql(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    psql(f'GRANT CREATE ON DATABASE "{database.name}" TO {owner}')
    psql(
        f"CREATE SCHEMA app AUTHORIZATION {owner}; SET ROLE {owner}; "
        "CREATE TABLE app.t (id int PRIMARY KEY, v text); INSERT INTO app.t VALUES (1, 'a')",
        database=database.name,
    )
    try:
        _with_printed_grants(database, roles)
    finally:
        for role in (*roles.values(), owner):
            psql(f"DROP OWNED BY {role} CASCADE", database=database.name)
            psql(f"REASSIGN OWNED BY {role} TO {ADMIN}")
            psql(f"DROP OWNED BY {role}")
            psql(f"DROP ROLE {role}")


def _with_printed_grants(database: Database, roles: dict[str, str]) -> None:
    secret = database.stack.folder / "x.password"
    secret.write_text("x")
    logins = {key: {"user": role, "password": f"${{file:{secret}}}"} for key, role in roles.items()}
    source = open_source(database, credentials=logins)
    name = table_id(database, "t", "app")
    described = open_source(database).table(name)
    with pytest.raises(SourceError, match="permission denied") as caught:
        capture_of(source, PUBLICATION).prepare()
    assert "Grant role" in caught.value.remedy
    checks = {check.name: check for check in source.checks()}
    assert checks["privileges admin"].status == checks["privileges capture"].status == "error"
    assert f'GRANT CONNECT, CREATE ON DATABASE "{database.name}"' in (
        checks["privileges admin"].remedy
    )
    assert f'GRANT "{described.owner}" TO "{roles["admin"]}";' in checks["tables admin"].remedy
    assert f'GRANT SELECT ON "app"."t" TO "{roles["snapshot"]}";' in (
        checks["tables snapshot"].remedy
    )
    problem, remedy = capture_of(source, PUBLICATION).missing_rights(described) or ("", "")
    assert "belongs to" in problem
    assert "permission denied" in problem
    told = [line.remedy for line in checks.values() if line.name.startswith("privileges")]
    for statements in (*told, remedy):
        _, _, pasted = statements.partition("Run as a superuser: ")
        database.stack.psql(pasted.partition(" (")[0], database=database.name)
    assert capture_of(source, PUBLICATION).missing_rights(described) is None
    capture_of(source, PUBLICATION).prepare()
    slot = f"{database.name}_granted"
    capture_of(source, PUBLICATION).sent_tables.add([name])
    assert capture_of(source, PUBLICATION).audit_table(described) == []
    owner, admin = f'"{described.owner}"', f'"{roles["admin"]}"'
    database.stack.psql(f"REVOKE {owner} FROM {admin}")
    assert capture_of(source, PUBLICATION).missing_rights(described) is None, (
        "it is in there already"
    )
    assert "belongs to" in (capture_of(source, "another").missing_rights(described) or "")[0]
    assert capture_of(source, PUBLICATION).sent_tables.add([name]) == []
    database.stack.psql(f"GRANT {owner} TO {admin}")
    assert capture_of(source, slot=slot).kept_log.create()
    assert capture_of(source, slot=slot).kept_log.drop()
    source.wait_for_older_transactions(timeout_s=20, progress=QUIET)
    marker = source.write_marker()
    with source.open_view(marker, one_moment=True, timeout_s=20, progress=QUIET) as view:
        assert view.warnings == ()
        source.assert_view_alive(view)
        schema = source.schema(described, TableSettings())
        assert source.fetch_by_key(described, schema, [(1,)], ["v"], on_replica=True) == [
            {"id": 1, "v": "a"}
        ]
        assert (
            capture_of(source, "none").fingerprint(name, on_replica=True).facts["oid"]
            == described.number
        )
    assert source.replica_position() is not None
    assert [check for check in source.checks() if check.status == "error"] == []
    names = {check.name for check in source.checks() if check.status != "ok"}
    assert not names & {"privileges admin", "privileges capture", "tables admin", "tables snapshot"}


def test_identity_that_may_not_be_read_is_a_warning_not_a_failure(
    database: Database, source: PostgresSource
) -> None:
    psql = database.stack.psql
    functions = ("pg_control_system()", "pg_control_checkpoint()", "pg_control_recovery()")
    for function in functions:
        psql(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC", database=database.name)
    with view_of(source) as (marker, view):
        assert marker.system_identifier is None
        assert marker.timeline == 1
        assert any("system identifier" in warning for warning in view.warnings)
        source.assert_view_alive(view)
    found = {check.name: check for check in source.checks()}
    assert found["server identity"].status == "warning"
    told = found["server identity"].remedy.removesuffix(".")
    psql(told.replace("the roles of this source", "PUBLIC"), database=database.name)
    database.catch_up()
    assert {check.name: check for check in source.checks()}["server identity"].status == "ok"


def test_unreachable_server_and_wrong_password_say_which_and_no_secret(
    database: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("secret") / "password"
    secret.write_text("canary-9f2c")
    login = {"user": ADMIN, "password": f"${{file:{secret}}}"}
    source = open_source(database, credentials={"admin": login})
    with pytest.raises(SourceError, match=rf"{ADMIN}.*password") as caught:
        source.tables()
    assert "canary" not in repr(caught.value) + str(caught.value.to_dict())
    config = source._config
    nobody = config.primary.model_copy(update={"port": 1})
    source = open_source(database, primary=nobody.model_dump(exclude_unset=True))
    began = time.monotonic()
    with pytest.raises(SourceError, match="cannot connect to the primary"):
        source.tables()
    assert time.monotonic() - began < 40


def test_checks_pass_on_the_stack(source: PostgresSource) -> None:
    checks = source.checks()
    assert [check for check in checks if check.status == "error"] == []
    assert all(check.remedy for check in checks if check.status == "warning")
    names = {check.name for check in checks}
    assert {"wal_level", "max_replication_slots", "replica", "replica lag"} <= names
