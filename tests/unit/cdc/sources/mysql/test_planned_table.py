"""Planned statements of MySQL and MariaDB, applied to a table's description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cdc.sources.mysql.planned_table import Lookups, after_definitions
from cdc.sources.mysql.table_facts import Described
from schemas.catalog import Catalog
from schemas.changes import Change, LoseEvents, Verdict
from schemas.ddl.mysql_statements import read_statements
from schemas.errors import DdlError
from schemas.evolution import Evidence, LakeColumns, Rules, diff
from schemas.generated_columns import recomputed
from schemas.planned_ddl.mysql_statements import read_planned
from schemas.statement_effects import StatementEffects
from schemas.table import Column, TableId

ID = TableId("s", "shop", "orders")
_DEFINITION = re.compile(
    r"`(?P<name>\w+)` (?P<type>\w+(?:\([^)]*\))?(?: UNSIGNED)?)(?: CHARACTER SET (?P<set>\w+))?"
    r"(?: COLLATE (?P<collation>\w+))?(?P<null> NOT NULL)?(?: DEFAULT (?P<default>.+))?"
)


def row(name: str, shown: str, *, null: bool = True, **more: Any) -> Mapping[str, Any]:
    text = shown.startswith(("varchar", "enum"))
    return {
        "name": name,
        "shown": shown,
        "value": None,
        "nullable": "YES" if null else "NO",
        "charset": "utf8mb4" if text else None,
        "collation": "utf8mb4_bin" if text else None,
        "expression": "",
        **more,
    }


ROWS = (
    row("id", "int", null=False),
    row("note", "varchar(10)"),
    row("n", "int"),
    row("q", "int", null=False, value="1"),
    row("mood", "enum('a','b')"),
    row("twice", "int", expression="(`n` * 2)"),
    row("price", "decimal(10,2)"),
    row("at", "datetime(3)", null=False),
    row("unit", "double", expression="(`price` / `n`)", extra="VIRTUAL GENERATED"),
    row("label", "varchar(60)", expression="concat(`unit`,`at`)", extra="STORED GENERATED"),
    row("is_a", "int", expression="(`mood` = _utf8mb4\\'a\\')", extra="STORED GENERATED"),
)
FOUND = Described(
    table=ID,
    kind="BASE TABLE",
    engine="InnoDB",
    partitioned=False,
    created="2026-01-01",
    columns=ROWS,
    primary_key=("id",),
    unique=(("id",), ("n", "q")),
    stored=None,
    of_mariadb=False,
)


def define(sql: str) -> Mapping[str, Any]:
    """The row that a server's catalog shows for the definition of a column."""
    found = _DEFINITION.fullmatch(sql)
    assert found is not None, sql
    charset = found["set"] or "utf8mb4"
    shown = found["type"].lower()
    text = shown.startswith(("varchar", "enum"))
    return row(
        found["name"],
        ("enum" + found["type"][4:] if shown.startswith("enum") else shown).replace(", ", ","),
        null=not found["null"],
        value=None if found["default"] in (None, "NULL") else found["default"].strip("'"),
        charset=charset if text else None,
        collation=(found["collation"] or f"{charset}_bin") if text else None,
    )


LOOKUPS = Lookups(
    define,
    {one["name"]: one["value"] for one in ROWS},
    {"PRIMARY": ("id",), "by_n": ("n", "q"), "by_note": ()},
)


def after(ddl: str) -> Described:
    return after_definitions(FOUND, read_planned(ddl, ID), LOOKUPS)


def columns_of(table: Described) -> list[Column]:
    return [
        Column(one.name, str(one.type), one.type.rule(table=ID, column="x").lake_type)
        for one in table.source_columns()
    ]


def changes(ddl: str, *, left_out: tuple[str, ...] = ()) -> tuple[Change, ...]:
    then = after(ddl)
    return diff(
        Catalog.read(FOUND.fingerprint(on_replica=False).facts),
        Catalog.read(then.fingerprint(on_replica=False).facts),
        LakeColumns({one.name: one.lake_type for one in columns_of(FOUND)}),
        Rules([one for one in columns_of(then) if one.name not in left_out]),
        Evidence(statements=read_statements(statement.text for statement in read_planned(ddl, ID))),
    )


IGNORE, EVOLVE, FILL, BOOTSTRAP = Verdict
A = "ALTER TABLE orders "


@pytest.mark.parametrize(
    ("ddl", "verdict"),
    [
        (A + "ADD x int", EVOLVE),
        (A + "ADD x int DEFAULT 5 AFTER id", FILL),
        (A + "ADD x int NOT NULL DEFAULT 5, ALGORITHM=INSTANT, LOCK=NONE", FILL),
        (A + "ADD x int NOT NULL", BOOTSTRAP),
        (A + "ADD x int DEFAULT (rand())", BOOTSTRAP),
        (A + "ADD x int AS (n + 1) STORED", BOOTSTRAP),
        (A + "ADD x int AUTO_INCREMENT UNIQUE", BOOTSTRAP),
        (A + "ADD x int; " + A + "ALTER x SET DEFAULT 5", BOOTSTRAP),
        (A + "ADD x int, DROP n", EVOLVE),
        (A + "ADD x int; " + A + "DROP x", IGNORE),
        (A + "ADD COLUMN IF NOT EXISTS n int", IGNORE),
        (A + "DROP n", EVOLVE),
        (A + "DROP COLUMN IF EXISTS other", IGNORE),
        (A + "DROP n, ADD n int", BOOTSTRAP),
        (A + "DROP twice", BOOTSTRAP),
        (A + "MODIFY n bigint", EVOLVE),
        (A + "MODIFY price decimal(12,4)", BOOTSTRAP),
        (A + "MODIFY n smallint", BOOTSTRAP),
        (A + "MODIFY n int unsigned", BOOTSTRAP),
        (A + "MODIFY n int", IGNORE),
        (A + "MODIFY n int NOT NULL", BOOTSTRAP),
        (A + "MODIFY q int NOT NULL DEFAULT 1", IGNORE),
        (A + "MODIFY q int NOT NULL DEFAULT 2 FIRST", EVOLVE),
        (A + "MODIFY n bigint; " + A + "MODIFY n int", BOOTSTRAP),
        (A + "MODIFY note varchar(20)", EVOLVE),
        (A + "MODIFY note varchar(5)", BOOTSTRAP),
        (A + "MODIFY note varchar(20) CHARACTER SET latin1", BOOTSTRAP),
        (A + "MODIFY mood enum('a','b','c')", EVOLVE),
        (A + "MODIFY mood enum('b','a')", BOOTSTRAP),
        (A + "CHANGE n n bigint", EVOLVE),
        (A + "CHANGE n m int", BOOTSTRAP),
        (A + "RENAME COLUMN n TO m", BOOTSTRAP),
        (A + "RENAME COLUMN n TO q, RENAME COLUMN q TO n", BOOTSTRAP),
        (A + "ALTER q DROP DEFAULT", EVOLVE),
        (A + "ALTER q SET DEFAULT 1", IGNORE),
        (A + "ADD INDEX i (note), ADD UNIQUE (note), DROP INDEX by_n", IGNORE),
        (A + "DROP INDEX `PRIMARY`", BOOTSTRAP),
        (A + "DROP PRIMARY KEY, ADD PRIMARY KEY (id, q)", BOOTSTRAP),
        (A + "ENGINE = innodb, FORCE", IGNORE),
        (A + "ENGINE = MyISAM", BOOTSTRAP),
        (A + "CONVERT TO CHARACTER SET latin1", BOOTSTRAP),
        (A + "TRUNCATE PARTITION p1", BOOTSTRAP),
        (A + "RENAME TO other; " + A + "ADD x int", BOOTSTRAP),
        ("RENAME TABLE orders TO old", BOOTSTRAP),
        ("TRUNCATE TABLE orders; OPTIMIZE TABLE orders", IGNORE),
    ],
)
def test_the_verdict_is_that_of_a_run(ddl: str, verdict: Verdict) -> None:
    found = changes(ddl)
    assert Verdict.gravest(change.verdict for change in found) is verdict, found


PRICE = "column 'price' was altered, and generated column"


@pytest.mark.parametrize(
    ("ddl", "left_out", "facts"),
    [
        ("MODIFY price decimal(12,4)", (), [f"{PRICE} 'label'", f"{PRICE} 'unit'"]),
        ("MODIFY price decimal(12,4)", ("price", "unit"), [f"{PRICE} 'label'"]),
        ("MODIFY price decimal(12,4)", ("unit", "label"), []),
        ("MODIFY at datetime(6) NOT NULL", ("at",), ["column 'at' was altered"]),
        (
            "MODIFY mood enum('a','b') COLLATE utf8mb4_general_ci",
            (),
            ["column 'mood' was altered, and generated column 'is_a' is computed from it"],
        ),
        ("MODIFY mood enum('a','b','c'), MODIFY n bigint, MODIFY note varchar(20)", (), []),
        ("MODIFY n bigint unsigned", ("n", "label", "unit"), ["column 'n' was altered"]),
        # Without strict mode, the server replaces NULL by 0.
        ("MODIFY n int NOT NULL", ("n", "label", "unit"), ["column 'n' was altered"]),
        ("MODIFY q int NOT NULL DEFAULT 1, MODIFY price decimal(10,2)", (), []),
    ],
)
def test_a_generated_column_changes_with_the_columns_that_it_is_computed_from(
    ddl: str, left_out: tuple[str, ...], facts: list[str]
) -> None:
    found = [one for one in changes(A + ddl, left_out=left_out) if isinstance(one, LoseEvents)]
    assert {one.verdict for one in found} <= {BOOTSTRAP}
    assert len(found) == len(facts), found
    assert all(one.fact.startswith(fact) for one, fact in zip(found, facts, strict=True)), found


def test_a_generated_column_that_was_altered_itself_changes() -> None:
    then = replace(
        FOUND,
        columns=tuple({**one, "shown": "float"} if one["name"] == "unit" else one for one in ROWS),
    )
    before, now = (Catalog.read(one.fingerprint(on_replica=False).facts) for one in (FOUND, then))
    found = [one.fact for one in recomputed(before, now, ["unit", "label"], StatementEffects())]
    assert found == [
        "column 'unit' was altered, and generated column 'label' is computed from it",
        "generated column 'unit' was altered",
    ]


def test_clauses_of_one_statement_name_the_columns_of_before() -> None:
    then = after(A + "CHANGE n q bigint AFTER id, CHANGE q n int FIRST, DROP note, ADD x int")
    assert [(one["name"], one["shown"]) for one in then.columns] == [
        ("n", "int"),
        ("id", "int"),
        ("q", "bigint"),
        ("mood", "enum('a','b')"),
        *((one["name"], one["shown"]) for one in ROWS[5:]),
        ("x", "int"),
    ]
    assert then.unique == (("id",), ("q", "n"))


def test_keys_and_unique_indexes_follow() -> None:
    then = after(A + "ADD UNIQUE u (note), DROP INDEX By_N, DROP INDEX by_note")
    assert then.unique == (("id",), ("note",))
    then = after(A + "ADD PRIMARY KEY (n, id), RENAME INDEX by_n TO b")
    assert then.primary_key == ("n", "id")
    assert next(one["nullable"] for one in then.columns if one["name"] == "n") == "NO"


def test_a_virtual_column_of_the_clock_is_what_onboarding_refuses() -> None:
    (*_, virtual) = after(A + "ADD x datetime AS (now()) VIRTUAL").source_columns()
    assert virtual.depends_on.startswith("the time of the reading")
    (*_, stored) = after(A + "ADD x datetime AS (now()) STORED").source_columns()
    assert stored.depends_on == ""


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        (A + "DROP other", "no column 'other'"),
        (A + "MODIFY N bigint", "as the catalog has it, 'n'"),
        (A + "ADD Note int", "two columns would have the name 'note'"),
        (A + "ADD x int AFTER other", "no column 'other'"),
        (A + "ADD PRIMARY KEY (other)", "no column 'other'"),
        (A + "MODIFY twice bigint AS (n * 2)", "generated"),
    ],
)
def test_statements_that_do_not_fit_are_refused(ddl: str, why: str) -> None:
    with pytest.raises(DdlError, match=why):
        after(ddl)
