"""Planned statements, applied to a table's description."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from cdc.sources.postgres.planned_table import Lookups, planned
from cdc.sources.source_facts import Planned, SourceColumn, SourceTable
from schemas.catalog import Catalog
from schemas.changes import Verdict
from schemas.errors import DdlError
from schemas.evolution import Evidence, LakeColumns, Rules, diff
from schemas.fingerprint import Fingerprint
from schemas.planned_ddl.postgres_statements import read_ddl
from schemas.table import Column, TableId
from schemas.types_postgres import PostgresType

ID = TableId("shop", "public", "orders")
TYPES = {
    "INT": PostgresType("int4", display="integer"),
    "BIGINT": PostgresType("int8", display="bigint"),
    "TEXT": PostgresType("text", display="text"),
    "VARCHAR(10)": PostgresType("varchar", 14, display="character varying(10)"),
    "VARCHAR(20)": PostgresType("varchar", 24, display="character varying(20)"),
}
COLUMNS = (
    SourceColumn("id", TYPES["INT"], False, False, None, number=1),
    SourceColumn("note", TYPES["VARCHAR(10)"], True, False, None, number=2),
    SourceColumn("n", TYPES["INT"], True, False, None, number=4),
)
TABLE = SourceTable(
    ID, "table", COLUMNS, ("id",), (("id",),), ("id",), "postgres", "default", "owner", number=100
)
FACTS: dict[str, Any] = {
    "source_kind": "postgres",
    "oid": 100,
    "relfilenode": 200,
    "owner": "o",
    "named": "1",
    "attributes": 4,
    "replica_identity": "d",
    "columns": {
        str(column.number): {
            "name": column.name,
            "shown": str(column.type),
            "nullable": column.nullable,
            "default": None,
            "generated": False,
            "written": "1",
        }
        for column in COLUMNS
    },
    "keys": {"primary": "1"},
    "leaves": {},
}


def volatile(names: Collection[str]) -> frozenset[str]:
    return frozenset(names) & {"random"}


def after(ddl: str) -> Planned:
    lookups = Lookups(
        TYPES.__getitem__, volatile, {"orders_pkey": (True, False), "c": (False,) * 2}
    )
    return planned(TABLE, Fingerprint(FACTS), read_ddl(ddl, ID), lookups)


def verdict(ddl: str) -> Verdict:
    then = after(ddl)
    changes = diff(
        Catalog.read(FACTS),
        Catalog.read(then.fingerprint.facts),
        LakeColumns({"id": "int", "note": "string", "n": "int"}),
        Rules(
            [
                Column(one.name, str(one.type), one.type.rule(table=ID, column="x").lake_type)
                for one in then.table.columns
                if not one.generated
            ]
        ),
        Evidence({one.name: one.old_values for one in then.table.columns}),
    )
    return Verdict.gravest(change.verdict for change in (*then.beyond_catalog, *changes))


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("alter table orders owner to other", Verdict.IGNORE),
        ("alter table orders add x int", Verdict.EVOLVE),
        ("alter table orders add x int not null default 5", Verdict.FILL),
        ("alter table orders add x text default lower('A')", Verdict.FILL),
        ("alter table orders add x int default random()", Verdict.BOOTSTRAP),
        ("alter table orders add x int generated always as identity", Verdict.BOOTSTRAP),
        ("alter table orders add x int generated always as (n * 2) stored", Verdict.IGNORE),
        ("alter table orders add if not exists n int default 5", Verdict.IGNORE),
        ("alter table orders drop column n", Verdict.EVOLVE),
        ("alter table orders drop column n, add column n int", Verdict.BOOTSTRAP),
        ("alter table orders drop column id", Verdict.BOOTSTRAP),
        ("alter table orders rename column n to m", Verdict.BOOTSTRAP),
        ("alter table orders rename to other", Verdict.BOOTSTRAP),
        ("alter table orders alter n type bigint", Verdict.EVOLVE),
        ("alter table orders alter n type bigint using n * 2", Verdict.BOOTSTRAP),
        ("alter table orders alter n type int", Verdict.IGNORE),
        ("alter table orders alter n type text", Verdict.BOOTSTRAP),
        ("alter table orders alter note type varchar(20)", Verdict.EVOLVE),
        ("alter table orders alter note type text", Verdict.EVOLVE),
        ("alter table orders alter n set not null, alter n set default 5", Verdict.EVOLVE),
        ("alter table orders drop constraint orders_pkey", Verdict.BOOTSTRAP),
        ("alter table orders drop constraint c", Verdict.IGNORE),
        ("alter table orders drop constraint orders_pkey, add primary key (n)", Verdict.BOOTSTRAP),
        ("alter table orders replica identity full", Verdict.EVOLVE),
        ("alter table orders replica identity nothing", Verdict.BOOTSTRAP),
    ],
)
def test_a_planned_change_gets_the_verdict_of_one_that_happened(
    ddl: str, expected: Verdict
) -> None:
    assert verdict(ddl) is expected


def test_a_narrower_limit_rewrites_the_table() -> None:
    wider = after("alter table orders alter note type varchar(20)")
    assert wider.fingerprint.facts["relfilenode"] == 200
    narrower = after("alter table orders alter note type varchar(20), alter note type varchar(10)")
    assert narrower.fingerprint.facts["relfilenode"] != 200


@pytest.mark.parametrize("rewriting", ["ALTER n TYPE bigint", "ADD x int DEFAULT random()"])
def test_a_new_file_writes_the_columns_whose_old_values_the_catalog_stored(rewriting: str) -> None:
    """Nothing distinguishes such a rewrite from USING, which gives a column other values."""
    added = after("ALTER TABLE orders ADD stored int DEFAULT 5")
    facts = {**added.fingerprint.facts, "relfilenode": 200}
    facts["columns"]["5"]["written"] = "2"
    then = planned(
        added.table,
        Fingerprint(facts),
        read_ddl(f"ALTER TABLE orders {rewriting}", ID),
        Lookups(TYPES.__getitem__, volatile, {}),
    )
    columns = {column.name: column for column in then.table.columns}
    assert columns["stored"].old_values == (None,)
    written = {one["name"]: one["written"] for one in then.fingerprint.facts["columns"].values()}
    assert (written["note"], written["stored"]) == ("1", "planned")


def test_the_description_is_left_alone() -> None:
    after("alter table orders add x int, drop column n")
    assert sorted(FACTS["columns"]) == ["1", "2", "4"]
    assert len(TABLE.columns) == 3


@pytest.mark.parametrize(
    "ddl",
    [
        "alter table orders drop column missing",
        "alter table orders add n int",
        "alter table orders drop constraint missing",
        "alter table orders alter missing type text",
    ],
)
def test_statements_that_do_not_fit_are_refused(ddl: str) -> None:
    with pytest.raises(DdlError, match="do not fit table"):
        after(ddl)
