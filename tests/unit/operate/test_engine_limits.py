from __future__ import annotations

import pytest

from cdc.config.partitions import partition_field
from operate.engine_limits import EngineLimits, partition_limits
from schemas.table import Column, TableId, TableSchema

SCHEMA = TableSchema(
    TableId("shop", "public", "orders"),
    (
        Column("id", "int", "int", nullable=False),
        Column("region", "text", "string"),
        Column("day", "date", "date"),
        Column("shop", "int", "int"),
        Column("price", "numeric(10)", "decimal(10,0)"),
        Column("branch", "int", "int", nullable=False),
    ),
    ("id",),
)


def limits(*by: str) -> EngineLimits:
    return partition_limits(SCHEMA, [partition_field(one) for one in by])


@pytest.mark.parametrize("by", [(), ("day",), ("branch",), ("day", "branch")])
def test_partitions_that_each_engine_shows_as_they_are_have_no_limits(by: tuple[str, ...]) -> None:
    assert limits(*by) == EngineLimits()


def test_a_partition_column_of_texts_has_a_note() -> None:
    found = limits("region", "branch")
    assert found.notes == (
        "Trino shows some texts of partition column region encoded, for example a%2Fb for a/b",
    )
    assert not found.problem


def test_a_partition_column_of_numbers_with_null_is_a_problem() -> None:
    found = limits("shop", "price", "region")
    assert found.problem == "Trino fails at rows with NULL in partition columns shop, price"
    assert "NOT NULL" in found.remedy
    assert len(found.notes) == 1
