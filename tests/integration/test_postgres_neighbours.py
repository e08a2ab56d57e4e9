"""Other users of a PostgreSQL server are not disturbed: a pooler's sessions and subscribers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from cdc.config import TableSettings
from cdc.errors import CaptureError, SnapshotLostError, SourceError
from cdc.runtime.progress import NullProgress
from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.own_session import OwnSession
from cdc.sources.postgres.source import PostgresSource
from cdc.sources.source_facts import KeyRange
from operate.discover import discover
from operate.dryrun import onboarding_steps
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.proxy import Pooler
from tests.integration.rigs.shop import Shop
from tests.integration.rigs.shop import cold as cold
from tests.integration.rigs.sources import capture_of, open_source, source_config, table_id


def test_nothing_stays_in_a_session_that_a_pooler_gives_to_another_client(
    database: Database,
) -> None:
    changed = (
        "SELECT name, setting FROM pg_settings WHERE source = 'session'"
        " AND name NOT IN ('transaction_isolation', 'transaction_read_only')"
    )
    direct = source_config(database, replica=None)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")

    def threshold(source: PostgresSource) -> str:
        """The number of executions after which Spark's driver prepares a named statement."""
        table = source.table(table_id(database, "t"))
        schema = source.schema(table, TableSettings())
        query = source.snapshot_query(table, schema, [KeyRange(None, None)], view=None)
        return query.properties["prepareThreshold"]

    with Pooler(database.dsn()) as pooler:
        port = make_url(pooler.url).port
        primary = {**direct.primary.model_dump(), "host": "127.0.0.1", "port": port}
        pooled = source_config(database, primary=primary, replica=None)
        with Connections(database.name, pooled).open("admin") as session:

            def left() -> list[tuple[str, str]]:
                """The changed settings that the next client of this server session would find."""
                return psycopg.Connection.execute(session, changed).fetchall()

            assert left() == []
            assert session.is_pooled
            assert session.execute("SHOW lock_timeout").fetchone() == ("10s",)
            for number in range(8):
                assert session.execute("SELECT %s::int", (number,)).fetchone() == (number,)
            assert session.execute("SELECT name FROM pg_prepared_statements").fetchall() == []
            with session.transaction():
                session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                assert session.execute("SHOW row_security").fetchone() == ("off",)
            with pytest.raises(psycopg.errors.DivisionByZero):
                session.execute("SELECT 1 / 0")
            session.autocommit = False
            assert session.execute("SHOW statement_timeout").fetchone() == ("1min",)
            session.rollback()
            session.autocommit = True
            assert left() == []
        source = PostgresSource(database.name, pooled)
        assert threshold(source) == "0"
        lines = source.checks()
        (admin,) = (line for line in lines if line.name == "login admin")
        assert "through a pooler" in admin.detail
    with Connections(database.name, direct).open("admin") as session:
        assert not session.is_pooled
        assert ("lock_timeout", "10000") in session.execute(changed).fetchall()
    assert threshold(PostgresSource(database.name, direct)) == "-1"


def test_the_first_onboarding_stops_no_subscriber_of_all_tables(cold: Shop) -> None:
    cold.create("orders", 1)
    table, name = cold.table("orders"), cold.database.name
    source = cold.services.source(name)
    cold.database.stack.psql("CREATE PUBLICATION everything FOR ALL TABLES", database=name)
    line = {check.name: check for check in source.checks()}["publications of others"]
    assert (line.status, source.capture_obstacle()) == ("note", None)
    cold.database.stack.psql(
        f"SELECT pg_create_logical_replication_slot('theirs_{name}', 'pgoutput')", database=name
    )

    (outcome,) = cold.onboard("orders", with_bootstrap=False)
    refusal = outcome.error
    assert refusal is not None
    assert "publication everything would publish the tables that Tributary" in str(refusal)
    assert f"slot theirs_{name} can send them" in str(refusal)
    planned = onboarding_steps(cold.services, [table], with_bootstrap=False)
    assert [str(one.error) for one in planned.refused] == [str(refusal)]
    (entry,) = discover(cold.services)
    assert "publication everything" in entry.problem
    with pytest.raises(CaptureError, match="cannot be captured"):
        capture_of(source).prepare()
    assert cold.scalar("SELECT to_regnamespace('tributary')") is None
    line = {check.name: check for check in source.checks()}["publications of others"]
    assert (line.status, line.remedy) == ("error", refusal.remedy)

    statements, _, _ = refusal.remedy.partition(" Then run the command again")
    cold.database.execute(statements.partition(": ")[2])
    assert source.capture_obstacle() is None
    assert "publications of others" not in {check.name for check in source.checks()}
    capture_of(source).prepare()
    source.write_marker()


def test_what_a_copy_of_the_primary_has_read_survives_a_crash(database: Database) -> None:
    """With synchronous_commit = off, queries see commits that are not on the server's disk yet."""
    source = open_source(database, replica=None)
    capture_of(source).prepare()
    database.execute(
        f"ALTER DATABASE {database.name} SET synchronous_commit = off",
        "ALTER TABLE tributary.marker ADD by text DEFAULT current_setting('synchronous_commit')",
    )
    marker, quiet = source.write_marker(), NullProgress()
    with source.open_view(marker, one_moment=False, timeout_s=60, progress=quiet) as view:
        source.assert_rows_of_primary(view)
        with database.connect() as session:
            modes = session.execute("SELECT by FROM tributary.marker").fetchall()
            assert modes == [("local",), ("local",)]
        # A crash ends all sessions.
        ended = database.stack.psql(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'",
            database=database.name,
        )
        assert int(ended) > 0
        for check in (source.assert_rows_of_primary, source.assert_view_alive):
            with pytest.raises(SnapshotLostError, match="the view on the primary"):
                check(view)


@pytest.mark.parametrize("one_moment", [False, True])
def test_between_chunks_of_the_primary_vacuum_waits_for_no_snapshot(
    database: Database, one_moment: bool
) -> None:
    """Only a view of one moment, as append tables need it, keeps its snapshot for a whole copy."""
    source = open_source(database, replica=None)
    capture_of(source).prepare()
    marker = source.write_marker()
    held = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    quiet = NullProgress()
    with source.open_view(marker, one_moment=one_moment, timeout_s=60, progress=quiet) as view:
        with database.connect() as session:
            assert session.execute(held).fetchall() == [(int(one_moment),)]
        source.assert_view_alive(view)
        assert bool(view.snapshot_id) == one_moment
        if not one_moment:
            other = replace(view, identity=replace(view.identity, system_identifier="42"))
            with pytest.raises(SnapshotLostError, match=r"primary .* changed while the view"):
                source.assert_view_alive(other)


def test_a_wait_for_transactions_seldom_reads_the_locks_of_the_server(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of pg_locks holds up every session that takes a lock meanwhile."""
    source = open_source(database, replica=None)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    asked: list[bool] = []
    execute = OwnSession.execute

    def notes(session: OwnSession, *query: Any, **options: Any) -> Any:
        asked.append("pg_locks" in str(query[0]))
        return execute(session, *query, **options)

    monkeypatch.setattr(OwnSession, "execute", notes)
    with database.begin() as open_one:
        open_one.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(SourceError, match="still open after 3 s: session"):
            source.wait_for_older_transactions(timeout_s=3, progress=NullProgress())
    # Who is in the way: for the display at once, and for the error at the end.
    assert asked.count(True) == 2
    assert asked.count(False) > 6
