"""Columns that the settings name and the table has not."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.config import TableSettings
from cdc.sources.selection import not_there, require_named
from cdc.sources.values import SourceColumn, SourceTable
from schemas.errors import SchemaError
from schemas.table import TableId
from schemas.types_postgres import PostgresType


def table(*names: str) -> SourceTable:
    return SourceTable(
        table=TableId("shop", "public", "t"),
        oid=1,
        kind="table",
        columns=tuple(
            SourceColumn(name, PostgresType("text"), number, True, False, None)
            for number, name in enumerate(names, 1)
        ),
        primary_key=("id",),
        unique_indexes=(("id",),),
        replica_identity="default",
        identity_columns=("id",),
        rows_estimate=0,
        total_bytes=0,
        owner="o",
    )


def settings(**columns: Any) -> TableSettings:
    return TableSettings.model_validate({"columns": columns})


@pytest.mark.parametrize("names", [("id", "a"), ("id", "b"), ("id", "c")])
def test_a_rule_for_every_name_of_a_column_needs_one_of_them(names: tuple[str, ...]) -> None:
    wanted = settings(mask=["a", "b", "c"], renames={"b": "a", "c": "b"})
    assert not_there(table(*names), wanted) == ()
    require_named(table(*names), wanted)


def test_a_rule_for_a_name_to_come_does_not_cover_the_name_of_now() -> None:
    """The values would reach the lake as they are."""
    wanted = settings(mask=["b"], hash=["a"], renames={"b": "a"})
    assert not_there(table("id", "a"), wanted) == ("b",)
    with pytest.raises(SchemaError, match="'b'"):
        require_named(table("id", "a"), wanted)


def test_an_entry_alone_may_wait() -> None:
    assert not_there(table("id", "a"), settings(renames={"y": "x"})) == ()
