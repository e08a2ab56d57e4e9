from __future__ import annotations

import pytest

from schemas.evolution import AddColumn, ChangeType, DropColumn, WidenType, changes, widens
from schemas.table import Column, TableId, TableSchema


def table(**columns: str) -> TableSchema:
    listed = tuple(Column(name, kind, kind) for name, kind in columns.items())
    return TableSchema(TableId("s", "public", "t"), listed, ())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "bigint"),
        ("float", "double"),
        ("decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(12,4)"),
    ],
)
def test_wider_types_hold_every_value(old: str, new: str) -> None:
    assert widens(old, new)
    assert not widens(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "string"),
        ("int", "double"),
        ("bigint", "double"),
        ("decimal(10,2)", "decimal(10,4)"),
        ("decimal(10,2)", "decimal(11,1)"),
        ("int", "decimal(12,0)"),
        ("string", "int"),
        ("timestamp", "timestamp_ntz"),
    ],
)
def test_other_types_do_not(old: str, new: str) -> None:
    assert not widens(old, new)


def test_changes_are_named_in_order() -> None:
    lake = {"id": "int", "gone": "string", "n": "int", "t": "string"}
    assert changes(lake, table(id="int", n="bigint", t="int", fresh="date")) == [
        DropColumn("gone"),
        WidenType("n", "int", "bigint"),
        ChangeType("t", "string", "int"),
        AddColumn("fresh", "date"),
    ]


def test_equal_columns_need_nothing() -> None:
    assert changes({"id": "int"}, table(id="int")) == []
