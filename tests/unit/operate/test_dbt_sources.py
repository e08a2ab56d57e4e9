"""The dbt sources of the tables: names for readers, freshness, and tests from data checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cdc.config import Config, parse
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import State
from operate.cli import app
from operate.context import Services
from operate.dbt_sources import dbt_sources
from operate.exit_codes import ExitCode
from schemas.table import Shard, TableId
from tests.records import ATTEMPT, ORDERS, table_record
from tests.unit.cdc.configuration import minimal

CUSTOMERS = TableId("shop", "public", "customers")
CHECKS = {
    "whole": {"kind": "not_null", "columns": ["id", "amount"], "policy": "report"},
    "numbers": {"kind": "unique", "columns": ["number"]},
    "pairs": {"kind": "unique", "columns": ["id", "number"]},
    "states": {"kind": "accepted_values", "columns": ["state"], "values": ["open", "1"]},
    "flags": {"kind": "accepted_values", "columns": ["flag"], "values": [True, 1.5]},
    "amounts": {"kind": "range", "columns": ["amount"], "min": 0},
    "days": {"kind": "range", "columns": ["day"], "max": "2030-01-01"},
    "customers": {
        "kind": "reference",
        "columns": ["customer"],
        "references": {"table": "public.customers", "columns": ["id"]},
    },
    "rows": {"kind": "volume"},
    "equal": {"kind": "verify"},
    "off": {"kind": "not_null", "columns": ["off"], "enabled": False},
}


def config(checks: dict[str, Any] | None = None, **more: Any) -> Config:
    document = minimal()
    document["defaults"] = {"freshness_target_s": 900}
    document["tables"] = {"public.orders": {"checks": CHECKS if checks is None else checks}}
    return parse(yaml.safe_dump({**document, **more}))


def tables(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{source['name']}.{table['name']}": table
        for source in found["sources"]
        for table in source["tables"]
    }


FOLLOWED = table_record(attempt=ATTEMPT)


def test_checks_become_tests_of_dbt() -> None:
    found = dbt_sources(config(), [FOLLOWED])
    assert found["version"] == 2
    (source,) = found["sources"]
    assert (source["name"], source["schema"]) == ("shop_public", "public")
    (table,) = source["tables"]
    assert table["config"] == {
        "loaded_at_field": "_cdc_ingested_at",
        "freshness": {
            "warn_after": {"count": 15, "period": "minute"},
            "error_after": {"count": 60, "period": "minute"},
        },
    }
    warning = {"config": {"severity": "warn"}}
    assert {one["name"]: one["data_tests"] for one in table["columns"]} == {
        "id": [{"not_null": warning}],
        "amount": [{"not_null": warning}],
        "number": ["unique"],
        "state": [{"accepted_values": {"arguments": {"values": ["open", "1"]}}}],
        "flag": [{"accepted_values": {"arguments": {"values": ["true", "1.5"], "quote": False}}}],
        "customer": [
            {
                "relationships": {
                    "arguments": {"to": "source('shop_public', 'customers')", "field": "id"}
                }
            }
        ],
    }
    assert "data_tests" not in table


def test_other_checks_need_a_package_of_dbt() -> None:
    (table,) = tables(dbt_sources(config(), [FOLLOWED], with_utils=True)).values()
    columns = {one["name"]: one["data_tests"] for one in table["columns"]}
    assert {"dbt_utils.accepted_range": {"arguments": {"min_value": "0"}}} in columns["amount"]
    assert columns["day"] == [
        {"dbt_utils.accepted_range": {"arguments": {"max_value": "'2030-01-01'"}}}
    ]
    assert table["data_tests"] == [
        {
            "dbt_utils.unique_combination_of_columns": {
                "arguments": {"combination_of_columns": ["id", "number"]}
            }
        }
    ]


def test_a_check_of_the_freshness_gives_the_limit_of_errors() -> None:
    fresh = {"fresh": {"kind": "freshness", "max_age": "10m"}}
    (table,) = tables(dbt_sources(config(fresh), [FOLLOWED])).values()
    ages = table["config"]["freshness"]
    assert [ages[name]["count"] for name in ("warn_after", "error_after")] == [10, 10]
    assert "columns" not in table


def test_only_tables_that_readers_see_are_sources() -> None:
    records = [
        FOLLOWED,
        table_record(CUSTOMERS, State.BOOTSTRAPPING, attempt=ATTEMPT),
        table_record(TableId("shop", "public", "gone"), State.RETIRED, attempt=ATTEMPT),
        table_record(
            TableId("shop", "public", "held"),
            State.PAUSED,
            attempt=ATTEMPT,
            resume_to=State.INCREMENTAL,
        ),
    ]
    assert set(tables(dbt_sources(config(), records))) == {"shop_public.held", "shop_public.orders"}
    assert dbt_sources(config(), []) == {"version": 2, "sources": []}


def test_names_are_those_of_the_catalog_and_shards_are_one_table() -> None:
    catalog = {"metastore": "thrift://m:9083", "database": "lake_{schema}", "table": "{table}"}
    named = config(catalog=catalog)
    found = tables(dbt_sources(named, [FOLLOWED]))
    assert set(found) == {"lake_public.orders"}
    document = minimal()
    document["tables"] = {
        "sales.orders": {"from": ["shop_*.orders"], "shard": "{schema}"},
    }
    shards = [
        table_record(
            TableId("shop", f"shop_{one}", "orders"),
            attempt=ATTEMPT,
            shard=Shard("sales.orders", f"shop_{one}", "_shard", "lake/sales.orders"),
        )
        for one in "ab"
    ]
    found = tables(dbt_sources(parse(yaml.safe_dump(document)), shards))
    assert set(found) == {"sales.orders"}


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    document = minimal()
    document["state"] = {"url": f"sqlite:///{tmp_path / 'state.db'}"}
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.chdir(tmp_path)
    opened = Services(parse(yaml.safe_dump(document), base=tmp_path), NullProgress())
    yield opened
    opened.close()


def test_the_command_prints_yaml(services: Services) -> None:
    services.store.put(FOLLOWED)
    services.store.put(table_record(CUSTOMERS, attempt=ATTEMPT))
    shown = CliRunner().invoke(app, ["export", "dbt-sources"])
    assert shown.exit_code == ExitCode.OK
    assert set(tables(yaml.safe_load(shown.stdout))) == {
        "shop_public.customers",
        "shop_public.orders",
    }
    one = CliRunner().invoke(app, ["export", "dbt-sources", str(ORDERS)])
    assert set(tables(yaml.safe_load(one.stdout))) == {"shop_public.orders"}
