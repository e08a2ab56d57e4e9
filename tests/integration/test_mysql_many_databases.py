"""Facts of tables in many databases, as a source of shards has them, on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cdc.sources.mysql import boundaries
from cdc.sources.mysql.connection import Session
from cdc.sources.mysql.table_facts import describe
from schemas.table import TableId
from stack.mysql_software import MARIADB, MYSQL
from stack.ports import HOST
from stack.roles import ADMIN
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_lab import Lab
from tests.integration.rigs.mysql_lab import lab as lab

pytestmark = pytest.mark.breadth

# More than one statement reads, and pairs that are equal to a collation without case or accents.
_ENDS = (*map(str, range(55)), "-b", "A", "a", "\u00c4", "\u00e4", "\u0436", "\u4e2d", "$%")


@pytest.fixture
def shards(lab: Lab) -> Iterator[list[str]]:
    names = [f"{lab.database.name}s{end}" for end in _ENDS]
    right = f"ALL PRIVILEGES ON `{lab.database.name}s%`.*"
    lab.database.root(
        *(f"CREATE DATABASE `{name}`" for name in names), f"GRANT {right} TO {ADMIN}@'{HOST}'"
    )
    yield names
    lab.database.root(
        *(f"DROP DATABASE `{name}`" for name in names), f"REVOKE {right} FROM {ADMIN}@'{HOST}'"
    )


def test_tables_of_many_databases_are_described_like_each_by_itself(
    lab: Lab, shards: list[str]
) -> None:
    """Keys and columns keep their order, and no table gets columns of another one."""
    made = [(shard, "t") for shard in shards]
    made += [(shards[0], "T"), (lab.database.name, "t"), (lab.database.name, "\u00e4-u")]
    lab.database.root(
        *(
            f"CREATE TABLE `{shard}`.`{name}` (z int, Y int, x{number} int, w int NOT NULL DEFAULT"
            " 7, v int AS (z + 1), PRIMARY KEY (Y, z), UNIQUE b (w), UNIQUE A (z, w))"
            for number, (shard, name) in enumerate(made)
        )
    )
    tables = [TableId("shop", *names) for names in made]
    gone = TableId("shop", shards[0], "gone")
    with lab.connections.open("admin") as session:
        found = describe(session, [*tables, gone])
        alone = {table: describe(session, [table])[table] for table in tables}
    assert found == alone
    for number, one in enumerate(found[table] for table in tables):
        assert [row["name"] for row in one.columns] == ["z", "Y", f"x{number}", "w", "v"]
        assert one.unique == (("Y", "z"), ("z", "w"), ("w",))
        assert one.stored is not None
    # Files of databases whose names differ only in letters of other alphabets are watched together.
    own = {
        one.stored.shown for table, one in found.items() if one.stored and table.schema.isascii()
    }
    assert len(own) == sum(table.schema.isascii() for table in tables)


@pytest.mark.parametrize("database", [MARIADB], indirect=True)
def test_no_statement_lists_the_databases_of_the_server(
    lab: Lab, shards: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table's own file is opened; else the server would list the folders of all its tables."""
    lab.database.root(*(f"CREATE TABLE `{shard}`.t (id int PRIMARY KEY)" for shard in shards))
    tables = [TableId("shop", shard, "t") for shard in shards]
    asked: list[tuple[str, Sequence[object]]] = []
    named = Session.named

    def notes(session: Session, statement: str, values: Sequence[object] = ()) -> Any:
        asked.append((statement, values))
        return named(session, statement, values)

    monkeypatch.setattr(Session, "named", notes)
    with lab.connections.open("admin") as session:
        describe(session, tables)
        of_catalog = [one for one in asked if "INNODB" not in one[0]]
        plans = [session.rows(f"EXPLAIN {text}", values) for text, values in of_catalog]
    found = {text for plan in plans for *_, text in plan if "Scanned" in text}
    assert {text.rpartition("; ")[2] for text in found} == {"Scanned 0 databases"}
    # Two readings of columns, indexes and tables, each in two statements; one of InnoDB's tables.
    assert (len(of_catalog), len(asked) - len(of_catalog)) == (12, 1)


def test_a_session_is_set_once_for_all_readings(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lab.make("t", "CREATE TABLE t (id int PRIMARY KEY)")
    settings = list[str]()
    rows = Session.rows

    def notes(session: Session, statement: str, values: Sequence[object] = ()) -> Any:
        if "stats_expiry" in statement:
            settings.append(statement)
        return rows(session, statement, values)

    monkeypatch.setattr(Session, "rows", notes)
    for _ in range(2):
        with lab.connections.open("admin") as session:
            describe(session, [table.table])
            assert boundaries.table_size(session, table).rows == 0
            if lab.kind == MYSQL:
                assert session.named("SHOW VARIABLES LIKE 'information_schema_stats_expiry'") == [
                    {"Variable_name": "information_schema_stats_expiry", "Value": "0"}
                ]
    # Once for each session; MariaDB has no such setting.
    assert len(settings) == (2 if lab.kind == MYSQL else 0)
