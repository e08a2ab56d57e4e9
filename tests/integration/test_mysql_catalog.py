"""Reads of the catalogs of MySQL and MariaDB, of rows by key, and the rights that they need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal

import pymysql
import pytest

from cdc.errors import MissingTableError, SourceError
from cdc.log.gtid import GtidSet
from cdc.sources.mysql import (
    boundaries,
    catalog,
    checks,
    grants,
    innodb,
    lookup,
    preparation,
    primary,
    rights,
)
from cdc.sources.mysql.connection import Connections
from cdc.sources.mysql.source import MysqlSource
from schemas.catalog import Catalog
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from stack.mysql_software import MARIADB
from stack.ports import HOST
from stack.roles import ADMIN, CAPTURE, MARKER, REPLICATOR, SNAPSHOT
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.mysql import MysqlDatabase
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_lab import Lab, as_schema
from tests.integration.rigs.mysql_lab import lab as lab
from tests.integration.rigs.sources import capture_of


@pytest.mark.breadth
def test_facts_agree_on_primary_and_replica_and_tell_what_happened(lab: Lab) -> None:
    before = lab.make(
        "told-é",
        "CREATE TABLE `told-é` (id int PRIMARY KEY, a varchar(20) NOT NULL DEFAULT 'x', b int,"
        " v int AS (b + 1), s int AS (b + 2) STORED, UNIQUE (a), UNIQUE part (a(3)), UNIQUE (b))",
    )
    assert before.unique_indexes[0] == ("id",)
    assert set(before.unique_indexes) == {("id",), ("a",), ("b",)}
    assert not any(column.generated for column in before.columns), "events carry them"
    assert before.primary_key == before.identity_columns == ("id",)
    assert before.number is None
    table = before.table
    with lab.connections.open("admin") as session:
        described, facts = catalog.read_described(session, table)
        assert described == before
        assert set(catalog.read_fingerprints(session, [table])) == {table}
        with pytest.raises(MissingTableError):
            catalog.read_table(session, TableId("shop", lab.database.name, "gone"))
    with lab.connections.open("snapshot", on_replica=True) as session:
        theirs = catalog.read_fingerprint(session, table, on_replica=True)
    assert facts.diff(catalog.with_files(theirs, facts)) == []
    assert Catalog.read(facts.facts).primary_key == ("id",)

    def changed(*statements: str) -> set[str]:
        nonlocal facts
        for statement in statements:
            lab.database.query(statement)
        with lab.connections.open("admin") as session:
            now = catalog.read_fingerprint(session, table)
        differences = {line.split(" ")[0].split(".")[0] for line in facts.diff(now)}
        facts = now
        return differences

    assert changed("INSERT INTO `told-é` (id, a, b) VALUES (1, 'x', 1)") == set()
    assert "table_id" in changed("TRUNCATE `told-é`")
    assert "table_id" in changed(
        "CREATE TABLE n LIKE `told-é`", "RENAME TABLE `told-é` TO o, n TO `told-é`"
    )
    assert "table_id" in changed("ALTER TABLE `told-é` FORCE")
    assert "expressions" in changed("ALTER TABLE `told-é` DROP v, ADD v int AS (b + 3)")
    assert "columns" in changed("ALTER TABLE `told-é` CONVERT TO CHARACTER SET latin1")
    if lab.kind == MARIADB:
        lab.database.query("DO sleep(1.1)")  # the time of the last ALTER, in seconds
    # In place where that is possible, else by a rebuild.
    assert {"altered", "table_id"} & changed(
        "ALTER TABLE `told-é` ADD c int", "ALTER TABLE `told-é` DROP c"
    )


@pytest.mark.breadth
def test_many_tables_are_told_like_each_by_itself(lab: Lab) -> None:
    """There are more tables than one statement reads, and names that the server encodes."""
    names = [*(f"t{number}" for number in range(101)), "a-b", "\u0436", "\u0436-\u00e9"]
    lab.make(
        "t0",
        *(
            f"CREATE TABLE `{name}` (id int PRIMARY KEY, v{number} int)"
            for number, name in enumerate(names)
        ),
    )
    tables = [TableId("shop", lab.database.name, name) for name in names]
    gone = TableId("shop", lab.database.name, "gone")
    with lab.connections.open("admin") as session:
        found = catalog.read_fingerprints(session, [*tables, gone])
        assert found.keys() == set(tables)
        for table in (tables[0], tables[100], *tables[101:]):
            assert found[table] == catalog.read_fingerprint(session, table)
        assert all(one.facts["table_id"] for one in found.values())


@pytest.mark.breadth
def test_rows_by_key_are_what_the_lake_has(lab: Lab) -> None:
    table = lab.make(
        "looked",
        "CREATE TABLE looked (a varchar(10), b datetime(6), c time(6), e enum('x','y'),"
        " u bigint unsigned, f float, d date, bits bit(1), bin varbinary(5), ts timestamp(6) NULL,"
        " PRIMARY KEY (a, b, c, e, u)) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "INSERT INTO looked VALUES ('Ä''', '2024-01-02 03:04:05.000006', '-01:00:00.5', 'y',"
        " 18446744073709551615, 0.1, '2024-02-29', b'1', x'00ff', '2024-01-01 00:00:00.000001')",
    )
    schema = as_schema(table)
    key = ["Ä'", datetime.fromisoformat("2024-01-02 03:04:05.000006"), -3_600_500_000, "y"]
    whole = [*key, Decimal(2**64 - 1)]
    other_case = ["ä'", *whole[1:]]
    names = [column.name for column in schema.columns]
    with lab.connections.open("snapshot") as session:
        rows = lookup.fetch_by_key(session, table, schema, [whole, other_case], names)
        assert lookup.fetch_by_key(session, table, schema, [other_case], names) == []
        assert lookup.count(session, table) == 1
        size = boundaries.table_size(session, table)
        assert boundaries.largest_row(session, table)
    assert size.rows == 1
    assert size.heap_bytes > 0
    assert rows == [
        {
            **dict(zip(schema.key, whole, strict=True)),
            "f": 0.10000000149011612,
            "d": date(2024, 2, 29),
            "bits": True,
            "bin": b"\0\xff",
            "ts": datetime.fromisoformat("2024-01-01 00:00:00.000001+00:00"),
        }
    ]


@pytest.mark.breadth
def test_what_a_column_added_later_shows_in_older_rows(lab: Lab) -> None:
    table = lab.make(
        "older",
        "CREATE TABLE older (id int PRIMARY KEY)",
        "INSERT INTO older VALUES (1)",
        "ALTER TABLE older ADD t varchar(10) NOT NULL DEFAULT 'it''s',"
        " ADD d decimal(9,2) DEFAULT 7, ADD n int, ADD b varbinary(3) DEFAULT 'ab'",
    )
    schema = as_schema(table)
    with lab.connections.open("admin") as session:
        shown = [
            lookup.stored_value(session, table, schema.column(name))[0] for name in ("t", "d", "b")
        ]
        another = "ALTER TABLE older ALTER COLUMN d SET DEFAULT 8"
        with pytest.raises(pymysql.OperationalError, match="Lock wait timeout"):
            lab.database.execute("SET SESSION lock_wait_timeout = 1", another)
    assert shown == ["it's", "7.00", "6162"]
    lab.database.execute(another)
    with (
        lab.connections.open("admin") as session,
        pytest.raises(
            SourceError,
            match=re.escape("column d no longer has type decimal(9,2) and default '7.00'"),
        ),
    ):
        lookup.stored_value(session, table, schema.column("d"))


@pytest.mark.breadth
def test_grants_are_enough_and_what_is_wrong_with_the_binlog_is_named(lab: Lab) -> None:
    table = lab.make("granted", "CREATE TABLE granted (id int PRIMARY KEY)")
    preparation.prepare(lab.connections)
    statements = grants.grants_sql(
        lab.connections.config, [table], grants.accounts(lab.connections)
    )
    lab.database.root(*statements)
    with lab.connections.open("admin") as session:
        assert preparation.audit_table(session, table) == []
        assert preparation.audit_server(session, append=False) == []
        executed: GtidSet = primary.executed_position(session, lab.kind)
        purged, size = primary.retained(session, lab.kind)
        assert executed.reaches(purged)
        assert size > 0
    lab.database.root("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        with lab.connections.open("admin") as session:
            found = preparation.audit_server(session, append=False)
            assert any("binlog_row_image" in line for line in found)
    finally:
        lab.database.root("SET GLOBAL binlog_row_image = 'FULL'")
    lab.database.root(f"REVOKE PROCESS ON *.* FROM {ADMIN}@'127.0.0.1'")
    try:
        assert lab.table("granted") == table
        with (
            lab.connections.open("admin") as session,
            pytest.raises(SourceError, match="InnoDB") as raised,
        ):
            catalog.read_described(session, table.table)
        assert raised.value.remedy.startswith("GRANT PROCESS")
        lab.database.root(raised.value.remedy)
        with lab.connections.open("admin") as session:
            assert catalog.read_described(session, table.table)[0] == table
    finally:
        lab.database.root(f"GRANT PROCESS ON *.* TO {ADMIN}@'127.0.0.1'")


def test_foreign_keys_are_seen_with_no_more_than_the_documented_rights(lab: Lab) -> None:
    """The standard's view of foreign keys is empty, without an error, for a read-only login."""
    lab.database.query("CREATE TABLE parent (id int PRIMARY KEY)")
    rules = {
        "gone": ("CASCADE", "NO ACTION"),
        "emptied": ("SET NULL", "NO ACTION"),
        "moved": ("RESTRICT", "CASCADE"),
        "both`s": ("CASCADE", "SET NULL"),
        "none": ("RESTRICT", "NO ACTION"),
        "default": ("SET DEFAULT", "NO ACTION"),  # which InnoDB takes for RESTRICT
    }
    keys = ", ".join(
        f"c{n} int, CONSTRAINT `{name.replace('`', '``')}` FOREIGN KEY (c{n}) REFERENCES parent"
        f" (id) ON DELETE {delete} ON UPDATE {update}"
        for n, (name, (delete, update)) in enumerate(rules.items())
    )
    name = "child-é.d\\_%"
    child = lab.make(name, f"CREATE TABLE `{name}` (id int PRIMARY KEY, {keys})")
    other = lab.make("child", "CREATE TABLE child (id int PRIMARY KEY)")
    preparation.prepare(lab.connections)
    known = grants.accounts(lab.connections)
    everything = f"ALL PRIVILEGES ON {lab.database.name}.*"
    lab.database.root(
        f"REVOKE {everything} FROM {ADMIN}@'127.0.0.1'",
        *grants.grants_sql(lab.connections.config, [child, other], known),
    )
    try:
        with lab.connections.open("admin") as session:
            seen = innodb.read_cascades(session, lab.kind, child.table)
            assert innodb.read_cascades(session, lab.kind, other.table) == []
            problems = preparation.audit_table(session, child)
    finally:
        lab.database.root(f"GRANT {everything} TO {ADMIN}@'127.0.0.1'")
    assert {name: (delete, update) for name, delete, update in seen} == {
        "gone": ("CASCADE", "NO ACTION"),
        "emptied": ("SET NULL", "NO ACTION"),
        "moved": ("NO ACTION", "CASCADE"),
        "both`s": ("CASCADE", "SET NULL"),
    }
    unseen = [line for line in problems if "without an event" in line]
    assert len(unseen) == (len(seen) if lab.kind == MARIADB else 0)


def test_a_login_that_may_not_read_a_whole_table_is_told_before_anything_is_made(
    lab: Lab,
) -> None:
    """The catalog hides tables and columns on which a login has no rights."""
    name = lab.database.name
    kept = lab.connections.config.model_copy(update={"databases": [name]})
    made = lab.make("of all", "CREATE TABLE `of all` (id int PRIMARY KEY, v int)")
    source, connections = MysqlSource("shop", kept), Connections("shop", kept)
    preparation.prepare(lab.connections)
    assert list(rights.of_tables(connections)) == list(rights.of_server(connections)) == []
    for role, held in ((CAPTURE, "SELECT"), (SNAPSHOT, "SELECT"), (ADMIN, "ALL PRIVILEGES")):
        purpose = role.removeprefix("tributary_")
        lab.database.root(
            f"REVOKE {held} ON {name}.* FROM {role}@'127.0.0.1'",
            f"GRANT SELECT (id) ON {name}.`of all` TO {role}@'127.0.0.1'",
        )
        try:
            if role != ADMIN:  # who cannot even open the database now
                lab.database.catch_up()
            lacking = capture_of(source).missing_rights(made)
            assert lacking is not None
            assert f"cannot be read in full by the login of {purpose}" in lacking[0]
            if role == ADMIN:
                with pytest.raises(SourceError, match="denied"):
                    capture_of(source).described(made.table)
            lab.database.root(f"REVOKE SELECT (id) ON {name}.`of all` FROM {role}@'127.0.0.1'")
            if role != ADMIN:
                lab.database.catch_up()
                told = list(rights.of_tables(connections))
                assert {line.name for line in told} == {f"privileges {purpose}"}
                assert all(line.status == "error" and "of all" in line.detail for line in told)
            statement, _, _ = lacking[1].removeprefix("Run ").partition(";")
            lab.database.root(statement)
            lab.database.catch_up()
            assert capture_of(source).missing_rights(made) is None
        finally:
            lab.database.root(f"GRANT {held} ON {name}.* TO {role}@'127.0.0.1'")
            lab.database.catch_up()


@pytest.mark.breadth
def test_rights_on_the_server_that_a_login_lacks_are_told_with_the_statement(lab: Lab) -> None:
    rights_of = {ADMIN: grants.audit(lab.kind), SNAPSHOT: [grants.watch(lab.kind)[-1]]}
    for role, names in rights_of.items():
        for right in names:
            lab.database.root(f"REVOKE {right} ON *.* FROM {role}@'127.0.0.1'")
            lab.database.catch_up()
            try:
                (line,) = rights.of_server(lab.connections)
                assert line.status == "error"
                statement = line.remedy.removeprefix("Run ").rstrip(";")
                assert statement == f"GRANT {right} ON *.* TO '{role}'@'127.0.0.1'"
                source = MysqlSource(lab.database.name, lab.connections.config)
                refused = (line.detail, line.remedy) if role == ADMIN else None
                assert source.capture_obstacle() == refused, "before anything is created"
                if right == "XA_RECOVER_ADMIN":
                    with (
                        lab.connections.open("admin") as session,
                        pytest.raises(SourceError, match="XA transactions") as raised,
                    ):
                        preparation.audit_server(session, append=False)
                    assert raised.value.remedy == f"{statement};"
            finally:
                lab.database.root(f"GRANT {right} ON *.* TO {role}@'127.0.0.1'")
                lab.database.catch_up()


def test_a_login_that_lacks_a_right_goes_on_once_it_is_granted(lab: Lab) -> None:
    preparation.prepare(lab.connections)
    right = "INSERT ON tributary.marker"
    lab.database.root(f"REVOKE {right} FROM {MARKER}@'127.0.0.1'")
    try:
        with pytest.raises(SourceError, match="denied") as raised:
            primary.write_marker(lab.connections)
        assert raised.value.remedy.startswith(f"Grant {MARKER} what it lacks: docs/mysql.md")
    finally:
        lab.database.root(f"GRANT {right} TO {MARKER}@'127.0.0.1'")
    assert primary.write_marker(lab.connections).id


@contextmanager
def started_with(database: MysqlDatabase, option: str) -> Iterator[None]:
    """Restart the primary with one more line in its option file, for a block."""
    server = database.stack.server(database.kind)
    options = database.stack.folder / database.kind / "primary.cnf"
    kept = options.read_text("utf-8")
    options.write_text(f"{kept}{option}\n", "utf-8")
    server.restart()
    try:
        yield
    finally:
        options.write_text(kept, "utf-8")
        server.restart()
        database.catch_up()


@pytest.mark.breadth
def test_changes_that_reach_the_primary_by_replication_only_are_refused(lab: Lab) -> None:
    database, mariadb = lab.database, lab.kind == MARIADB
    table = lab.make("told", "CREATE TABLE told (id int PRIMARY KEY)")
    password = database.stack.passwords.get(REPLICATOR)
    port = database.stack.addresses().ports[f"{lab.kind}_replica"]
    word = "MASTER" if mariadb else "SOURCE"
    follow = (
        f"CHANGE {'MASTER' if mariadb else 'REPLICATION SOURCE'} TO {word}_HOST = '{HOST}',"
        f" {word}_PORT = {port}, {word}_USER = '{REPLICATOR}', {word}_PASSWORD = '{password}'"
    )

    def looked() -> tuple[list[str], Fingerprint, list[str]]:
        with lab.connections.open("admin") as session:
            facts = catalog.read_fingerprint(session, table.table)
            found = preparation.audit_server(session, append=False)
        lines = checks.run(lab.connections)
        return found, facts, [line.detail for line in lines if line.name == "log_slave_updates"]

    with started_with(database, "log_slave_updates = OFF"):  # MariaDB's default
        problems, before, lines = looked()
        assert problems == lines == [], "there is no replication to the primary"
        try:
            if mariadb:
                database.root(f"{follow}, MASTER_USE_GTID = current_pos", "START SLAVE")
                database.root(
                    "SET gtid_domain_id = 9",
                    f"INSERT INTO {database.name}.told VALUES (1)",
                    replica=True,
                )
                wait_until(lambda: database.query("SELECT 1 FROM told") != [], "the row to arrive")
            else:
                database.root(follow)
            problems, _, lines = looked()
            assert len(problems) == 1
            assert "its binlog lacks the changes that it replicates" in problems[0]
            assert lines == problems
        finally:
            database.root("STOP REPLICA", "RESET REPLICA ALL")
        problems, after, _ = looked()
        assert problems == []
        assert bool(before.diff(after)) is mariadb, "what came so is a fact"
    problems, _, lines = looked()
    assert problems == lines == []


@pytest.mark.breadth
def test_a_filter_of_the_log_is_a_fact_of_the_tables_that_it_leaves_out(lab: Lab) -> None:
    """A table that the binlog leaves out has no events, so a run looks only at its fingerprint."""
    database, table = lab.database, lab.make("told", "CREATE TABLE told (id int PRIMARY KEY)")

    def looked() -> tuple[str, list[str]]:
        with lab.connections.open("admin") as session:
            facts = catalog.read_fingerprint(session, table.table)
            return facts.digest, preparation.audit_table(session, table)

    before = looked()
    assert before[1] == []
    for option in (f"binlog_ignore_db = {database.name}", "binlog_do_db = tributary"):
        with started_with(database, option):
            digest, problems = looked()
        assert digest != before[0]
        assert problems == [f"{option.split(' ')[0]} leaves out database {database.name}"]
    # DDL statements are filtered by the session's default database.
    for option in ("binlog_ignore_db = another", f"binlog_do_db = {database.name}"):
        with started_with(database, option):
            digest, problems = looked()
        assert digest != before[0]
        assert problems == [
            f"{option.split(' ')[0]} leaves out DDL statements, such as TRUNCATE, of sessions with"
            " another default database"
        ]
