"""Names that two captures must not share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.debezium import CaptureNames
from cdc.errors import CaptureError
from operate.tier_capture import refuse_shared_names

ONE = CaptureNames("shop", "default", "p1", "s1", "c1", "shop_default", "postgres")
OTHER = CaptureNames("shop", "slow", "p2", "s2", "c2", "shop_slow", "postgres")


def test_captures_with_names_of_their_own_are_accepted() -> None:
    refuse_shared_names([ONE, OTHER])


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("connector", "c1"),
        ("publication", "p1"),
        ("topic_prefix", "shop_default"),
        ("topic_prefix", "shop.default"),
    ],
)
def test_two_tiers_with_one_name_are_refused(field: str, name: str) -> None:
    with pytest.raises(CaptureError, match="shop/default and shop/slow would share") as refused:
        refuse_shared_names([ONE, replace(OTHER, **{field: name})])

    assert name in str(refused.value)
    assert "publication" in str(refused.value.remedy)


def test_publications_of_two_databases_may_have_one_name() -> None:
    refuse_shared_names([ONE, replace(OTHER, source="mail", publication="p1")])


def test_sources_without_publications_share_none() -> None:
    first = replace(ONE, publication=None, slot=None, kind="mysql")
    refuse_shared_names([first, replace(OTHER, publication=None, slot=None, kind="mysql")])
