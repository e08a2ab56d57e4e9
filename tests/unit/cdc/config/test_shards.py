"""Which source tables feed one lake table, and the names of the shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cdc.config import Config
from cdc.config.patterns import Pattern, matches
from cdc.errors import ConfigError
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal

ORDERS = {"from": ["shop_*.orders", "shop_*.orders_[0-9]+"], "shard": "{schema}.{table}"}


def config(tables: Mapping[str, Any], **more: Any) -> Config:
    return Config.model_validate({**minimal(), "tables": tables, **more})


def table(config: Config, schema: str, name: str) -> TableId:
    return TableId(next(iter(config.sources)), schema, name)


@pytest.mark.parametrize(
    ("name", "pattern", "covered"),
    [
        ("orders_17", "orders_[0-9]+", True),
        ("orders_", "orders_[0-9]+", False),
        ("orders_1x", "orders_[0-9]+", False),
        ("orders_1", "orders_[0-9]", True),
        ("orders_17", "orders_[0-9]", False),
        ("orders_x", "orders_[!0-9]+", True),
        ("a]b", "a[]]b", True),
        ("a^b", "a[^]b", True),
        ("a+b", "a+b", True),
        ("aab", "a+b", False),
        ("a.b", "a?b", True),
        ("a\nb", "a*", True),
        ("Orders", "orders", False),
        ("b", "[z-a]", False),
        ("[", "[", True),
    ],
)
def test_names_and_patterns(name: str, pattern: str, covered: bool) -> None:
    assert matches(name, pattern) is covered


def test_a_pattern_of_shards_is_read_as_any_other() -> None:
    pattern = Pattern.parse("db1:shop_*.orders_[0-9]+")
    assert pattern.matches(TableId("db1", "shop_eu", "orders_9"))
    assert not pattern.matches(TableId("db2", "shop_eu", "orders_9"))


def test_settings_and_paths_of_a_shard() -> None:
    found = config({"sales.orders": {**ORDERS, "tier": "bulk"}, "*.orders_7": {"chunk_rows": 5}})
    mine = table(found, "shop_eu", "orders_7")
    shard = found.shard(mine)
    assert shard is not None
    assert (shard.of, shard.name, shard.column) == ("sales.orders", "shop_eu.orders_7", "_shard")
    assert shard.base_path == f"{found.lake.url}/sales/orders"
    assert found.table_path(mine) == f"{found.lake.url}/sales/orders/_shards/shop_eu.orders_7"
    settings = found.table_settings(mine)
    assert (settings.tier, settings.chunk_rows) == ("bulk", 5)
    other = table(found, "crm", "orders")
    assert found.shard(other) is None
    assert found.table_settings(other).tier == "default"
    assert found.sharded == {"sales.orders"}


def test_a_shards_name_never_leaves_its_folder() -> None:
    found = config({"o": {"from": ["*.*"], "shard": "../{table}"}})
    path = found.table_path(table(found, "s", "../../x"))
    assert path.startswith(f"{found.lake.url}/o/_shards/")
    assert ".." not in path.removeprefix(f"{found.lake.url}/o/_shards/").split("/")
    assert "/" not in path.removeprefix(f"{found.lake.url}/o/_shards/")


def test_a_table_that_would_feed_two_is_refused() -> None:
    found = config({"a": {"from": ["*.orders"]}, "b": {"from": ["shop.*"]}})
    with pytest.raises(ConfigError, match="would feed more than one lake table: a, b"):
        found.shard(table(found, "shop", "orders"))


@pytest.mark.parametrize(
    ("tables", "where", "reason"),
    [
        ({"a-b": {"from": ["s.t"]}}, "a-b", "letters, digits and _"),
        ({"a.b.c": {"from": ["s.t"]}}, "a.b.c", "letters, digits and _"),
        ({"a": {"from": ["nowhere:s.t"]}}, "a.from.0", "names no configured source"),
        ({"a": {"from": ["t"]}}, "a.from.0", "source:schema.table"),
        ({"a": {"from": ["s.t"], "shard": "{tier}"}}, "a.shard", "unknown placeholder"),
        ({"a": {"from": ["s.t"], "name": "x/{table}"}}, "a.name", "unknown placeholder"),
        ({"a": {"from": ["s.t"], "name": "../x"}}, "a.name", "without empty, . or .. parts"),
        (
            {"a": {"from": ["s.t"], "mode": "append"}},
            "a.mode",
            "lake table of several source tables",
        ),
    ],
)
def test_sections_that_cannot_work(tables: dict[str, Any], where: str, reason: str) -> None:
    found = config({})
    broken = Config.model_construct(**{**dict(found), "tables": config_tables(tables)})
    told = {".".join(path): why for path, why in broken.conflicts()}
    assert reason in told[f"tables.{where}"]


def config_tables(tables: dict[str, Any]) -> dict[str, Any]:
    from cdc.config import TableSettings

    return {name: TableSettings.model_validate(values) for name, values in tables.items()}


def test_a_catalog_needs_a_database_and_the_defaults_take_no_from() -> None:
    found = config({})
    broken = Config.model_construct(
        **{
            **dict(found),
            "catalog": object(),
            "tables": config_tables({"orders": {"from": ["s.t"]}}),
            "defaults": config_tables({"x": {"from": ["s.t"]}})["x"],
        }
    )
    told = dict(broken._shard_conflicts())
    assert "database.table" in told[("tables", "orders")]
    assert "only in sections under tables" in told[("defaults", "from")]
