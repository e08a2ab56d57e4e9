"""The shop of the demo has the same tables and writers on every kind of source."""

from __future__ import annotations

import re

import pytest

from operate.cli.options import SourceKindOption
from operate.demo.kinds import SHOPS
from operate.demo.shop import KEYLESS, TABLES, ShopKind
from operate.demo.story import Results
from schemas.catalog import SOURCE_KINDS
from stack.layout import KINDS

NAMED = re.compile(r"\b(?:INTO|UPDATE|FROM|TABLE(?: IF EXISTS)?) (?:shop\.)(\w+)")
CREATED = re.compile(r"CREATE TABLE shop\.(\w+) \((.*?)\n *\)", re.DOTALL)

every_shop = pytest.mark.parametrize("shop", SHOPS.values(), ids=list(SHOPS))


def tables(shop: ShopKind) -> dict[str, str]:
    return dict(CREATED.findall("\n".join(shop.create)))


def test_there_is_a_shop_on_every_kind_that_a_stack_can_have() -> None:
    assert list(SHOPS) == list(KINDS) == list(SOURCE_KINDS)
    assert [kind.value for kind in SourceKindOption] == list(SOURCE_KINDS)
    assert [shop.kind for shop in SHOPS.values()] == list(SHOPS)


@every_shop
def test_a_shop_has_the_demos_tables_and_one_without_a_key(shop: ShopKind) -> None:
    created = tables(shop)
    assert set(created) == {*TABLES, KEYLESS}
    assert {name for name, columns in created.items() if "PRIMARY KEY" not in columns} == {KEYLESS}
    assert "PRIMARY KEY (order_id, line)" in created["order_lines"], "a composite key"


@every_shop
def test_every_table_is_filled(shop: ShopKind) -> None:
    filled = [name for text in shop.fill for name in re.findall(r"INSERT INTO shop\.(\w+)", text)]
    assert sorted(filled) == sorted((*TABLES, KEYLESS))


@every_shop
def test_the_writers_do_the_same_everywhere(shop: ShopKind) -> None:
    assert all(deed.weight > 0 for deed in shop.deeds)
    some = next(iter(SHOPS.values()))
    assert [(d.name, d.weight) for d in shop.deeds] == [(d.name, d.weight) for d in some.deeds]
    for deed in shop.deeds:
        touched = set()
        for statement in deed.statements:
            # Percent signs are doubled, and no other parameter is asked for.
            touched |= set(NAMED.findall(statement % {"n": 1, "r": 2}))
        assert touched, deed
        assert touched <= set(TABLES), deed
    assert {name for d in shop.deeds for s in d.statements for name in NAMED.findall(s)} == {
        *TABLES
    }


@every_shop
def test_a_witness_is_a_row_of_a_table_that_travels(shop: ShopKind) -> None:
    created = tables(shop)
    for witness in shop.witnesses:
        assert witness.table in TABLES
        for change in witness.changes:
            assert NAMED.findall(change) == [witness.table]
        added = re.findall(r"ADD COLUMN (\w+)", " ".join(witness.changes))
        columns = re.findall(r"^ *([a-z_]+) ", created[witness.table], re.MULTILINE)
        assert set(witness.columns) <= {*columns, *added}
    assert len({witness.table for witness in shop.witnesses}) == len(shop.witnesses)


def test_nothing_verified_is_no_success() -> None:
    assert not Results(SHOPS["mariadb"]).ok
