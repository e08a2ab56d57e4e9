"""The columns of a lake table that several shards with different columns feed."""

from __future__ import annotations

import pytest

from schemas.catalog import CatalogColumn
from schemas.errors import SchemaError
from schemas.widening import keeps_rows, loses_letters, merged_types, same_for_expressions


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


@pytest.mark.parametrize(
    ("kind", "before", "after", "lost"),
    [
        ("varchar(9)", "latin2", "utf8mb4", False),
        ("varchar(9)", "latin1", "utf8mb4", True),
        ("varchar(9)", "sjis", "utf8mb4", True),
        ("varchar(9)", "utf8mb4", "latin1", True),
        ("tinytext", "latin1", "utf8mb4", True),
        ("text", "utf8mb3", "utf8mb4", False),
        ("text", "utf8mb4", "utf8mb4", False),
        ("int", "", "", False),
    ],
)
def test_a_character_set_may_lack_letters_or_room(
    kind: str, before: str, after: str, *, lost: bool
) -> None:
    old, new = (
        CatalogColumn(1, "c", kind, True, None, False, f"{kind} {name}".strip())
        for name in (before, after)
    )
    assert loses_letters(old, new) is lost


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [("utf8", "utf8mb3", True), ("utf8mb3", "utf8mb4", False), ("utf8", "latin1", False)],
)
def test_a_character_set_that_a_later_server_prints_by_another_name_is_the_same(
    before: str, after: str, same: bool
) -> None:
    old, new = (
        CatalogColumn(1, "c", "text", True, None, False, f"text {name} {name}_bin")
        for name in (before, after)
    )
    assert same_for_expressions(old, new) is same


@pytest.mark.parametrize(
    ("new", "kept"),
    [
        ("('a','b')", True),
        ("('a','b','c')", True),
        ("('a','b','')", True),
        ("('a','b''c')", False),
        ("('a','b'',''c')", False),
        ("('a')", False),
        ("('b','a')", False),
    ],
)
@pytest.mark.parametrize("kind", ["enum", "set"])
def test_labels_are_kept_if_others_are_added_behind_them(
    kind: str, new: str, *, kept: bool
) -> None:
    assert keeps_rows(f"{kind}('a','b')", f"{kind}{new}") is kept
