"""When facts about a table count as read at one moment, and the fingerprint that they give."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from cdc.sources.mysql import innodb
from cdc.sources.mysql.connection import Session
from cdc.sources.mysql.innodb import Stored
from cdc.sources.mysql.table_facts import Described, of_databases, read_steady
from schemas.catalog import Catalog
from schemas.table import TableId

TABLES = tuple(TableId("shop", "shop", f"t{number}") for number in range(8))


class Altered:
    """A catalog in which one table after the other changes between two readings."""

    def __init__(self, *restless: TableId, gone: Collection[TableId] = ()) -> None:
        self.restless, self.gone, self.read = restless, gone, list[set[TableId]]()

    def __call__(self, tables: Collection[TableId]) -> dict[TableId, int]:
        self.read.append(set(tables))
        turn = len(self.read)
        # At each reading another table differs from before; a restless one always does.
        facts = {table: int(turn > number) for number, table in enumerate(TABLES, 1)}
        facts |= dict.fromkeys(self.restless, turn)
        return {table: facts[table] for table in tables if table not in self.gone}


def test_a_table_that_changes_takes_no_other_with_it() -> None:
    catalog = Altered()
    found, unsteady = read_steady(catalog, TABLES)
    assert (found, unsteady) == (dict.fromkeys(TABLES[1:], 0) | {TABLES[0]: 1}, set())
    # Those that were equal twice are not read again.
    assert [len(tables) for tables in catalog.read] == [8, 8, 1]


def test_a_table_that_always_changes_is_named() -> None:
    found, unsteady = read_steady(Altered(TABLES[3]), TABLES)
    assert unsteady == {TABLES[3]}
    assert found.keys() == set(TABLES) - unsteady


def test_a_table_that_is_gone_twice_is_gone() -> None:
    found, unsteady = read_steady(Altered(gone=TABLES[:2]), TABLES)
    assert (found.keys(), unsteady) == (set(TABLES[2:]), set())


def test_what_is_read_between_belongs_to_the_reading_before() -> None:
    """A change of the catalog meanwhile shows in the second reading, so both are read again."""
    catalog = Altered()
    read_between = list[dict[TableId, int]]()

    def between(before: Mapping[TableId, int]) -> dict[TableId, int]:
        read_between.append(dict(before))
        return {table: number + 10 for table, number in before.items()}

    found, unsteady = read_steady(catalog, TABLES, between)
    assert (found, unsteady) == (dict.fromkeys(TABLES[1:], 10) | {TABLES[0]: 11}, set())
    # Once for all tables, and once more for the one that changed.
    assert read_between == [dict.fromkeys(TABLES, 0), {TABLES[0]: 1}]


class Files:
    """A session that answers with InnoDB's rows of these names."""

    kind = "mysql"

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[tuple[str, list[object]]] = []

    def named(self, statement: str, values: Sequence[object]) -> list[dict[str, object]]:
        self.asked.append((statement, [*values]))
        return [{"NAME": name, "TABLE_ID": number} for number, name in enumerate(self.names, 1)]


def test_patterns_of_files_are_only_for_names_that_need_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each look would compare a thousand patterns with each of the server's files."""
    asked: list[TableId] = []
    genuine = innodb.file_pattern
    monkeypatch.setattr(innodb, "file_pattern", lambda one: asked.append(one) or genuine(one))
    plain, dashed, short = (TableId("shop", "shop", name) for name in ("t", "a-b", "\u0436"))
    session = cast("Session", Files("shop/t", "shop/a@002db#p#x", "shop/@1Z", "shop/other"))
    found = innodb.read_stored(session, "mysql", [plain, dashed, short])
    assert {table: one.shown for table, one in found.items()} == {
        plain: "1",
        dashed: "x:2",
        short: "3",
    }
    assert asked == [short]


def test_the_server_compares_each_file_with_one_list_of_databases() -> None:
    """Else it would compare a thousand patterns with each of its files."""
    names = [*(f"shop_{number}" for number in range(1_000)), "a-b", "\u0436"]
    session = Files("shop_7/t", "a@002db/t", "@1Z/t")
    found = innodb.read_stored(
        cast("Session", session), "mysql", [TableId("shop", name, "t") for name in names]
    )
    assert {table.schema: one.shown for table, one in found.items()} == {
        "shop_7": "1",
        "a-b": "2",
        "\u0436": "3",
    }
    ((statement, values),) = session.asked
    assert (statement.count(" IN "), statement.count("LIKE")) == (1, 1)
    assert len(values) == 1_002
    assert {"shop_7", "a@002db", "@%/%"} <= set(values)


@pytest.mark.parametrize(
    ("schema", "condition"),
    [("shop", "SUBSTRING_INDEX(NAME, '/', 1) IN (%s)"), ("\u0436", "NAME LIKE %s")],
)
def test_databases_of_one_kind_of_name_need_one_condition(schema: str, condition: str) -> None:
    session = Files()
    innodb.read_stored(cast("Session", session), "mysql", [TableId("shop", schema, "t")])
    ((statement, _),) = session.asked
    assert statement.endswith(f" WHERE {condition}")


def test_tables_are_grouped_by_database_and_statements_are_bounded() -> None:
    shards = [TableId("shop", f"shop_{number}", "t") for number in range(101)]
    assert [len(groups) for groups in of_databases(shards)] == [50, 50, 1]
    assert of_databases([shards[0], *TABLES, shards[1]]) == [
        [[shards[0]], [*TABLES], [shards[1]]],
    ]
    assert of_databases([]) == []


def row(name: str) -> dict[str, Any]:
    plain = {"shown": "int", "nullable": "NO", "charset": None, "collation": None}
    return {"name": name, "value": None, "expression": "", **plain}


FOUND = Described(
    table=TABLES[0],
    kind="BASE TABLE",
    engine="InnoDB",
    partitioned=False,
    created="2026-01-01",
    columns=(row("a note"), row("id")),
    primary_key=("id", "a note"),
    unique=(("id", "a note"),),
    stored=Stored({"": 7}, "5 columns"),
    of_mariadb=False,
)


def test_a_fingerprint_has_columns_by_name_and_what_the_server_knows() -> None:
    facts = FOUND.fingerprint(on_replica=False).facts
    catalog = Catalog.read(facts)
    assert [*catalog.columns] == ["a note", "id"]
    assert catalog.primary_key == ("id", "a note")
    grave = {"engine", "kind", "partitioned", "expressions", "unlogged"}
    assert catalog.rest.keys() == grave, "a change of these loses events"
    assert facts.keys() - grave == {"source_kind", "columns", "primary_key", "table_id", "altered"}


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"columns": FOUND.columns[::-1]}, True),
        ({"columns": (row("note"), row("id"))}, False),
        ({"primary_key": ("a note", "id")}, False),
        ({"stored": Stored({"": 8}, "5 columns")}, False),
        ({"stored": Stored({"": 7}, "6 columns")}, False),
        ({"engine": "MyISAM"}, False),
        ({"unlogged": "binlog_ignore_db leaves out database shop"}, False),
    ],
)
def test_what_a_fingerprint_compares(changed: dict[str, Any], *, same: bool) -> None:
    before, now = (one.fingerprint(on_replica=False) for one in (FOUND, replace(FOUND, **changed)))
    assert (before.digest == now.digest) is same
