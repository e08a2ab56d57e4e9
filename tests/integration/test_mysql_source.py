"""``check`` and ``discover`` on MySQL and MariaDB: the tables that they find and their faults."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc.capture.evidence import CaptureEvidence
from cdc.config import MysqlSourceConfig, TableSettings, parse
from cdc.debezium import CaptureNames
from cdc.errors import CaptureError, ConfigError
from cdc.runtime.progress import NullProgress
from cdc.sources.mysql import rights
from cdc.sources.mysql.binlog import BinlogHealth, NoBinlog
from cdc.sources.mysql.connection import Connections, Session
from cdc.sources.mysql.server_settings import WANTED
from cdc.sources.mysql.source import MysqlSource
from cdc.sources.source_facts import Check
from operate import check
from operate.context import Services
from operate.copy_order import largest_first
from operate.discover import at_source, discover
from operate.readiness import judge
from schemas.table import TableId
from stack.mysql import MysqlServer
from stack.mysql_data import Instance
from stack.mysql_software import MARIADB, MYSQL, find_installation
from stack.ports import HOST, choose
from stack.roles import ADMIN
from stack.unprivileged import database_user
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.mysql import MysqlDatabase
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.sources import capture_of
from tests.integration.rigs.table_shapes import (
    APPEND,
    BY_ID,
    KEYED,
    PLAIN,
    UNCLEAR,
    UNIQUE,
    Refused,
    Shape,
    fits_after_its_remedy,
)

pytestmark = pytest.mark.breadth


@pytest.fixture
def services(database: MysqlDatabase, tmp_path: Path) -> Iterator[Services]:
    text = database.stack.config_text(
        database=database.name, kinds=[database.kind], folder=tmp_path
    )
    opened = Services(parse(text), NullProgress())
    yield opened
    opened.close()


def the_source(services: Services) -> tuple[str, MysqlSourceConfig]:
    ((name, config),) = services.config.sources.items()
    assert isinstance(config, MysqlSourceConfig)
    return name, config


def lines(services: Services) -> dict[str, Check]:
    name, _ = the_source(services)
    return {line.name: line for line in services.source(name).checks()}


# A crash of the machine may lose what the stack holds, so it does without the cost.
AT_CRASH = {name for name, wanted in WANTED.items() if wanted.at_crash}


def faults(services: Services) -> dict[str, Check]:
    found = {
        name: line
        for name, line in lines(services).items()
        if line.status != "ok" and name not in AT_CRASH
    }
    assert all(line.remedy for line in found.values()), "a fault without a remedy"
    return found


def test_settings_by_which_a_crash_loses_commits_are_a_warning(
    services: Services, database: MysqlDatabase
) -> None:
    for name in sorted(AT_CRASH):
        found = lines(services)[name]
        assert (found.status, found.detail != "1") == ("warning", True)
        told = re.match(r"SET GLOBAL [^,.:]+", found.remedy)
        assert told
        database.root(told[0])
        try:
            assert lines(services)[name].status == "ok"
        finally:
            database.root(f"SET GLOBAL {name} = {found.detail}")


def test_a_server_that_is_set_up_well_has_no_fault(
    services: Services, database: MysqlDatabase
) -> None:
    seen = lines(services)
    # On a stack that stays up, tests of before have set some and set them back.
    found = [
        one for one in faults(services).values() if "set after the server started" not in one.detail
    ]
    assert not found
    gtids = "gtid_mode" if database.kind == MYSQL else "gtid_strict_mode"
    for name in (
        *(f"login {role}" for role in ("admin", "capture", "snapshot", "marker")),
        *("log_bin", "binlog_format", "binlog_row_image", "binlog_expire_logs_seconds", gtids),
        *("privileges capture", "replica", "replica transactions", "replica lag"),
    ):
        assert seen[name].detail


@pytest.mark.parametrize(
    ("setting", "wrong", "right"),
    [
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_format", "STATEMENT", "ROW"),
        ("binlog_expire_logs_seconds", "3600", "2592000"),
    ],
)
def test_a_setting_that_loses_changes_is_named(
    services: Services, database: MysqlDatabase, setting: str, wrong: str, right: str
) -> None:
    """`check` names the setting even after its correction, while older sessions may exist."""
    of_sessions = setting != "binlog_expire_logs_seconds"
    try:
        database.root(f"SET GLOBAL {setting} = {wrong if wrong.isdigit() else repr(wrong)}")
        found = faults(services)
        assert list(found) == [setting]
        with database.connect() as older, older.cursor() as cursor:
            database.root(f"SET GLOBAL {setting} = {right if right.isdigit() else repr(right)}")
            if of_sessions:
                cursor.execute(f"SELECT @@session.{setting}")
                assert cursor.fetchone() == (wrong,)
        meanwhile = faults(services)
        assert [line.status for line in meanwhile.values()] == ["warning"] * of_sessions
        for name, line in meanwhile.items():
            assert name == setting
            assert "older sessions may have another value" in line.detail
            assert "restart the server" in line.remedy
            assert "restart the server" in found[name].remedy
    finally:
        if of_sessions:
            database.stack.server(database.kind).restart()
            database.catch_up()
        else:
            database.root(f"SET GLOBAL {setting} = {right}")
    # The replica connects again a moment after a restart.
    wait_until(lambda: not faults(services), "nothing to be wrong any more")


def test_what_refuses_each_table_is_named_before_there_is_one(
    services: Services, database: MysqlDatabase
) -> None:
    """All tables are refused after XA transactions, and by one setting of the server.

    MySQL's setting concerns the order of commits, MariaDB's the logging of ALTERs.
    """
    setting, right, wrong = ("binlog_order_commits", "ON", "OFF")
    if database.kind == MARIADB:
        setting, right, wrong = ("binlog_alter_two_phase", "OFF", "ON")
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in ("XA START 'x'", "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"):
            cursor.execute(statement)
    try:
        database.root(f"SET GLOBAL {setting} = {wrong}")
        found = faults(services)
        assert {line.status for line in found.values()} == {"error"}
        assert set(found) == {"XA transactions", setting}
    finally:
        database.root(f"SET GLOBAL {setting} = {right}")
        database.stack.server(database.kind).restart()
        database.catch_up()
    # The replica connects again a moment later.
    wait_until(lambda: not faults(services), "nothing to be wrong any more")


WRONG = {
    MARIADB: {"gtid_strict_mode": "OFF", "log_bin_compress": "ON"},
    MYSQL: {
        "binlog_row_value_options": "PARTIAL_JSON",
        "show_gipk_in_create_table_and_information_schema": "OFF",
    },
}


def test_settings_are_right_after_the_statement_that_is_told(
    services: Services, database: MysqlDatabase
) -> None:
    wrong = {"binlog_row_image": "MINIMAL", "binlog_format": "MIXED", **WRONG[database.kind]}
    try:
        for name, value in wrong.items():
            database.root(f"SET GLOBAL {name} = '{value}'")
            told = re.match(r"SET GLOBAL [^,.:]+", faults(services)[name].remedy)
            assert told, name
            database.root(told[0])
            assert all(line.status != "error" for line in faults(services).values()), told
        database.root("SET GLOBAL read_only = OFF", replica=True)
        told = re.match(r"SET GLOBAL [^(]+", faults(services)["replica read_only"].remedy)
        assert told
        name = "super_read_only" if database.kind == MYSQL else "read_only"
        database.root(told[0].replace("read_only", name), replica=True)
        assert "replica read_only" not in faults(services)
    finally:
        database.stack.server(database.kind).restart()
        database.catch_up()
    # The replica connects again a moment later.
    wait_until(lambda: not faults(services), "nothing to be wrong any more")


CASES = [
    Refused(
        Shape("keyed", (PLAIN,)), r"1\. .*?(ALTER .*? ADD PRIMARY KEY \(\.\.\.\))", {"...": "id"}
    ),
    Refused(
        Shape("indexed", (PLAIN, UNIQUE)),
        r"2\. set key_columns: .*? for example \(id\)",
        settings=BY_ID,
    ),
    Refused(Shape("aged", (f"{KEYED} ENGINE = MyISAM",)), r"(ALTER .*? ENGINE = InnoDB)"),
    Refused(
        Shape("never_null", UNCLEAR, settings=APPEND),
        r"1\. (ALTER .*? MODIFY \.\.\. NOT NULL)",
        {"...": "v int"},
        settings=APPEND,
    ),
    Refused(
        Shape("no_default", UNCLEAR, settings=APPEND),
        r"1\. (ALTER TABLE \S+) .*? or (ALTER COLUMN \.\.\. DROP DEFAULT)",
        {"...": "v"},
        settings=APPEND,
    ),
]
VERSIONED = Refused(
    Shape("versioned", (f"{KEYED} WITH SYSTEM VERSIONING",)),
    r"(ALTER TABLE \S+ /\*M! DROP SYSTEM VERSIONING \*/)",
)


def test_refused_tables_fit_after_what_they_are_told(
    services: Services, database: MysqlDatabase
) -> None:
    name, _ = the_source(services)
    for case in [*CASES, *([VERSIONED] if database.kind == MARIADB else [])]:
        fits_after_its_remedy(services.source(name), database, case)


@pytest.mark.parametrize("database", [MARIADB], indirect=True)
def test_times_in_the_former_format_are_written_anew_as_it_says(
    services: Services, database: MysqlDatabase
) -> None:
    name, _ = the_source(services)
    former = "SET GLOBAL mysql56_temporal_format = {}"
    database.root(former.format("OFF"))
    try:
        database.query("CREATE TABLE aged (id int PRIMARY KEY, t time, made timestamp NULL)")
    finally:
        database.root(former.format("ON"))
    source, table = services.source(name), TableId(name, database.name, "aged")
    with pytest.raises(CaptureError, match=r"format from before MariaDB 10\.1 \(`t`, `made`\)"):
        judge(source.table(table), TableSettings()).require(table)
    audited = source.capture(services.capture(table)).audit_table(source.table(table))
    assert any("10.1" in problem for problem in audited)
    database.query("ALTER TABLE aged FORCE")
    judge(source.table(table), TableSettings()).require(table)


def test_a_replica_that_stands_still_or_is_none_is_named(
    services: Services, database: MysqlDatabase
) -> None:
    database.root(
        "STOP REPLICA SQL_THREAD" if database.kind == MYSQL else "STOP SLAVE SQL_THREAD",
        replica=True,
    )
    try:
        found = faults(services)
    finally:
        database.root("START REPLICA" if database.kind == MYSQL else "START SLAVE", replica=True)
    assert "replication does not run (stopped threads: sql)" in found["replica"].detail

    name, config = the_source(services)
    itself = MysqlSource(name, config.model_copy(update={"replica": config.primary}))
    (line,) = [line for line in itself.checks() if line.name == "replica"]
    assert (line.status, "is the primary itself" in line.detail) == ("error", True)
    deadline = time.monotonic() + 60
    while faults(services):
        assert time.monotonic() < deadline, "the replica does not run again"
        time.sleep(0.2)


def test_a_login_without_its_rights_is_told_the_grant(
    services: Services, database: MysqlDatabase
) -> None:
    name, config = the_source(services)
    logins = config.credentials.model_copy(update={"capture": config.credentials.marker})
    poor = MysqlSource(name, config.model_copy(update={"credentials": logins}))
    (line,) = [line for line in poor.checks() if line.name == "privileges capture"]
    assert line.status == "error"
    assert "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO" in line.remedy


def test_discover_lists_the_tables_of_the_databases_that_are_named(
    services: Services, database: MysqlDatabase
) -> None:
    database.query("CREATE TABLE plain (b int, a varchar(9), PRIMARY KEY (a, b))")
    database.query("CREATE TABLE `Odd ``name` (id int)")
    database.query("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
    database.query("CREATE TABLE old (id int PRIMARY KEY) ENGINE = MyISAM")
    database.query("CREATE VIEW seen AS SELECT * FROM plain")
    (source,) = services.config.sources
    entries = {entry.stats.table.name: entry for entry in discover(services)}
    assert {
        name: (entry.stats.kind, entry.stats.primary_key) for name, entry in entries.items()
    } == {
        "plain": ("table", ("a", "b")),
        "Odd `name": ("table", ()),
        "parts": ("partitioned", ("id",)),
        "old": ("other", ("id",)),
    }
    assert {entry.stats.table for entry in entries.values()} == {
        TableId(source, database.name, name) for name in entries
    }
    assert {name for name, entry in entries.items() if entry.refusal is None} == {"plain", "parts"}


def test_names_of_tables_are_read_without_opening_a_table_or_listing_other_databases(
    services: Services, database: MysqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes of 180,000 tables take MariaDB minutes, and wildcards and `check` need none."""
    database.query("CREATE TABLE plain (id int PRIMARY KEY)")
    database.query("CREATE VIEW seen AS SELECT * FROM plain")
    name, config = the_source(services)
    connections, asked = Connections(name, config), list[tuple[str, Sequence[object]]]()
    named = Session.named

    def notes(session: Session, statement: str, values: Sequence[object] = ()) -> Any:
        if "information_schema.TABLES" in statement or "STATISTICS" in statement:
            asked.append((statement, values))
        return named(session, statement, values)

    def gathers(names: CaptureNames) -> CaptureEvidence:
        raise AssertionError(names)

    monkeypatch.setattr(Session, "named", notes)
    wanted = at_source(services, [f"{name}:{database.name}.*"])
    assert wanted.tables == (TableId(name, database.name, "plain"),)
    (line,) = check._table_checks(services, name, [], gathers)
    assert line.detail.startswith("1 found")
    assert [*rights.of_tables(connections)] == []
    before = len(asked)
    with pytest.raises(ConfigError, match="matches no table"):
        at_source(services, [f"{name}:other.*"])
    assert len(asked) == before, "no database matches"
    assert {tuple(values) for _, values in asked} == {(database.name,)}
    if database.kind == MARIADB:
        with connections.open("admin") as session:
            plans = [session.rows(f"EXPLAIN {text}", values) for text, values in asked]
        for ((*_, extra),) in plans:
            assert "Open_frm_only; Scanned 1 database" in extra


def test_sizes_of_the_tables_that_are_copied_open_no_other_table(
    services: Services, database: MysqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("few", "many", "other"):
        database.query(f"CREATE TABLE {table} (id int PRIMARY KEY, v longtext)")
    database.query(
        f"INSERT INTO many VALUES {', '.join(f'({n}, repeat(1, 9999))' for n in range(99))}"
    )
    database.query("ANALYZE TABLE few, many, other")
    name, config = the_source(services)
    few, many, gone = (TableId(name, database.name, one) for one in ("few", "many", "gone"))
    everything = {one.table: one.total_bytes for one in services.source(name).tables()}
    asked = list[tuple[str, Sequence[object]]]()
    named = Session.named

    def notes(session: Session, statement: str, values: Sequence[object] = ()) -> Any:
        asked.append((statement, values))
        return named(session, statement, values)

    monkeypatch.setattr(Session, "named", notes)
    assert largest_first(services, [few, gone, many], 1) == [many, few, gone]
    ((statement, values),) = asked
    assert values == [database.name, "few", "gone", "many"]
    assert services.source(name).total_bytes([many]) == {many: everything[many]}
    if database.kind == MARIADB:
        with Connections(name, config).open("admin") as session:
            ((*_, extra),) = session.rows(f"EXPLAIN {statement}", values)
        assert "Scanned 1 database" in extra


def test_a_server_that_writes_no_binlog_is_told(
    services: Services, database: MysqlDatabase, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The binlog is off, as after a restart with another option file."""
    folder, stack = tmp_path_factory.mktemp("unlogged"), database.stack
    server = MysqlServer(
        Instance("unlogged", folder / "data", port=choose(["unlogged"])["unlogged"], server_id=77),
        installation=find_installation(database.kind),
        user=database_user(folder),
        passwords=stack.passwords,
    )
    server.data.make()
    server.data.configure({"skip_log_bin": "ON"})
    name, config = the_source(services)
    primary = config.primary.model_copy(update={"port": server.port})
    source = MysqlSource(name, config.model_copy(update={"primary": primary}))
    command = server.command()
    environment = {**os.environ, **command.environment}
    with subprocess.Popen(command.argv, cwd=command.folder, env=environment) as process:
        try:
            wait_until(lambda: server.unhealthy() is None, "the server is up")
            login = f"{ADMIN}@'{HOST}'"
            server.sql(
                f"CREATE USER {login} IDENTIFIED BY '{stack.passwords.get(ADMIN)}'",
                f"GRANT ALL ON *.* TO {login}",
            )
            health = capture_of(source).log_health()
            assert health == NoBinlog(name)
            assert "is off (log_bin)" in (health.problem() or "")
            assert "log_bin is OFF and must be ON" in capture_of(source).audit()
        finally:
            process.terminate()
            process.wait(60)
    assert isinstance(capture_of(services.source(name)).log_health(), BinlogHealth)
