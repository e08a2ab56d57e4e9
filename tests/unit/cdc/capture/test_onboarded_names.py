"""A table keeps the capture and folder of its onboarding; settings that change them are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.capture.onboarded_names import capture_of, require_as_onboarded
from cdc.config import Config, parse
from cdc.errors import ConfigError
from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.onboard import register
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

ORDERS = TableId("shop", "public", "orders")


def config(base: Path, changes: dict[str, Any] | None = None, **of_source: str) -> Config:
    document = {**minimal(), **(changes or {})}
    document["sources"]["shop"] |= of_source
    return parse(yaml.safe_dump(document), base=base)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """The services of a process that has onboarded one table."""
    opened = Services(config(tmp_path), NullProgress())
    register(opened, ORDERS)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("setting", "was"),
    [
        ("topic_prefix", "shop_default"),
        ("publication", "tributary_shop_default"),
        ("slot", "tributary_shop_default"),
    ],
)
def test_another_name_of_the_capture_is_refused_and_the_former_one_is_used(
    services: Services, tmp_path: Path, setting: str, was: str
) -> None:
    record = services.store.get(ORDERS)
    assert record is not None
    require_as_onboarded(services.config, record)
    edited = config(tmp_path, **{setting: "v2_{source}_{tier}"})
    assert capture_of(edited, record) == services.capture(ORDERS)
    with pytest.raises(ConfigError) as refused:
        require_as_onboarded(edited, record)
    assert (
        refused.value.message == "table shop:public.orders was onboarded with other names of its"
        f" capture: sources.shop.{setting} gave {was} then, and gives v2_shop_default now"
    )
    assert refused.value.context["field"] == f"sources.shop.{setting}"
    assert f"Set sources.shop.{setting} back" in refused.value.remedy


def test_all_names_that_were_edited_are_named(services: Services, tmp_path: Path) -> None:
    record = services.store.get(ORDERS)
    assert record is not None
    edited = config(tmp_path, topic_prefix="other_{tier}", slot="other_{tier}")
    with pytest.raises(ConfigError) as refused:
        require_as_onboarded(edited, record)
    assert "Set sources.shop.topic_prefix and sources.shop.slot back" in refused.value.remedy


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"lake": {"url": "s3a://elsewhere/lake"}}, "lake.url"),
        ({"tables": {"public.orders": {"name": "sales/orders"}}}, "name"),
    ],
)
def test_another_folder_is_refused(
    services: Services, tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    record = services.store.get(ORDERS)
    assert record is not None
    with pytest.raises(ConfigError, match=r"was onboarded to .*/shop/public/orders") as refused:
        require_as_onboarded(config(tmp_path, changes), record)
    assert refused.value.context["field"] == field


def test_a_source_that_left_the_configuration_is_another_error(
    services: Services, tmp_path: Path
) -> None:
    """`Config.source` raises the error, with a remedy of its own."""
    record = services.store.get(ORDERS)
    assert record is not None
    document = minimal()
    document["sources"] = {"crm": document["sources"]["shop"]}
    require_as_onboarded(parse(yaml.safe_dump(document), base=tmp_path), record)
