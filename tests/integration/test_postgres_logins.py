"""The rights that the snapshot login lacks are those without which the server refuses a read."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from cdc.config import Credential
from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.source import PostgresSource
from stack.roles import ADMIN
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import capture_of, open_source, source_config, table_id

TABLE, COLUMNS, SCHEMA = "table t", "columns b, c of table t", "schema app"
POLICIES = "row-level security policies of table t apply to this login"
STEPS = (
    ("GRANT SELECT ON app.one TO ?", f"permission denied for {SCHEMA} and {TABLE}"),
    ("GRANT USAGE ON SCHEMA app TO ?", f"permission denied for {TABLE}"),
    ("GRANT SELECT (id, a) ON app.t TO ?", f"permission denied for {COLUMNS}"),
    ("GRANT SELECT (b, c) ON app.t TO ?", ""),
    ("ALTER TABLE app.one ENABLE ROW LEVEL SECURITY", ""),
    ("REVOKE USAGE ON SCHEMA app FROM ?", f"permission denied for {SCHEMA}"),
    ("GRANT USAGE ON SCHEMA app TO PUBLIC", ""),
    ("ALTER TABLE app.t ENABLE ROW LEVEL SECURITY", POLICIES),
    ("CREATE POLICY all_rows ON app.t USING (true)", POLICIES),
    ("REVOKE SELECT (b, c) ON app.t FROM ?", f"permission denied for {COLUMNS}; {POLICIES}"),
    ("ALTER TABLE app.t OWNER TO ?", ""),
    ("ALTER TABLE app.t FORCE ROW LEVEL SECURITY", POLICIES),
    ("ALTER ROLE ? BYPASSRLS", ""),
    ("ALTER ROLE ? NOBYPASSRLS SUPERUSER", ""),
    ("ALTER ROLE ? NOSUPERUSER", POLICIES),
    (f"ALTER TABLE app.t OWNER TO {ADMIN}", f"permission denied for {TABLE}; {POLICIES}"),
    ("ALTER TABLE app.t DISABLE ROW LEVEL SECURITY", f"permission denied for {TABLE}"),
    ("GRANT pg_read_all_data TO ?", ""),
)
"""Statements of a superuser, one after the other, each with what the login (?) lacks after it."""


@pytest.fixture
def login(database: Database) -> Iterator[str]:
    """A role that may log in, and has no other right."""
    role, psql = f"{database.name}_reader", database.stack.psql
    psql(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        yield role
    finally:
        psql(f"DROP OWNED BY {role} CASCADE", database=database.name)
        psql(f"DROP ROLE {role}")


def source_with(database: Database, login: str) -> PostgresSource:
    """The database's source, whose rows are read with a login."""
    config, secret = source_config(database), database.stack.folder / "x.password"
    secret.write_text("x")
    user = Credential.model_validate({"user": login, "password": f"${{file:{secret}}}"})
    credentials = config.credentials.model_copy(update={"snapshot": user})
    return PostgresSource(database.name, config.model_copy(update={"credentials": credentials}))


def can_read(database: Database, login: str) -> bool:
    """Whether the server lets the login read the table's columns, if no policy may hide rows."""
    with psycopg.connect(database.dsn(), user=login, password="x") as session:
        session.execute("SET row_security = off")
        try:
            session.execute("SELECT id, a, b, c FROM app.t LIMIT 0")
        except psycopg.errors.InsufficientPrivilege:
            return False
    return True


def test_a_login_lacks_what_keeps_it_from_reading_a_table(database: Database, login: str) -> None:
    database.execute(
        "CREATE SCHEMA app",
        "CREATE TABLE app.t (id int PRIMARY KEY, a text, b text, c text) PARTITION BY RANGE (id)",
        "CREATE TABLE app.one PARTITION OF app.t DEFAULT",
    )
    source = source_with(database, login)
    capture = capture_of(source, "none")
    table = source.table(table_id(database, "t", "app"))

    def lacking() -> str:
        problem, _ = capture.missing_rights(table) or ("", "")
        assert (problem == "") is can_read(database, login), problem
        return problem.removeprefix(f"cannot be read as {login}: ")

    for statement, expected in STEPS:
        database.stack.psql(statement.replace("?", login), database=database.name)
        assert lacking() == expected, statement


def test_all_statements_for_missing_rights_are_told_at_once(database: Database, login: str) -> None:
    database.execute(
        "CREATE SCHEMA app",
        'CREATE TABLE app."T" (id int PRIMARY KEY)',
        'ALTER TABLE app."T" ENABLE ROW LEVEL SECURITY',
    )
    source = source_with(database, login)
    capture, table = capture_of(source, "none"), source.table(table_id(database, "T", "app"))
    _, remedy = capture.missing_rights(table)
    assert remedy == (
        f'Run as a superuser: GRANT USAGE ON SCHEMA "app" TO "{login}"; GRANT SELECT ON'
        f' "app"."T" TO "{login}"; ALTER ROLE "{login}" BYPASSRLS;'
    )
    database.stack.psql(remedy.removeprefix("Run as a superuser: "), database=database.name)
    assert capture.missing_rights(table) is None


def test_rights_are_looked_up_without_a_lock_on_any_partition(database: Database) -> None:
    """Locks on thousands of partitions fill the server's table of locks."""
    database.execute(
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id)",
        "CREATE TABLE one PARTITION OF parts FOR VALUES IN (1)",
        "CREATE TABLE two PARTITION OF parts FOR VALUES IN (2)",
    )
    source = open_source(database)
    table = source.table(table_id(database, "parts"))
    with database.begin() as session:
        for locked in ("two", "parts"):
            session.execute(f"LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE")
            assert capture_of(source, "none").missing_rights(table) is None
        session.rollback()


def test_idle_sessions_make_room_for_another_login_of_the_same_role(
    database: Database, login: str
) -> None:
    """One role can serve for several logins, and can have a limit of its sessions."""
    database.stack.psql(f"ALTER ROLE {login} CONNECTION LIMIT 2")
    config = source_with(database, login)._config
    user = config.credentials.snapshot
    credentials = config.credentials.model_copy(update={"admin": user})
    connections = Connections(database.name, config.model_copy(update={"credentials": credentials}))
    with connections.open("snapshot"), connections.open("snapshot"):
        pass
    with connections.open("admin") as one, connections.open("admin") as another:
        assert one.info.user == another.info.user == login
