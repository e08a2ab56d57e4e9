"""Two tables never share a folder of the lake, with any names and any configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cdc.config import parse
from cdc.errors import ConfigError
from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.onboard import register
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal


def services(tmp_path: Path, **names: str) -> Services:
    document = minimal()
    document["tables"] = {f"public.{table}": {"name": name} for table, name in names.items()}
    return Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())


def table(name: str) -> TableId:
    return TableId("shop", "public", name)


def test_tables_with_folders_of_their_own_are_registered(tmp_path: Path) -> None:
    opened = services(tmp_path)
    for name in ("orders", "order", "orders_2"):
        assert register(opened, table(name)).action == "registered"
    opened.close()


@pytest.mark.parametrize("second", ["sales", "sales/2026", "SALES"])
def test_a_folder_that_another_table_has_is_refused(tmp_path: Path, second: str) -> None:
    opened = services(tmp_path, orders="sales", customers=second)
    register(opened, table("orders"))
    with pytest.raises(ConfigError, match=r"overlaps with the path of table shop:public\.orders"):
        register(opened, table("customers"))
    assert opened.store.get(table("customers")) is None
    opened.close()


def test_names_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    opened = services(tmp_path)
    register(opened, table("orders"))
    with pytest.raises(ConfigError):
        register(opened, table("Orders"))
    opened.close()
