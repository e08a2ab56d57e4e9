from __future__ import annotations

import pytest

from schemas.errors import DdlError
from schemas.planned_ddl.column_clauses import Drop, Rename
from schemas.planned_ddl.postgres_statements import (
    Action,
    Add,
    AddKey,
    Default,
    DropConstraint,
    Leave,
    Retype,
    SetDefault,
    SetIdentity,
    SetNullable,
    read_ddl,
)
from schemas.table import TableId

TABLE = TableId("shop", "public", "orders")


@pytest.mark.parametrize(
    ("ddl", "actions"),
    [
        ("ALTER TABLE orders ADD x int", [Add("x", "INT")]),
        (
            "alter table only public.orders add column if not exists X int not null default 5",
            [Add("x", "INT", nullable=False, default=Default("5"), if_missing=True)],
        ),
        ("alter table orders add x int default null", [Add("x", "INT")]),
        (
            "alter table orders add x uuid default gen_random_uuid()",
            [
                Add(
                    "x",
                    "UUID",
                    default=Default("GEN_RANDOM_UUID()", frozenset({"gen_random_uuid"})),
                )
            ],
        ),
        (
            "alter table orders add x timestamptz default now()",
            [Add("x", "TIMESTAMPTZ", default=Default("CURRENT_TIMESTAMP"))],
        ),
        ("alter table orders add x serial", [Add("x", "integer", nullable=False, rewrites=True)]),
        (
            "alter table orders add x int generated always as identity",
            [Add("x", "INT", nullable=False, rewrites=True)],
        ),
        (
            "alter table orders add x int generated always as (a * 2) stored",
            [Add("x", "INT", generated=True)],
        ),
        (
            'alter table orders drop column "X y", drop if exists z',
            [Drop("X y"), Drop("z", if_there=True)],
        ),
        ("alter table orders rename column a to B", [Rename("a", "b")]),
        ("alter table orders alter a type bigint using a::bigint", [Retype("a", "BIGINT")]),
        ("alter table orders alter a set data type text", [Retype("a", "TEXT")]),
        ("alter table orders alter a type int using a * 2", [Retype("a", "INT", "a * 2")]),
        (
            "alter table orders alter a set not null, alter a drop not null",
            [SetNullable("a", nullable=False), SetNullable("a", nullable=True)],
        ),
        (
            "alter table orders alter a set default 7, alter a drop default",
            [SetDefault("a", "7"), SetDefault("a", None)],
        ),
        ("alter table orders add constraint p primary key (a, b)", [AddKey(("a", "b"))]),
        ("alter table orders drop constraint orders_pkey", [DropConstraint("orders_pkey")]),
        ("alter table orders replica identity full", [SetIdentity("full")]),
        ("alter table orders replica identity using index i", [SetIdentity("index")]),
        ("alter table orders set schema other", [Leave("is moved to another schema")]),
        ("drop table orders", [Leave("is dropped")]),
        (
            "begin; alter table orders add x int; update orders set x = 1; commit",
            [Add("x", "INT")],
        ),
    ],
)
def test_statements_become_actions(ddl: str, actions: list[Action]) -> None:
    assert list(read_ddl(ddl, TABLE)) == actions


@pytest.mark.parametrize(
    "ddl",
    [
        "create index concurrently i on orders (a)",
        "comment on column orders.a is 'b'",
        "alter table orders add constraint c check (a > 0) not valid",
        "alter table orders add foreign key (a) references b (id)",
        "alter table orders validate constraint c",
        "alter table orders owner to someone",
        "alter table orders disable trigger all",
        "alter table orders alter column a set storage external",
        "alter table orders alter a set statistics 100",
        "alter table orders cluster on i",
        "truncate orders",
    ],
)
def test_what_changes_no_column_is_no_action(ddl: str) -> None:
    assert read_ddl(ddl, TABLE) == ()


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("selec 1", "cannot be parsed"),
        ("alter table orders alter a type text using 1, nonsense b", "not understood"),
        ("alter table orders attach partition p for values in (1)", "attach partition"),
        ("alter table orders alter a set storage plain; drop table b", "another table"),
        ("alter table orders owner to me, add x int", "not understood"),
        ("alter table other add x int", "another table"),
        ("alter table sales.orders add x int", "another schema"),
        ('alter table "Orders" add x int', "another table"),
        ("create table b (a int)", "only ALTER TABLE"),
        ("vacuum full orders", "only ALTER TABLE"),
        ("do $$ begin end $$", "only ALTER TABLE"),
        ("alter table orders add x int primary key", "new key"),
        ("alter table orders set logged", "refuses"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(ddl: str, why: str) -> None:
    with pytest.raises(DdlError, match=why) as caught:
        read_ddl(ddl, TABLE)
    assert "shop:public.orders" in caught.value.message
