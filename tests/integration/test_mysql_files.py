"""What a look at a table reads: no list for which MySQL opens all its tables, and no fact twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cdc.sources.mysql import catalog, grants, innodb, lookup, preparation
from cdc.sources.mysql.connection import Session
from cdc.sources.mysql.source import MysqlSource
from schemas.copy_spoiling import spoiling_facts
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from stack.mysql_software import MARIADB, MYSQL
from stack.ports import HOST
from stack.roles import ADMIN
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_lab import Lab, as_schema
from tests.integration.rigs.mysql_lab import lab as lab
from tests.integration.rigs.sources import capture_of

pytestmark = pytest.mark.breadth

of_mysql = pytest.mark.parametrize("database", [MYSQL], indirect=True)

_PARTITIONED = (
    " PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2"
    " (PARTITION `p,0` VALUES LESS THAN (10), PARTITION P1 VALUES LESS THAN (20))"
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Sequence[object]]]:
    """All statements of sessions, with their values."""
    found: list[tuple[str, Sequence[object]]] = []
    rows, named = Session.rows, Session.named

    def notes_rows(session: Session, statement: str, values: Sequence[object] = ()) -> Any:
        found.append((statement, values))
        return rows(session, statement, values)

    def notes_named(session: Session, statement: str, values: Sequence[object] = ()) -> Any:
        found.append((statement, values))
        return named(session, statement, values)

    monkeypatch.setattr(Session, "rows", notes_rows)
    monkeypatch.setattr(Session, "named", notes_named)
    return found


@pytest.fixture
def documented_rights(lab: Lab) -> Iterator[None]:
    """Leave the login of admin no more rights on the database than the documentation asks for."""
    preparation.prepare(lab.connections)
    everything = f"ALL PRIVILEGES ON {lab.database.name}.*"
    lab.database.root(
        f"REVOKE {everything} FROM {ADMIN}@'{HOST}'",
        f"GRANT SELECT ON {lab.database.name}.* TO {ADMIN}@'{HOST}'",
        *(f"GRANT {right} ON *.* TO {ADMIN}@'{HOST}'" for right in grants.audit(lab.kind)),
    )
    yield
    lab.database.root(f"GRANT {everything} TO {ADMIN}@'{HOST}'")


def looked(lab: Lab, *names: str) -> dict[str, Fingerprint]:
    tables = [TableId("shop", lab.database.name, name) for name in names]
    with lab.connections.open("admin") as session:
        found = catalog.read_fingerprints(session, tables)
    return {table.name: one for table, one in found.items()}


def whole_lists(asked: list[tuple[str, Sequence[object]]]) -> int:
    """How often a statement has asked for the list of all tables of the server."""
    return sum("INNODB_TABLES " in statement for statement, _ in asked)


@of_mysql
@pytest.mark.usefixtures("documented_rights")
def test_a_look_opens_no_other_table_and_scans_no_dictionary(
    lab: Lab, asked: list[tuple[str, Sequence[object]]]
) -> None:
    names = ["t", "T", "a-b", "\u0436", "\u0436-\u00e9", "dollar$", "t t", "x" * 64]
    lab.database.root(
        f"USE {lab.database.name}",
        *(f"CREATE TABLE `{name}` (id int PRIMARY KEY, v int)" for name in names),
        f"CREATE TABLE parted (id int PRIMARY KEY, v int){_PARTITIONED}",
    )
    asked.clear()
    found = looked(lab, *names, "parted", "gone")
    assert found.keys() == {*names, "parted"}
    assert whole_lists(asked) == 0
    listed = dict(
        lab.database.root(
            "SELECT NAME, SPACE FROM information_schema.INNODB_TABLES"
            f" WHERE NAME LIKE '{lab.database.name}/%'"
        )
    )
    ids = {str(one.facts["table_id"]) for name, one in found.items() if name != "parted"}
    parts = str(found["parted"].facts["table_id"]).split(",")
    assert len(parts) == 4
    ids |= {part.rpartition(":")[2] for part in parts}
    assert ids == {str(one) for one in listed.values()}
    asked.clear()
    with lab.connections.open("admin") as session:
        for name in ("t", "parted"):
            table = TableId("shop", lab.database.name, name)
            catalog.read_fingerprints(session, [table])
            innodb.read_cascades(session, lab.kind, table)
        explained = [
            (text, session.named(f"EXPLAIN FORMAT = TRADITIONAL {text}", values))
            for text, values in list(asked)
            if "BRIEF" in text or ".PARTITIONS" in text or "REFERENTIAL" in text
        ]
    assert len(explained) == 5
    for text, plan in explained:
        scans = {row["table"]: row for row in plan if row["type"] in ("ALL", "index")}
        # A server has one catalog. This one has hardly a foreign key, so an index would not help.
        assert scans.keys() <= {"cat", "fk"}, (text, plan)
        assert "fk" not in scans or "table_id" in scans["fk"]["possible_keys"], plan


@of_mysql
def test_what_changes_no_visible_fact_is_noticed(
    lab: Lab, asked: list[tuple[str, Sequence[object]]]
) -> None:
    """All statements have one time, as those of a replica or of a session with SET TIMESTAMP."""
    lab.make("t", "CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 1)")
    asked.clear()
    before = looked(lab, "t")["t"]
    for unseen, statements in (
        (False, ["ALTER TABLE t ADD INDEX v (v)"]),
        (False, ["ALTER TABLE t ADD INDEX e ((v + 1))"]),
        (True, ["ALTER TABLE t ADD c int, ALGORITHM = INSTANT", "ALTER TABLE t DROP c"]),
        (True, ["ALTER TABLE t ADD c int, ALGORITHM = INSTANT", "ALTER TABLE t DROP c"]),
        (False, ["ALTER TABLE t DROP INDEX v, DROP INDEX e"]),
        (True, ["ALTER TABLE t DROP v", "ALTER TABLE t ADD v int DEFAULT 1"]),
        (True, ["TRUNCATE t"]),
        (True, ["ALTER TABLE t FORCE"]),
        (True, ["OPTIMIZE TABLE t"]),
        (True, ["CREATE TABLE u LIKE t", "RENAME TABLE t TO o, u TO t"]),
        (True, ["DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 1)"]),
        (False, ["RENAME TABLE t TO o2", "RENAME TABLE o2 TO t"]),
    ):
        lab.database.root(
            f"USE {lab.database.name}",
            "SET sql_log_bin = 0",
            "SET timestamp = 1700000000",
            *statements,
        )
        now = looked(lab, "t")["t"]
        differences = {line.split(" ")[0].split(".")[0] for line in before.diff(now)}
        assert differences <= {"table_id", "altered"}, "nothing else shows it"
        assert bool(differences) is unseen, statements
        before = now
    assert whole_lists(asked) == 0


@of_mysql
def test_each_change_of_partitions_is_noticed(
    lab: Lab, asked: list[tuple[str, Sequence[object]]]
) -> None:
    lab.make(
        "parted",
        f"CREATE TABLE parted (id int PRIMARY KEY, v int){_PARTITIONED}",
        "CREATE TABLE swapped (id int PRIMARY KEY, v int)",
    )
    asked.clear()
    before = looked(lab, "parted")["parted"]
    for clause in (
        "TRUNCATE PARTITION `p,0`",
        "REBUILD PARTITION P1",
        "ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))",
        "REORGANIZE PARTITION p2 INTO (PARTITION p2 VALUES LESS THAN (40))",
        "DROP PARTITION p2",
        "ADD COLUMN c int, ALGORITHM = INSTANT",
        "DROP COLUMN c",
    ):
        lab.database.root(f"USE {lab.database.name}", f"ALTER TABLE parted {clause}")
        now = looked(lab, "parted")["parted"]
        assert before.diff(now), clause
        before = now
    assert whole_lists(asked) == 0


def test_only_new_partitions_leave_a_copy_alone(lab: Lab) -> None:
    table = lab.make(
        "parted",
        "CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
        "INSERT INTO parted VALUES (1, 1), (11, 1), (15, 1)",
    ).table

    def both() -> tuple[Fingerprint, Fingerprint]:
        lab.database.catch_up()
        with lab.connections.open("admin") as session:
            facts = catalog.read_fingerprint(session, table)
        with lab.connections.open("snapshot", on_replica=True) as session:
            theirs = catalog.read_fingerprint(session, table, on_replica=True)
        return facts, catalog.with_files(theirs, facts)

    def spoils(*clauses: str) -> bool:
        before = both()
        for clause in clauses:
            lab.database.query(f"ALTER TABLE parted {clause}")
        found = [bool(spoiling_facts(*facts)) for facts in zip(before, both(), strict=True)]
        assert found[0] == found[1]
        return found[0]

    added = "ADD PARTITION (PARTITION {} VALUES LESS THAN ({}))"
    if lab.kind == MARIADB:
        lab.database.query("DO sleep(1.1)")  # the time of the last ALTER, in seconds
    assert not spoils(added.format("p2", 30))
    assert spoils(added.format("p3", 40), "ADD COLUMN w int")
    assert spoils(
        "REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (13), PARTITION q VALUES"
        " LESS THAN (20))"
    )
    assert spoils(added.format("p4", 50), "TRUNCATE PARTITION p0")
    assert spoils("DROP PARTITION p4")
    assert lab.database.query("SELECT id FROM parted ORDER BY id") == [(11,), (15,)]


@of_mysql
def test_a_table_in_a_file_with_others_is_looked_up_in_the_list(
    lab: Lab, asked: list[tuple[str, Sequence[object]]]
) -> None:
    space = f"{lab.database.name}_shared"
    lab.database.root(
        f"CREATE TABLESPACE {space} ADD DATAFILE '{space}.ibd'",
        f"USE {lab.database.name}",
        *(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int) TABLESPACE {place}"
            for name, place in (
                ("shared", space),
                ("of_system", "innodb_system"),
                ("own", "innodb_file_per_table"),
            )
        ),
    )
    try:
        names = ("shared", "of_system", "own")
        asked.clear()
        before = looked(lab, *names)
        assert all(one.facts["table_id"] for one in before.values())
        assert whole_lists(asked) == 1
        for statements in (
            ["TRUNCATE {}"],
            ["ALTER TABLE {} ADD c int, ALGORITHM = INSTANT", "ALTER TABLE {} DROP c"],
            ["ALTER TABLE {} FORCE"],
        ):
            lab.database.root(
                f"USE {lab.database.name}",
                *(statement.format(name) for name in names for statement in statements),
            )
            now = looked(lab, *names)
            assert all(before[name].diff(now[name]) for name in names), statements
            before = now
    finally:
        lab.database.root(f"DROP TABLE {lab.database.name}.shared", f"DROP TABLESPACE {space}")


def test_a_table_is_locked_for_no_list_of_all_tables(
    lab: Lab, asked: list[tuple[str, Sequence[object]]]
) -> None:
    """A value in older rows is read while the table is locked."""
    table = lab.make("older", "CREATE TABLE older (id int PRIMARY KEY, d int DEFAULT 7)")
    asked.clear()
    with lab.connections.open("admin") as session:
        lookup.stored_value(session, table, as_schema(table).column("d"))
    assert not [text for text, _ in asked if "INNODB_" in text or "STATUS" in text]


def test_a_commit_asks_for_the_filter_of_the_log_once(
    lab: Lab, asked: list[tuple[str, Sequence[object]]]
) -> None:
    preparation.prepare(lab.connections)
    table = lab.make("t", "CREATE TABLE t (id int PRIMARY KEY)")
    asked.clear()
    assert capture_of(MysqlSource("shop", lab.connections.config)).audited(table.table)[0] == table
    statements = [text for text, _ in asked]
    assert len({"SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"}.intersection(statements)) == 1
    assert sum(text.endswith(" STATUS") for text in statements) == 1
    assert not [text for text in statements if "INNODB_FOREIGN" in text]
