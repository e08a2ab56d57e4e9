"""What the columns of a table are that several shards feed."""

from __future__ import annotations

import pytest

from schemas.errors import SchemaError
from schemas.widening import merged_types


def test_columns_are_as_wide_as_the_widest_of_the_shards() -> None:
    parts = [
        ("eu", [("id", "int"), ("price", "decimal(10,2)")]),
        ("us", [("id", "bigint"), ("price", "decimal(8,1)"), ("note", "string")]),
        ("as", [("note", "string"), ("id", "smallint")]),
    ]
    assert merged_types(parts) == {"id": "bigint", "price": "decimal(10,2)", "note": "string"}
    assert merged_types(reversed(parts)) == merged_types(parts)
    assert merged_types([]) == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [("int", "string"), ("date", "timestamp"), ("decimal(10,2)", "decimal(10,4)")],
)
def test_types_that_do_not_go_together_name_both_shards(one: str, other: str) -> None:
    with pytest.raises(SchemaError, match=r"'c' is .* in shard us and .* in shard eu"):
        merged_types([("eu", [("c", one)]), ("us", [("c", other)])])
