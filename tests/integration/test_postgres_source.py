"""Catalog, capture, fence and view against a real primary and its streaming replica."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from cdc.config import TableSettings
from cdc.errors import CaptureError, ReplicaError, SnapshotLostError, SourceError
from cdc.progress import NullProgress, NullTask
from cdc.sources.postgres.source import PostgresSource
from cdc.sources.values import Fingerprint, Marker, View
from schemas.errors import SchemaError, UnsupportedTypeError
from schemas.table import TableId
from stack.postgres import ADMIN, SNAPSHOT
from tests.integration.conftest import Database
from tests.integration.sources import open_source, table_id

QUIET = NullProgress()
PUBLICATION = "pub_test"


@pytest.fixture
def source(database: Database) -> PostgresSource:
    opened = open_source(database)
    opened.prepare_capture(PUBLICATION)
    opened.wait_for_marker_on_replica(opened.write_marker(), timeout_s=60, progress=QUIET)
    return opened


@contextmanager
def view_of(source: PostgresSource) -> Iterator[tuple[Marker, View]]:
    marker = source.write_marker()
    with source.open_view(marker, timeout_s=30, progress=QUIET) as view:
        yield marker, view


# ---- catalog


def test_tables_are_listed_with_what_onboarding_needs(
    database: Database, source: PostgresSource
) -> None:
    database.execute(
        "CREATE TABLE plain (b int, a text, PRIMARY KEY (a, b))",
        "INSERT INTO plain SELECT g, 'x' FROM generate_series(1, 100) g",
        "CREATE TABLE parts (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')",
        "CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)",
        "CREATE TABLE keyless (x int)",
        "ALTER TABLE keyless REPLICA IDENTITY NOTHING",
        "ANALYZE",
    )
    found = {stats.table.name: stats for stats in source.tables()}
    assert set(found) == {"plain", "parts", "parts_1", "fast", "keyless"}
    assert found["plain"].primary_key == ("a", "b")
    assert found["plain"].rows_estimate == 100
    assert found["plain"].total_bytes > 8192
    assert (found["parts"].kind, found["parts"].partition_root) == ("partitioned", None)
    assert found["parts_1"].partition_root == table_id(database, "parts")
    assert found["parts"].total_bytes >= found["parts_1"].total_bytes > 0
    assert found["fast"].kind == "unlogged"
    assert found["keyless"].replica_identity == "nothing"


def test_a_table_is_described_with_hostile_names_and_types_taken_apart(
    database: Database, source: PostgresSource
) -> None:
    database.execute(
        'CREATE SCHEMA "s; drop"',
        "CREATE TYPE \"s; drop\".mood AS ENUM ('ok')",
        "CREATE DOMAIN price AS numeric(6,3)",
        'CREATE TABLE "s; drop"."t.""q" (id int PRIMARY KEY, "a ""b" price NOT NULL, '
        'c numeric(10,2)[], m "s; drop".mood, g int GENERATED ALWAYS AS (id * 2) STORED)',
    )
    table = source.table(TableId(database.name, "s; drop", 't."q'))
    types = {column.name: column.type for column in table.columns}
    price, array = types['a "b'], types["c"]
    assert (price.kind, price.base and price.base.display) == ("d", "numeric(6,3)")
    assert array.element is not None
    assert array.element.display == "numeric(10,2)"
    assert types["m"].kind == "e"
    assert [column.name for column in table.columns if column.generated] == ["g"]
    assert table.identity_columns == ("id",)
    schema = source.schema(table, TableSettings())
    assert [(c.name, c.lake_type) for c in schema.columns] == [
        ("id", "int"),
        ('a "b', "decimal(6,3)"),
        ("c", "array<decimal(10,2)>"),
        ("m", "string"),
    ]


def test_the_same_table_of_another_case_is_not_found(
    database: Database, source: PostgresSource
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    with pytest.raises(SourceError, match="no table"):
        source.table(table_id(database, "Orders"))


def test_keys_and_columns_that_the_lake_cannot_carry_are_refused(
    database: Database, source: PostgresSource
) -> None:
    database.execute(
        "CREATE TABLE t (a int NOT NULL, b int, c int NOT NULL, p point, h int, "
        '"A" int, _cdc_op int)',
        "CREATE UNIQUE INDEX ON t (a)",
        "CREATE UNIQUE INDEX ON t (b)",
        "CREATE UNIQUE INDEX ON t (c) WHERE c > 0",
    )
    table = source.table(table_id(database, "t"))

    def settings(key: tuple[str, ...], *include: str) -> TableSettings:
        return TableSettings.model_validate(
            {"key_columns": key, "columns": {"include": include or ("a", "b", "c", "h")}}
        )

    assert source.schema(table, settings(("a",))).key == ("a",)
    for key, told in ((("b",), "allows NULL"), (("c",), "unique"), ((), "no primary key")):
        with pytest.raises(SchemaError, match=told):
            source.schema(table, settings(key))
    with pytest.raises(UnsupportedTypeError, match=r"'p'.*point"):
        source.schema(table, settings(("a",), "a", "p"))
    with pytest.raises(SchemaError, match="case"):
        source.schema(table, settings(("a",), "a", "A"))
    with pytest.raises(SchemaError, match="begins like"):
        source.schema(table, settings(("a",), "a", "_cdc_op"))
    with pytest.raises(SchemaError, match="no column 'zz'"):
        source.schema(table, settings(("a",), "a", "zz"))


CHANGES = [
    ("ALTER TABLE t ALTER COLUMN v TYPE int USING length(v)", "columns.2.type"),
    ("ALTER TABLE t ALTER COLUMN v TYPE varchar(9) USING lower(v)", "columns.2.typmod"),
    ("ALTER TABLE t ALTER COLUMN v TYPE text USING v || ''", "relfilenode"),
    ("ALTER TABLE t ADD COLUMN n int", "columns.3 is new"),
    ("ALTER TABLE t DROP COLUMN v", "columns.2 is gone"),
    ("ALTER TABLE t REPLICA IDENTITY FULL", "replica_identity"),
    ("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text)", "oid"),
    ("TRUNCATE t", "relfilenode"),
    ("ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (v)", "keys.primary"),
    ("ALTER TABLE p ATTACH PARTITION q FOR VALUES IN (2)", "leaves.q"),
    ("ALTER TABLE p DETACH PARTITION p1", "leaves.p1"),
]


def test_fingerprint_shows_what_row_events_do_not(
    database: Database, source: PostgresSource
) -> None:
    def fingerprints(*, on_replica: bool) -> list[Fingerprint]:
        if on_replica:
            source.wait_for_marker_on_replica(source.write_marker(), timeout_s=60, progress=QUIET)
        return [source.fingerprint(table, on_replica=on_replica) for table in tables]

    tables = []
    for number, (change, _) in enumerate(CHANGES):
        database.execute(
            f"CREATE SCHEMA s{number}",
            f"CREATE TABLE s{number}.t (id int PRIMARY KEY, v text)",
            f"CREATE TABLE s{number}.p (id int, PRIMARY KEY (id)) PARTITION BY LIST (id)",
            f"CREATE TABLE s{number}.p1 PARTITION OF s{number}.p FOR VALUES IN (1)",
            f"CREATE TABLE s{number}.q (id int PRIMARY KEY)",
        )
        name = "p" if change.startswith("ALTER TABLE p") else "t"
        tables.append(table_id(database, name, f"s{number}"))
    before = fingerprints(on_replica=False)
    assert [found.digest for found in fingerprints(on_replica=True)] == [
        found.digest for found in before
    ]
    for number, (change, _) in enumerate(CHANGES):
        database.execute(f"SET search_path TO s{number}; {change}")
    after = fingerprints(on_replica=False)
    for (change, told), old, new in zip(CHANGES, before, after, strict=True):
        lines = [
            line.replace("leaves.s9.", "leaves.").replace("leaves.s10.", "leaves.")
            for line in old.diff(new)
        ]
        assert any(line.startswith(told) for line in lines), (change, lines)
    assert [found.digest for found in fingerprints(on_replica=True)] == [
        found.digest for found in after
    ]


# ---- capture


def test_publication_is_built_once_and_audited(database: Database, source: PostgresSource) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY, v text)", "CREATE TABLE b (x int)")
    a, b = table_id(database, "a"), table_id(database, "b")
    source.prepare_capture(PUBLICATION)  # again: nothing to do
    assert "not in publication" in source.audit_publication(PUBLICATION, source.table(a))[0]
    assert source.add_to_publication(PUBLICATION, [a, b]) == [a, b]
    assert source.add_to_publication(PUBLICATION, [a]) == []
    assert source.audit_publication(PUBLICATION, source.table(a)) == []
    assert source.published_tables(PUBLICATION) == [a, b]
    assert source.remove_from_publication(PUBLICATION, [b]) == [b]
    assert source.remove_from_publication(PUBLICATION, [b]) == []
    for change, told in (
        (f"ALTER PUBLICATION {PUBLICATION} SET TABLE a (id)", "leaves out columns"),
        (f"ALTER PUBLICATION {PUBLICATION} SET TABLE a WHERE (id > 5)", "filters rows"),
        (f"ALTER PUBLICATION {PUBLICATION} SET (publish = 'insert, update')", "publish delete"),
        (f"ALTER PUBLICATION {PUBLICATION} SET (publish_via_partition_root = false)", "root"),
    ):
        database.execute(change)
        findings = source.audit_publication(PUBLICATION, source.table(a))
        assert any(told in finding for finding in findings), (told, findings)
    assert "does not exist" in source.audit_publication("nowhere", source.table(a))[0]
    with pytest.raises(CaptureError, match="nowhere"):
        source.add_to_publication("nowhere", [a])
    source.drop_publication(PUBLICATION)
    assert source.published_tables(PUBLICATION) == []


def test_slots_are_created_watched_and_dropped(database: Database, source: PostgresSource) -> None:
    slot = f"{database.name}_slot"
    assert source.slot_health(slot) is None
    assert source.ensure_slot(slot)
    assert not source.ensure_slot(slot)
    health = source.slot_health(slot)
    assert health is not None
    assert (health.active, health.wal_status) == (False, "reserved")
    assert health.confirmed_flush_lsn is not None
    assert source.current_lsn() >= health.confirmed_flush_lsn
    assert source.drop_slot(slot)
    assert not source.drop_slot(slot)
    database.stack.psql(
        f"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')",
        database=database.name,
    )
    with pytest.raises(CaptureError, match="test_decoding"):
        source.ensure_slot(slot)


def test_wait_for_older_transactions_names_what_blocks(
    database: Database, source: PostgresSource
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with psycopg.connect(database.dsn(), application_name="slow batch") as open_one:
        open_one.execute("INSERT INTO t VALUES (1)")
        x0 = source.current_transaction_id()
        with pytest.raises(SourceError, match=rf"session {open_one.info.backend_pid}.*slow batch"):
            source.wait_for_older_transactions(x0, timeout_s=0.5, progress=QUIET)
        ended = threading.Timer(0.5, open_one.rollback)
        ended.start()
        source.wait_for_older_transactions(x0, timeout_s=20, progress=QUIET)
        ended.join()
        # one that began after x0 does not count
        open_one.execute("INSERT INTO t VALUES (2)")
        source.wait_for_older_transactions(x0, timeout_s=0.5, progress=QUIET)


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
        x0 = source.current_transaction_id()
        with pytest.raises(SourceError, match=f"prepared transaction '{gid}'"):
            source.wait_for_older_transactions(x0, timeout_s=0.5, progress=QUIET)
    finally:
        database.execute(f"ROLLBACK PREPARED '{gid}'")
    source.wait_for_older_transactions(x0, timeout_s=5, progress=QUIET)


# ---- fence and view


@contextmanager
def paused_replay(database: Database) -> Iterator[None]:
    database.stack.psql("SELECT pg_wal_replay_pause()", replica=True)
    try:
        yield
    finally:
        database.stack.psql("SELECT pg_wal_replay_resume()", replica=True)


class Notes(NullTask, NullProgress):
    """Keeps what a wait says."""

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
    with paused_replay(database):
        marker = source.write_marker()
        assert not source.marker_visible(marker, on_replica=True)
        with pytest.raises(ReplicaError, match=r"bytes.*replay paused") as caught:
            source.wait_for_marker_on_replica(marker, timeout_s=0.5, progress=notes)
        assert "pg_wal_replay_resume" in caught.value.remedy
        assert any("behind" in text for text in notes.texts)
        position = source.replica_position()
        assert position is not None
        assert position.paused
        assert position.lag_bytes
    source.wait_for_marker_on_replica(marker, timeout_s=20, progress=QUIET)
    position = source.replica_position()
    assert position is not None
    assert not position.paused


def test_a_replica_of_another_cluster_is_refused(
    database: Database, source: PostgresSource
) -> None:
    marker = source.write_marker()
    other = Marker(marker.id, "42", marker.timeline, marker.lsn)
    with pytest.raises(ReplicaError, match="the primary is system 42"):
        source.wait_for_marker_on_replica(other, timeout_s=10, progress=QUIET)
    older = Marker(marker.id, marker.system_identifier, 0, marker.lsn)
    with pytest.raises(ReplicaError, match="on timeline 0"):
        source.wait_for_marker_on_replica(older, timeout_s=10, progress=QUIET)
    # right after a failover a standby still shows its old timeline
    later = Marker(marker.id, marker.system_identifier, 7, marker.lsn)
    source.wait_for_marker_on_replica(later, timeout_s=10, progress=QUIET)


def test_a_replica_that_is_no_standby_is_refused(database: Database) -> None:
    config = open_source(database)._config
    source = open_source(database, replica=config.primary.model_dump(exclude_unset=True))
    source.prepare_capture(PUBLICATION)
    with pytest.raises(ReplicaError, match="not in recovery"):
        source.wait_for_marker_on_replica(source.write_marker(), timeout_s=5, progress=QUIET)


def test_view_contains_what_committed_before_the_marker_and_nothing_later(
    database: Database, source: PostgresSource
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with view_of(source) as (marker, view):
        assert view.on_replica
        assert view.lsn_upper_bound >= marker.lsn or view.lsn_upper_bound <= source.current_lsn()
        database.execute("INSERT INTO t VALUES (2)", "DELETE FROM t WHERE id = 1")
        later = source.write_marker()
        source.wait_for_marker_on_replica(later, timeout_s=20, progress=QUIET)
        with psycopg.connect(database.dsn(SNAPSHOT, replica=True)) as session:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.execute(f"SET TRANSACTION SNAPSHOT '{view.snapshot_id}'".encode())
            assert session.execute("SELECT id FROM t").fetchall() == [(1,)]
        assert source.current_lsn() >= view.lsn_upper_bound
        assert later.lsn > view.lsn_upper_bound
        source.assert_view_alive(view)
    with pytest.raises(SnapshotLostError, match="closed"):
        source.assert_view_alive(view)


def test_view_that_would_miss_the_marker_is_not_given_out(
    database: Database, source: PostgresSource
) -> None:
    with paused_replay(database):
        marker = source.write_marker()
        with (
            pytest.raises(ReplicaError, match="did not show the marker"),
            source.open_view(marker, timeout_s=0.3, progress=QUIET),
        ):
            raise AssertionError("a view was opened")


def test_without_a_replica_the_view_waits_for_transactions_that_may_be_committing(
    database: Database,
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    source = open_source(database, replica=None)
    source.prepare_capture(PUBLICATION)
    marker = source.write_marker()
    with psycopg.connect(database.dsn()) as open_one:
        open_one.execute("INSERT INTO t VALUES (1)")
        with (
            pytest.raises(SourceError, match="still open"),
            source.open_view(marker, timeout_s=0.3, progress=QUIET),
        ):
            raise AssertionError("a view was opened")
        open_one.commit()
    with source.open_view(marker, timeout_s=10, progress=QUIET) as view:
        assert not view.on_replica
        assert view.lsn_upper_bound >= marker.lsn
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
    """Vacuum removes rows that the view still sees; replay of that cancels the exporter."""
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
    """The view then reads no rows, without an error: only the fingerprint tells."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    table = table_id(database, "t")
    with view_of(source) as (_, view):
        before = source.fingerprint(table, on_replica=True)
        database.execute("ALTER TABLE t ALTER COLUMN v TYPE text USING v || 'x'")
        source.wait_for_marker_on_replica(source.write_marker(), timeout_s=20, progress=QUIET)
        with psycopg.connect(database.dsn(SNAPSHOT, replica=True)) as session:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.execute(f"SET TRANSACTION SNAPSHOT '{view.snapshot_id}'".encode())
            assert session.execute("SELECT count(*) FROM t").fetchone() == (0,)
        source.assert_view_alive(view)
        assert before.diff(source.fingerprint(table, on_replica=True))


# ---- privileges and errors


def test_every_role_works_with_the_printed_grants_only(database: Database) -> None:
    """Roles without any attribute but LOGIN, tables of another owner, then the statements."""
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
        source.prepare_capture(PUBLICATION)
    assert "Grant role" in caught.value.remedy
    assert any(check.status == "error" for check in source.checks())
    # the grants on schema tributary are for after its creation, which also gives them
    for statement in source.grants_sql([described]):
        if "tributary" not in statement.replace(database.name, ""):
            database.stack.psql(statement, database=database.name)
    source.prepare_capture(PUBLICATION)
    slot = f"{database.name}_granted"
    source.add_to_publication(PUBLICATION, [name])
    assert source.audit_publication(PUBLICATION, described) == []
    assert source.ensure_slot(slot)
    assert source.drop_slot(slot)
    x0 = source.current_transaction_id()
    source.wait_for_older_transactions(x0, timeout_s=20, progress=QUIET)
    marker = source.write_marker()
    with source.open_view(marker, timeout_s=20, progress=QUIET) as view:
        assert view.warnings == ()
        source.assert_view_alive(view)
        schema = source.schema(described, TableSettings())
        assert source.fetch_by_key(described, schema, [(1,)], ["v"], on_replica=True) == [
            {"id": 1, "v": "a"}
        ]
        assert source.fingerprint(name, on_replica=True).facts["oid"] == described.oid
    assert source.replica_position() is not None
    assert [check for check in source.checks() if check.status == "error"] == []


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
    assert "GRANT EXECUTE" in found["server identity"].remedy


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
