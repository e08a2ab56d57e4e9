"""Which tables and tiers DAGs get of tributary.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tributary_airflow import assets
from tributary_airflow.layout import LayoutError, Table, TablePlan, layout_of, read

CANARY = "canary-4711"
SHOP = {"shop": {"kind": "postgres"}}


def plans(tables: dict[str, Any], *more: str, **sections: Any) -> list[TablePlan]:
    return list(layout_of({"sources": SHOP, "tables": tables, **sections}, more).tables)


def test_tables_that_are_named_one_by_one_have_tasks_and_others_do_not() -> None:
    found = plans(
        {
            "public.orders": {},
            "public.*": {},
            "shop:public.items": None,
            'public."Odd.Name"': {},
            "all_orders": {"from": ["public.part_1", "public.part_[0-9]"]},
        }
    )
    assert [str(one.table) for one in found] == [
        'shop:public."Odd.Name"',
        "shop:public.items",
        "shop:public.orders",
        "shop:public.part_1",
    ]


def test_a_table_that_only_a_pattern_matches_has_tasks_if_it_is_asked_for() -> None:
    (found,) = plans({"public.*": {"tier": "hot"}}, "public.orders")
    assert (str(found.table), found.tier) == ("shop:public.orders", "hot")


def test_with_several_sources_only_names_with_a_source_are_tables() -> None:
    document = {
        "sources": {"a": {}, "b": {}},
        "tables": {"public.orders": {"tier": "hot"}, "a:public.items": {}, "b:public.orders": {}},
    }
    found = {str(one.table): one.tier for one in layout_of(document).tables}
    assert found == {"a:public.items": "default", "b:public.orders": "hot"}


def test_settings_are_those_of_the_most_specific_section() -> None:
    (found,) = plans(
        {
            "public.orders": {"completeness": {"zone": "Europe/Zurich"}},
            "public.*": {"tier": "hot", "completeness": "day"},
            "*": {"tier": "cold", "freshness_target_s": 60},
        },
        defaults={"tier": "other", "completeness": "hour"},
        tiers={"hot": {"freshness_target_s": 30}},
    )
    assert found == TablePlan(Table("shop", "public", "orders"), "hot", 60, "day")


def test_a_target_is_that_of_the_tier_unless_a_section_has_one() -> None:
    tiers = {"hot": {"freshness_target_s": 30}}
    hot, own = plans(
        {"public.a": {"tier": "hot"}, "public.b": {"tier": "hot", "freshness_target_s": 7}},
        tiers=tiers,
    )
    assert (hot.target_s, own.target_s) == (30, 7)
    assert plans({"public.a": {}})[0].target_s == 900


@pytest.mark.parametrize(
    ("sections", "targets"),
    [
        ({}, {"default": 900}),
        ({"tables": {"audit.*": {"tier": "bulk"}}}, {"bulk": 7200}),
        ({"tables": {"audit.*": {"tier": "bulk", "freshness_target_s": 60}}}, {"bulk": 60}),
        (
            {"tables": {"audit.*": {"tier": "bulk"}, "public.*": {}}, "defaults": {"tier": "hot"}},
            {"bulk": 7200, "hot": 900},
        ),
        (
            {"tables": {"public.a": {"tier": "bulk", "freshness_target_s": 9}, "*": None}},
            {"bulk": 9, "default": 900},
        ),
        (
            {"tables": {"*": {"tier": "bulk"}, "audit.*": {"freshness_target_s": 60}}},
            {"bulk": 60},
        ),
    ],
)
def test_a_tier_whose_tables_only_patterns_match_has_runs(
    sections: dict[str, Any], targets: dict[str, int]
) -> None:
    """Without a run of their tier, such tables are copied once and never change again."""
    tiers = {"bulk": {"freshness_target_s": 7200}, "unused": {"freshness_target_s": 1}}
    assert layout_of({"sources": SHOP, "tiers": tiers, **sections}).targets == targets


def test_a_pattern_that_is_onboarded_has_a_tier() -> None:
    document = {"sources": SHOP, "tables": {"public.a": {"tier": "hot"}}}
    assert layout_of(document, (), ["*"]).targets == {"hot": 900, "default": 900}
    assert layout_of(document, (), ["public.b"]).targets == {"hot": 900, "default": 900}
    document["tables"] = {"shop:public.*": {"tier": "hot"}}
    assert layout_of(document, (), ["public.*"]).targets == {"hot": 900}


@pytest.mark.parametrize(
    "text",
    ["[]", "a: [", f"a: &{CANARY} [*other]", "tables: {public.a: {tier: '${TIER}'}}"],
)
def test_a_file_that_no_dag_can_be_made_of_is_an_error_without_its_text(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "tributary.yaml"
    file.write_text(text if "tables" not in text else f"sources: {{shop: {{}}}}\n{text}")
    with pytest.raises(LayoutError) as raised:
        read(file)
    assert CANARY not in str(raised.value)
    with pytest.raises(LayoutError, match="cannot be read"):
        read(tmp_path / "none.yaml")


@pytest.mark.parametrize("text", ["orders", "a.b.c", "public.", '"public.orders', "a:b:c.d", ""])
def test_what_names_no_table_is_an_error(text: str) -> None:
    with pytest.raises(LayoutError, match="does not name a table"):
        plans({}, text)


def test_the_assets_of_tables_are_all_different_and_keep_the_names() -> None:
    tables = [
        "shop:public.orders",
        'shop:public."Orders"',
        'shop:"a/b".c',
        'shop:a."b/c"',
        'shop:p."ö#?"',
    ]
    made = [
        of(table, name)
        for table in tables
        for name in ("one", "two")
        for of in (assets.changed, assets.complete)
    ]
    assert len({asset.uri for asset in made}) == len({asset.name for asset in made}) == len(made)
    assert made[0].uri == "tributary://one/shop/public/orders/changed"
    assert made[1].name == "one/shop:public.orders/complete"
